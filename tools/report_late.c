/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report_late.h"

#include <stdlib.h>

static double waited_between(const struct tally__trace_rank *before,
                             const struct tally__trace_rank *after)
{
    return (double)(after->computes_ns + after->lane_ns + after->link_ns) -
           (double)(before->computes_ns + before->lane_ns + before->link_ns);
}

void report_count_late(struct late_counts *counts, const struct tally__trace_rank *before,
                       const struct tally__trace_rank *after, size_t n, double steps_ns)
{
    double most = 0;
    double second = 0;

    if (counts->n != n) {
        free(counts->of);
        counts->of = calloc(n, sizeof *counts->of);
        counts->n = counts->of ? n : 0;
    }
    for (size_t i = 0; i < n; i++) {
        double waited = waited_between(&before[i], &after[i]);

        second = waited > most ? most : waited > second ? waited : second;
        most = waited > most ? waited : most;
    }
    for (size_t i = 0; i < counts->n; i++) {
        counts->of[i].n++;
        counts->of[i].n_late +=
            waited_between(&before[i], &after[i]) > second + STRAGGLER_PART * steps_ns;
    }
}

void report_add_late(struct late_count *sum, const struct late_counts *counts, size_t rank)
{
    if (rank < counts->n) {
        sum->n_late += counts->of[rank].n_late;
        sum->n += counts->of[rank].n;
    }
}

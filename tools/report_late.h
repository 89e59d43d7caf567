/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how often a rank was late, from the accounts that members write of all ranks. */
#ifndef TALLY_TOOLS_REPORT_LATE_H
#define TALLY_TOOLS_REPORT_LATE_H

#include <stddef.h>

#include "trace/trace_format.h"

/* The others wait for a straggler for this part of the step. */
#define STRAGGLER_PART 0.1

/* The accounts in which a rank was the late one. */
struct late_count {
    size_t n_late;
    size_t n; /* all accounts that follow another */
};

/* Per rank; begins as all zero, of is freed by the caller. */
struct late_counts {
    struct late_count *of;
    size_t n;
};

/* Counts which of n ranks was late between two accounts of one member, which are steps_ns apart. If
 * memory is short, or there is another number of ranks, counting begins anew. */
void report_count_late(struct late_counts *counts, const struct tally__trace_rank *before,
                       const struct tally__trace_rank *after, size_t n, double steps_ns);

/* Adds the count of a rank. */
void report_add_late(struct late_count *sum, const struct late_counts *counts, size_t rank);

#endif

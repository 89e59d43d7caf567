/* SPDX-License-Identifier: Apache-2.0 */
/* Reads --ranks, and finds out whether MPI has started the ranks. One thread; no state. */
#include "tools/bench_ranks.h"

#include <stdio.h>

#include "tools/command.h"

int bench_ranks_read(const char *name, const char *text, struct bench_ranks *ranks)
{
    const struct rank_launch *launch = &ranks->launch;
    struct size_list *numbers = &ranks->numbers;

    if (!size_list_read(text ? text : "2", numbers)) {
        (void)fprintf(stderr, "%s: --ranks %s is not a list of numbers such as 2,8\n", name, text);
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < numbers->n; i++) {
        numbers->values[i] =
            numbers->values[i] < BENCH_RANKS_MAX ? numbers->values[i] : BENCH_RANKS_MAX;
    }
    if (rank_launch_find(&ranks->launch) != TALLY_OK) {
        (void)fprintf(stderr, "%s: %s\n", name, tally_last_error());
        return EXIT_FAILED;
    }
    if (!launch->is_launched) {
        return EXIT_DONE;
    }
    if (text && (numbers->n != 1 || numbers->values[0] != (size_t)launch->ranks)) {
        (void)fprintf(stderr, "%s: --ranks %s, but the launcher has started %d\n", name, text,
                      launch->ranks);
        return EXIT_USAGE;
    }
    *numbers = (struct size_list){.values = {(size_t)launch->ranks}, .n = 1};
    return EXIT_DONE;
}

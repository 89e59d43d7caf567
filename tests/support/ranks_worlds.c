/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a test in several worlds, and names the runs that failed. The main thread enters. */
#include <stdio.h>

#include "support/ranks.h"

int ranks_run_named(const char *name, const struct ranks *ranks, ranks_body *body, void *user)
{
    int failed = ranks_run(ranks, body, user);

    if (failed) {
        (void)fprintf(stderr, "%s, world %d, %s, %d lanes: failed\n", name, ranks->world,
                      ranks->kind == RANKS_THREADS ? "threads" : "processes", ranks->lanes);
    }
    return failed;
}

int ranks_run_worlds(const char *name, const struct ranks *ranks, const int *worlds,
                     ranks_body *body, void *user)
{
    struct ranks run = *ranks;
    int n_failures = 0;

    for (; *worlds > 0; worlds++) {
        run.world = *worlds;
        run.kind = RANKS_THREADS;
        n_failures += ranks_run_named(name, &run, body, user);
        run.kind = RANKS_PROCESSES;
        n_failures += ranks_run_named(name, &run, body, user);
    }
    return n_failures;
}

int ranks_run_lanes(const char *name, const int *worlds, ranks_body *body)
{
    int n_failures = 0;

    for (int lanes = 0; lanes <= 3; lanes += lanes ? 2 : 1) {
        const struct ranks ranks = {.lanes = lanes};

        n_failures += ranks_run_worlds(name, &ranks, worlds, body, NULL);
    }
    return n_failures;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of the profile bench: starts the ranks, each a separate process. One thread. */
#include "bench/profile_bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "bench/hooks_input.h"
#include "bench/profile_rank.h"
#include "bench/rank_team.h"

#define MAX_RANKS 64
#define TIMEOUT_S 600.0

static int check(const struct profile_bench *bench)
{
    if (bench->ranks < 2 || bench->ranks > MAX_RANKS) {
        return tally__fail(TALLY_ARG, "%d ranks are not in 2..%d", bench->ranks, MAX_RANKS);
    }
    if (bench->bytes / sizeof(float) < HOOKS_MIN_ELEMENTS) {
        return tally__fail(TALLY_ARG, "%zu bytes are too few", bench->bytes);
    }
    if (bench->n_hooks < 1 || bench->n_hooks > PROFILE_MAX_HOOKS ||
        strcmp(bench->hooks[0], "allreduce") != 0) {
        return tally__fail(TALLY_ARG, "a profile has 1 to %d hooks, and the first is allreduce",
                           PROFILE_MAX_HOOKS);
    }
    return TALLY_OK;
}

int profile_bench_run(const struct profile_bench *bench, struct profile_result *result)
{
    struct profile_run run = {.bench = bench};
    int rc;

    TRY(check(bench));
    run.result = rank_team_share(sizeof *run.result);
    if (!run.result) {
        return TALLY_NOMEM;
    }
    (void)snprintf(run.rendezvous, sizeof run.rendezvous, "@tally-profile-%ld", (long)getpid());
    rc = bench->launch.is_launched ? profile_rank(bench->launch.rank, &run)
                                   : rank_team_run(bench->ranks, profile_rank, &run, TIMEOUT_S);
    if (rc == TALLY_OK) {
        *result = *run.result;
    }
    rank_team_unshare(run.result, sizeof *run.result);
    return rc;
}

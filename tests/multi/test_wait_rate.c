/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that waits for transfers measures how fast bytes come. That takes no longer than the test,
 * however the wait ends. Groups without far ranks measure nothing.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "comm/group.h"
#include "support/ranks.h"

#define N ((size_t)400000)
#define N_REDUCTIONS 10

static int check_rate(tally_lane *lane, void *user)
{
    const uint64_t *begin_ns = user;
    const tally_group *group = lane->group;

    CHECK(group, lane->rate.ns <= tally__now_ns() - *begin_ns);
    CHECK(group, group->far || lane->rate.bytes == 0);
    return TALLY_OK;
}

static int body(tally_group *group, void *user)
{
    uint64_t begin_ns = tally__now_ns();
    float *data = calloc(N, sizeof *data);

    (void)user;
    CHECK(group, data);
    for (int i = 0; i < N_REDUCTIONS; i++) {
        tally_future *future;

        CHECK_OK(group, tally_all_reduce(group, data, N, TALLY_F32, TALLY_SUM, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    CHECK_OK(group, ranks_job(group, 0, check_rate, &begin_ns));
    free(data);
    return 0;
}

int main(void)
{
    return ranks_run_world(body, NULL, 1, 2, true) != 0;
}

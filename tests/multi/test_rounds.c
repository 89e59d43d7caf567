/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds are counted in 32 bits. A group that has been at work for long goes past their end in the
 * middle of its collectives: nothing must show. The test ages fresh groups by writing the counters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/messages.h"
#include "support/oracle.h"
#include "support/ranks.h"

#define MANY 60001

/* Makes the group look as if it had finished this number of rounds. All ranks, before any round. */
static void age(tally_group *group, uint32_t rounds)
{
    for (int i = 0; i < group->n_lanes; i++) {
        tally_lane *lane = &group->lanes[i];

        lane->round.number = rounds;
        for (int r = 0; r < group->size; r++) {
            /* Near ranks age their own. */
            if (r == group->rank || !tally__is_near(group, r)) {
                atomic_store(&lane->slots[r]->line[rounds % 2].round, rounds);
                atomic_store(&lane->slots[r]->line[(rounds + 1) % 2].round, rounds - 1);
            }
        }
    }
}

/* Shared by a job's rounds: what every rank must find. */
struct work {
    float *data;
    unsigned seed;
};

/* Small and large ones back to back, and the slowest rank a different one each time. */
static int work_job(tally_lane *lane, void *user)
{
    struct work *work = user;
    tally_group *group = tally_lane_group(lane);
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);

    for (int i = 0; i < 16; i++) {
        size_t n = i % 8 == 7 ? MANY : 2000;

        oracle_fill(TALLY_F32, work->seed, rank, n, work->data);
        if (i % world == rank) {
            ranks_sleep_ms(1);
        }
        CHECK_OK(group, tally_lane_all_reduce(lane, work->data, n, TALLY_F32, TALLY_SUM));
        CHECK(group,
              oracle_compare(&(struct oracle_reduction){TALLY_F32, TALLY_SUM, work->seed, world}, 0,
                             n, work->data) == n);
        work->seed++;
    }
    return TALLY_OK;
}

static int run_aged(tally_group *group, uint32_t before_end, struct work *work)
{
    tally_future *future;
    tally_group *child;

    /* A sub-group has its own rounds, and no rank is in one of them yet. */
    CHECK_OK(group, tally_group_split(group, 0, 0, &child));
    age(child, 0u - before_end);
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, ranks_job(child, 0, work_job, work));
    CHECK_OK(group, tally_group_close(child));
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct work work = {malloc(MANY * sizeof(float)), 0};
    int rc = RANKS_FAILED;

    if (work.data) {
        rc = run_aged(group, *(const uint32_t *)user, &work);
    }
    free(work.data);
    return rc;
}

int main(void)
{
    static const int worlds[] = {2, 3, 7};
    int n_failures = 0;

    oracle_start();
    /* The end comes in the first rounds, and somewhere among them, at every place of the stages. */
    for (uint32_t before = 1; before < 30; before += before < 4 ? 1 : 13) {
        for (int k = 0; k < 9; k++) {
            const struct ranks ranks = {.kind = k % 3 == 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                        .memory = k % 3 == 0 ? RANKS_GROUP_MEMORY : RANKS_STAGED,
                                        .world = worlds[k / 3],
                                        .lanes = 1};

            n_failures += ranks_run(&ranks, body, &before);
        }
    }
    return n_failures != 0;
}

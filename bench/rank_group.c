/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a rank's group and gives its threads their place. The application's thread; keeps no state.
 */
#include "bench/rank_group.h"

#include "base/env.h"
#include "base/status.h"
#include "bench/bind.h"
#include "num/num.h"

static int bind_job(tally_lane *lane, void *user)
{
    const struct rank_group *wanted = user;

    (void)lane;
    bench_bind(wanted->rank, wanted->ranks);
    return TALLY_OK;
}

/* A rank's threads share its CPUs. Not before the group is open: it looks how many CPUs there are.
 */
static int bind_threads(struct rank_group wanted, tally_group *group)
{
    for (int lane = 0; lane < wanted.lanes; lane++) {
        tally_future *future;
        int rc;

        TRY(tally_submit(group, lane, bind_job, &wanted, &future));
        rc = tally_future_wait(future);
        tally_future_free(future);
        TRY(rc);
    }
    bench_bind(wanted.rank, wanted.ranks);
    return TALLY_OK;
}

int rank_group_open(const struct rank_group *wanted, tally_group **group)
{
    tally_group_config config;

    TRY(tally__num_start());
    tally_group_config_init(&config, sizeof config);
    if (!wanted->is_launched) {
        config.rank = wanted->rank;
        config.world = wanted->ranks;
        config.rendezvous = wanted->rendezvous;
    }
    config.timeout_s = wanted->timeout_s;
    config.open_timeout_s = wanted->open_timeout_s;
    config.lanes = wanted->lanes;
    TRY(tally_group_open(&config, group));
    return wanted->is_launched ? TALLY_OK : bind_threads(*wanted, *group);
}

/* Whether a launcher of MPI has started several of us. */
static bool is_launched(void)
{
    static const enum tally__env_id sizes[] = {TALLY__ENV_OMPI_WORLD, TALLY__ENV_PMI_WORLD,
                                               TALLY__ENV_SLURM_WORLD};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int size;

        if (tally__env_is_set(sizes[i]) && tally__env_count(sizes[i], &size) == TALLY_OK &&
            size > 1) {
            return true;
        }
    }
    return false;
}

int rank_launch_find(struct rank_launch *launch)
{
    struct rank_launch found = {0};
    tally_group *group;

    if (is_launched()) {
        TRY(tally_group_open(NULL, &group));
        found = (struct rank_launch){true, tally_group_rank(group), tally_group_size(group)};
        TRY(tally_group_close(group));
    }
    *launch = found;
    return TALLY_OK;
}

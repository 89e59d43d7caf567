/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a rank's group and gives its threads their place. The application's thread; keeps no state.
 */
#include "bench/rank_group.h"

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
    config.rank = wanted->rank;
    config.world = wanted->ranks;
    config.rendezvous = wanted->rendezvous;
    config.timeout_s = wanted->timeout_s;
    config.open_timeout_s = wanted->open_timeout_s;
    config.lanes = wanted->lanes;
    TRY(tally_group_open(&config, group));
    return bind_threads(*wanted, *group);
}

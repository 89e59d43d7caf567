/* SPDX-License-Identifier: Apache-2.0 */
/* Opening groups: resolves the settings, chooses the domain, waits for all ranks. */
#include "comm/group_config.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/mpi/mpi_open.h"
#include "comm/shm/shm_domain.h"
#include "comm/thread/thread_domain.h"
#include "num/num.h"

void tally_group_config_init(tally_group_config *config, size_t size)
{
    const tally_group_config unset = {.size = sizeof unset, .rank = -1, .lanes = -1};

    tally__sized_init(TALLY__GROUP_CONFIG, &unset, config, size);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* Rank 0 logs the facts of the run for all ranks. */
static void say_opened(const tally_group *group, const struct tally__settings *settings)
{
    const struct tally__domain *domain = group->domain;
    const char *isa = "";

    if (group->rank != 0 || tally_isa(&isa) != TALLY_OK) {
        return;
    }
    tally__log(TALLY_LOG_INFO, "%d rank%s on %d machine%s, backend %s%s%s", group->size,
               plural(group->size), domain->n_machines, plural(domain->n_machines), domain->name,
               domain->medium ? " over " : "", domain->medium ? domain->medium : "");
    tally__log(TALLY_LOG_INFO, "each rank: kernels %s, %d lane%s; late after %g s", isa,
               settings->lanes, plural(settings->lanes), settings->timeout_s);
}

static int open_with(const struct tally__settings *settings, tally_group **group)
{
    if (settings->is_self) {
        return tally__open_threads(1, settings->lanes, settings->timeout_s, group);
    }
    return (settings->is_mpi ? tally__open_mpi : tally__open_shm)(settings, group);
}

int tally_group_open(const tally_group_config *config, tally_group **group)
{
    struct tally__settings settings;

    if (!group) {
        return tally__fail(TALLY_ARG, "tally_group_open: group is NULL");
    }
    TRY(tally__num_start());
    TRY(tally__group_config_resolve(config, &settings));
    if (!settings.is_self && settings.rank >= 0) {
        tally__log_set_rank(settings.rank);
    }
    TRY(open_with(&settings, group));
    if (!settings.is_self) {
        tally__log_set_rank((*group)->rank);
    }
    say_opened(*group, &settings);
    return TALLY_OK;
}

int tally_group_open_threads(const tally_group_config *config, int n, tally_group **groups)
{
    tally_group_config given;
    struct tally__settings settings;

    if (!groups) {
        return tally__fail(TALLY_ARG, "tally_group_open_threads: groups is NULL");
    }
    if (n < 1 || n > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG, "tally_group_open_threads: %d ranks are not in 1..%d", n,
                           TALLY__MAX_WORLD);
    }
    tally_group_config_init(&given, sizeof given);
    if (config) {
        tally_group_config all = given;

        TRY(tally__sized_read(TALLY__GROUP_CONFIG, "tally_group_open_threads: config", config,
                              &all));
        given.timeout_s = all.timeout_s;
        given.lanes = all.lanes;
    }
    given.world = 1;
    given.backend = "self";
    TRY(tally__num_start());
    TRY(tally__group_config_resolve(&given, &settings));
    TRY(tally__open_threads(n, settings.lanes, settings.timeout_s, groups));
    say_opened(groups[0], &settings);
    return TALLY_OK;
}

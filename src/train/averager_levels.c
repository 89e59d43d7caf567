/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the levels of an averager: arithmetic only. Any thread enters. */
#include "base/status.h"
#include "train/averager.h"

static int check_level(const tally_averager_level *level, size_t k, int n_ranks)
{
    if (level->period < 1) {
        return tally__fail(TALLY_ARG, "averager: level %zu has period %d, it is 1 or more", k,
                           level->period);
    }
    if (level->group < 0) {
        return tally__fail(TALLY_ARG, "averager: level %zu has groups of %d ranks", k,
                           level->group);
    }
    if (level->group > 0 && n_ranks % level->group != 0) {
        return tally__fail(TALLY_ARG, "averager: level %zu: groups of %d do not divide %d ranks", k,
                           level->group, n_ranks);
    }
    return TALLY_OK;
}

static int size_of(const tally_averager_level *level, int n_ranks)
{
    return level->group > 0 ? level->group : n_ranks;
}

int tally__levels_check(const tally_averager_level *levels, size_t n, int n_ranks)
{
    if (!levels || n == 0) {
        return tally__fail(TALLY_ARG, "averager: there are no levels");
    }
    for (size_t k = 0; k < n; k++) {
        TRY(check_level(&levels[k], k, n_ranks));
        if (k > 0 && levels[k].period <= levels[k - 1].period) {
            return tally__fail(TALLY_ARG,
                               "averager: level %zu has period %d, not more than the %d of level "
                               "%zu",
                               k, levels[k].period, levels[k - 1].period, k - 1);
        }
        if (k > 0 && size_of(&levels[k], n_ranks) % size_of(&levels[k - 1], n_ranks) != 0) {
            return tally__fail(TALLY_ARG,
                               "averager: level %zu has groups of %d ranks, which are not made of "
                               "level %zu's groups of %d",
                               k, size_of(&levels[k], n_ranks), k - 1,
                               size_of(&levels[k - 1], n_ranks));
        }
    }
    if (size_of(&levels[n - 1], n_ranks) != n_ranks) {
        return tally__fail(TALLY_ARG,
                           "averager: the last level has groups of %d ranks, but must have all %d",
                           levels[n - 1].group, n_ranks);
    }
    return TALLY_OK;
}

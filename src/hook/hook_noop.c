/* SPDX-License-Identifier: Apache-2.0 */
/* The hook noop, which does nothing: every rank keeps its own gradients. Stateless. Lanes enter. */
#include "base/status.h"
#include "hook/hook.h"
#include "hook/kind.h"

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    (void)lane;
    (void)bucket;
    return TALLY_OK;
}

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const tally_hook_table table = {
        .size = sizeof table, .name = name, .concurrent = 1, .reduce = reduce};
    const struct tally__hook_private private = {.sends_nothing = true};

    (void)setting;
    (void)inner;
    return tally__hook_make(&table, &private, NULL, hook);
}

const struct tally__hook_kind tally__hook_kind_noop = {
    .row.name = "noop",
    .row.help = "sends nothing, every rank keeps its own gradients: to measure a step without "
                "communication",
    .make = make,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of hook_kinds.h. One thread enters. */
#include "support/hook_kinds.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "hook/hook.h"

struct hook_record hook_record;

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    (void)lane;
    (void)bucket;
    return TALLY_OK;
}

/* The state of a hook of the list is the hook inside, which it holds. */
static void destroy(void *state)
{
    tally_hook_free(state);
}

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const double *values = setting->values;
    const tally_hook_table table = {
        .size = sizeof table, .name = name, .reduce = reduce, .destroy = destroy};

    TRY(tally_hook_create(&table, inner, hook));
    if (inner) {
        tally__hook_hold(inner);
    }
    hook_record.n_makes++;
    (void)snprintf(hook_record.name, sizeof hook_record.name, "%s", name);
    (void)snprintf(hook_record.inner, sizeof hook_record.inner, "%s",
                   inner ? inner->table.name : "");
    memcpy(hook_record.values, values, sizeof hook_record.values);
    return TALLY_OK;
}

static int make_picky(const char *name, const struct tally__setting *setting, tally_hook *inner,
                      tally_hook **hook)
{
    const double *values = setting->values;

    return values[0] != 0 && values[1] != 0 ? tally__fail(TALLY_ARG, "a and b do not go together")
                                            : make(name, setting, inner, hook);
}

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const struct tally__hook_kind all_reduce = {
    .row.name = "allreduce", .row.help = "plain", .make = make};
static const struct tally__hook_kind noop = {
    .row.name = "noop", .row.help = "nothing", .make = make};

static const struct tally__option leaf_options[] = {
    {"count", TALLY__OPTION_COUNT, 1, 9007199254740992.0, 0, "1..9007199254740992", "4",
     "how many"},
    {"real", TALLY__OPTION_REAL, -1e300, 1e300, 0, "-1e300..1e300", "0.5", "how much"},
    {"half", TALLY__OPTION_REAL, 0, 1, 0, "0..1", "0", "a part"},
    {"step", TALLY__OPTION_COUNT, 64, 4096, 64, "64..4096, a multiple of 64", "512", "width"},
    {"mode", TALLY__OPTION_CHOICE, 0, 0, 0, "slow|fast|slower", "slow", "which way"},
};
static const struct tally__hook_kind leaf = {.row.name = "leaf",
                                             .row.help = "all types",
                                             .row.n_options = N_OF(leaf_options),
                                             .row.options = leaf_options,
                                             .make = make};

static const struct tally__option wrap_options[] = {
    {"flag", TALLY__OPTION_CHOICE, 0, 0, 0, "0|1", "0", "on or off"},
    {"scale", TALLY__OPTION_REAL, 0, 10, 0, "0..10", "1", "factor"},
};
static const struct tally__hook_kind wrap = {.row.name = "wrap",
                                             .row.help = "around",
                                             .wraps = true,
                                             .row.n_options = N_OF(wrap_options),
                                             .row.options = wrap_options,
                                             .make = make};
static const struct tally__hook_kind cover = {
    .row.name = "cover", .row.help = "around", .wraps = true, .make = make};

static const struct tally__option picky_options[] = {
    {"a", TALLY__OPTION_CHOICE, 0, 0, 0, "0|1", "0", "not with b"},
    {"b", TALLY__OPTION_CHOICE, 0, 0, 0, "0|1", "0", "not with a"},
};
static const struct tally__hook_kind picky = {.row.name = "picky",
                                              .row.help = "refuses",
                                              .row.n_options = N_OF(picky_options),
                                              .row.options = picky_options,
                                              .make = make_picky};

static const struct tally__row *const rows[] = {&all_reduce.row, &noop.row,  &leaf.row,
                                                &wrap.row,       &cover.row, &picky.row};
const struct tally__rows hook_kinds = {"hook", "a hook", rows, N_OF(rows)};

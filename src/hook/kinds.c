/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's hooks, in the order of `tally hooks`, and the public functions that describe
 * it. Any thread enters. */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "hook/kind.h"

static const struct tally__row *const rows[] = {
    &tally__hook_kind_all_reduce.row, &tally__hook_kind_fp16.row,
    &tally__hook_kind_bf16.row,       &tally__hook_kind_int8.row,
    &tally__hook_kind_per_tensor.row, &tally__hook_kind_per_channel.row,
    &tally__hook_kind_power.row,      &tally__hook_kind_batched_power.row,
    &tally__hook_kind_hosts.row,      &tally__hook_kind_post_local.row,
    &tally__hook_kind_noop.row,
};

const struct tally__rows tally__hook_kinds = {"hook", "a hook", rows, sizeof rows / sizeof rows[0]};

const struct tally__hook_kind *tally__hook_kind_of(const struct tally__row *row)
{
    return (const struct tally__hook_kind *)row;
}

size_t tally_hook_count(void)
{
    return tally__hook_kinds.n;
}

int tally_hook_describe(size_t index, tally_hook_info *info)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_hook_info, n_options);
    const struct tally__row *row;
    tally_hook_info own;

    TRY(tally__answer_check(kind, "tally_hook_describe", info));
    TRY(tally__row_at("tally_hook_describe", &tally__hook_kinds, index, &row));
    /* Clear the padding too: the application gets a copy of every byte. */
    memset(&own, 0, sizeof own);
    own.name = row->name;
    own.help = row->help;
    own.wraps = tally__hook_kind_of(row)->wraps;
    own.n_options = row->n_options;
    tally__sized_write(kind, &own, info);
    return TALLY_OK;
}

int tally_hook_describe_option(size_t index, size_t option, tally_hook_option *described)
{
    return tally__describe_option("tally_hook_describe_option", &tally__hook_kinds, index, option,
                                  described);
}

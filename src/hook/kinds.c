/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's own hooks, in the order `tally hooks` shows them. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's own hooks, in the order `tally hooks` shows them. */
#include "hook/kind.h"

const struct tally__hook_kind *const tally__hook_kinds[] = {
    &tally__hook_kind_all_reduce, &tally__hook_kind_fp16,          &tally__hook_kind_bf16,
    &tally__hook_kind_int8,       &tally__hook_kind_per_tensor,    &tally__hook_kind_per_channel,
    &tally__hook_kind_power,      &tally__hook_kind_batched_power, &tally__hook_kind_noop,
};

const size_t tally__n_hook_kinds = sizeof tally__hook_kinds / sizeof tally__hook_kinds[0];

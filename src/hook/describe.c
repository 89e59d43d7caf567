/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what hooks there are, for lists and help. Keeps no state. Any thread enters. */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "hook/kind.h"

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

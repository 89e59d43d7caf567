/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's hooks, in the order of `tally hooks`, and the public functions that describe
 * it. Any thread enters. */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "hook/kind.h"

static const struct tally__row *const rows[] = {
#define ROW(name) &tally__hook_kind_##name.row,
    TALLY__HOOK_LIST(ROW)
#undef ROW
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
    tally_hook_info answer;

    TRY(tally__answer_check(kind, "tally_hook_describe", info));
    TRY(tally__row_at("tally_hook_describe", &tally__hook_kinds, index, &row));
    /* Clear the padding too: the application gets a copy of every byte. */
    memset(&answer, 0, sizeof answer);
    answer.name = row->name;
    answer.help = row->help;
    answer.wraps = tally__hook_kind_of(row)->wraps;
    answer.n_options = row->n_options;
    tally__sized_write(kind, &answer, info);
    return TALLY_OK;
}

int tally_hook_describe_option(size_t index, size_t option, tally_hook_option *described)
{
    return tally__describe_option("tally_hook_describe_option", &tally__hook_kinds, index, option,
                                  described);
}

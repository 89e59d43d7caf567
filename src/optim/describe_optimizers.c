/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what optimizers there are, for lists and help. Keeps no state. Any thread enters. */
#include "base/status.h"
#include "optim/optimizer_kind.h"

size_t tally_optimizer_count(void)
{
    return tally__optimizer_kinds.n;
}

int tally_optimizer_describe(size_t index, tally_optimizer_info *info)
{
    const struct tally__row *row;

    TRY(tally__answer_check("tally_optimizer_describe", info, info ? info->size : 0, sizeof *info));
    TRY(tally__row_at("tally_optimizer_describe", &tally__optimizer_kinds, index, &row));
    info->name = row->name;
    info->help = row->help;
    info->n_options = row->n_options;
    return TALLY_OK;
}

int tally_optimizer_describe_option(size_t index, size_t option, tally_optimizer_option *described)
{
    return tally__describe_option("tally_optimizer_describe_option", &tally__optimizer_kinds, index,
                                  option, described);
}

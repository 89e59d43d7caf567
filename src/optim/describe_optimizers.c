/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the optimizers, for lists and help. Stateless. Any thread enters. */
#include "base/sized.h"
#include "base/status.h"
#include "optim/optimizer_kind.h"

size_t tally_optimizer_count(void)
{
    return tally__optimizer_kinds.n;
}

int tally_optimizer_describe(size_t index, tally_optimizer_info *info)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_optimizer_info, n_options);
    const struct tally__row *row;
    tally_optimizer_info own;

    TRY(tally__answer_check(kind, "tally_optimizer_describe", info));
    TRY(tally__row_at("tally_optimizer_describe", &tally__optimizer_kinds, index, &row));
    own = (tally_optimizer_info){.name = row->name, .help = row->help, .n_options = row->n_options};
    tally__sized_write(kind, &own, info);
    return TALLY_OK;
}

int tally_optimizer_describe_option(size_t index, size_t option, tally_optimizer_option *described)
{
    return tally__describe_option("tally_optimizer_describe_option", &tally__optimizer_kinds, index,
                                  option, described);
}

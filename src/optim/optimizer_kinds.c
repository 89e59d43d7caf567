/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's optimizers, in the order of `tally optimizers`, its descriptions, and
 * functions that rows share. Any thread enters. */
#include "base/cpu.h"
#include "base/sized.h"
#include "base/status.h"
#include "optim/optimizer_kind.h"

static const struct tally__row *const rows[] = {
#define ROW(name) &tally__optimizer_kind_##name.row,
    TALLY__OPTIMIZER_LIST(ROW)
#undef ROW
};

const struct tally__rows tally__optimizer_kinds = {"optimizer", "an optimizer", rows,
                                                   sizeof rows / sizeof rows[0]};

const struct tally__optimizer_kind *tally__optimizer_kind_of(const struct tally__row *row)
{
    return (const struct tally__optimizer_kind *)row;
}

void tally__optimizer_fill(size_t n, float *state, const double *value)
{
    tally__fpenv saved = tally__fpenv_enter();

    for (size_t i = 0; i < n; i++) {
        state[i] = (float)*value;
    }
    tally__fpenv_leave(saved);
}

size_t tally_optimizer_count(void)
{
    return tally__optimizer_kinds.n;
}

int tally_optimizer_describe(size_t index, tally_optimizer_info *info)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_optimizer_info, n_options);
    const struct tally__row *row;
    tally_optimizer_info answer;

    TRY(tally__answer_check(kind, "tally_optimizer_describe", info));
    TRY(tally__row_at("tally_optimizer_describe", &tally__optimizer_kinds, index, &row));
    answer =
        (tally_optimizer_info){.name = row->name, .help = row->help, .n_options = row->n_options};
    tally__sized_write(kind, &answer, info);
    return TALLY_OK;
}

int tally_optimizer_describe_option(size_t index, size_t option, tally_optimizer_option *described)
{
    return tally__describe_option("tally_optimizer_describe_option", &tally__optimizer_kinds, index,
                                  option, described);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's optimizers, in the order of `tally optimizers`, and functions that their rows
 * share. Any thread enters. */
#include "num/fpenv.h"
#include "optim/optimizer_kind.h"

static const struct tally__row *const rows[] = {
    &tally__optimizer_kind_sgd.row,     &tally__optimizer_kind_adam.row,
    &tally__optimizer_kind_adamw.row,   &tally__optimizer_kind_adagrad.row,
    &tally__optimizer_kind_rmsprop.row, &tally__optimizer_kind_adadelta.row,
    &tally__optimizer_kind_adamax.row,  &tally__optimizer_kind_rprop.row,
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

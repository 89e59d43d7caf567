/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every optimizer of tally is one row: a const table with its name, its options, and its step,
 * which calls a kernel of num/optim.h. TALLY__OPTIMIZER_LIST has them all.
 */
#ifndef TALLY_OPTIM_OPTIMIZER_KIND_H
#define TALLY_OPTIM_OPTIMIZER_KIND_H

#include <stddef.h>

#include "base/text.h"
#include "tally_extend.h"

struct tally__optimizer_kind {
    struct tally__row row; /* first member; the first option is the initial learning rate */
    /* Checks that values, in the order of options, are compatible; NULL: always. Errors: ARG; the
     * caller prefixes the optimizer's name. */
    int (*check)(const double *values);
    /* The kernel's states that are always in use, and those that these values use in addition;
     * NULL: none. Bit k stands for state k. Bits, because options switch single states off: the
     * optimizer's table has only the states in use, packed, and step gets them at the kernel's
     * positions. */
    unsigned states;
    unsigned (*more_states)(const double *values);
    /* Updates the elements of param. state: the kernel's states, NULL where not in use. */
    void (*step)(const double *values, const tally_step_param *param, float *const *state);
};

/* Every optimizer, in the order of `tally optimizers`. */
#define TALLY__OPTIMIZER_LIST(X) \
    X(sgd) X(adam) X(adamw) X(adagrad) X(rmsprop) X(adadelta) X(adamax) X(rprop)

#define TALLY__OPTIMIZER_DECLARE(name) \
    extern const struct tally__optimizer_kind tally__optimizer_kind_##name;
TALLY__OPTIMIZER_LIST(TALLY__OPTIMIZER_DECLARE)
#undef TALLY__OPTIMIZER_DECLARE

/* The list of all optimizers. */
extern const struct tally__rows tally__optimizer_kinds;

/* The kind whose first member is row. */
const struct tally__optimizer_kind *tally__optimizer_kind_of(const struct tally__row *row);

/* Fills a state with an initial value other than zero, rounded in tally's floating-point
 * environment. */
void tally__optimizer_fill(size_t n, float *state, const double *value);

/* ---- options that several optimizers share ---- */

#define TALLY__FLAG_OPTION(option, text) TALLY__CHOICE_OPTION(option, "0|1", "0", text)
/* Updates are computed in fp32, where larger values would become infinite. */
#define TALLY__POSITIVE_OPTION(option, value, text) \
    TALLY__REAL_OPTION(option, 0, 1e38, "0..1e38", value, text)
#define TALLY__BETA_OPTION(option, value, text) \
    TALLY__REAL_OPTION(option, 0, 0x1.fffffffffffffp-1, "0 or more, below 1", value, text)

#define TALLY__LR_OPTION(value) TALLY__POSITIVE_OPTION("lr", value, "initial learning rate")
#define TALLY__EPS_OPTION(value) \
    TALLY__POSITIVE_OPTION("eps", value, "added to the denominator, against division by 0")
#define TALLY__DECAY_OPTION                     \
    TALLY__POSITIVE_OPTION("weight_decay", "0", \
                           "multiple of the parameter that is added to its gradient")

#endif

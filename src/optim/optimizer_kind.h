/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is to parse: every optimizer of tally's own is one row, a const table with its name,
 * its options, and how it takes a step with its kernel of num/optim.h. The rows are listed in
 * optimizer_kinds.c.
 */
#ifndef TALLY_OPTIM_OPTIMIZER_KIND_H
#define TALLY_OPTIM_OPTIMIZER_KIND_H

#include <stddef.h>

#include "base/text.h"
#include "tally_extend.h"

struct tally__optimizer_kind {
    struct tally__row row; /* first; the first option is the learning rate to begin with */
    /* Whether values, which are in the order of options, go together; NULL: always. Errors: ARG
     * (the caller puts the name in front of the text). */
    int (*check)(const double *values);
    /* Which of the kernel's states are in use: bit k for state k. */
    unsigned (*states)(const double *values);
    /* One step of the elements that param has. state: the kernel's, NULL where not in use. */
    void (*step)(const double *values, const tally_step_param *param, float *const *state);
};

extern const struct tally__optimizer_kind tally__optimizer_kind_sgd;
extern const struct tally__optimizer_kind tally__optimizer_kind_adam;
extern const struct tally__optimizer_kind tally__optimizer_kind_adamw;
extern const struct tally__optimizer_kind tally__optimizer_kind_adagrad;
extern const struct tally__optimizer_kind tally__optimizer_kind_rmsprop;
extern const struct tally__optimizer_kind tally__optimizer_kind_adadelta;
extern const struct tally__optimizer_kind tally__optimizer_kind_adamax;
extern const struct tally__optimizer_kind tally__optimizer_kind_rprop;

/* All of them. */
extern const struct tally__rows tally__optimizer_kinds;

/* The kind that a row is the first member of. */
const struct tally__optimizer_kind *tally__optimizer_kind_of(const struct tally__row *row);

/* Sets a state that does not begin as zeros: to value, rounded as all arithmetic of num is. */
void tally__optimizer_fill(size_t n, float *state, const double *value);

/* ---- options that several have ---- */

#define TALLY__REAL_OPTION(option, least, most, range, value, text)                              \
    {                                                                                            \
        .name = option, .type = TALLY__OPTION_REAL, .min = least, .max = most, .accepts = range, \
        .fallback = value, .help = text                                                          \
    }
#define TALLY__FLAG_OPTION(option, text)                                                 \
    {                                                                                    \
        .name = option, .type = TALLY__OPTION_CHOICE, .accepts = "0|1", .fallback = "0", \
        .help = text                                                                     \
    }
/* The steps are in fp32: what is beyond 1e38 would be infinite there. */
#define TALLY__POSITIVE_OPTION(option, value, text) \
    TALLY__REAL_OPTION(option, 0, 1e38, "0..1e38", value, text)
#define TALLY__BETA_OPTION(option, value, text) \
    TALLY__REAL_OPTION(option, 0, 0x1.fffffffffffffp-1, "0 or more, below 1", value, text)

#define TALLY__LR_OPTION(value) TALLY__POSITIVE_OPTION("lr", value, "learning rate to begin with")
#define TALLY__EPS_OPTION(value) \
    TALLY__POSITIVE_OPTION("eps", value, "added to what is divided by, against division by 0")
#define TALLY__DECAY_OPTION                     \
    TALLY__POSITIVE_OPTION("weight_decay", "0", \
                           "this much of the parameter is added to its gradient")

#endif

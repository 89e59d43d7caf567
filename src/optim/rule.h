/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An update rule for the parameters of one group: one of tally's optimizers, made from a text, or a
 * table of the application. It keeps nothing per parameter (see struct tally__moments) and never
 * changes once made: several threads may use it at once.
 */
#ifndef TALLY_OPTIM_RULE_H
#define TALLY_OPTIM_RULE_H

#include <stdbool.h>

#include "tally_extend.h"

struct tally__rule {
    char *name;                  /* the canonical text, or the table's name */
    tally_optimizer_table table; /* table.name is our copy */
    void *user;
    double lr; /* initial learning rate */
};

/* Makes one of tally's optimizers. Errors: ARG with the column, or with the incompatible options;
 * NOMEM. */
int tally__rule_parse(const char *text, struct tally__rule **rule);

/* Makes a rule from a table. On success it owns user and destroys it. Errors: ARG naming the
 * missing entry, NOMEM. */
int tally__rule_make(const tally_optimizer_table *table, void *user, double lr,
                     struct tally__rule **rule);

/* Whether lr is in the accepted range. Texts about one that is not end with that range. */
#define TALLY__LR_RANGE "0..1e38"
bool tally__is_lr(double lr);

/* NULL is accepted. */
void tally__rule_free(struct tally__rule *rule);

#endif

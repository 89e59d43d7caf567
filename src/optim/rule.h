/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rule: how the parameters of one group are updated, one of tally's own by its text or a table of
 * the application's. It has no memory of any parameter: that is struct tally__moments. Never
 * changes once made: any thread, several at once.
 */
#ifndef TALLY_OPTIM_RULE_H
#define TALLY_OPTIM_RULE_H

#include <stdbool.h>

#include "tally_extend.h"

struct tally__rule {
    char *name;                  /* its text in one form, or the table's name */
    tally_optimizer_table table; /* its name is ours */
    void *user;
    double lr; /* to begin with */
};

/* Makes one of tally's own optimizers. Errors: ARG pointing at the column, or saying which options
 * do not go together; NOMEM. */
int tally__rule_parse(const char *text, struct tally__rule **rule);

/* Makes a rule of a table. On success it owns user, and destroys it. Errors: ARG naming what the
 * table lacks, NOMEM. */
int tally__rule_make(const tally_optimizer_table *table, void *user, double lr,
                     struct tally__rule **rule);

/* Whether it is in the range that rules take. Texts about one that is not end with that range. */
#define TALLY__LR_RANGE "0..1e38"
bool tally__is_lr(double lr);

/* NULL is accepted. */
void tally__rule_free(struct tally__rule *rule);

#endif

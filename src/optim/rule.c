/* SPDX-License-Identifier: Apache-2.0 */
/* Update rules, from a table or from the text of one of tally's optimizers. Any thread enters. */
#include "optim/rule.h"

#include <string.h>

#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/text.h"
#include "num/optim.h"
#include "optim/optimizer_kind.h"

/* The range of TALLY__POSITIVE_OPTION. */
bool tally__is_lr(double lr)
{
    return lr >= 0 && lr <= 1e38;
}

/* ---- from a table ---- */

static int check_table(const tally_optimizer_table *table, double lr)
{
    if (!table->name) {
        return tally__fail(TALLY_ARG, "an optimizer's table has no name");
    }
    if (!table->step_param) {
        return tally__fail(TALLY_ARG, "optimizer '%s': the table has no step_param", table->name);
    }
    if (table->n_states < 0 || table->n_states > TALLY_MAX_STATES) {
        return tally__fail(TALLY_ARG, "optimizer '%s': n_states is %d, not in 0..%d", table->name,
                           table->n_states, TALLY_MAX_STATES);
    }
    if (!tally__is_lr(lr)) {
        return tally__fail(TALLY_ARG, "optimizer '%s': lr takes " TALLY__LR_RANGE ", not %g",
                           table->name, lr);
    }
    return TALLY_OK;
}

int tally__rule_make(const tally_optimizer_table *table, void *user, double lr,
                     struct tally__rule **rule)
{
    tally_optimizer_table whole = {0};
    struct tally__rule *made;
    char *name;

    if (!table) {
        return tally__fail(TALLY_ARG, "an optimizer's table is NULL");
    }
    TRY(tally__sized_read(TALLY__SIZED(tally_optimizer_table, destroy), "an optimizer's table",
                          table, &whole));
    TRY(check_table(&whole, lr));
    made = tally__alloc(sizeof *made, "an optimizer");
    name = tally__alloc_text(whole.name, "an optimizer");
    if (!made || !name) {
        tally__free(made);
        tally__free(name);
        return TALLY_NOMEM;
    }
    *made = (struct tally__rule){.name = name, .table = whole, .user = user, .lr = lr};
    made->table.name = name;
    *rule = made;
    return TALLY_OK;
}

void tally__rule_free(struct tally__rule *rule)
{
    if (!rule) {
        return;
    }
    if (rule->table.destroy) {
        rule->table.destroy(rule->user);
    }
    tally__free(rule->name);
    tally__free(rule);
}

/* ---- tally's optimizers ---- */

/* One of tally's optimizers with the values of its options. */
struct builtin {
    const struct tally__optimizer_kind *kind;
    unsigned states; /* the kernel's states in use, as bits */
    double values[TALLY__MAX_OPTIONS];
};

static int step_builtin(void *user, const tally_step_param *param)
{
    const struct builtin *builtin = user;
    float *state[TALLY__OPTIM_STATES] = {NULL};
    int n = 0;

    for (int k = 0; k < TALLY__OPTIM_STATES; k++) {
        if (builtin->states >> k & 1) {
            state[k] = param->state[n++];
        }
    }
    builtin->kind->step(builtin->values, param, state);
    return TALLY_OK;
}

static int n_states_of(unsigned states)
{
    int n = 0;

    for (; states != 0; states >>= 1) {
        n += (int)(states & 1);
    }
    return n;
}

static int make_builtin(const struct tally__setting *setting, const char *name,
                        struct tally__rule **rule)
{
    const struct tally__optimizer_kind *kind = tally__optimizer_kind_of(setting->row);
    tally_optimizer_table table = {.size = sizeof table,
                                   .name = name,
                                   .elementwise = 1,
                                   .step_param = step_builtin,
                                   .destroy = tally__free};
    struct builtin *builtin;
    int rc;

    if (kind->check && kind->check(setting->values) != TALLY_OK) {
        return tally__fail(TALLY_ARG, "optimizer '%s': %s", name, tally_last_error());
    }
    builtin = tally__alloc(sizeof *builtin, "an optimizer");
    if (!builtin) {
        return TALLY_NOMEM;
    }
    builtin->kind = kind;
    builtin->states = kind->states | (kind->more_states ? kind->more_states(setting->values) : 0);
    memcpy(builtin->values, setting->values, sizeof builtin->values);
    table.n_states = n_states_of(builtin->states);
    rc = tally__rule_make(&table, builtin, builtin->values[0], rule);
    if (rc != TALLY_OK) {
        tally__free(builtin);
    }
    return rc;
}

int tally__rule_parse(const char *text, struct tally__rule **rule)
{
    struct tally__scan scan = {.rows = &tally__optimizer_kinds, .text = text};
    struct tally__name name = {.length = 0};
    struct tally__setting setting;
    struct tally__list marks;

    TRY(tally__text_check("optimizer", scan.rows, text));
    TRY(tally__setting_read(&scan, &setting));
    marks = tally__setting_marks(&setting);
    TRY(tally__scan_end(&scan, &marks));
    TRY(tally__name_add_setting(&name, scan.rows, &setting));
    TRY(tally__name_check(&name, scan.rows));
    return make_builtin(&setting, name.text, rule);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The hook object: a table, a state, and how many hold it. Any thread enters. */
#include "hook/hook.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

int tally_hook_create(const tally_hook_table *table, void *state, tally_hook **hook)
{
    tally_hook *made;
    char *name;

    if (!table || !hook) {
        return tally__fail(TALLY_ARG, "tally_hook_create: %s is NULL", table ? "hook" : "table");
    }
    if (table->size < sizeof *table) {
        return tally__fail(TALLY_ARG,
                           "tally_hook_create: table->size is %zu, expected at least %zu",
                           table->size, sizeof *table);
    }
    if (!table->reduce || !table->name) {
        return tally__fail(TALLY_ARG, "tally_hook_create: the table has no %s",
                           table->name ? "reduce" : "name");
    }
    made = tally__alloc(sizeof *made, "a hook");
    name = tally__alloc(strlen(table->name) + 1, "a hook");
    if (!made || !name) {
        tally__free(made);
        tally__free(name);
        return TALLY_NOMEM;
    }
    memcpy(name, table->name, strlen(table->name) + 1);
    made->table = *table;
    made->table.name = name;
    made->state = state;
    atomic_init(&made->n_holds, 1);
    *hook = made;
    return TALLY_OK;
}

void tally__hook_hold(tally_hook *hook)
{
    atomic_fetch_add_explicit(&hook->n_holds, 1, memory_order_relaxed);
}

void tally_hook_free(tally_hook *hook)
{
    /* Acquire and release: whoever drops the last hold sees what the others did with the hook. */
    if (!hook || atomic_fetch_sub_explicit(&hook->n_holds, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (hook->table.destroy) {
        hook->table.destroy(hook->state);
    }
    tally__free((char *)hook->table.name);
    tally__free(hook);
}

int tally__hook_state_take(const tally_hook *hook, tally_hook_blob *state)
{
    size_t bytes = 0;
    void *data;
    int rc;

    *state = (tally_hook_blob){.size = sizeof *state};
    if (!hook->table.save) {
        return TALLY_OK;
    }
    TRY(hook->table.save(hook->state, NULL, &bytes));
    data = tally__alloc(bytes, "the hook's state");
    if (!data) {
        return TALLY_NOMEM;
    }
    rc = hook->table.save(hook->state, data, &bytes);
    if (rc != TALLY_OK) {
        tally__free(data);
        return rc;
    }
    state->data = data;
    state->bytes = bytes;
    return TALLY_OK;
}

void tally__hook_state_free(tally_hook_blob *state)
{
    tally__free((void *)state->data);
    state->data = NULL;
}

bool tally__hook_same_kind(const tally_hook *a, const tally_hook *b)
{
    size_t length;

    while (a->inner) {
        a = a->inner;
    }
    while (b->inner) {
        b = b->inner;
    }
    length = strcspn(a->table.name, ":(");
    return length == strcspn(b->table.name, ":(") &&
           strncmp(a->table.name, b->table.name, length) == 0;
}

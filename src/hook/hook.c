/* SPDX-License-Identifier: Apache-2.0 */
/* The hook object: a table, a state, and how many hold it. Any thread enters. */
#include "hook/hook.h"

#include <string.h>

#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"

static int check_table(const tally_hook_table *table)
{
    if (!table->reduce || !table->name) {
        return tally__fail(TALLY_ARG, "tally_hook_create: the table has no %s",
                           table->name ? "reduce" : "name");
    }
    if (!table->save != !table->load) {
        return tally__fail(TALLY_ARG, "tally_hook_create: hook '%s' has %s", table->name,
                           table->save ? "save, but no load" : "load, but no save");
    }
    return TALLY_OK;
}

int tally_hook_create(const tally_hook_table *table, void *state, tally_hook **hook)
{
    tally_hook_table own = {0};
    tally_hook *made;
    char *name;

    if (!table || !hook) {
        return tally__fail(TALLY_ARG, "tally_hook_create: %s is NULL", table ? "hook" : "table");
    }
    TRY(tally__sized_read(TALLY__SIZED(tally_hook_table, destroy), "tally_hook_create: table",
                          table, &own));
    TRY(check_table(&own));
    made = tally__alloc(sizeof *made, "a hook");
    name = tally__alloc(strlen(own.name) + 1, "a hook");
    if (!made || !name) {
        tally__free(made);
        tally__free(name);
        return TALLY_NOMEM;
    }
    memcpy(name, own.name, strlen(own.name) + 1);
    made->table = own;
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

/* ---- calling it ---- */

static int take_back(const struct tally__aside *aside, const tally_hook *hook, const char *what,
                     int rc)
{
    if (!tally__take_back(aside, rc)) {
        (void)tally__fail(rc, "hook '%s': %s failed: %s", hook->table.name, what,
                          tally_status_text(rc));
    }
    return rc;
}

/* The hook itself or the one inside that divides the group: there is at most one. NULL: none. */
static const tally_hook *dividing(const tally_hook *hook)
{
    while (hook && !hook->enter) {
        hook = hook->inner;
    }
    return hook;
}

int tally__hook_enter(const tally_hook *hook, tally_ddp *ddp)
{
    const tally_hook *own = dividing(hook);

    return own ? own->enter(own->state, ddp) : TALLY_OK;
}

void tally__hook_leave(const tally_hook *hook)
{
    const tally_hook *own = dividing(hook);

    if (own) {
        own->leave(own->state);
    }
}

bool tally__hook_divides(const tally_hook *hook)
{
    return dividing(hook) != NULL;
}

int tally__hook_attach(const tally_hook *hook, tally_ddp *ddp)
{
    struct tally__aside aside;

    if (!hook->table.attach) {
        return TALLY_OK;
    }
    tally__put_aside(&aside);
    return take_back(&aside, hook, "attach", hook->table.attach(hook->state, ddp));
}

void tally__hook_detach(const tally_hook *hook, tally_ddp *ddp)
{
    if (hook->table.detach) {
        hook->table.detach(hook->state, ddp);
    }
}

int tally__hook_load(const tally_hook *hook, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct tally__aside aside;

    if (!hook->table.load) {
        return TALLY_OK;
    }
    tally__put_aside(&aside);
    return take_back(&aside, hook, "load", hook->table.load(hook->state, blobs, n_blobs));
}

static int save(const tally_hook *hook, void *blob, size_t *bytes)
{
    struct tally__aside aside;

    tally__put_aside(&aside);
    return take_back(&aside, hook, "save", hook->table.save(hook->state, blob, bytes));
}

int tally__hook_state_take(const tally_hook *hook, tally_hook_blob *state)
{
    size_t room = 0;
    size_t bytes;
    void *data;
    int rc;

    *state = (tally_hook_blob){.size = sizeof *state};
    if (!hook->table.save) {
        return TALLY_OK;
    }
    TRY(save(hook, NULL, &room));
    data = tally__alloc(room, "the hook's state");
    if (!data) {
        return TALLY_NOMEM;
    }
    bytes = room;
    rc = save(hook, data, &bytes);
    if (rc == TALLY_OK && bytes > room) {
        rc = tally__fail(TALLY_ARG, "hook '%s': save asked for %zu bytes and took %zu",
                         hook->table.name, room, bytes);
    }
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

/* ---- comparing ---- */

const tally_hook *tally__hook_innermost(const tally_hook *hook)
{
    while (hook->inner) {
        hook = hook->inner;
    }
    return hook;
}

const tally_hook *tally__hook_local(const tally_hook *hook)
{
    while (hook && !hook->is_local) {
        hook = hook->inner;
    }
    return hook;
}

struct tally__hook_kind_name tally__hook_kind_name(const tally_hook *hook)
{
    const tally_hook *innermost = tally__hook_innermost(hook);
    const char *name = innermost->table.name;

    return (struct tally__hook_kind_name){innermost->is_own, strcspn(name, ":("), name};
}

bool tally__hook_same_kind(struct tally__hook_kind_name a, struct tally__hook_kind_name b)
{
    return a.is_own == b.is_own && a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

/* The hook itself or the one inside that calls its own on some ranks only; NULL: none does. */
static const tally_hook *leading(const tally_hook *hook)
{
    while (hook && !hook->runs_here) {
        hook = hook->inner;
    }
    return hook;
}

bool tally__hook_is_led(const tally_hook *hook)
{
    return leading(hook) != NULL;
}

bool tally__hook_runs_here(const tally_hook *hook)
{
    const tally_hook *leader = leading(hook);

    return !leader || leader->runs_here(leader->state);
}

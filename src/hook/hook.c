/* SPDX-License-Identifier: Apache-2.0 */
/* The hook object: a table, a state and a count of its holders. Any thread enters. */
#include "hook/hook.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "hook/kind.h"

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

/* ---- entries that the maker did not set ---- */

static int attach_nothing(void *state, tally_ddp *ddp)
{
    (void)state;
    (void)ddp;
    return TALLY_OK;
}

static void detach_nothing(void *state, tally_ddp *ddp)
{
    (void)state;
    (void)ddp;
}

static int save_nothing(void *state, void *blob, size_t *bytes)
{
    (void)state;
    (void)blob;
    *bytes = 0;
    return TALLY_OK;
}

static int load_nothing(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    (void)state;
    (void)blobs;
    (void)n_blobs;
    return TALLY_OK;
}

static void do_nothing(void *state)
{
    (void)state;
}

static bool runs_everywhere(const void *state)
{
    (void)state;
    return true;
}

static int end_no_step(void *state, tally_lane *lane)
{
    (void)state;
    (void)lane;
    return TALLY_OK;
}

static void note_no_step(void *state, bool has_input)
{
    (void)state;
    (void)has_input;
}

static void want_no_packing(const void *state, struct tally__packing *packing)
{
    (void)state;
    *packing = (struct tally__packing){0};
}

static double know_no_error(const void *state)
{
    (void)state;
    return -1;
}

static uint64_t count_nothing(const void *state)
{
    (void)state;
    return 0;
}

static void explain_nothing(const void *state, size_t bucket, tally_bucket_choice *choice)
{
    (void)state;
    (void)bucket;
    choice->settled = 1;
    (void)snprintf(choice->reason, sizeof choice->reason,
                   "this hook was set for all buckets; \"auto\" would choose for each");
}

#define DEFAULT(entry, function) ((entry) = (entry) ? (entry) : (function))

static void fill_defaults(tally_hook_table *table, struct tally__hook_private *private)
{
    DEFAULT(table->attach, attach_nothing);
    DEFAULT(table->detach, detach_nothing);
    DEFAULT(table->save, save_nothing);
    DEFAULT(table->load, load_nothing);
    DEFAULT(table->destroy, do_nothing);
    DEFAULT(private->enter, attach_nothing);
    DEFAULT(private->leave, do_nothing);
    DEFAULT(private->runs_here, runs_everywhere);
    DEFAULT(private->step_end, end_no_step);
    DEFAULT(private->step_over, note_no_step);
    DEFAULT(private->get_packing, want_no_packing);
    DEFAULT(private->get_error, know_no_error);
    DEFAULT(private->n_explained, count_nothing);
    DEFAULT(private->explain, explain_nothing);
}

/* ---- making and freeing ---- */

static int make(const tally_hook_table *table, const struct tally__hook_private *private,
                void *state, tally_hook **hook)
{
    tally_hook *made = tally__alloc(sizeof *made, "a hook");
    char *name = tally__alloc_text(table->name, "a hook");

    if (!made || !name) {
        tally__free(made);
        tally__free(name);
        return TALLY_NOMEM;
    }
    made->table = *table;
    made->table.name = name;
    if (private) {
        made->private = *private;
    }
    fill_defaults(&made->table, &made->private);
    made->state = state;
    atomic_init(&made->n_holds, 1);
    *hook = made;
    return TALLY_OK;
}

int tally__hook_make(const tally_hook_table *table, const struct tally__hook_private *private,
                     void *state, tally_hook **hook)
{
    int rc = make(table, private, state, hook);

    if (rc != TALLY_OK && table->destroy) {
        table->destroy(state);
    }
    return rc;
}

int tally_hook_create(const tally_hook_table *table, void *state, tally_hook **hook)
{
    tally_hook_table own = {0};

    if (!table || !hook) {
        return tally__fail(TALLY_ARG, "tally_hook_create: %s is NULL", table ? "hook" : "table");
    }
    TRY(tally__sized_read(TALLY__SIZED(tally_hook_table, destroy), "tally_hook_create: table",
                          table, &own));
    TRY(check_table(&own));
    return make(&own, NULL, state, hook);
}

void tally__hook_hold(tally_hook *hook)
{
    atomic_fetch_add_explicit(&hook->n_holds, 1, memory_order_relaxed);
}

void tally_hook_free(tally_hook *hook)
{
    /* Acquire and release: the thread that drops the last hold sees all earlier uses. */
    if (!hook || atomic_fetch_sub_explicit(&hook->n_holds, 1, memory_order_acq_rel) > 1) {
        return;
    }
    hook->table.destroy(hook->state);
    tally__free((char *)hook->table.name);
    tally__free(hook);
}

/* ---- calling ---- */

static int take_back(const struct tally__aside *aside, const tally_hook *hook, const char *what,
                     int rc)
{
    if (!tally__take_back(aside, rc)) {
        (void)tally__fail(rc, "hook '%s': %s failed: %s", hook->table.name, what,
                          tally_status_text(rc));
    }
    return rc;
}

int tally__hook_reduce(const tally_hook *hook, tally_lane *lane, const tally_bucket *bucket,
                       const size_t *shard_starts)
{
    return shard_starts && hook->table.scatter
               ? hook->table.scatter(hook->state, lane, bucket, shard_starts)
               : hook->table.reduce(hook->state, lane, bucket);
}

bool tally__hook_is_elementwise(const tally_hook *hook, const tally_bucket *bucket)
{
    return hook->private.is_elementwise ? hook->private.is_elementwise(hook->state, bucket)
                                        : hook->table.elementwise != 0;
}

int tally__hook_attach(const tally_hook *hook, tally_ddp *ddp)
{
    struct tally__aside aside;

    tally__put_aside(&aside);
    return take_back(&aside, hook, "attach", hook->table.attach(hook->state, ddp));
}

int tally__hook_load(const tally_hook *hook, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct tally__aside aside;

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
    TRY(save(hook, NULL, &room));
    if (room == 0) {
        return TALLY_OK;
    }
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
    while (hook && !hook->private.is_local) {
        hook = hook->inner;
    }
    return hook;
}

struct tally__hook_kind_name tally__hook_kind_name(const tally_hook *hook)
{
    const tally_hook *innermost = tally__hook_innermost(hook);
    const char *name = innermost->kind ? innermost->kind->row.name : innermost->table.name;

    return (struct tally__hook_kind_name){innermost->kind != NULL, strcspn(name, ":("), name};
}

bool tally__hook_same_kind(struct tally__hook_kind_name a, struct tally__hook_kind_name b)
{
    return a.is_builtin == b.is_builtin && a.length == b.length &&
           memcmp(a.text, b.text, a.length) == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the hook auto for a checkpoint: the choice of each parameter, and the states of the
 * candidates. Loaded into a hook with other candidates, it gives what both have in common.
 * Application threads enter, between steps.
 *
 *     head; per parameter: settled, holds, class; the bucket cap; per candidate: its name, its
 * state
 *
 * Blobs of the first form have neither class nor cap.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"

#define WHAT "the state of the hook auto"
#define MAGIC 0x326f747561ull /* "auto2" */
#define FIRST_MAGIC 0x316f747561ull

struct head {
    uint64_t magic;
    uint64_t n_params;
    uint64_t n;
    uint64_t is_settled;
};

struct entry {
    uint64_t name_bytes;
    uint64_t state_bytes;
};

int tally__auto_save(void *state, void *blob, size_t *bytes)
{
    const struct tally__auto *self = state;
    const struct head head = {MAGIC, self->n_params, self->n, self->phase >= TALLY__AUTO_CAP};
    const uint64_t cap_bytes = self->laid_cap;
    unsigned char *to = blob;
    size_t used = sizeof head + 3 * self->n_params + sizeof cap_bytes;

    if (to) {
        memcpy(to, &head, sizeof head);
        memcpy(to + sizeof head, self->settled, self->n_params);
        memcpy(to + sizeof head + self->n_params, self->holds, self->n_params);
        memcpy(to + sizeof head + 2 * self->n_params, self->laid_classes, self->n_params);
        memcpy(to + sizeof head + 3 * self->n_params, &cap_bytes, sizeof cap_bytes);
    }
    for (size_t h = 0; h < self->n; h++) {
        const tally_hook *hook = self->candidates[h];
        struct entry entry = {strlen(hook->table.name), 0};
        tally_hook_blob inner;

        TRY(tally__hook_state_take(hook, &inner));
        entry.state_bytes = inner.bytes;
        if (to) {
            memcpy(to + used, &entry, sizeof entry);
            memcpy(to + used + sizeof entry, hook->table.name, entry.name_bytes);
            if (inner.bytes > 0) {
                memcpy(to + used + sizeof entry + entry.name_bytes, inner.data, inner.bytes);
            }
        }
        used += sizeof entry + entry.name_bytes + inner.bytes;
        tally__hook_state_free(&inner);
    }
    *bytes = used;
    return TALLY_OK;
}

/* ---- loading ---- */

/* One blob, taken apart; everything points into it. */
struct parts {
    struct head head;
    const unsigned char *settled;
    const unsigned char *holds;
    const unsigned char *classes; /* NULL: none */
    uint64_t cap_bytes;
    const char *names[TALLY__MOST_CANDIDATES];
    struct entry entries[TALLY__MOST_CANDIDATES];
    const unsigned char *states[TALLY__MOST_CANDIDATES];
};

static int refuse(void)
{
    return tally__fail(TALLY_ARG, "the state of the hook auto is damaged, or of other parameters");
}

static int take_apart(const struct tally__auto *self, const tally_hook_blob *blob,
                      struct parts *parts)
{
    const unsigned char *from = blob->data;
    size_t left = blob->bytes;
    size_t needed;
    bool has_cap;

    if (left < sizeof parts->head) {
        return refuse();
    }
    memcpy(&parts->head, from, sizeof parts->head);
    from += sizeof parts->head;
    left -= sizeof parts->head;
    has_cap = parts->head.magic == MAGIC;
    needed = has_cap ? 3 * self->n_params + sizeof parts->cap_bytes : 2 * self->n_params;
    if ((!has_cap && parts->head.magic != FIRST_MAGIC) || parts->head.n_params != self->n_params ||
        parts->head.n == 0 || parts->head.n > TALLY__MOST_CANDIDATES || left < needed) {
        return refuse();
    }
    parts->settled = from;
    parts->holds = from + self->n_params;
    parts->classes = has_cap ? from + 2 * self->n_params : NULL;
    if (has_cap) {
        memcpy(&parts->cap_bytes, from + 3 * self->n_params, sizeof parts->cap_bytes);
    }
    from += needed;
    left -= needed;
    for (size_t h = 0; h < parts->head.n; h++) {
        struct entry *entry = &parts->entries[h];

        if (left < sizeof *entry) {
            return refuse();
        }
        memcpy(entry, from, sizeof *entry);
        from += sizeof *entry;
        left -= sizeof *entry;
        if (entry->name_bytes > left || entry->state_bytes > left - entry->name_bytes) {
            return refuse();
        }
        parts->names[h] = (const char *)from;
        parts->states[h] = from + entry->name_bytes;
        from += entry->name_bytes + entry->state_bytes;
        left -= (size_t)(entry->name_bytes + entry->state_bytes);
    }
    for (size_t i = 0; i < self->n_params; i++) {
        if (parts->settled[i] >= parts->head.n || parts->holds[i] >= parts->head.n ||
            (has_cap && parts->classes[i] >= TALLY__MOST_CLASSES)) {
            return refuse();
        }
    }
    return left == 0 ? TALLY_OK : refuse();
}

/* The candidate of this hook that number h of the blob is; n: there is none. */
static size_t find_candidate(const struct tally__auto *self, const struct parts *parts, size_t h)
{
    size_t own = 0;

    while (own < self->n &&
           (strlen(self->candidates[own]->table.name) != parts->entries[h].name_bytes ||
            memcmp(self->candidates[own]->table.name, parts->names[h],
                   (size_t)parts->entries[h].name_bytes) != 0)) {
        own++;
    }
    return own;
}

/* The candidates' states, of all ranks. A candidate that the blobs lack keeps its state. */
static int load_candidates(const struct tally__auto *self, const struct parts *parts,
                           size_t n_blobs)
{
    tally_hook_blob *inner = tally__alloc_array(n_blobs, sizeof *inner, WHAT);
    int rc = inner ? TALLY_OK : TALLY_NOMEM;

    for (size_t h = 0; rc == TALLY_OK && h < parts[0].head.n; h++) {
        size_t own = find_candidate(self, &parts[0], h);

        for (size_t r = 0; r < n_blobs; r++) {
            inner[r] = (tally_hook_blob){.size = sizeof inner[r],
                                         .data = parts[r].states[h],
                                         .bytes = (size_t)parts[r].entries[h].state_bytes};
        }
        if (own < self->n && inner[0].bytes > 0) {
            rc = tally__hook_load(self->candidates[own], inner, n_blobs);
        }
    }
    tally__free(inner);
    return rc;
}

static unsigned char choice_of(const struct tally__auto *self, const struct parts *parts, size_t h)
{
    size_t own = find_candidate(self, parts, h);

    return (unsigned char)(own < self->n ? own : 0);
}

/* A choice that was settled stays, until the next review; a plan file has the last word. */
static void take_choices(struct tally__auto *self, const struct parts *parts)
{
    for (size_t i = 0; i < self->n_params; i++) {
        if (self->phase != TALLY__AUTO_FIXED) {
            self->settled[i] = choice_of(self, parts, parts->settled[i]);
        }
        self->holds[i] = choice_of(self, parts, parts->holds[i]);
        self->used[i] = self->holds[i];
    }
    if (self->phase != TALLY__AUTO_FIXED && parts->classes) {
        self->laid_cap = (size_t)parts->cap_bytes;
        memcpy(self->laid_classes, parts->classes, self->n_params);
    }
}

int tally__auto_load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct tally__auto *self = state;
    struct parts *parts = tally__alloc_array(n_blobs, sizeof *parts, WHAT);
    int rc = parts ? TALLY_OK : TALLY_NOMEM;

    for (size_t r = 0; rc == TALLY_OK && r < n_blobs; r++) {
        rc = take_apart(self, &blobs[r], &parts[r]);
        if (rc == TALLY_OK && parts[r].head.n != parts[0].head.n) {
            rc = refuse();
        }
    }
    if (rc == TALLY_OK) {
        rc = load_candidates(self, parts, n_blobs);
    }
    if (rc == TALLY_OK) {
        take_choices(self, &parts[0]);
        tally__auto_loaded(self, parts[0].head.is_settled != 0);
    }
    tally__free(parts);
    return rc;
}

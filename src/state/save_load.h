/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading, once for all objects that have a state. Saving writes one rank's blob.
 * Loading takes the blobs of all ranks of a run and keeps one promise: the object takes them over
 * on all ranks, or nothing has changed on any. It goes through these stages:
 *
 *   open        heads, sizes and checksums of all blobs; their ranks are 0 to n - 1, in order
 *   check       the object reads all entries, compares them with itself, and allocates all memory
 *               it will need; it changes nothing
 *   agree       one exchange: every rank succeeded so far and was given the same blobs
 *   start       only for an object that calls a hook's load, which may fail: ranks agree once
 *               more, and if one of them failed, the others undo it
 *   take over   cannot fail
 *
 * An object's blob may contain the blob of its inner object. Both are opened and checked before
 * ranks agree. One thread of the application enters at a time, between steps.
 */
#ifndef TALLY_STATE_SAVE_LOAD_H
#define TALLY_STATE_SAVE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/blob.h"
#include "tally_extend.h"

/* An object with a state. What its write needs besides may follow in the same struct. */
struct tally__state {
    const struct tally__state_kind *kind;
    void *object;
    int rank;
    int world;
    bool is_whole; /* to save: one blob for all ranks, which is that of a world of one */
    size_t n_params;
    uint64_t n_steps;
    /* Runs a job on the ddp's lane 0, if all ranks come with OK, and waits for it. */
    int (*agree)(tally_ddp *ddp, int status, tally_job_fn job, void *user);
    tally_ddp *ddp;
};

/* One rank's blob. */
struct tally__blob {
    const void *bytes;
    size_t n_bytes;
    struct tally__blob_head head;
    struct tally__blob_reader reader; /* of the entries behind the head */
    void *copy;                       /* of a blob that is not aligned; else NULL */
    const void *inner;                /* check sets it: the inner object's blob, in this one */
    size_t inner_bytes;
};

/* The blobs on their way into one object. */
struct tally__loading {
    struct tally__state state;
    size_t n;                     /* blobs */
    struct tally__blob *blobs;    /* one per rank that saved */
    void *fresh;                  /* kind->fresh_bytes of zeros at first: what check prepares */
    struct tally__loading *inner; /* of the inner object; NULL: none */
};

/* What differs from one kind of object to the next. */
struct tally__state_kind {
    uint64_t magic;
    uint32_t version;
    const char *name;   /* "ddp": it is saved by tally_ddp_save */
    const char *counts; /* what n_steps counts: "steps" */
    const char *owner;  /* what has n_params parameters: "model" */
    size_t fresh_bytes;
    /* Writes the entries. Called several times; writes as many bytes each time. */
    void (*write)(const struct tally__state *state, struct tally__blob_writer *writer);
    /* Reads all entries of all blobs and prepares fresh. Changes nothing. */
    int (*check)(struct tally__loading *loading);
    /* start calls what may fail, and leaves no trace when it fails; undo takes a success back. Both
     * are NULL if there is nothing to call. An object with an inner object has none. */
    int (*start)(const struct tally__loading *loading);
    void (*undo)(const struct tally__loading *loading);
    /* Exchanges the object's state for fresh. Cannot fail. */
    void (*take_over)(const struct tally__loading *loading);
    /* Frees what fresh has now. check may have failed anywhere. */
    void (*free)(void *fresh);
};

/* Writes a blob to blob, which has room for *bytes, and sets *bytes to its size; a NULL blob only
 * asks for the size. Local. Errors: ARG naming the call. */
int tally__state_save(const struct tally__state *state, const char *call, void *blob,
                      size_t *bytes);

/* For write: the blob of the inner object; NULL: an empty array. */
void tally__state_put(struct tally__blob_writer *writer, const struct tally__state *inner);

/*
 * Loads n blobs, those of all ranks of a run and the same on every rank. Collective. Errors: ARG
 * naming the blob, MISMATCH for different blobs, NOMEM, those of check and start: on all ranks, and
 * nothing has changed on any.
 */
int tally__state_load(const struct tally__state *state, const void *const *blobs,
                      const size_t *bytes, size_t n);

/* For check: opens and checks the blobs of the inner object, blobs[r].inner. */
int tally__state_check_inner(struct tally__loading *loading, const struct tally__state *inner);
/* For check: ARG that blob r is damaged. */
int tally__state_damaged(size_t r);
/* For check, behind the last entry: ARG if blob r does not end here or was bad before. */
int tally__state_check_end(const struct tally__loading *loading, size_t r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading, once for all objects that have a state. Saving writes one rank's blob.
 * Loading takes the blobs of all ranks of a run and keeps one promise: the object takes them over
 * on all ranks, or nothing has changed on any. It does, in this order:
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

/* One rank's blob. */
struct tally__blob {
    struct tally__blob_head head;
    struct tally__blob_reader reader; /* of the entries after the head */
    void *copy;                       /* of a blob that is not aligned; else NULL */
    void *params;                     /* for check: kind->param_bytes for each parameter */
    const void *inner;                /* check sets it: the inner object's blob, in this one */
    size_t inner_bytes;
};

/* An object on its way to a blob, or blobs on their way to an object. */
struct tally__state {
    const struct tally__state_kind *kind;
    void *object;
    struct tally__state *inner; /* of the inner object; NULL: none */
    int rank;
    int world;
    size_t n_params;
    uint64_t n_steps;
    /* tally__ddp_agree, a pointer because this folder does not know ddp: returns OK only if status
     * is OK on all ranks; then also runs job on lane 0, unless it is NULL. Collective. */
    int (*agree)(tally_ddp *ddp, int status, tally_job_fn job, void *user);
    tally_ddp *ddp;       /* the first argument of agree */
    tally_hook_blob hook; /* state of a ddp's hook, set by snapshot, freed by the driver */
    /* To save. */
    bool is_whole;     /* writes one blob for all ranks, as if a world of one rank saved it */
    const void *parts; /* further input of write, of a type that the kind knows */
    /* To load. */
    bool is_verified; /* as in tally__load */
    size_t n;
    struct tally__blob *blobs; /* n of them, one per rank that saved */
    void *fresh;               /* kind->fresh_bytes, zeros at first: check puts here what
                                  take_over needs */
};

/* The row of one kind of object. */
struct tally__state_kind {
    uint64_t magic;
    uint32_t version;
    const char *name;      /* "ddp": it is saved by tally_ddp_save */
    const char *counts;    /* the plural of n_steps: "steps" */
    const char *params_of; /* the owner of the n_params parameters: "model" */
    size_t fresh_bytes;
    size_t param_bytes;
    /* Does the part of saving that can fail, such as asking a hook for its state. Comes before
     * write and before start. NULL: nothing to do. */
    int (*snapshot)(struct tally__state *state);
    /* Writes the entries. Called several times; writes as many bytes each time. */
    void (*write)(const struct tally__state *state, struct tally__blob_writer *writer);
    /* Reads all entries of all blobs and prepares fresh. Changes nothing. */
    int (*check)(struct tally__state *state);
    /* start calls the application's code, which may fail and then leaves no trace; undo reverts a
     * success. Only an object without an inner object may have them. NULL: nothing to do. */
    int (*start)(const struct tally__state *state);
    void (*undo)(const struct tally__state *state);
    /* Swaps the object's state with fresh. Cannot fail. */
    void (*take_over)(const struct tally__state *state);
    /* Frees the memory that fresh refers to: after a failed check what it had allocated, after
     * take_over the object's old state. NULL: nothing to do. */
    void (*free)(void *fresh);
};

/* Writes a blob to blob, which has room for *bytes, and sets *bytes to its size; a NULL blob only
 * asks for the size. Local. Errors: ARG naming the call; those of snapshot. */
int tally__state_save(struct tally__state *state, const char *call, void *blob, size_t *bytes);

/* The size of a blob, and what its writer needs (blob.h). */
struct tally__blob_size {
    size_t bytes;
    size_t copied;
    size_t n_pieces;
};

/* The same in steps, for a blob in a checkpoint, which has checksums of its parts: the head has
 * none. begin does what can fail and tells the size; write; end, also after a begin that failed,
 * and, if the blob refers to arrays of the object, when its bytes are not needed any more. */
int tally__state_begin(struct tally__state *state, bool refers, struct tally__blob_size *size);
void tally__state_write(const struct tally__state *state, bool refers, void *memory,
                        struct tally__bytes *pieces);
void tally__state_end(struct tally__state *state);

/* For write, as the last entry: the blob of the inner object, or an empty array. */
void tally__state_put_inner(const struct tally__state *state, struct tally__blob_writer *writer);

/*
 * Loads n blobs, those of all ranks of a run and the same on every rank. If blob 0 has no inner
 * blob, the inner object stays as it is. Collective. Errors: ARG naming the blob, MISMATCH for
 * different blobs, NOMEM, those of the kind: on all ranks, and nothing has changed on any.
 */
int tally__state_load(struct tally__state *state, const void *const *blobs, const size_t *bytes,
                      size_t n);

/* An object, and the blobs to load into it. */
struct tally__load {
    struct tally__state *state;
    const void *const *blobs;
    const size_t *bytes;
    size_t n;
    bool is_verified; /* every byte, and all ranks have the same: the heads have no checksums */
};

/*
 * The same for n >= 1 objects of one ddp: all of them take their blobs over, or none. status is
 * that of the caller's own preparations: if it is a failure on any rank, with the thread's error
 * text, all ranks fail with it.
 */
int tally__states_load(const struct tally__load *loads, size_t n, int status);

/* For check: ARG that blob r is damaged. */
int tally__state_damaged(size_t r);
/* For check, after the last entry: ARG if blob r does not end here or was bad before. */
int tally__state_check_end(const struct tally__state *state, size_t r);

#endif

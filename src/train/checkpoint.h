/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a ddp: what its files of saving and loading share. */
#ifndef TALLY_TRAIN_CHECKPOINT_H
#define TALLY_TRAIN_CHECKPOINT_H

#include "ddp/ddp_state.h"
#include "state/container.h"
#include "train/training.h"

#define TALLY__CHECKPOINT_CONFIG TALLY__SIZED(tally_checkpoint_config, reserved)
#define TALLY__CHECKPOINT_BLOB TALLY__SIZED(tally_checkpoint_blob, loaded_bytes)

/* The objects of a ddp that have a state: the ddp, its optimizer, and an averager that the
 * application calls; one that the optimizer calls is saved with the optimizer. */
#define TALLY__MAX_OBJECTS 3
struct tally__objects {
    size_t n;
    enum tally__part_kind kinds[TALLY__MAX_OBJECTS];
    struct tally__state states[TALLY__MAX_OBJECTS][3];
};
/* To save: an optimizer whose state may be the same on all ranks writes it as one blob for all. */
void tally__objects_find(tally_ddp *ddp, bool to_save, struct tally__objects *objects);

/* The saves of a ddp. */
struct tally__checkpoints {
    char *directory;
    int lock_fd;          /* on rank 0; -1: the lock is not held */
    tally_group *group;   /* for asynchronous saves; NULL: there was none yet */
    tally_future *future; /* of the save that is being written; NULL: none */
    /* The checkpoint that is being written. */
    struct tally__saving saving;
    _Atomic bool is_awaited; /* the application waits for it */
    char *hook;
    char *names;                 /* of the application's blobs */
    struct tally__bytes *pieces; /* of all parts */
    size_t n_pieces;
    unsigned char *memory; /* copies; kept after an asynchronous save */
    size_t memory_bytes;
    struct tally__objects objects;
    size_t n_begun;      /* of these: their states have begun, and are to be ended */
    size_t whole;        /* the object whose blob may be one for all ranks; objects.n: none */
    char slice_name[48]; /* of the part of that blob that this rank writes */
};

/* Waits for a save that is being written. NULL is accepted. Local. */
int tally__checkpoints_wait(struct tally__checkpoints *checkpoints);
/* Waits too, and logs a failure. */
void tally__checkpoints_free(struct tally__checkpoints *checkpoints);

/* Reads the application's config and entry i of its blobs. Errors: ARG, UNSUPPORTED. */
int tally__checkpoint_config(const char *call, const tally_checkpoint_config *given,
                             tally_checkpoint_config *config);
int tally__checkpoint_blob(const tally_checkpoint_config *config, size_t i,
                           tally_checkpoint_blob *blob);

/* In a job: MISMATCH if ranks give other arguments. */
struct tally__checkpoint_call {
    const char *call;
    const char *directory;
    const tally_checkpoint_config *config;
};
int tally__checkpoint_compare(tally_lane *lane, void *user);

/* checkpoint_collect.c: collects the parts of a save; free forgets them, but keeps the memory of
 * copies. */
int tally__checkpoint_collect(tally_ddp *ddp, const tally_checkpoint_config *config,
                              struct tally__checkpoints *checkpoints);
void tally__checkpoint_release(struct tally__checkpoints *checkpoints);

/* checkpoint_slices.c. In a job of more than one rank: divides the blob that may be one for all
 * ranks. */
int tally__checkpoint_share(tally_lane *lane, struct tally__checkpoints *checkpoints);
/* Reads the slices of a checkpoint into one blob, which the caller frees; *blob stays as it is if
 * there are none. */
int tally__checkpoint_slices(const char *folder, const struct tally__manifest *manifest,
                             void **blob, size_t *bytes);

/* checkpoint_rows.c: copies a parameter to row-major order, and back. */
void tally__rows_take(const struct tally__param *param, void *rows);
void tally__rows_put(const struct tally__param *param, const void *rows);

#endif

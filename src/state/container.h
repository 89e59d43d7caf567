/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container of checkpoints: a directory with one folder for each. It knows parts with names
 * and bytes, and no object. In the directory are
 *
 *   save-SSSSSS-step-N     a complete checkpoint; SSSSSS counts the saves of the directory
 *   .saving-SSSSSS         one that is being written, or that was given up
 *   .deleting-SSSSSS       one that is being deleted
 *   lock                   held by the job that saves (files.h)
 *
 * and in a checkpoint, for K of N ranks
 *
 *   model.safetensors, or model-0000K-of-0000N.safetensors    parameters, each once
 *   own-0000K-of-0000N.safetensors                            parameters that differ between ranks
 *   state-0000K-of-0000N.tally                                buffers, blobs
 *   model.safetensors.index.json                              which file has which parameter
 *   manifest                                                  written last (manifest.h)
 *
 * A folder gets its name save-... when all files are on the disk.
 */
#ifndef TALLY_STATE_CONTAINER_H
#define TALLY_STATE_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/files.h"
#include "state/manifest.h"
#include "tally_extend.h"

#define TALLY__FOLDER_BYTES 64 /* of a folder's name, with its NUL */

/* ---- container_folders.c: which checkpoints there are ---- */

/* Makes the directory and takes its lock, unless *lock_fd says that it is held already; removes
 * leftovers of former saves; makes a folder for the next checkpoint. Names it now and once
 * complete. Rank 0 only. */
struct tally__folder_names {
    char temporary[TALLY__FOLDER_BYTES];
    char final[TALLY__FOLDER_BYTES];
};
int tally__folders_begin(const char *directory, uint64_t step, int *lock_fd,
                         struct tally__folder_names *names);
/* The folder is complete: gives it its final name. */
int tally__folders_finish(const char *directory, const struct tally__folder_names *names);
/* Deletes all complete checkpoints except the newest keep; 0: none. Logs what fails. */
void tally__folders_trim(const char *directory, int keep);
/* Removes a folder that will not be finished; keeps the thread's error text. */
void tally__folders_discard(const char *directory, const struct tally__folder_names *names);

/* A checkpoint that was found; its manifest as text. */
struct tally__found {
    char name[TALLY__FOLDER_BYTES]; /* "": there is none */
    int n_skipped;
    char skipped[512]; /* newer folders that are not complete, and why */
    char *text;        /* freed by the caller */
    size_t n_text;
};

/* Finds the newest complete checkpoint, or the one with this name: its manifest is whole, and every
 * file is there and has its size. Errors: ARG if there are checkpoints but none is complete. */
int tally__folders_find(const char *directory, const char *name, struct tally__found *found);

/* Whether a folder is a checkpoint, complete or not, by the first words of its manifest. */
bool tally__folder_is_checkpoint(const char *folder);

/* Reads the manifest of one folder, and checks that it is complete. */
int tally__folder_check(const char *folder, char **text, size_t *n_text);

/* ---- container_save.c ---- */

/* A checkpoint on its way to the disk. Everything that it refers to must stay until it is there. */
struct tally__saving {
    const char *directory;
    uint64_t step;
    const char *hook;
    int keep;
    size_t model_params;  /* parameters and buffers of the model; */
    size_t model_buffers; /* a parameter without data is not saved */
    size_t n_params;
    size_t n_shared; /* parameters, then buffers: all ranks have them, equal or not */
    struct tally__part *shared;
    size_t n_own; /* parts of this rank */
    struct tally__part *own;
    bool is_behind;                 /* training continues meanwhile: spare it, */
    const _Atomic bool *is_awaited; /* until somebody waits */
    int *lock_fd;                   /* on rank 0: kept from one save to the next; -1: not held */
};

/* In a job: writes it. On failure nothing is left, or only a folder .saving-SSSSSS. */
int tally__container_save(tally_lane *lane, const struct tally__saving *saving);

/* ---- container_load.c ---- */

/* In a job: rank 0 finds a checkpoint, and all ranks learn of it. */
int tally__container_find(tally_lane *lane, const char *directory, const char *name,
                          struct tally__found *found);

/* Names this rank in the text of a SYSTEM failure, unless it is rank 0, and says so if it does not
 * see the folder at all. Returns rc. */
int tally__container_explain(const tally_group *group, const char *folder, int rc);

/* Reads a part, to part->bytes bytes, and verifies its checksum. Errors: ARG naming file and part
 * if it is damaged; SYSTEM. */
int tally__part_read(const char *folder, const struct tally__manifest *manifest,
                     const struct tally__part *part, void *bytes);

/* ---- inspect.c ---- */

#define TALLY__INFO TALLY__SIZED(tally_checkpoint_info, skipped)

/* Describes a checkpoint that was found; manifest is NULL if there is none. */
void tally__info_fill(const struct tally__found *found, const struct tally__manifest *manifest,
                      tally_checkpoint_info *info);

/* ---- safetensors.c ---- */

/* The key in the head of a safetensors file that does not name a tensor. */
#define TALLY__METADATA_NAME "__metadata__"

/* Writes the head of a file with these tensors, in this order. */
void tally__safetensors_head(struct tally__growing *to, const struct tally__part *tensors, size_t n,
                             uint64_t step);

/* Writes a text of any bytes as a JSON string. */
void tally__json_string(struct tally__growing *to, const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of 06_gpt's checkpoints, in one directory: one per rank and checkpoint, and "latest",
 * which names the last complete checkpoint. Independent of tally. On failure a function prints an
 * error to stderr and returns -1.
 */
#ifndef GPT_FILES_H
#define GPT_FILES_H

#include <stddef.h>

/* The data that one rank saves: the values of the model and two blobs. */
struct gpt_saved {
    size_t n_values, n_bytes[2];
    float *values;
    void *blobs[2];
};

/* A checkpoint: the data that all ranks saved before step. */
struct gpt_files {
    long step, n_ranks;
    struct gpt_saved *ranks; /* NULL: there is none */
};

int gpt_files_write(const char *directory, long step, int rank, const struct gpt_saved *saved);
void gpt_files_remove(const char *directory, long step, int rank);

/* Makes step the latest checkpoint; all n_ranks files must be complete. */
int gpt_files_announce(const char *directory, long step, int n_ranks);

/* Reads the latest checkpoint; creates the directory if it does not exist. */
int gpt_files_read(const char *directory, size_t n_values, struct gpt_files *files);
void gpt_files_free(struct gpt_files *files);

#endif

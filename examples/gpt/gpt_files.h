/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of 06_gpt's checkpoints, in one directory: one per rank and checkpoint, and "latest",
 * which says which of them are whole. No ranks, no tally in here. What fails says so on stderr and
 * returns -1.
 */
#ifndef GPT_FILES_H
#define GPT_FILES_H

#include <stddef.h>

/* What one rank saves: a model's values and two blobs. */
struct gpt_saved {
    size_t n_values, n_bytes[2];
    float *values;
    void *blobs[2];
};

/* A checkpoint: what all ranks saved before step. */
struct gpt_files {
    long step, n_ranks;
    struct gpt_saved *ranks; /* NULL: there is none */
};

int gpt_files_write(const char *directory, long step, int rank, const struct gpt_saved *saved);
void gpt_files_remove(const char *directory, long step, int rank);

/* All n_ranks files of step are there: from now on it is the latest. */
int gpt_files_announce(const char *directory, long step, int n_ranks);

/* Reads the latest; makes the directory if there is none. */
int gpt_files_read(const char *directory, size_t n_values, struct gpt_files *files);
void gpt_files_free(struct gpt_files *files);

#endif

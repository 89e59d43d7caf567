/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a trace file (trace_format.h). One thread at a time. */
#ifndef TALLY_TRACE_TRACE_FILE_H
#define TALLY_TRACE_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace_format.h"

struct tally__trace_file;

/* The rank that writes. */
struct tally__trace_rank_words {
    int rank;
    int world;
    const char *backend;
};

/* Fills the head of a file, with segments of segment_bytes. */
void tally__trace_head_fill(const struct tally__trace_rank_words *of, uint32_t n_segments,
                            uint64_t segment_bytes, struct tally__trace_head *head);

/* Least number of bytes of a file. */
#define TALLY__TRACE_LEAST ((uint64_t)256 << 10)

/*
 * Creates a file that never exceeds most_bytes. A file of this name is replaced, unless somebody
 * writes it, or this process or its parent wrote it: then a number is appended to the name. Errors:
 * ARG for too few bytes or the name of a folder, NOMEM, SYSTEM naming the file.
 */
int tally__trace_file_open(const struct tally__trace_rank_words *of, const char *name,
                           uint64_t most_bytes, struct tally__trace_file **file);

/* Writes everything and frees the file. */
void tally__trace_file_close(struct tally__trace_file *file);

/* A record that every segment begins with, from now on: it replaces the one of the same kind and
 * key. Errors: NOMEM. */
int tally__trace_file_keep(struct tally__trace_file *file, uint32_t kind, uint64_t key,
                           const void *payload, size_t bytes);

/* Appends a record; its payload is the head and the tail together. A failure is logged once; then
 * the file stays as it is, and calls do nothing. */
struct tally__trace_payload {
    const void *head;
    size_t head_bytes;
    const void *tail;
    size_t tail_bytes;
};
void tally__trace_file_put(struct tally__trace_file *file, uint32_t kind,
                           const struct tally__trace_payload *payload);

/* Notes that the segment has this step. */
void tally__trace_file_note_step(struct tally__trace_file *file, uint64_t step);

/* Hands everything to the operating system: now, or if it is time. False: the file has failed. */
bool tally__trace_file_flush(struct tally__trace_file *file, bool now);

const char *tally__trace_file_path(const struct tally__trace_file *file);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a trace file. Nothing in it is trusted: whatever the bytes are, a reader gets whole
 * records, texts that end, and events whose end is not before their begin.
 */
#ifndef TALLY_TOOLS_TRACE_READ_H
#define TALLY_TOOLS_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trace/trace_format.h"

/* Called for each record, in the order in which they were written. NULL: not wanted. Pointers are
 * valid during the call. */
struct trace_visitor {
    void *user;
    void (*events)(void *user, const struct tally__trace_thread *thread,
                   const struct tally__trace_event *events, size_t n);
    void (*buckets)(void *user, const struct tally__trace_buckets *head,
                    const struct tally__trace_bucket *buckets);
    void (*step)(void *user, const struct tally__trace_step *step);
    void (*ranks)(void *user, const struct tally__trace_ranks *head,
                  const struct tally__trace_rank *ranks);
    void (*note)(void *user, const struct tally__trace_note *note);
    void (*error)(void *user, const struct tally__trace_error *error);
    void (*choices)(void *user, const struct tally__trace_choices *head,
                    const struct tally__trace_choice *choices);
    void (*lines)(void *user, const struct tally__trace_lines *head,
                  const struct tally__trace_line *lines);
};

struct trace_file {
    struct tally__trace_head head;
    uint64_t file_bytes;
    uint32_t *order;   /* of the used segments, the oldest first */
    uint32_t n_used;   /* segments */
    bool is_cut_short; /* the file ends inside a segment */
};

/* Reads the head and the heads of all segments. False if this is not a good trace file; why then
 * says it, as the end of a sentence that begins with the name of the file. */
bool trace_file_read(FILE *from, struct trace_file *file, char *why, size_t room);

/* Reads all records. Needs memory for one segment. False, with the reason, if the file is damaged
 * or memory runs out. */
bool trace_file_visit(FILE *from, const struct trace_file *file,
                      const struct trace_visitor *visitor, char *why, size_t room);

void trace_file_free(struct trace_file *file);

#endif

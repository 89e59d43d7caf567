/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of the ranks, line by line. A stream reads what one rank writes; a sink is where whole
 * lines go, those of the ranks and the launcher's own. Nothing here blocks.
 */
#ifndef TALLY_TOOLS_RUN_OUTPUT_H
#define TALLY_TOOLS_RUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

struct run_buffer {
    char *bytes;
    size_t n;
    size_t capacity;
};

struct run_sink {
    int fd;
    const char *name; /* "standard output" */
    struct run_buffer waiting;
    size_t n_written; /* of waiting */
    int error;        /* why nothing more can be written; 0 */
    bool given_up;    /* the owner knows */
};

struct run_stream {
    int fd; /* -1: at its end */
    int rank;
    struct run_sink *sink;
    struct run_buffer line; /* the beginning of a line whose end has not come yet */
};

void run_sink_add(struct run_sink *sink, const void *bytes, size_t n);
/* "tally run: " and a line of the launcher's own. */
void run_say(struct run_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Something waits to be written. */
bool run_sink_waits(const struct run_sink *sink);
/* So much waits that the ranks had better wait too. */
bool run_sink_is_full(const struct run_sink *sink);
/* Writes as much as goes at once. */
void run_sink_flush(struct run_sink *sink);
/* Forgets what waits. */
void run_sink_clear(struct run_sink *sink);

/* Makes the pipe; *write_end is for the rank. False with errno set. */
bool run_stream_open(struct run_stream *stream, int rank, struct run_sink *sink, int *write_end);
/* Passes on what is there, up to some 64 KiB; false when there is nothing (yet, or any more). */
bool run_stream_read(struct run_stream *stream);
/* Passes on the rest, also a line without an end, and closes. */
void run_stream_close(struct run_stream *stream);

#endif

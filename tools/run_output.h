/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of the ranks, line by line. A stream reads the output of one rank; a sink takes whole
 * lines from the ranks and the launcher. Nothing here blocks.
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
    size_t n_written; /* allocated for waiting */
    int error;        /* errno if nothing more can be written; 0 */
    bool given_up;    /* the error has been reported */
};

struct run_stream {
    int fd; /* -1: at end of file */
    int rank;
    struct run_sink *sink;
    struct run_buffer line; /* the incomplete line */
};

void run_sink_add(struct run_sink *sink, const void *bytes, size_t n);
/* Adds a line of the launcher, after "tally run: ". */
void run_say(struct run_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether bytes wait to be written. */
bool run_sink_waits(const struct run_sink *sink);
/* Whether the ranks should wait, because too many bytes of their output do. */
bool run_sink_is_full(const struct run_sink *sink);
/* Writes as much as possible without blocking. */
void run_sink_flush(struct run_sink *sink);
/* Discards the bytes that wait. */
void run_sink_clear(struct run_sink *sink);

/* Creates the pipe; *write_end is for the rank. False with errno set on failure. */
bool run_stream_open(struct run_stream *stream, int rank, struct run_sink *sink, int *write_end);
/* Forwards up to about 64 KiB; false if there is nothing to read now, or at end of file. */
bool run_stream_read(struct run_stream *stream);
/* Forwards the rest, including an incomplete line, and closes. */
void run_stream_close(struct run_stream *stream);

#endif

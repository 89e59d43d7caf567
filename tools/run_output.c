/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes the lines of the ranks. One thread. Invariants: a sink receives only whole lines, so
 * lines of two ranks never mix; every byte of a rank passes unchanged, except that a last line
 * without a newline gets one. A line is kept until it is complete, however long it is: holding back
 * the other ranks instead could block a rank that the writer of the long line waits for.
 */
#include "tools/run_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)64 << 10)
#define FULL_BYTES ((size_t)1 << 20)

static bool buffer_add(struct run_buffer *buffer, const void *bytes, size_t n)
{
    if (n > buffer->capacity - buffer->n) {
        size_t capacity = 2 * (buffer->n + n);
        char *larger = realloc(buffer->bytes, capacity);

        if (!larger) {
            return false;
        }
        buffer->bytes = larger;
        buffer->capacity = capacity;
    }
    if (n > 0) {
        memcpy(buffer->bytes + buffer->n, bytes, n);
        buffer->n += n;
    }
    return true;
}

static void buffer_free(struct run_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct run_buffer){0};
}

void run_sink_add(struct run_sink *sink, const void *bytes, size_t n)
{
    if (sink->error != 0) {
        return;
    }
    if (!buffer_add(&sink->waiting, bytes, n)) {
        sink->error = ENOMEM;
    }
}

void run_say(struct run_sink *sink, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n < 0) {
        return;
    }
    run_sink_add(sink, "tally run: ", strlen("tally run: "));
    run_sink_add(sink, text, strlen(text));
    run_sink_add(sink, "\n", 1);
}

bool run_sink_waits(const struct run_sink *sink)
{
    return sink->error == 0 && sink->n_written < sink->waiting.n;
}

bool run_sink_is_full(const struct run_sink *sink)
{
    return sink->waiting.n - sink->n_written >= FULL_BYTES;
}

void run_sink_clear(struct run_sink *sink)
{
    buffer_free(&sink->waiting);
    sink->n_written = 0;
}

/* Other programs may share the output, so it is not set to non-blocking; but a pipe that is ready
 * takes PIPE_BUF bytes without blocking. */
static bool is_ready(const struct run_sink *sink)
{
    struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};

    return poll(&ready, 1, 0) == 1;
}

void run_sink_flush(struct run_sink *sink)
{
    while (run_sink_waits(sink) && is_ready(sink)) {
        size_t left = sink->waiting.n - sink->n_written;
        ssize_t n = write(sink->fd, sink->waiting.bytes + sink->n_written,
                          left < PIPE_BUF ? left : PIPE_BUF);

        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR) {
                return;
            }
            sink->error = errno;
            return;
        }
        sink->n_written += (size_t)n;
    }
    if (sink->n_written > sink->waiting.n / 2) {
        sink->waiting.n -= sink->n_written;
        memmove(sink->waiting.bytes, sink->waiting.bytes + sink->n_written, sink->waiting.n);
        sink->n_written = 0;
    }
}

bool run_stream_open(struct run_stream *stream, int rank, struct run_sink *sink, int *write_end)
{
    int ends[2];

    *stream = (struct run_stream){.fd = -1, .rank = rank, .sink = sink};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return false;
    }
    stream->fd = ends[0];
    *write_end = ends[1];
    return true;
}

/* Sends the incomplete line, with a newline. */
static void finish_line(struct run_stream *stream, const char *end, size_t n)
{
    char prefix[32];
    int length = snprintf(prefix, sizeof prefix, "[%d] ", stream->rank);

    run_sink_add(stream->sink, prefix, (size_t)length);
    run_sink_add(stream->sink, stream->line.bytes, stream->line.n);
    run_sink_add(stream->sink, end, n);
    /* Free the memory of a very long line. */
    if (stream->line.capacity > READ_BYTES) {
        buffer_free(&stream->line);
    }
    stream->line.n = 0;
}

bool run_stream_read(struct run_stream *stream)
{
    static char bytes[READ_BYTES];
    const char *rest = bytes;
    ssize_t n;

    if (stream->fd < 0) {
        return false;
    }
    n = read(stream->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (n <= 0) {
        run_stream_close(stream);
        return false;
    }
    while (n > 0) {
        const char *newline = memchr(rest, '\n', (size_t)n);
        size_t length = newline ? (size_t)(newline + 1 - rest) : (size_t)n;

        if (newline) {
            finish_line(stream, rest, length);
        } else if (!buffer_add(&stream->line, rest, length)) {
            stream->sink->error = ENOMEM;
        }
        rest += length;
        n -= (ssize_t)length;
    }
    return true;
}

void run_stream_close(struct run_stream *stream)
{
    if (stream->fd >= 0) {
        (void)close(stream->fd);
        stream->fd = -1;
    }
    if (stream->line.n > 0) {
        finish_line(stream, "\n", 1);
    }
    buffer_free(&stream->line);
}

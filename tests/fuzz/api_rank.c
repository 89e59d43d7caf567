/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers and the list of calls. Lane threads write to the list too. It orders nothing
 * between threads (relaxed), so that it hides no race of the library from ThreadSanitizer.
 */
#include "fuzz/api_rank.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define NO_TEXT "(the call recorded no text)"

uint64_t api_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t api_draw(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return api_mix(*random);
}

unsigned api_pick(struct api_rank *rank, unsigned n)
{
    return (unsigned)(api_draw(&rank->random) % n);
}

bool api_chance(struct api_rank *rank, unsigned n)
{
    return api_pick(rank, n) == 0;
}

static void add_line(const struct api_rank *rank, const char *line, size_t n)
{
    struct api_log *log = &rank->program->progress->logs[rank->rank];
    size_t at = atomic_fetch_add_explicit(&log->used, n, memory_order_relaxed);

    if (at + n < sizeof log->text) {
        memcpy(log->text + at, line, n);
    }
    if (rank->program->is_shown) {
        (void)fprintf(stderr, "rank %d: %.*s", rank->rank, (int)n, line);
    }
}

static void add_text(const struct api_rank *rank, const char *format, va_list arguments)
{
    char line[512];
    int n = vsnprintf(line, sizeof line - 1, format, arguments);

    if (n > 0) {
        size_t length = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;

        line[length] = '\n';
        add_line(rank, line, length + 1);
    }
}

void api_note(const struct api_rank *rank, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_text(rank, format, arguments);
    va_end(arguments);
}

void api_fail(const struct api_rank *rank, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "seed %llu, rank %d, operation %d: %s\n",
                  (unsigned long long)rank->program->seed, rank->rank, rank->operation, text);
    abort();
}

static size_t length_of_name(const char *text)
{
    return strcspn(text, "(");
}

void api_begin(const struct api_rank *rank, const char *text)
{
    size_t length = length_of_name(text);

    for (size_t i = 0; i < api_n_names; i++) {
        if (strncmp(api_names[i], text, length) == 0 && api_names[i][length] == '\0') {
            atomic_fetch_add_explicit(&rank->program->progress->n_calls[i], 1,
                                      memory_order_relaxed);
        }
    }
    api_note(rank, "    %s", text);
    (void)tally__fail(TALLY_OK, NO_TEXT);
}

int api_end(const struct api_rank *rank, const char *text, int status)
{
    const char *error = tally_last_error();

    if (status == TALLY_OK) {
        return status;
    }
    api_note(rank, "    = %s: %s", tally_status_name(status), error);
    if (status == TALLY_INTERNAL || strcmp(tally_status_name(status), "UNKNOWN") == 0) {
        api_fail(rank, "%s returned %d: %s", text, status, error);
    }
    if (*error == '\0' || strcmp(error, NO_TEXT) == 0) {
        api_fail(rank, "%s returned %s without a text", text, tally_status_name(status));
    }
    return status;
}

static void add_call(struct api_rank *rank, const char *text, int status, uint64_t hash)
{
    if (rank->n_calls < API_MAX_CALLS && !rank->is_apart) {
        rank->calls[rank->n_calls++] = (struct api_call){rank->operation, text, status, hash};
    }
}

int api_end_alike(struct api_rank *rank, const char *text, int status)
{
    add_call(rank, text, status, 0);
    return api_end(rank, text, status);
}

void api_agree(struct api_rank *rank, const char *what, uint64_t hash)
{
    add_call(rank, what, TALLY_OK, hash);
}

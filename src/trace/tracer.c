/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer of a rank: when its file begins and ends, and the way of events from the rings to the
 * file. Any thread enters; a mutex guards the file. Nothing here runs while a gradient is announced
 * or a bucket is reduced.
 */
#include "trace/tracer.h"

#include <stdio.h>

#include "base/env.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

/* Events per record: a record is smaller than any segment. */
#define N_EVENTS 512

static _Atomic uint64_t last_id; /* relaxed: only uniqueness matters */

int tally__tracer_make(int rank, int world, const char *backend, struct tally__tracer **tracer)
{
    struct tally__tracer *made = tally__alloc(sizeof *made, "the tracer of a rank");
    int keeps_events = 1;

    if (!made) {
        return TALLY_NOMEM;
    }
    if (tally__env_count(TALLY__ENV_EVENTS, &keeps_events) != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "%s", tally_last_error());
    }
    if (keeps_events) {
        made->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    }
    made->words = (struct tally__trace_rank_words){rank, world, backend};
    (void)pthread_mutex_init(&made->mutex, NULL);
    *tracer = made;
    return TALLY_OK;
}

/* ---- with the mutex held ---- */

static void write_ring(struct tally__tracer *tracer, struct tally__ring *ring)
{
    struct tally__trace_thread thread = {0};
    size_t n;

    tally__ring_thread(ring, &thread);
    do {
        n = tally__ring_take(ring, N_EVENTS, tracer->events, &thread.n_lost);
        if (n > 0) {
            tally__trace_file_put(
                tracer->file, TALLY__RECORD_THREAD,
                &(struct tally__trace_payload){.head = &thread,
                                               .head_bytes = sizeof thread,
                                               .tail = tracer->events,
                                               .tail_bytes = n * sizeof *tracer->events});
        }
    } while (n == N_EVENTS);
}

static void write_rings(struct tally__tracer *tracer)
{
    struct tally__ring *ring = NULL;

    while ((ring = tally__ring_next(tracer->id, ring)) != NULL) {
        write_ring(tracer, ring);
    }
}

static void note(struct tally__tracer *tracer, const char *key, const char *value, uint64_t number)
{
    struct tally__trace_note made = {0};

    (void)snprintf(made.key, sizeof made.key, "%s", key);
    (void)snprintf(made.value, sizeof made.value, "%s", value);
    (void)tally__trace_file_keep(tracer->file, TALLY__RECORD_NOTE, number, &made, sizeof made);
}

/* Notes the environment variables that are set. */
static void note_environment(struct tally__tracer *tracer)
{
    size_t n = tally_env_count();

    for (size_t i = 0; i < n; i++) {
        tally_env_var var = {.size = sizeof var};

        if (tally_env_get(i, &var) == TALLY_OK && var.value) {
            note(tracer, var.name, var.value, i);
        }
    }
}

static int start(struct tally__tracer *tracer, const char *name, uint64_t most_bytes)
{
    int rc;

    if (tracer->file) {
        return tally__fail(TALLY_STATE, "this rank already writes a trace: %s",
                           tally__trace_file_path(tracer->file));
    }
    tracer->events = tally__alloc_array(N_EVENTS, sizeof *tracer->events, "events of a trace");
    if (!tracer->events) {
        return TALLY_NOMEM;
    }
    rc = tally__trace_file_open(&tracer->words, name, most_bytes, &tracer->file);
    if (rc != TALLY_OK) {
        tally__free(tracer->events);
        tracer->events = NULL;
        return rc;
    }
    tally__rings_keep(true);
    note_environment(tracer);
    atomic_store_explicit(&tracer->file_number, ++tracer->n_files, memory_order_relaxed);
    return TALLY_OK;
}

/* False: it could not be written. */
static bool stop(struct tally__tracer *tracer)
{
    bool is_written;

    write_rings(tracer);
    is_written = tally__trace_file_flush(tracer->file, true);
    tally__trace_file_close(tracer->file);
    tally__free(tracer->events);
    tracer->file = NULL;
    tracer->events = NULL;
    atomic_store_explicit(&tracer->file_number, 0, memory_order_relaxed);
    tally__rings_keep(false);
    return is_written;
}

/* ---- */

int tally__tracer_start(struct tally__tracer *tracer, const char *name, uint64_t most_bytes)
{
    int rc;

    (void)pthread_mutex_lock(&tracer->mutex);
    tracer->has_begun = true;
    rc = start(tracer, name, most_bytes);
    (void)pthread_mutex_unlock(&tracer->mutex);
    return rc;
}

void tally__tracer_begin(struct tally__tracer *tracer)
{
    int most_bytes = 0;

    (void)pthread_mutex_lock(&tracer->mutex);
    if (!tracer->has_begun && tally__env_is_set(TALLY__ENV_TRACE)) {
        int rc = tally__env_count(TALLY__ENV_TRACE_BYTES, &most_bytes);

        if (rc == TALLY_OK) {
            rc = start(tracer, tally__env_text(TALLY__ENV_TRACE), (uint64_t)most_bytes);
        }
        if (rc != TALLY_OK) {
            tally__log(TALLY_LOG_WARN, "TALLY_TRACE: no trace is written: %s", tally_last_error());
        }
    }
    tracer->has_begun = true;
    (void)pthread_mutex_unlock(&tracer->mutex);
}

struct tally__status_entry *tally__tracer_enter(struct tally__tracer *tracer, uint8_t ddp)
{
    struct tally__status_entry *entry;

    (void)pthread_mutex_lock(&tracer->mutex);
    tally__status_open(&tracer->page, &tracer->words);
    entry = tally__status_take(&tracer->page, ddp);
    (void)pthread_mutex_unlock(&tracer->mutex);
    return entry;
}

int tally__tracer_write(struct tally__tracer *tracer)
{
    int rc = TALLY_OK;

    (void)pthread_mutex_lock(&tracer->mutex);
    if (!tracer->file) {
        rc = tally__fail(TALLY_STATE, "this rank writes no trace: call tally_trace_start first");
    } else {
        write_rings(tracer);
        if (!tally__trace_file_flush(tracer->file, true)) {
            rc = tally__fail(TALLY_SYSTEM, "the trace file %s cannot be written",
                             tally__trace_file_path(tracer->file));
        }
    }
    (void)pthread_mutex_unlock(&tracer->mutex);
    return rc;
}

int tally__tracer_stop(struct tally__tracer *tracer)
{
    int rc = TALLY_OK;

    (void)pthread_mutex_lock(&tracer->mutex);
    if (!tracer->file) {
        rc = tally__fail(TALLY_STATE, "this rank writes no trace: call tally_trace_start first");
    } else if (!stop(tracer)) {
        rc = tally__fail(TALLY_SYSTEM, "the trace file could not be written to its end");
    }
    (void)pthread_mutex_unlock(&tracer->mutex);
    return rc;
}

void tally__tracer_keep(struct tally__tracer *tracer, uint32_t kind, uint64_t key,
                        const void *payload, size_t bytes)
{
    (void)pthread_mutex_lock(&tracer->mutex);
    if (tracer->file &&
        tally__trace_file_keep(tracer->file, kind, key, payload, bytes) != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "the trace ends here: %s", tally_last_error());
        (void)stop(tracer);
    }
    (void)pthread_mutex_unlock(&tracer->mutex);
}

void tally__tracer_put(struct tally__tracer *tracer, uint32_t kind,
                       const struct tally__trace_payload *payload)
{
    (void)pthread_mutex_lock(&tracer->mutex);
    if (tracer->file) {
        tally__trace_file_put(tracer->file, kind, payload);
    }
    (void)pthread_mutex_unlock(&tracer->mutex);
}

void tally__tracer_step(struct tally__tracer *tracer, const struct tally__trace_step *step)
{
    (void)pthread_mutex_lock(&tracer->mutex);
    if (tracer->file) {
        write_rings(tracer);
        tally__trace_file_put(
            tracer->file, TALLY__RECORD_STEP,
            &(struct tally__trace_payload){.head = step, .head_bytes = sizeof *step});
        tally__trace_file_note_step(tracer->file, step->step);
        (void)tally__trace_file_flush(tracer->file, false);
    }
    (void)pthread_mutex_unlock(&tracer->mutex);
}

void tally__tracer_free(struct tally__tracer *tracer)
{
    if (!tracer) {
        return;
    }
    if (tracer->file) {
        (void)stop(tracer);
    }
    tally__rings_release(tracer->id);
    tally__status_close(&tracer->page);
    (void)pthread_mutex_destroy(&tracer->mutex);
    tally__free(tracer);
}

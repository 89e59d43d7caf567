/* SPDX-License-Identifier: Apache-2.0 */
/* The tracer of a rank: the rings of its threads, and the file they are written to. */
#ifndef TALLY_TRACE_TRACER_H
#define TALLY_TRACE_TRACER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/ring.h"
#include "trace/status_entry.h"
#include "trace/trace_file.h"

struct tally__tracer {
    uint64_t id; /* unique in this process; 0: the rank keeps no events (TALLY_EVENTS) */
    struct tally__trace_rank_words words;
    atomic_int n_ddps;         /* created so far */
    pthread_mutex_t mutex;     /* guards the rest */
    atomic_bool has_reported;  /* a failure; relaxed */
    bool has_begun;            /* TALLY_TRACE was looked at */
    struct tally__status page; /* once the rank has a ddp */
    /* Counts the files; 0: none is open. Relaxed: a thread that sees it late writes one step later.
     */
    _Atomic uint64_t file_number;
    uint64_t n_files;
    struct tally__trace_file *file;
    struct tally__trace_event *events; /* room for some, with the file */
};

/* Errors: NOMEM. backend is a static text. */
int tally__tracer_make(int rank, int world, const char *backend, struct tally__tracer **tracer);

/* Writes what is left and frees it; NULL is accepted. No thread puts events for it any more. */
void tally__tracer_free(struct tally__tracer *tracer);

/* Opens the file that TALLY_TRACE names, once; a failure is logged. Any thread. */
void tally__tracer_begin(struct tally__tracer *tracer);

/* An entry of the rank's status page for a ddp, and the end of its use. NULL, which all functions
 * of status_entry.h accept: there is no page, or no room on it. Any thread. */
struct tally__status_entry *tally__tracer_enter(struct tally__tracer *tracer, uint8_t ddp);

/* Starts a file, takes everything recorded so far to it, ends it. Any thread. Errors: those of
 * tally__trace_file_open; STATE if a file is open already, or none is; SYSTEM if it cannot be
 * written. */
int tally__tracer_start(struct tally__tracer *tracer, const char *name, uint64_t most_bytes);
int tally__tracer_write(struct tally__tracer *tracer);
int tally__tracer_stop(struct tally__tracer *tracer);

/* The number of the open file; 0: none. */
static inline uint64_t tally__tracer_file(struct tally__tracer *tracer)
{
    return atomic_load_explicit(&tracer->file_number, memory_order_relaxed);
}

/* As tally__trace_file_keep and tally__trace_file_put, for the open file, if there is one. A lack
 * of memory ends the trace. */
void tally__tracer_keep(struct tally__tracer *tracer, uint32_t kind, uint64_t key,
                        const void *payload, size_t bytes);
void tally__tracer_put(struct tally__tracer *tracer, uint32_t kind,
                       const struct tally__trace_payload *payload);

/* At the end of a step: writes the events of all threads, then the step. */
void tally__tracer_step(struct tally__tracer *tracer, const struct tally__trace_step *step);

#endif

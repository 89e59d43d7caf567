/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of events: every thread that enters tally has one per rank that it works for, always.
 * Putting an event takes neither a lock nor memory nor a system call. The oldest events are
 * overwritten.
 */
#ifndef TALLY_TRACE_RING_H
#define TALLY_TRACE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/status_page.h"
#include "trace/trace_format.h"

/* Events that a ring keeps. One of them may be in the middle of being overwritten. */
#define TALLY__RING_EVENTS 8192

struct tally__ring;

/* Puts an event into this thread's ring for the tracer with this id (tracer.h); nowhere if that is
 * 0. Any thread. */
void tally__event_put(uint64_t tracer, const struct tally__trace_event *event);

/* At the start of a lane thread: its ring is called after the lane. */
void tally__ring_name_lane(int lane);

/* ---- phases: the parts of the reduction of one bucket, on the thread that runs it ---- */

/* The place of the events in which phases end up. */
struct tally__phases_of {
    uint64_t tracer;
    uint32_t step;
    uint16_t bucket;
    uint8_t ddp;
};

/* From here on phases of this thread count for the bucket, until tally__phases_end, which puts one
 * event for each. */
void tally__phases_begin(const struct tally__phases_of *of);
/* Returns the time at which they ended. */
uint64_t tally__phases_end(void);

/* This thread enters a phase: ENCODE ... DECODE, or NONE. Returns the phase before. Costs a reading
 * of the clock between begin and end, and nothing otherwise. */
enum tally__trace_event_kind tally__phase(enum tally__trace_event_kind phase);

/* The same around a wait for a rank, by the launcher's number; the status entry of this thread, if
 * it has one, shows it meanwhile. */
struct tally__phase_wait {
    enum tally__trace_event_kind before;
    int rank;
    uint64_t begin_ns;
};
struct tally__phase_wait tally__phase_wait_begin(int rank);
/* Returns how long it took; 0 outside of a bucket. */
uint64_t tally__phase_wait_end(const struct tally__phase_wait *wait);

/* The status entry that shows the waits of this thread, from now on; NULL for none. */
void tally__waits_show(struct tally__status_entry *entry);

/* ---- reading: one thread at a time per tracer ---- */

/* Walks through the rings of a tracer: the first for NULL; NULL at the end. */
struct tally__ring *tally__ring_next(uint64_t tracer, const struct tally__ring *after);

/* Copies the oldest events that were not taken yet to events, at most n, and takes them. *lost is
 * the number of events before them that were overwritten. */
size_t tally__ring_take(struct tally__ring *ring, size_t n, struct tally__trace_event *events,
                        uint64_t *lost);

/* Without taking them: the number of the n-th last event; and a copy of events from *next on, at
 * most n. *next moves past them. Any thread. */
uint64_t tally__ring_back(const struct tally__ring *ring, size_t n);
size_t tally__ring_copy(const struct tally__ring *ring, uint64_t *next, size_t n,
                        struct tally__trace_event *events);

/* The thread of a ring, and its name. */
void tally__ring_thread(const struct tally__ring *ring, struct tally__trace_thread *thread);

/* The tracer has ended: its rings may be reused. */
void tally__rings_release(uint64_t tracer);

/* While one file or more are written, rings are kept until their events have been taken. */
void tally__rings_keep(bool more);

#endif

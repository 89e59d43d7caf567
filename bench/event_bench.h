/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what an event costs where it happens: steps of one rank with tiny buckets, with events
 * and without, in turn. The difference, divided by the number of events, has everything that an
 * event adds: the readings of the clock, the phases of buckets, and what they do to the caches.
 */
#ifndef TALLY_BENCH_EVENT_BENCH_H
#define TALLY_BENCH_EVENT_BENCH_H

#include <stddef.h>

#define EVENT_MAX_SAMPLES 1001

struct event_bench {
    size_t n_buckets;
    size_t n_samples; /* of each side, up to EVENT_MAX_SAMPLES */
};

/* Medians. */
struct event_result {
    double n_events; /* of a step */
    double off_us;   /* a step without events, */
    double on_us;    /* and with them */
    double event_ns;
};

/* Errors: NOMEM, those of a ddp. */
int event_bench_run(const struct event_bench *bench, struct event_result *result);

#endif

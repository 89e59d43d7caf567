/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of `tally bench events`. One thread: without lane threads, the thread that waits
 * reduces the buckets, so that no wake-up of a thread is measured.
 */
#include "bench/event_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <tally.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/timing.h"
#include "trace/ring.h"

#define N_STEPS 100
#define N_ELEMENTS 16
/* More groups than this bench opens. */
#define MAX_TRACERS 16

/* Steps with events, or without. */
struct side {
    tally_group *group;
    tally_ddp *ddp;
    double us[EVENT_MAX_SAMPLES];
};

static int create(size_t n, tally_group *group, tally_ddp **ddp)
{
    static const size_t shape = N_ELEMENTS;
    tally_param *params = tally__alloc_array(n, sizeof *params, "parameters");
    char(*names)[24] = tally__alloc_array(n, sizeof *names, "parameters");
    tally_ddp_config config;
    int rc = params && names ? TALLY_OK : TALLY_NOMEM;

    for (size_t i = 0; rc == TALLY_OK && i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "%zu", i);
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = 1,
                                  .shape = &shape,
                                  .dtype = TALLY_F32};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = N_ELEMENTS * sizeof(float);
    rc = rc == TALLY_OK ? tally_ddp_create(group, params, n, &config, ddp) : rc;
    tally__free(params);
    tally__free(names);
    return rc;
}

/* TALLY_EVENTS is read when a group opens. */
static int open_side(size_t n, const char *events, struct side *side)
{
    tally_group_config config;

    tally_group_config_init(&config, sizeof config);
    config.backend = "self";
    config.rank = 0;
    config.world = 1;
    config.lanes = 0;
    (void)setenv("TALLY_EVENTS", events, 1);
    TRY(tally_group_open(&config, &side->group));
    return create(n, side->group, &side->ddp);
}

static int take_steps(const struct event_bench *bench, struct side *side, size_t sample)
{
    uint64_t start_ns = tally__now_ns();

    for (int s = 0; s < N_STEPS; s++) {
        for (size_t i = bench->n_buckets; i-- > 0;) {
            TRY(tally_ddp_grad_ready(side->ddp, (int)i));
        }
        TRY(tally_ddp_wait(side->ddp));
    }
    side->us[sample] = (double)(tally__now_ns() - start_ns) / 1e3 / N_STEPS;
    return TALLY_OK;
}

/* Events of this process so far. */
static uint64_t count_events(void)
{
    uint64_t n = 0;

    for (uint64_t tracer = 1; tracer <= MAX_TRACERS; tracer++) {
        struct tally__ring *ring = NULL;

        while ((ring = tally__ring_next(tracer, ring)) != NULL) {
            n += tally__ring_back(ring, 0);
        }
    }
    return n;
}

static int measure(const struct event_bench *bench, struct side sides[2],
                   struct event_result *result)
{
    static double added_ns[EVENT_MAX_SAMPLES];
    uint64_t n_events;

    TRY(take_steps(bench, &sides[0], 0));
    TRY(take_steps(bench, &sides[1], 0));
    n_events = count_events();
    TRY(take_steps(bench, &sides[1], 0));
    result->n_events = (double)(count_events() - n_events) / N_STEPS;
    for (size_t i = 0; i < bench->n_samples; i++) {
        TRY(take_steps(bench, &sides[0], i));
        TRY(take_steps(bench, &sides[1], i));
        added_ns[i] = (sides[1].us[i] - sides[0].us[i]) * 1e3;
    }
    result->off_us = bench_quantile(sides[0].us, bench->n_samples, 0.5);
    result->on_us = bench_quantile(sides[1].us, bench->n_samples, 0.5);
    result->event_ns = bench_quantile(added_ns, bench->n_samples, 0.5) / result->n_events;
    return TALLY_OK;
}

int event_bench_run(const struct event_bench *bench, struct event_result *result)
{
    static struct side sides[2];
    int rc = open_side(bench->n_buckets, "0", &sides[0]);

    if (rc == TALLY_OK) {
        rc = open_side(bench->n_buckets, "1", &sides[1]);
    }
    if (rc == TALLY_OK) {
        rc = measure(bench, sides, result);
    }
    for (int i = 0; i < 2; i++) {
        (void)tally_ddp_free(sides[i].ddp);
        (void)tally_group_close(sides[i].group);
    }
    return rc;
}

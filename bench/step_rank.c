/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the step bench, in a process of its own. The application's thread does what a
 * training program would; communication is the lanes'. Sides take turns, and each step begins with
 * another one. Before every timed side the pattern changes, and after it every element is looked
 * at.
 */
#include "bench/step_rank.h"

#include <stdio.h>
#include <tally.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/backward.h"
#include "bench/pattern.h"
#include "bench/rank_group.h"
#include "bench/rank_team.h"
#include "bench/timing.h"

#define OPEN_TIMEOUT_S 30.0
#define TIMEOUT_S 120.0
/* Steps before the first that counts: after the first one, buckets of copies are arranged anew. */
#define N_WARM_UP 2
#define N_CALIBRATIONS 3
#define NAME_BYTES 32

/* A parameter's place in all gradients, counted in elements. */
struct slice {
    size_t first;
    size_t n;
    float *gradient; /* where the application writes it */
    uint64_t units;  /* of backward before it */
    char name[NAME_BYTES];
};

struct rank_state {
    const struct step_run *run;
    const struct step_bench *bench;
    struct step_record *record;
    int rank;
    unsigned n_meetings;
    uint32_t pattern; /* the repetition of the pattern */
    size_t n;         /* elements of all gradients */
    tally_group *group;
    tally_ddp *ddp;
    struct slice *slices;
    float *data;  /* the parameters */
    float *own;   /* the application's gradients, if it keeps copies */
    float *plain; /* what the one all-reduce works on */
    struct backward backward;
};

size_t step_shared_bytes(int ranks)
{
    return sizeof(struct step_shared) + (size_t)ranks * sizeof(struct step_record);
}

static void meet(struct rank_state *s)
{
    rank_team_meet(&s->run->shared->n_arrived, ++s->n_meetings, s->bench->ranks);
}

/* ---- what the sides are made of ------------------------------------------------------------ */

static void write_gradient(const struct rank_state *s, const struct slice *slice)
{
    pattern_fill(slice->gradient, slice->first, slice->n, s->pattern, pattern_factor(s->rank));
}

static void write_all(const struct rank_state *s)
{
    for (size_t i = s->bench->n_params; i-- > 0;) {
        write_gradient(s, &s->slices[i]);
    }
}

static int announce_all(const struct rank_state *s)
{
    for (size_t i = s->bench->n_params; i-- > 0;) {
        TRY(tally_ddp_grad_ready(s->ddp, (int)i));
    }
    return TALLY_OK;
}

/* The last parameter's gradient comes first. */
static int go_backward(struct rank_state *s, bool announce)
{
    for (size_t i = s->bench->n_params; i-- > 0;) {
        backward_burn(&s->backward, s->slices[i].units);
        write_gradient(s, &s->slices[i]);
        if (announce) {
            TRY(tally_ddp_grad_ready(s->ddp, (int)i));
        }
    }
    return TALLY_OK;
}

/* ---- the sides ----------------------------------------------------------------------------- */

static int do_overlapped(struct rank_state *s, struct step_span *span)
{
    TRY(go_backward(s, true));
    span->backward_end_ns = tally__now_ns();
    return tally_ddp_wait(s->ddp);
}

static int do_serial(struct rank_state *s, struct step_span *span)
{
    TRY(go_backward(s, false));
    span->backward_end_ns = tally__now_ns();
    TRY(announce_all(s));
    return tally_ddp_wait(s->ddp);
}

static int do_backward(struct rank_state *s, struct step_span *span)
{
    TRY(go_backward(s, false));
    span->backward_end_ns = tally__now_ns();
    return TALLY_OK;
}

static int do_all_reduce(struct rank_state *s, struct step_span *span)
{
    tally_future *future;
    int rc;

    span->backward_end_ns = span->start_ns;
    TRY(tally_all_reduce(s->group, s->plain, s->n, TALLY_F32, TALLY_MEAN, &future));
    rc = tally_future_wait(future);
    tally_future_free(future);
    return rc;
}

static int do_at_once(struct rank_state *s, struct step_span *span)
{
    span->backward_end_ns = span->start_ns;
    TRY(announce_all(s));
    return tally_ddp_wait(s->ddp);
}

static const struct {
    const char *name;
    int (*run)(struct rank_state *s, struct step_span *span);
} sides[STEP_N_SIDES] = {
    [STEP_OVERLAPPED] = {"the overlapped step", do_overlapped},
    [STEP_SERIAL] = {"the serial step", do_serial},
    [STEP_BACKWARD] = {"the backward alone", do_backward},
    [STEP_ALL_REDUCE] = {"the all-reduce", do_all_reduce},
    [STEP_AT_ONCE] = {"the step without a backward", do_at_once},
};

/* What must lie ready before the clock starts. */
static void prepare(struct rank_state *s, enum step_side side)
{
    s->pattern++;
    if (side == STEP_AT_ONCE) {
        write_all(s);
    } else if (side == STEP_ALL_REDUCE) {
        pattern_fill(s->plain, 0, s->n, s->pattern, pattern_factor(s->rank));
    }
}

/* Looks at every element. The mean of 1..ranks is (ranks + 1) / 2: exact in fp32, as the sums are.
 */
static int verify(const struct rank_state *s, enum step_side side)
{
    float mean = (float)(s->bench->ranks + 1) / 2;
    size_t n_wrong = 0;

    if (side == STEP_ALL_REDUCE) {
        n_wrong = pattern_count_wrong(s->plain, 0, s->n, s->pattern, mean);
    }
    for (size_t i = 0; side != STEP_ALL_REDUCE && i < s->bench->n_params; i++) {
        const struct slice *slice = &s->slices[i];

        n_wrong += pattern_count_wrong(slice->gradient, slice->first, slice->n, s->pattern,
                                       side == STEP_BACKWARD ? pattern_factor(s->rank) : mean);
    }
    return n_wrong == 0 ? TALLY_OK
                        : tally__fail(TALLY_INTERNAL, "%s left %zu of %zu elements wrong",
                                      sides[side].name, n_wrong, s->n);
}

static int measure(struct rank_state *s, enum step_side side, struct step_span *span)
{
    prepare(s, side);
    meet(s);
    span->start_ns = tally__now_ns();
    TRY(sides[side].run(s, span));
    span->end_ns = tally__now_ns();
    /* Whoever is done first must not take memory, or a CPU, from those who are not. */
    meet(s);
    return verify(s, side);
}

static int measure_steps(struct rank_state *s)
{
    int first = s->bench->backward_ms > 0 ? STEP_OVERLAPPED : STEP_ALL_REDUCE;
    int n_sides = STEP_N_SIDES - first;
    tally_ddp_stats stats = {.size = sizeof stats};

    for (size_t step = 0; step < N_WARM_UP + s->run->n_steps; step++) {
        for (int k = 0; k < n_sides; k++) {
            int side = first + (int)((step + (size_t)k) % (size_t)n_sides);
            struct step_span span = {0};

            TRY(measure(s, (enum step_side)side, &span));
            if (step >= N_WARM_UP) {
                s->record->spans[side][step - N_WARM_UP] = span;
            }
        }
    }
    TRY(tally_ddp_get_stats(s->ddp, &stats));
    s->record->wire_bytes = stats.wire_bytes;
    return TALLY_OK;
}

/* ---- calibration --------------------------------------------------------------------------- */

/* The shortest of several: what it takes when nobody disturbs. */
static double time_writing(const struct rank_state *s)
{
    double times[N_CALIBRATIONS];

    for (int k = 0; k < N_CALIBRATIONS; k++) {
        uint64_t start = tally__now_ns();

        write_all(s);
        times[k] = (double)(tally__now_ns() - start);
    }
    return bench_quantile(times, N_CALIBRATIONS, 0);
}

/*
 * Gives every gradient its share, by size, of the units that fill the backward pass beside writing
 * the gradients. All ranks compute at once, and agree on the mean: they have the same work.
 */
static void calibrate(struct rank_state *s)
{
    const struct step_record *records = s->run->shared->records;
    double unit_ns = 0;
    double write_ns = 0;
    double n_units;
    size_t n_before = 0;
    uint64_t given = 0;

    meet(s);
    s->record->unit_ns = backward_unit_ns(&s->backward);
    s->record->write_ns = time_writing(s);
    meet(s);
    for (int r = 0; r < s->bench->ranks; r++) {
        unit_ns += records[r].unit_ns / s->bench->ranks;
        write_ns += records[r].write_ns / s->bench->ranks;
    }
    n_units = (s->bench->backward_ms * 1e6 - write_ns) / unit_ns;
    n_units = n_units > 0 ? n_units : 0;
    for (size_t i = s->bench->n_params; i-- > 0;) {
        uint64_t until;

        n_before += s->slices[i].n;
        until = (uint64_t)(n_units * ((double)n_before / (double)s->n));
        s->slices[i].units = until - given;
        given = until;
    }
}

/* ---- set-up -------------------------------------------------------------------------------- */

static int get_array(size_t n, float **array)
{
    *array = tally__alloc_array(n, sizeof **array, "the step bench");
    return *array ? TALLY_OK : TALLY_NOMEM;
}

/* Parameters of equal size, but for a remainder. */
static void cut_slices(struct rank_state *s)
{
    size_t n_params = s->bench->n_params;
    size_t first = 0;

    for (size_t i = 0; i < n_params; i++) {
        struct slice *slice = &s->slices[i];

        slice->first = first;
        slice->n = s->n / n_params + (i < s->n % n_params);
        first += slice->n;
        (void)snprintf(slice->name, sizeof slice->name, "parameter %zu", i);
    }
}

static int make_ddp(struct rank_state *s)
{
    size_t n_params = s->bench->n_params;
    tally_param *params = tally__alloc_array(n_params, sizeof *params, "the step bench");
    tally_ddp_config config;
    int rc;

    TRY(params ? TALLY_OK : TALLY_NOMEM);
    for (size_t i = 0; i < n_params; i++) {
        const struct slice *slice = &s->slices[i];

        params[i] = (tally_param){.size = sizeof *params,
                                  .name = slice->name,
                                  .n_dims = 1,
                                  .shape = &slice->n,
                                  .dtype = TALLY_F32,
                                  .data = s->data + slice->first,
                                  .grad = s->own ? s->own + slice->first : NULL};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = s->bench->bucket_bytes;
    config.keep_parameters = 1;
    rc = tally_ddp_create(s->group, params, n_params, &config, &s->ddp);
    tally__free(params);
    for (size_t i = 0; rc == TALLY_OK && i < n_params; i++) {
        s->slices[i].gradient = tally_ddp_grad(s->ddp, (int)i);
    }
    return rc;
}

/* The process ends after this, so a failure leaves its memory and its group to the system. */
static int measure_in_group(struct rank_state *s)
{
    void *plain;

    s->slices = tally__alloc_array(s->bench->n_params, sizeof *s->slices, "the step bench");
    TRY(s->slices ? TALLY_OK : TALLY_NOMEM);
    cut_slices(s);
    TRY(get_array(s->n, &s->data));
    if (s->bench->copies) {
        TRY(get_array(s->n, &s->own));
    }
    TRY(tally_group_alloc(s->group, s->n * sizeof *s->plain, &plain));
    s->plain = plain;
    TRY(make_ddp(s));
    if (s->bench->backward_ms > 0) {
        TRY(backward_create(&s->backward));
        calibrate(s);
    }
    TRY(measure_steps(s));
    TRY(tally_ddp_free(s->ddp));
    TRY(tally_group_free(s->group, plain));
    backward_free(&s->backward);
    tally__free(s->own);
    tally__free(s->data);
    tally__free(s->slices);
    return TALLY_OK;
}

int step_rank(int rank, void *user)
{
    const struct step_run *run = user;
    struct rank_state s = {.run = run,
                           .bench = run->bench,
                           .record = &run->shared->records[rank],
                           .rank = rank,
                           .n = run->bench->bytes / sizeof(float)};
    const struct rank_group wanted = {.rank = rank,
                                      .ranks = run->bench->ranks,
                                      .rendezvous = run->rendezvous,
                                      .lanes = run->bench->lanes,
                                      .open_timeout_s = OPEN_TIMEOUT_S,
                                      .timeout_s = TIMEOUT_S};

    TRY(rank_group_open(&wanted, &s.group));
    TRY(measure_in_group(&s));
    return tally_group_close(s.group);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the step bench, as a separate process. The application's thread does the work of a
 * training program; the lanes communicate. Sides take turns, and each step begins with another
 * side. The pattern changes before every timed side, and every element is checked after it.
 */
#include "bench/step_rank.h"

#include <string.h>
#include <tally_extend.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/backward.h"
#include "bench/pattern.h"
#include "bench/rank_group.h"
#include "bench/step_model.h"
#include "bench/timing.h"

#define OPEN_TIMEOUT_S 30.0
#define TIMEOUT_S 120.0
/* Steps before the first that counts: after the first one, buckets of copies are rearranged. */
#define N_WARM_UP 2
#define N_CALIBRATIONS 3

/* One for the sides without an optimizer, one for each of the two with. */
#define STEP_N_MODELS 3

struct rank_state {
    const struct step_run *run;
    const struct step_bench *bench;
    struct step_record *record;
    int rank;
    struct rank_board board;
    uint32_t pattern; /* the repetition of the pattern */
    size_t n;         /* elements of all gradients */
    tally_group *group;
    struct step_model models[STEP_N_MODELS];
    struct step_slice *slices;
    float *plain; /* data of the single all-reduce */
    float *spare; /* copied there and back, for the traffic of an update */
    size_t traffic_bytes;
    struct backward backward;
};

/* ---- what the sides are made of ------------------------------------------------------------ */

static void write_gradient(const struct rank_state *s, const struct step_model *model, size_t i)
{
    pattern_fill(model->gradient[i], s->slices[i].first, s->slices[i].n, s->pattern,
                 pattern_factor(s->rank));
}

static void write_all(const struct rank_state *s)
{
    for (size_t i = s->bench->n_params; i-- > 0;) {
        write_gradient(s, &s->models[0], i);
    }
}

static int announce_all(const struct rank_state *s)
{
    for (size_t i = s->bench->n_params; i-- > 0;) {
        TRY(tally_ddp_grad_ready(s->models[0].ddp, (int)i));
    }
    return TALLY_OK;
}

/* The last parameter's gradient comes first. */
static int go_backward(struct rank_state *s, const struct step_model *model, bool announce)
{
    for (size_t i = s->bench->n_params; i-- > 0;) {
        backward_burn(&s->backward, s->slices[i].units);
        write_gradient(s, model, i);
        if (announce) {
            TRY(tally_ddp_grad_ready(model->ddp, (int)i));
        }
    }
    return TALLY_OK;
}

/* ---- the sides ----------------------------------------------------------------------------- */

static int do_overlapped(struct rank_state *s, struct step_span *span)
{
    TRY(go_backward(s, &s->models[0], true));
    span->backward_end_ns = rank_board_now(&s->board);
    return tally_ddp_wait(s->models[0].ddp);
}

static int do_serial(struct rank_state *s, struct step_span *span)
{
    TRY(go_backward(s, &s->models[0], false));
    span->backward_end_ns = rank_board_now(&s->board);
    TRY(announce_all(s));
    return tally_ddp_wait(s->models[0].ddp);
}

static int do_backward(struct rank_state *s, struct step_span *span)
{
    TRY(go_backward(s, &s->models[0], false));
    span->backward_end_ns = rank_board_now(&s->board);
    return TALLY_OK;
}

static int do_on_call(struct rank_state *s, struct step_span *span)
{
    const struct step_model *model = &s->models[STEP_ON_CALL];

    TRY(go_backward(s, model, true));
    TRY(tally_ddp_wait(model->ddp));
    span->backward_end_ns = rank_board_now(&s->board);
    return tally_optimizer_step(model->optimizer);
}

static int do_behind_hook(struct rank_state *s, struct step_span *span)
{
    const struct step_model *model = &s->models[STEP_BEHIND_HOOK];

    TRY(go_backward(s, model, true));
    span->backward_end_ns = rank_board_now(&s->board);
    return tally_ddp_wait(model->ddp);
}

/* As many bytes as an update reads and writes: the gradient, and parameter and state twice. */
static int do_traffic(struct rank_state *s, struct step_span *span)
{
    size_t left = s->traffic_bytes / 2;
    size_t most = s->n * sizeof *s->plain;
    bool there = true;

    span->backward_end_ns = span->start_ns;
    for (size_t bytes; left > 0; left -= bytes, there = !there) {
        bytes = left < most ? left : most;
        memcpy(there ? s->spare : s->plain, there ? s->plain : s->spare, bytes);
    }
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
    return tally_ddp_wait(s->models[0].ddp);
}

static const struct {
    const char *name;
    int (*run)(struct rank_state *s, struct step_span *span);
} sides[STEP_N_SIDES] = {
    [STEP_OVERLAPPED] = {"the overlapped step", do_overlapped},
    [STEP_SERIAL] = {"the serial step", do_serial},
    [STEP_BACKWARD] = {"the backward alone", do_backward},
    [STEP_UPDATED_ON_CALL] = {"the step with an optimizer on call", do_on_call},
    [STEP_UPDATED_BEHIND] = {"the step with an optimizer after the hook", do_behind_hook},
    [STEP_TRAFFIC] = {"the traffic of an update", do_traffic},
    [STEP_ALL_REDUCE] = {"the all-reduce", do_all_reduce},
    [STEP_AT_ONCE] = {"the step without a backward", do_at_once},
};

/* The model that a side works on; those of an optimizer see the same gradients in each step. */
static const struct step_model *model_of(const struct rank_state *s, enum step_side side)
{
    if (side == STEP_UPDATED_ON_CALL) {
        return &s->models[STEP_ON_CALL];
    }
    return &s->models[side == STEP_UPDATED_BEHIND ? STEP_BEHIND_HOOK : STEP_NO_UPDATE];
}

/* Prepares a side before the clock starts. */
static void prepare(struct rank_state *s, enum step_side side, size_t step)
{
    s->pattern = (uint32_t)(step * STEP_N_SIDES);
    s->pattern += side == STEP_UPDATED_BEHIND ? STEP_UPDATED_ON_CALL : (uint32_t)side;
    if (side == STEP_AT_ONCE) {
        write_all(s);
    } else if (side == STEP_ALL_REDUCE || side == STEP_TRAFFIC) {
        pattern_fill(s->plain, 0, s->n, s->pattern, pattern_factor(s->rank));
    }
}

/* Looks at every element. The mean of 1..ranks is (ranks + 1) / 2: exact in fp32, as the sums are.
 */
static int verify(const struct rank_state *s, enum step_side side)
{
    const struct step_model *model = model_of(s, side);
    float mean = (float)(s->bench->ranks + 1) / 2;
    bool is_plain = side == STEP_ALL_REDUCE || side == STEP_TRAFFIC;
    size_t n_wrong = 0;

    if (is_plain) {
        n_wrong = pattern_count_wrong(s->plain, 0, s->n, s->pattern,
                                      side == STEP_TRAFFIC ? pattern_factor(s->rank) : mean);
    }
    for (size_t i = 0; !is_plain && i < s->bench->n_params; i++) {
        n_wrong +=
            pattern_count_wrong(model->gradient[i], s->slices[i].first, s->slices[i].n, s->pattern,
                                side == STEP_BACKWARD ? pattern_factor(s->rank) : mean);
    }
    return n_wrong == 0 ? TALLY_OK
                        : tally__fail(TALLY_INTERNAL, "%s left %zu of %zu elements wrong",
                                      sides[side].name, n_wrong, s->n);
}

/* Both optimizers have made the same parameters, to the bit, and not those of the step before. */
static int verify_updates(struct rank_state *s)
{
    const float *on_call = s->models[STEP_ON_CALL].data;
    const float *behind = s->models[STEP_BEHIND_HOOK].data;
    uint64_t checksum = tally__checksum(0, on_call, s->n * sizeof *on_call);

    if (memcmp(on_call, behind, s->n * sizeof *on_call) != 0) {
        return tally__fail(TALLY_INTERNAL, "the two optimizers left different parameters");
    }
    if (checksum == s->record->checksum) {
        return tally__fail(TALLY_INTERNAL, "a step left the parameters as they were");
    }
    s->record->checksum = checksum;
    TRY(rank_board_meet(&s->board));
    if (checksum != ((const struct step_record *)s->board.records)->checksum) {
        return tally__fail(TALLY_INTERNAL, "this rank has other parameters than rank 0");
    }
    return rank_board_meet(&s->board);
}

static int measure(struct rank_state *s, enum step_side side, size_t step, struct step_span *span)
{
    prepare(s, side, step);
    TRY(rank_board_meet(&s->board));
    span->start_ns = rank_board_now(&s->board);
    TRY(sides[side].run(s, span));
    span->end_ns = rank_board_now(&s->board);
    /* A rank that is done first must not take memory, or a CPU, from the others. */
    TRY(rank_board_meet(&s->board));
    return verify(s, side);
}

/* The statistics of the overlapped optimizer for its last step. */
static int note_in_wait(struct rank_state *s, size_t step)
{
    tally_optimizer_stats stats = {.size = sizeof stats};

    TRY(tally_optimizer_get_stats(s->models[STEP_BEHIND_HOOK].optimizer, &stats));
    s->record->in_wait_ms[step] = 1e3 * stats.exposed_update_s;
    return TALLY_OK;
}

/* Whether the side was asked for. */
static bool has_side(const struct step_bench *bench, enum step_side side)
{
    if (side >= STEP_ALL_REDUCE) {
        return true;
    }
    return bench->backward_ms > 0 && (side <= STEP_BACKWARD || bench->optimizer);
}

static int measure_steps(struct rank_state *s)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    for (size_t step = 0; step < N_WARM_UP + s->run->n_steps; step++) {
        for (size_t k = 0; k < STEP_N_SIDES; k++) {
            enum step_side side = (enum step_side)((step + k) % STEP_N_SIDES);
            struct step_span span = {0};

            TRY(has_side(s->bench, side) ? measure(s, side, step, &span) : TALLY_OK);
            if (step >= N_WARM_UP) {
                s->record->spans[side][step - N_WARM_UP] = span;
            }
        }
        if (has_side(s->bench, STEP_UPDATED_BEHIND)) {
            TRY(verify_updates(s));
            TRY(step >= N_WARM_UP ? note_in_wait(s, step - N_WARM_UP) : TALLY_OK);
        }
    }
    TRY(tally_ddp_get_stats(s->models[0].ddp, &stats));
    s->record->wire_bytes = stats.wire_bytes;
    return rank_board_meet(&s->board);
}

/* ---- calibration --------------------------------------------------------------------------- */

/* The shortest of several runs: the time without disturbance. */
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
static int calibrate(struct rank_state *s)
{
    const struct step_record *records = s->board.records;
    double unit_ns = 0;
    double write_ns = 0;
    double n_units;
    size_t n_before = 0;
    uint64_t given = 0;

    TRY(rank_board_meet(&s->board));
    s->record->unit_ns = backward_unit_ns(&s->backward);
    s->record->write_ns = time_writing(s);
    TRY(rank_board_meet(&s->board));
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
    return TALLY_OK;
}

/* ---- set-up -------------------------------------------------------------------------------- */

/* The models with an optimizer, and room for the traffic that an update must be. */
static int make_updated(struct rank_state *s)
{
    tally_optimizer_stats stats = {.size = sizeof stats};
    size_t bytes = s->n * sizeof(float);

    for (int update = STEP_ON_CALL; update <= STEP_BEHIND_HOOK; update++) {
        TRY(step_model_make(s->group, s->bench, s->slices, (enum step_update)update,
                            &s->models[update]));
    }
    TRY(tally_optimizer_get_stats(s->models[STEP_ON_CALL].optimizer, &stats));
    s->traffic_bytes = 3 * bytes + 2 * stats.state_bytes;
    s->spare = tally__alloc(bytes, "the step bench");
    return s->spare ? TALLY_OK : TALLY_NOMEM;
}

/* The process ends after this, so a failure leaves its memory and its group to the system. */
static int measure_in_group(struct rank_state *s)
{
    void *plain;

    s->slices = tally__alloc_array(s->bench->n_params, sizeof *s->slices, "the step bench");
    TRY(s->slices ? TALLY_OK : TALLY_NOMEM);
    step_slices_cut(s->bench, s->slices);
    TRY(tally_group_alloc(s->group, s->n * sizeof *s->plain, &plain));
    s->plain = plain;
    TRY(step_model_make(s->group, s->bench, s->slices, STEP_NO_UPDATE, &s->models[0]));
    s->record->create_ms = s->models[0].create_ms;
    TRY(has_side(s->bench, STEP_UPDATED_BEHIND) ? make_updated(s) : TALLY_OK);
    if (s->bench->backward_ms > 0) {
        TRY(backward_create(&s->backward));
        TRY(calibrate(s));
    }
    TRY(measure_steps(s));
    for (int m = 0; m < STEP_N_MODELS; m++) {
        TRY(step_model_free(&s->models[m]));
    }
    TRY(tally_group_free(s->group, plain));
    backward_free(&s->backward);
    tally__free(s->spare);
    tally__free(s->slices);
    return TALLY_OK;
}

int step_rank(int rank, void *user)
{
    const struct step_run *run = user;
    struct rank_state s = {.run = run,
                           .bench = run->bench,
                           .record = (struct step_record *)run->board.records + rank,
                           .rank = rank,
                           .board = run->board,
                           .n = run->bench->bytes / sizeof(float)};
    const struct rank_group wanted = {.is_launched = run->bench->launch.is_launched,
                                      .rank = rank,
                                      .ranks = run->bench->ranks,
                                      .rendezvous = run->rendezvous,
                                      .lanes = run->bench->lanes,
                                      .open_timeout_s = OPEN_TIMEOUT_S,
                                      .timeout_s = TIMEOUT_S};

    TRY(rank_group_open(&wanted, &s.group));
    TRY(rank_board_join(&s.board, rank, wanted.is_launched ? s.group : NULL));
    TRY(measure_in_group(&s));
    rank_board_leave(&s.board);
    return tally_group_close(s.group);
}

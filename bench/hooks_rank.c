/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the hooks bench, as a separate process. The application's thread writes gradients,
 * announces all of them and waits; the lane communicates. Two ddps take turns, and each step begins
 * with the other one. The results of the first and the last step are checked.
 */
#include "bench/hooks_rank.h"

#include <string.h>
#include <tally.h>

#include "base/memory.h"
#include "base/status.h"
#include "bench/rank_group.h"

#define OPEN_TIMEOUT_S 120.0
#define TIMEOUT_S 600.0
/* Steps before the first that counts. */
#define N_WARM_UP 2
#define WHAT "the hooks bench"

/* A ddp, and where its gradients are. */
struct side {
    tally_ddp *ddp;
    float **gradients;
};

struct rank_state {
    const struct hooks_run *run;
    const struct hooks_bench *bench;
    struct hooks_record *record;
    int rank;
    struct rank_board board;
    struct hooks_input input;
    tally_group *group;
    float *data;   /* the parameters, of both sides */
    float *source; /* this rank's gradients before each step */
    struct side sides[HOOKS_N_SIDES];
};

/* ---- steps --------------------------------------------------------------------------------- */

static void write_gradients(const struct rank_state *s, const struct side *side)
{
    for (size_t p = 0; p < s->input.n_params; p++) {
        const struct hooks_param *param = &s->input.params[p];

        memcpy(side->gradients[p], s->source + param->first, param->n * sizeof *s->source);
    }
}

/* The last parameter's gradient comes first. */
static int announce_and_wait(const struct rank_state *s, const struct side *side)
{
    for (size_t p = s->input.n_params; p-- > 0;) {
        TRY(tally_ddp_grad_ready(side->ddp, (int)p));
    }
    return tally_ddp_wait(side->ddp);
}

static int measure(struct rank_state *s, const struct side *side, struct hooks_span *span)
{
    write_gradients(s, side);
    TRY(rank_board_meet(&s->board));
    span->start_ns = rank_board_now(&s->board);
    TRY(announce_and_wait(s, side));
    span->end_ns = rank_board_now(&s->board);
    /* A rank that is done first must not take memory, or a CPU, from the others. */
    return rank_board_meet(&s->board);
}

/* ---- what came out ------------------------------------------------------------------------- */

static const float *const *results(const struct rank_state *s)
{
    return (const float *const *)s->sides[HOOKS_TESTED].gradients;
}

static int check_alike(struct rank_state *s)
{
    const struct hooks_record *first = s->board.records;

    s->record->hash = hooks_input_hash(&s->input, results(s));
    TRY(rank_board_meet(&s->board));
    if (s->run->ends_alike && s->record->hash != first->hash) {
        return tally__fail(TALLY_INTERNAL, "hook '%s': not the bits of rank 0", s->bench->hook);
    }
    return TALLY_OK;
}

/* Every rank does its part of every parameter, or, where they share no memory, all of it. */
static int find_means(struct rank_state *s)
{
    bool is_alone = s->bench->launch.is_launched;
    size_t rank = is_alone ? 0 : (size_t)s->rank;
    size_t ranks = is_alone ? 1 : (size_t)s->bench->ranks;

    for (size_t p = 0; p < s->input.n_params; p++) {
        const struct hooks_param *param = &s->input.params[p];
        size_t first = param->n * rank / ranks;
        size_t end = param->n * (rank + 1) / ranks;

        hooks_input_mean(param, s->bench->ranks, first, end - first,
                         s->run->means + param->first + first);
    }
    return rank_board_meet(&s->board);
}

static int check_error(struct rank_state *s)
{
    struct hooks_error error = hooks_input_compare(&s->input, s->run->means, results(s));

    s->record->error = error;
    if (!(error.all <= s->run->max_error)) {
        return tally__fail(TALLY_INTERNAL,
                           "hook '%s': the relative error of the mean is %g, above %g",
                           s->bench->hook, error.all, s->run->max_error);
    }
    return TALLY_OK;
}

static int take_steps(struct rank_state *s)
{
    size_t n_steps = N_WARM_UP + s->run->n_steps;
    tally_ddp_stats stats = {.size = sizeof stats};

    for (size_t step = 0; step < n_steps; step++) {
        for (size_t k = 0; k < HOOKS_N_SIDES; k++) {
            size_t side = (step + k) % HOOKS_N_SIDES;
            struct hooks_span span = {0};

            TRY(measure(s, &s->sides[side], &span));
            if (step >= N_WARM_UP) {
                s->record->spans[side][step - N_WARM_UP] = span;
            }
        }
        if (step == 0 || step + 1 == n_steps) {
            TRY(check_alike(s));
        }
        if (step == 0 && s->run->means) {
            TRY(find_means(s));
            TRY(check_error(s));
        }
    }
    TRY(tally_ddp_get_stats(s->sides[HOOKS_TESTED].ddp, &stats));
    s->record->wire_bytes = stats.wire_bytes;
    s->record->host_bytes = stats.host_bytes;
    return rank_board_meet(&s->board);
}

/* ---- set-up -------------------------------------------------------------------------------- */

static int make_ddp(struct rank_state *s, tally_ddp **ddp)
{
    size_t n_params = s->input.n_params;
    tally_param *params = tally__alloc_array(n_params, sizeof *params, WHAT);
    tally_ddp_config config;
    int rc;

    TRY(params ? TALLY_OK : TALLY_NOMEM);
    for (size_t p = 0; p < n_params; p++) {
        const struct hooks_param *param = &s->input.params[p];

        params[p] = (tally_param){.size = sizeof *params,
                                  .name = param->name,
                                  .n_dims = param->n_dims,
                                  .shape = param->shape,
                                  .dtype = TALLY_F32,
                                  .data = s->data + param->first};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = s->bench->bucket_bytes;
    config.keep_parameters = 1;
    rc = tally_ddp_create(s->group, params, n_params, &config, ddp);
    tally__free(params);
    return rc;
}

static int make_side(struct rank_state *s, const char *hook, struct side *side)
{
    size_t n_params = s->input.n_params;

    side->gradients = tally__alloc_array(n_params, sizeof *side->gradients, WHAT);
    TRY(side->gradients ? TALLY_OK : TALLY_NOMEM);
    TRY(make_ddp(s, &side->ddp));
    TRY(tally_ddp_set_hook(side->ddp, hook));
    for (size_t p = 0; p < n_params; p++) {
        side->gradients[p] = tally_ddp_grad(side->ddp, (int)p);
    }
    return TALLY_OK;
}

static int free_side(struct side *side)
{
    TRY(tally_ddp_free(side->ddp));
    tally__free(side->gradients);
    return TALLY_OK;
}

/* The process ends after this, so a failure leaves its memory and its group to the system. */
static int measure_in_group(struct rank_state *s)
{
    TRY(hooks_input_create(s->bench->bytes / sizeof(float), &s->input));
    s->data = tally__alloc_array(s->input.n, sizeof *s->data, WHAT);
    s->source = tally__alloc_array(s->input.n, sizeof *s->source, WHAT);
    TRY(s->data && s->source ? TALLY_OK : TALLY_NOMEM);
    for (size_t p = 0; p < s->input.n_params; p++) {
        const struct hooks_param *param = &s->input.params[p];

        hooks_input_fill(param, s->rank, 0, param->n, s->source + param->first);
    }
    TRY(make_side(s, "allreduce", &s->sides[HOOKS_PLAIN]));
    TRY(make_side(s, s->bench->hook, &s->sides[HOOKS_TESTED]));
    TRY(take_steps(s));
    TRY(free_side(&s->sides[HOOKS_TESTED]));
    TRY(free_side(&s->sides[HOOKS_PLAIN]));
    tally__free(s->source);
    tally__free(s->data);
    hooks_input_free(&s->input);
    return TALLY_OK;
}

int hooks_rank(int rank, void *user)
{
    const struct hooks_run *run = user;
    struct rank_state s = {.run = run,
                           .bench = run->bench,
                           .record = (struct hooks_record *)run->board.records + rank,
                           .rank = rank,
                           .board = run->board};
    const struct rank_group wanted = {.is_launched = run->bench->launch.is_launched,
                                      .rank = rank,
                                      .ranks = run->bench->ranks,
                                      .rendezvous = run->rendezvous,
                                      .lanes = 1,
                                      .open_timeout_s = OPEN_TIMEOUT_S,
                                      .timeout_s = TIMEOUT_S};

    TRY(rank_group_open(&wanted, &s.group));
    TRY(rank_board_join(&s.board, rank, wanted.is_launched ? s.group : NULL));
    TRY(measure_in_group(&s));
    rank_board_leave(&s.board);
    return tally_group_close(s.group);
}

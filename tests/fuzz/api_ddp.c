/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on a ddp: whole steps, parts of steps in any order, and what is allowed between steps.
 * A gradient that was announced is not touched before wait has ended the step.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "fuzz/api_rank.h"

/* ---- gradients ---- */

static bool has_gradient(const struct api_param *param)
{
    return (param->flags & (TALLY_PARAM_FROZEN | TALLY_PARAM_IGNORED)) == 0;
}

static void write_gradient(struct api_rank *rank, struct api_model *model, int i)
{
    struct api_param *param = &model->params[i];
    void *gradient = model->is_lost ? NULL : ASK(rank, tally_ddp_grad(model->ddp, i));
    uint64_t draw = api_draw(&rank->random) + (uint64_t)rank->rank;
    bool is_spoilt = api_chance(rank, 40);

    if (!gradient || param->is_announced || (model->is_static && api_is_in_step(rank, model))) {
        return;
    }
    for (size_t k = 0; k < param->n; k++) {
        float value = (float)(int)(api_mix(draw + k) % 33 - 16) / 64;

        switch (param->grad_dtype) {
        case TALLY_F32:
            ((float *)gradient)[k] = is_spoilt && k == 0 ? INFINITY : value;
            break;
        case TALLY_F64:
            ((double *)gradient)[k] = (double)value;
            break;
        default: /* a quarter, or close to it, in both */
            ((uint16_t *)gradient)[k] = (uint16_t)(0x3400 + api_mix(draw + k) % 8);
        }
    }
}

static void announce(struct api_rank *rank, struct api_model *model, int i)
{
    write_gradient(rank, model, i);
    if (api_chance(rank, 12)) {
        if (api_judge(model, CALL(rank, tally_ddp_grad_absent(model->ddp, i))) == TALLY_OK) {
            model->params[i].is_announced = true;
        }
        return;
    }
    if (api_judge(model, CALL(rank, tally_ddp_grad_ready(model->ddp, i))) == TALLY_OK) {
        model->params[i].is_announced = true;
    }
}

struct helper {
    const struct api_rank *rank;
    const struct api_model *model;
    int first;
    int n;
    int announced;
};

static void *announce_some(void *argument)
{
    struct helper *helper = argument;

    for (int k = 0; k < helper->n; k++) {
        int i = helper->first + k;

        if (has_gradient(&helper->model->params[i]) && helper->model->params[i].flags == 0 &&
            !helper->model->params[i].is_announced &&
            CALL_ANY(helper->rank, tally_ddp_grad_ready(helper->model->ddp, i)) == TALLY_OK) {
            helper->announced |= 1 << i;
        }
    }
    return NULL;
}

/* Two threads announce at once. */
static void announce_together(struct api_rank *rank, struct api_model *model)
{
    int half = (int)model->n / 2;
    struct helper helpers[2] = {{rank, model, 0, half, 0},
                                {rank, model, half, (int)model->n - half, 0}};
    pthread_t thread;

    for (int i = 0; i < (int)model->n; i++) {
        if (has_gradient(&model->params[i])) {
            write_gradient(rank, model, i);
        }
    }
    if (pthread_create(&thread, NULL, announce_some, &helpers[1]) != 0) {
        api_fail(rank, "no thread for the fuzzer itself");
    }
    (void)announce_some(&helpers[0]);
    (void)pthread_join(thread, NULL);
    for (int i = 0; i < (int)model->n; i++) {
        if (((helpers[0].announced | helpers[1].announced) >> i) & 1) {
            model->params[i].is_announced = true;
        }
    }
}

/* Backward of delayed parameters must be over. */
static void reduce_delayed(struct api_rank *rank, struct api_model *model)
{
    for (int i = 0; i < (int)model->n; i++) {
        if (model->params[i].flags == TALLY_PARAM_DELAYED) {
            write_gradient(rank, model, i);
            model->params[i].is_announced = true;
        }
    }
    (void)api_judge(model, CALL(rank, tally_ddp_reduce_delayed(model->ddp)));
}

/* ---- steps ---- */

static void update(struct api_rank *rank, struct api_model *model)
{
    for (int i = 0; i < (int)model->n; i++) {
        struct api_param *param = &model->params[i];
        float *data = ASK(rank, tally_ddp_data(model->ddp, i));
        const float *mean = ASK(rank, tally_ddp_mean(model->ddp, i));
        int unused = 1;

        (void)CALL(rank, tally_ddp_is_unused(model->ddp, i, &unused));
        if (unused || param->dtype != TALLY_F32 || param->flags != 0 || !data || !mean) {
            continue;
        }
        api_note(rank, "  update '%s'", param->name);
        for (size_t k = 0; k < param->n; k++) {
            data[k] -= 0.1f * mean[k];
        }
    }
    (void)CALL(rank, tally_ddp_refresh_low(model->ddp));
}

/* Whether a step is open: no function returns it, but one is refused then. */
bool api_is_in_step(struct api_rank *rank, struct api_model *model)
{
    return CALL_ANY(rank, tally_ddp_refresh_low(model->ddp)) == TALLY_STATE;
}

static void end_step(struct api_rank *rank, struct api_model *model)
{
    int status = CALL(rank, tally_ddp_wait(model->ddp));

    (void)api_judge(model, status);
    if (status == TALLY_STATE && api_is_in_step(rank, model)) {
        return;
    }
    for (size_t i = 0; i < model->n; i++) {
        model->params[i].is_announced = false;
    }
    if (status != TALLY_OK || model->is_paused) {
        return;
    }
    if (!model->optimizer && !model->averager) {
        update(rank, model);
    }
    api_after_wait(rank, model);
    api_compare_params(rank, model);
}

void api_finish_step(struct api_rank *rank, struct api_model *model)
{
    if (!model->ddp || !api_is_in_step(rank, model)) {
        return;
    }
    for (int i = 0; i < (int)model->n; i++) {
        if (model->params[i].flags == 0) {
            write_gradient(rank, model, i);
            (void)CALL(rank, tally_ddp_grad_ready(model->ddp, i));
        }
    }
    end_step(rank, model);
}

/* Mostly whole: at times a gradient is forgotten, or announced though it has none. */
static void take_step(struct api_rank *rank, struct api_model *model)
{
    bool is_forward = api_chance(rank, 2);

    if (api_chance(rank, 6)) {
        announce_together(rank, model);
    } else {
        for (int k = 0; k < (int)model->n; k++) {
            int i = is_forward ? k : (int)model->n - 1 - k;

            if ((has_gradient(&model->params[i]) && model->params[i].flags == 0 &&
                 !api_chance(rank, 30)) ||
                api_chance(rank, 60)) {
                announce(rank, model, i);
            }
        }
    }
    if (api_chance(rank, 4)) {
        reduce_delayed(rank, model);
    }
    end_step(rank, model);
}

static void take_steps(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    int n = 1 + (int)api_pick(rank, 4);

    for (int i = 0; i < n && model->ddp; i++) {
        take_step(rank, model);
    }
}

/* One call of a step, wherever it stands. */
static void take_part(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    int i = (int)api_pick(rank, API_MAX_PARAMS + 2) - 1;

    switch (api_pick(rank, 8)) {
    case 0:
        end_step(rank, model);
        break;
    case 1:
        if (CALL(rank, tally_ddp_no_sync_begin(model->ddp)) == TALLY_OK) {
            model->is_paused = true;
        }
        break;
    case 2:
    case 3:
        if (CALL(rank, tally_ddp_no_sync_end(model->ddp)) == TALLY_OK) {
            model->is_paused = false;
        }
        break;
    default:
        if (i >= 0 && i < (int)model->n && model->ddp) {
            announce(rank, model, i);
        } else {
            (void)CALL(rank, tally_ddp_grad_ready(model->ddp, i));
            (void)CALL(rank, tally_ddp_grad_absent(model->ddp, i));
        }
    }
}

/* Ranks run out of input, one after the other where ranks may stray. */
static void join_steps(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    uint64_t draw = api_draw(&rank->random);
    uint64_t own = rank->program->stray >= 0 ? (uint64_t)rank->rank : 0;
    unsigned n = model->joins ? (unsigned)(api_mix(draw + own) % 3) : 0;

    for (unsigned k = 0; k < n && model->ddp; k++) {
        announce_together(rank, model);
        end_step(rank, model);
    }
    (void)api_judge(model, CALL(rank, tally_ddp_join(model->ddp)));
}

/* ---- between steps ---- */

static void use_ddp(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    double values[2] = {rank->rank, 1};
    double norm;
    int status;

    switch (api_pick(rank, 8)) {
    case 0:
        (void)CALL(rank, tally_ddp_zero_grad(model->ddp));
        break;
    case 1:
        (void)CALL(rank,
                   tally_ddp_clip_grad_norm(model->ddp, api_pick(rank, 4) * 0.5 - 0.5, &norm));
        break;
    case 2:
        if (api_judge(model, CALL(rank, tally_ddp_mean_scalar(model->ddp, values))) == TALLY_OK) {
            api_agree(rank, "the mean of a scalar", (uint64_t)(values[0] * 1e6));
        }
        break;
    case 3:
        if (CALL(rank, tally_ddp_broadcast(model->ddp, (int)api_pick(rank, 4) - 1)) == TALLY_OK) {
            api_compare_params(rank, model);
        }
        break;
    case 4:
        (void)CALL(rank, tally_ddp_refresh_low(model->ddp));
        break;
    case 5:
        (void)api_judge(model,
                        CALL(rank, tally_ddp_mean_scalars(model->ddp, values, api_pick(rank, 3))));
        break;
    case 6: /* a MISMATCH here is about parameters, and the group lives on */
        status = CALL_ANY(rank, tally_ddp_check(model->ddp));
        if (status == TALLY_MISMATCH && rank->program->stray < 0 && !model->divides) {
            api_fail(rank, "ranks differ: %s", tally_last_error());
        }
        break;
    default:
        reduce_delayed(rank, model);
    }
}

static void ask_ddp(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    int i = (int)api_pick(rank, API_MAX_PARAMS + 2) - 1;
    tally_ddp_stats stats = {.size = api_chance(rank, 9) ? 4 : sizeof stats};
    tally_bucket_stats bucket = {.size = sizeof bucket};
    tally_rank_stats late = {.size = api_chance(rank, 9) ? 4 : sizeof late};
    tally_bucket_choice choice = {.size = sizeof choice};
    int numbers[API_MAX_PARAMS];
    int unused;

    if (ASK(rank, tally_ddp_n_params(model->ddp)) != (model->ddp ? model->n : 0)) {
        api_fail(rank, "a ddp with another number of parameters");
    }
    (void)ASK(rank, tally_ddp_group(model->ddp));
    (void)ASK(rank, tally_ddp_grad(model->ddp, i));
    (void)ASK(rank, tally_ddp_mean(model->ddp, i));
    (void)ASK(rank, tally_ddp_data(model->ddp, i));
    (void)ASK(rank, tally_ddp_low(model->ddp, i));
    (void)ASK(rank, tally_ddp_low_buffer(model->ddp, i));
    (void)CALL(rank, tally_ddp_is_unused(model->ddp, i, &unused));
    (void)CALL(rank, tally_ddp_get_stats(model->ddp, &stats));
    (void)CALL(rank, tally_ddp_get_bucket_stats(model->ddp, api_pick(rank, 3), &bucket));
    (void)CALL(rank, tally_ddp_get_rank_stats(model->ddp, (int)api_pick(rank, 5) - 1, &late));
    (void)CALL(rank, tally_ddp_explain(model->ddp, api_pick(rank, 3), &choice));
    (void)ASK(rank, tally_ddp_param_name(model->ddp, i));
    (void)ASK(rank, tally_ddp_param_count(model->ddp, i));
    (void)ASK(rank,
              tally_ddp_bucket_params(model->ddp, api_pick(rank, 3), numbers, API_MAX_PARAMS));
    (void)ASK(rank, tally_ddp_ready_order(model->ddp, numbers, API_MAX_PARAMS));
}

static void free_ddp(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);

    api_free_model(rank, model);
}

const struct api_row api_ddp_rows[] = {
    {"steps", take_steps, 30, false},
    {"part of a step", take_part, 8, false},
    {"join", join_steps, 2, false},
    {"between steps", use_ddp, 10, false},
    {"facts of a ddp", ask_ddp, 3, false},
    {"free a ddp", free_ddp, 2, false},
    {NULL, NULL, 0, false},
};

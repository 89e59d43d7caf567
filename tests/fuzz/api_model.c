/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models: random parameters and configs, good ones and bad ones, and their end. Ranks draw the same
 * ones, so only bad arguments make tally_ddp_create fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/api_rank.h"

static void draw_param(struct api_rank *rank, struct api_param *param, int number)
{
    static const unsigned flags[] = {TALLY_PARAM_FROZEN, TALLY_PARAM_IGNORED, TALLY_PARAM_DELAYED};

    memset(param, 0, sizeof *param);
    (void)snprintf(param->name, sizeof param->name, "p%d", number % 10);
    param->n_dims = (int)api_pick(rank, 3);
    param->n = 1;
    for (int d = 0; d < param->n_dims; d++) {
        param->shape[d] = 1 + api_pick(rank, 30);
        param->n *= param->shape[d];
    }
    if (param->n_dims > 0) {
        param->strides[0] = param->n_dims == 1 || api_chance(rank, 4) ? 1 : param->shape[1];
        param->strides[1] = param->strides[0] == 1 ? param->shape[0] : 1;
    }
    param->dtype = api_chance(rank, 10) ? (int)api_pick(rank, 4) : TALLY_F32;
    param->grad_dtype = param->dtype;
    param->flags = api_chance(rank, 6) ? API_PICK_OF(rank, flags) : 0;
}

static void *own_array(struct api_rank *rank, const struct api_param *param, int dtype)
{
    float *array = calloc(param->n, tally_dtype_bytes(dtype));

    if (!array) {
        api_fail(rank, "no memory for the fuzzer itself");
    }
    for (size_t i = 0; dtype == TALLY_F32 && i < param->n; i++) {
        array[i] = (float)(rank->rank + 1) * 0.125f;
    }
    return array;
}

static void draw_params(struct api_rank *rank, struct api_model *model, int param_dtype)
{
    bool has_grads = api_chance(rank, 2);
    bool lacks_data = !has_grads && api_chance(rank, 4);

    model->n = 1 + api_pick(rank, API_MAX_PARAMS);
    for (size_t i = 0; i < model->n; i++) {
        struct api_param *param = &model->params[i];

        draw_param(rank, param, (int)i);
        if (param_dtype != 0) {
            param->dtype = TALLY_F32;
            param->grad_dtype = param_dtype;
        }
        if (!lacks_data || param->flags == TALLY_PARAM_IGNORED) {
            param->data = own_array(rank, param, param->dtype);
        }
        if (has_grads && param->flags != TALLY_PARAM_FROZEN) {
            param->grad = own_array(rank, param, param->grad_dtype);
        }
    }
}

static int bring_buffers(void *user, tally_lane *lane, const tally_buffer *buffers, size_t n)
{
    const struct api_rank *rank = user;

    return n == 0
               ? TALLY_OK
               : CALL_ANY(rank, tally_lane_broadcast(lane, buffers[0].data, buffers[0].bytes, 0));
}

static void draw_config(struct api_rank *rank, struct api_model *model, tally_ddp_config *config)
{
    static const size_t caps[] = {0, 1, 100, 1000, 4000, 100000};

    config->bucket_cap_bytes = API_PICK_OF(rank, caps);
    config->first_bucket_bytes = api_chance(rank, 3) ? API_PICK_OF(rank, caps) : 0;
    config->hook = api_chance(rank, 3) ? NULL : api_hook_text(rank);
    config->keep_parameters = api_chance(rank, 8);
    config->keep_buffers = api_chance(rank, 8);
    config->find_unused = api_chance(rank, 4);
    config->static_graph = api_chance(rank, 6);
    config->skip_unused = api_chance(rank, 6);
    config->join = api_chance(rank, 5);
    config->join_stops = config->join && api_chance(rank, 4);
    config->join_divides_by_active = config->join && api_chance(rank, 3);
    if (api_chance(rank, 5)) {
        config->param_dtype = api_chance(rank, 2) ? TALLY_F16 : TALLY_BF16;
        config->reduce_dtype = api_chance(rank, 2) ? config->param_dtype : 0;
        config->buffer_dtype = api_chance(rank, 2) ? TALLY_BF16 : 0;
    }
    if (api_chance(rank, 6)) {
        config->buffer_hook = bring_buffers;
        config->buffer_hook_user = rank;
    }
    /* If ranks may differ, a comparison would end programs in which all ranks do the same. */
    config->check = rank->program->stray >= 0 && api_chance(rank, 4);
    model->joins = config->join;
    model->is_static = config->static_graph;
    model->divides = config->keep_parameters || (config->hook && api_hook_divides(config->hook));
}

/* Arguments from which no ddp can be made. */
static void spoil(struct api_rank *rank, tally_param *params, size_t n, tally_ddp_config *config)
{
    tally_param *param = &params[api_pick(rank, (unsigned)n)];

    switch (api_pick(rank, 9)) {
    case 0:
        param->size = 5;
        break;
    case 1:
        param->name = n > 1 ? params[param == params].name : NULL;
        break;
    case 2:
        param->n_dims = -1;
        break;
    case 3:
        param->dtype = 5 + (int)api_pick(rank, 5);
        break;
    case 4:
        param->flags = TALLY_PARAM_SPARSE;
        break;
    case 5:
        config->param_dtype = TALLY_I32;
        break;
    case 6:
        config->hook = "no such hook";
        break;
    case 7:
        config->size = 4;
        break;
    default: /* one array, large enough for both, as two */
        param->data = rank->spare;
        params[0].data = rank->spare;
        params[0].grad = n > 1 ? params[0].grad : rank->spare;
    }
}

static void free_arrays(struct api_model *model)
{
    for (size_t i = 0; i < model->n; i++) {
        free(model->params[i].data);
        free(model->params[i].grad);
    }
    model->n = 0;
}

static void list_params(const struct api_model *model, tally_param *params)
{
    for (size_t i = 0; i < model->n; i++) {
        const struct api_param *param = &model->params[i];

        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = param->name,
                                  .n_dims = param->n_dims,
                                  .shape = param->n_dims ? param->shape : NULL,
                                  .strides = param->n_dims > 1 ? param->strides : NULL,
                                  .dtype = param->dtype,
                                  .data = param->data,
                                  .grad = param->grad,
                                  .flags = param->flags};
    }
}

static void make_model(struct api_rank *rank, int number)
{
    struct api_model *model = &rank->models[number];
    tally_param params[API_MAX_PARAMS] = {{0}};
    tally_ddp_config config;
    tally_buffer buffer = {sizeof buffer, "b0", model->buffer, sizeof model->buffer, TALLY_F32};

    memset(model, 0, sizeof *model);
    ASK(rank, tally_ddp_config_init(&config, sizeof config));
    draw_config(rank, model, &config);
    if (api_chance(rank, 3)) {
        config.buffers = &buffer;
        config.n_buffers = 1;
    }
    draw_params(rank, model, config.param_dtype);
    list_params(model, params);
    if (api_chance(rank, 10)) {
        spoil(rank, params, model->n, &config);
    }
    api_note(rank, "  a ddp of %zu parameters, hook %s%s%s%s%s", model->n,
             config.hook ? config.hook : "(none)", config.find_unused ? ", find_unused" : "",
             config.static_graph ? ", static_graph" : "", config.skip_unused ? ", skip_unused" : "",
             config.join ? ", join" : "");
    if (CALL(rank, tally_ddp_create(rank->groups[number], params, model->n, &config,
                                    &model->ddp)) != TALLY_OK) {
        free_arrays(model);
        model->ddp = NULL;
        return;
    }
    api_compare_params(rank, model);
}

struct api_model *api_any_model(struct api_rank *rank)
{
    int number = rank->is_split[1] && api_chance(rank, 4);

    rank->is_apart = number > 0;
    if (!rank->models[number].ddp && !api_chance(rank, 20)) {
        make_model(rank, number);
    }
    return &rank->models[number];
}

int api_judge(struct api_model *model, int status)
{
    if (status == TALLY_PEER || status == TALLY_TIMEOUT || status == TALLY_MISMATCH ||
        status == TALLY_ABORTED) {
        model->is_lost = true;
    }
    if (status != TALLY_OK && status != TALLY_ARG && status != TALLY_STATE) {
        model->divides = true;
    }
    return status;
}

void api_compare_params(struct api_rank *rank, struct api_model *model)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    if (!model->ddp || model->divides || model->is_lost) {
        return;
    }
    for (size_t i = 0; i < model->n; i++) {
        const struct api_param *param = &model->params[i];
        const unsigned char *bytes = ASK(rank, tally_ddp_data(model->ddp, (int)i));
        size_t n = param->n * tally_dtype_bytes(param->dtype);

        for (size_t k = 0; bytes && param->flags != TALLY_PARAM_IGNORED && k < n; k++) {
            hash = (hash ^ bytes[k]) * UINT64_C(1099511628211);
        }
    }
    api_agree(rank, "parameters", hash);
}

void api_free_blobs(struct api_model *model)
{
    for (int kind = 0; kind < 3; kind++) {
        for (int r = 0; r < API_MAX_WORLD; r++) {
            free(model->blobs[kind][r]);
            model->blobs[kind][r] = NULL;
        }
        model->n_blobs[kind] = 0;
    }
}

/* An optimizer is refused in the middle of a step, and an averager that it calls with it. */
static void free_helpers(struct api_rank *rank, struct api_model *model)
{
    bool ddp_first = !model->is_driven && api_chance(rank, 4);
    int status = ddp_first ? TALLY_OK : CALL_ANY(rank, tally_optimizer_free(model->optimizer));

    if (status != TALLY_OK && model->is_driven) {
        api_finish_step(rank, model);
        status = CALL_ANY(rank, tally_optimizer_free(model->optimizer));
    }
    if (!ddp_first && status == TALLY_OK) {
        model->optimizer = NULL;
    }
    if (CALL_ANY(rank, tally_averager_free(model->averager)) != TALLY_OK) {
        api_fail(rank, "an averager cannot be freed: %s", tally_last_error());
    }
}

void api_free_model(struct api_rank *rank, struct api_model *model)
{
    tally_future *future = NULL;

    /* A free in the middle of a step takes ranks by surprise that are still in the call before. */
    if (rank->program->stray < 0) {
        api_finish_step(rank, model);
        if (model->ddp && api_is_in_step(rank, model) &&
            CALL_ANY(rank, tally_barrier(rank->groups[model - rank->models], &future)) ==
                TALLY_OK) {
            (void)api_finish(rank, future);
        }
    }
    free_helpers(rank, model);
    if (CALL_ANY(rank, tally_ddp_free(model->ddp)) != TALLY_OK ||
        CALL_ANY(rank, tally_optimizer_free(model->optimizer)) != TALLY_OK) {
        api_fail(rank, "a ddp or its optimizer cannot be freed: %s", tally_last_error());
    }
    free_arrays(model);
    api_free_blobs(model);
    memset(model, 0, sizeof *model);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Around the steps of mixed precision: low copies of buffers, what is refused and how, what ranks
 * that disagree are told, masters in memory of tally's own, and checkpoints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/mixed_model.h"

/* ---- buffers ---- */

#define N_BUFFERS 3
#define N_FLOATS 5

struct buffers {
    float running[N_FLOATS];
    int64_t count;
    tally_buffer list[N_BUFFERS];
    int n_calls;
};

static void prepare(struct buffers *buffers, tally_ddp_config *config, int rank)
{
    const tally_buffer list[N_BUFFERS] = {
        {sizeof list[0], "running", buffers->running, sizeof buffers->running, TALLY_F32},
        {sizeof list[0], "count", &buffers->count, sizeof buffers->count, TALLY_I64},
        {sizeof list[0], "empty", NULL, 0, TALLY_F32},
    };

    memset(buffers, 0, sizeof *buffers);
    memcpy(buffers->list, list, sizeof list);
    buffers->count = ((int64_t)1 << 40) + rank;
    for (int e = 0; e < N_FLOATS; e++) {
        buffers->running[e] = 1.0f / (float)(3 + e + rank);
    }
    config->buffers = buffers->list;
    config->n_buffers = N_BUFFERS;
    config->buffer_dtype = TALLY_F16;
}

/* Forward on this rank, in step s. */
static void forward(tally_ddp *ddp, struct buffers *buffers, int s, int rank)
{
    uint16_t *low = tally_ddp_low_buffer(ddp, 0);

    for (int e = 0; e < N_FLOATS; e++) {
        mixed_put(TALLY_F16, low, (size_t)e, (double)(s + 1) / (double)(7 + e + rank));
    }
    buffers->count = 100 * s + rank;
}

/* Whether both forms are what forward on that rank left; the wide form cast up. */
static bool is_of(const tally_ddp *ddp, const struct buffers *buffers, int s, int rank)
{
    for (int e = 0; e < N_FLOATS; e++) {
        uint16_t expected;

        mixed_put(TALLY_F16, &expected, 0, (double)(s + 1) / (double)(7 + e + rank));
        if (memcmp((uint16_t *)tally_ddp_low_buffer(ddp, 0) + e, &expected, 2) != 0 ||
            (double)buffers->running[e] != mixed_get(TALLY_F16, &expected, 0)) {
            return false;
        }
    }
    return buffers->count == 100 * s + rank;
}

/* Takes the buffers of the last rank. */
static int of_last(void *user, tally_lane *lane, const tally_buffer *list, size_t n)
{
    struct buffers *buffers = user;
    int last = tally_group_size(tally_lane_group(lane)) - 1;

    buffers->n_calls++;
    if (n != N_BUFFERS || list[0].dtype != TALLY_F16 || list[0].bytes != 2 * (size_t)N_FLOATS ||
        list[1].dtype != TALLY_I64 || list[1].data != &buffers->count) {
        return tally_job_fail(lane, TALLY_INTERNAL, "not the buffers that forward uses");
    }
    if (tally_lane_broadcast(lane, list[1].data, list[1].bytes, last) != TALLY_OK) {
        return TALLY_INTERNAL;
    }
    return tally_lane_broadcast(lane, list[0].data, list[0].bytes, last);
}

/* Also without param_dtype: the dtype of buffers is independent of it. */
static int buffers_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);

    (void)user;
    for (int o = 0; o < 4; o++) {
        struct mixed_case of = {o % 2 ? TALLY_BF16 : 0, 0, false};
        struct ddp_model model;
        struct buffers buffers;
        tally_ddp_config config;
        tally_ddp *ddp;
        uint16_t expected;

        CHECK(group, mixed_make(&model, &of, rank, &config) == 0);
        prepare(&buffers, &config, rank);
        config.keep_buffers = o == 1;
        config.buffer_hook = o == 2 ? of_last : NULL;
        config.buffer_hook_user = &buffers;
        config.join = o == 3;
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        mixed_put(TALLY_F16, &expected, 0, 1.0 / 3);
        CHECK(group, memcmp(tally_ddp_low_buffer(ddp, 0), &expected, 2) == 0);
        CHECK(group, !tally_ddp_low_buffer(ddp, 1) && !tally_ddp_low_buffer(ddp, 3) &&
                         !tally_ddp_low_buffer(ddp, -1) && !tally_ddp_low_buffer(NULL, 0));
        of.param_dtype = of.param_dtype ? of.param_dtype : TALLY_F32;
        for (int s = 0; s < 3; s++) {
            forward(ddp, &buffers, s, rank);
            CHECK_OK(group, mixed_step(group, ddp, &model, &of, (unsigned)s));
            CHECK(group, is_of(ddp, &buffers, s, o == 1 ? rank : o >= 2 ? world - 1 : 0));
        }
        CHECK(group, buffers.n_calls == (o == 2 ? 3 : 0));
        if (o == 3) {
            forward(ddp, &buffers, 9, rank);
            CHECK_OK(group, tally_ddp_join(ddp));
            CHECK(group, is_of(ddp, &buffers, 9, world - 1));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- what is refused ---- */

struct refused {
    int dtypes[3];
    int params_dtype; /* of parameter 1 */
    int status;
    const char *text;
};

static int refused_body(tally_group *group, void *user)
{
    static const struct refused list[] = {
        {{TALLY_F64, 0, 0}, TALLY_F32, TALLY_ARG, "param_dtype is 1; accepted: 0, TALLY_F16"},
        {{TALLY_F16, TALLY_I32, 0}, TALLY_F32, TALLY_ARG, "reduce_dtype is 4"},
        {{0, 0, -1}, TALLY_F32, TALLY_ARG, "buffer_dtype is -1"},
        {{0, TALLY_BF16, 0}, TALLY_F32, TALLY_ARG, "reduce_dtype goes with param_dtype"},
        {{TALLY_BF16, 0, 0}, TALLY_BF16, TALLY_UNSUPPORTED, "parameter 'weight' has dtype 3"},
        {{0, 0, TALLY_BF16}, TALLY_F32, TALLY_ARG, "buffer 0 has 7 bytes"},
    };
    char odd[7] = "";
    const tally_buffer buffer = {sizeof buffer, "odd", odd, sizeof odd, TALLY_F32};

    (void)user;
    for (size_t k = 0; k < sizeof list / sizeof list[0]; k++) {
        const struct mixed_case of = {list[k].dtypes[0], list[k].dtypes[1], false};
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp = NULL;

        CHECK(group, mixed_make(&model, &of, 0, &config) == 0);
        model.params[1].dtype = list[k].params_dtype;
        config.buffer_dtype = list[k].dtypes[2];
        config.buffers = &buffer;
        config.n_buffers = 1;
        CHECK_STATUS(group, tally_ddp_create(group, model.params, model.n, &config, &ddp),
                     list[k].status);
        CHECK_TEXT(group, tally_last_error(), list[k].text);
        ddp_model_free(&model);
    }
    return 0;
}

static int disagree_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    const struct mixed_case of = {TALLY_BF16, rank ? TALLY_BF16 : TALLY_F16, true};
    struct ddp_model model;
    struct buffers buffers;
    tally_ddp_config config;
    tally_ddp *ddp = NULL;

    (void)user;
    CHECK(group, mixed_make(&model, &of, 0, &config) == 0);
    CHECK_STATUS(group, tally_ddp_create(group, model.params, model.n, &config, &ddp),
                 tally_group_size(group) > 1 ? TALLY_MISMATCH : TALLY_OK);
    CHECK(group,
          tally_group_size(group) == 1 ||
              strstr(tally_last_error(), "reduce_dtype is f16 on rank 0 and bf16 on rank 1"));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp = NULL;
    config.reduce_dtype = TALLY_BF16;
    prepare(&buffers, &config, 0);
    buffers.list[1].dtype = rank ? TALLY_U8 : TALLY_I64;
    CHECK_STATUS(group, tally_ddp_create(group, model.params, model.n, &config, &ddp),
                 tally_group_size(group) > 1 ? TALLY_MISMATCH : TALLY_OK);
    CHECK(group, tally_group_size(group) == 1 || strstr(tally_last_error(), "buffer 1 'count'"));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- memory of tally's own ---- */

/* A master that tally provides: filled on one rank, brought in line with its low copy. */
static int provided_body(tally_group *group, void *user)
{
    const struct mixed_case *of = user;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;
    void *given;

    CHECK(group, mixed_make(&model, of, tally_group_rank(group), &config) == 0);
    given = model.params[1].data;
    model.params[1].data = NULL;
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    model.params[1].data = tally_ddp_data(ddp, 1);
    CHECK(group, mixed_wrong_lows(&model, ddp, of->param_dtype) == 0);
    ddp_fill_data(&model, 1, 5, tally_group_rank(group));
    CHECK_OK(group, tally_ddp_broadcast(ddp, 0));
    CHECK(group, ddp_not_of(&model, 1, model.params[1].data, 5, 0) == 0);
    CHECK(group, mixed_wrong_lows(&model, ddp, of->param_dtype) == 0);
    CHECK_OK(group, mixed_right_step(group, ddp, &model, of, 1));
    CHECK_OK(group, mixed_right_step(group, ddp, &model, of, 2));
    CHECK_OK(group, tally_ddp_free(ddp));
    model.params[1].data = given;
    ddp_model_free(&model);
    return 0;
}

/* ---- checkpoints ---- */

struct blobs {
    unsigned char *bytes[4];
    size_t n_bytes[4];
};

/* Every rank gets all ranks' blobs. */
static int share(tally_group *group, struct blobs *blobs, const void *own, size_t bytes)
{
    int world = tally_group_size(group);
    size_t sizes[4] = {sizeof bytes, sizeof bytes, sizeof bytes, sizeof bytes};
    size_t total = 0;
    unsigned char *all;
    tally_future *future;

    CHECK_OK(group, tally_all_gather(group, &bytes, sizes, blobs->n_bytes, &future));
    CHECK_OK(group, ranks_finish(future));
    for (int r = 0; r < world; r++) {
        total += blobs->n_bytes[r];
    }
    all = malloc(total + 1);
    CHECK(group, all != NULL);
    CHECK_OK(group, tally_all_gather(group, own, blobs->n_bytes, all, &future));
    CHECK_OK(group, ranks_finish(future));
    for (int r = 0; r < world; r++) {
        blobs->bytes[r] = all;
        all += blobs->n_bytes[r];
    }
    return 0;
}

static int make(tally_group *group, struct ddp_model *model, const struct mixed_case *of,
                tally_ddp **ddp)
{
    tally_ddp_config config;

    CHECK(group, mixed_make(model, of, tally_group_rank(group), &config) == 0);
    config.hook = "int8";
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}

/* Goes on to the bit; where gradients travel as halves, residuals of fp32 have no place. */
static int checkpoint_body(tally_group *group, void *user)
{
    static const struct mixed_case wide = {TALLY_BF16, TALLY_F32, false};
    static const struct mixed_case half = {TALLY_BF16, TALLY_BF16, false};
    int world = tally_group_size(group);
    struct blobs blobs;
    struct ddp_model model[3];
    tally_ddp *ddp[3];
    size_t bytes;
    void *blob;

    (void)user;
    CHECK_OK(group, make(group, &model[0], &wide, &ddp[0]));
    CHECK_OK(group, make(group, &model[1], &wide, &ddp[1]));
    CHECK_OK(group, make(group, &model[2], &half, &ddp[2]));
    for (unsigned s = 0; s < 3; s++) {
        CHECK_OK(group, mixed_step(group, ddp[0], &model[0], &wide, s));
    }
    CHECK_OK(group, tally_ddp_save(ddp[0], NULL, &bytes));
    blob = malloc(bytes + 1);
    CHECK(group, blob != NULL);
    CHECK_OK(group, tally_ddp_save(ddp[0], blob, &bytes));
    CHECK_OK(group, share(group, &blobs, blob, bytes));
    free(blob);
    CHECK_OK(group, tally_ddp_load(ddp[1], (const void *const *)blobs.bytes, blobs.n_bytes,
                                   (size_t)world));
    CHECK_STATUS(
        group,
        tally_ddp_load(ddp[2], (const void *const *)blobs.bytes, blobs.n_bytes, (size_t)world),
        TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "which was reduced in fp32");
    free(blobs.bytes[0]);
    for (unsigned s = 3; s < 6; s++) {
        CHECK_OK(group, mixed_step(group, ddp[0], &model[0], &wide, s));
        CHECK_OK(group, mixed_step(group, ddp[1], &model[1], &wide, s));
        for (int i = 0; i < 4; i++) {
            CHECK(group, memcmp(tally_ddp_mean(ddp[0], i), tally_ddp_mean(ddp[1], i),
                                model[0].count[i] * sizeof(float)) == 0);
        }
    }
    for (int k = 0; k < 3; k++) {
        CHECK_OK(group, tally_ddp_free(ddp[k]));
        ddp_model_free(&model[k]);
    }
    return 0;
}

int main(void)
{
    int n_failures = 0;

    n_failures += ddp_run("buffers", buffers_body, NULL, 1);
    n_failures += ddp_run("refused", refused_body, NULL, 1);
    n_failures += ddp_run("disagree", disagree_body, NULL, 1);
    for (size_t c = 0; c < 2; c++) {
        struct mixed_case of = mixed_cases[c];

        n_failures += ddp_run("provided", provided_body, &of, 1);
    }
    n_failures += ddp_run("checkpoint", checkpoint_body, NULL, 1);
    return n_failures != 0;
}

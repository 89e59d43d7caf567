/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are refused: what the text says, that nothing is lost by it, and that what one rank
 * alone did wrong at creation is known to all.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ddp_model.h"

/* ---- during a step ---- */

static int expect(tally_group *group, int got, int status, const char *part)
{
    CHECK_STATUS(group, got, status);
    CHECK_TEXT(group, tally_last_error(), part);
    return 0;
}

static int twice(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    int rank = tally_group_rank(group);

    ddp_fill_grads(model, ddp, seed, rank);
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, 1), TALLY_STATE, "'fc1.weight'"));
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, 1), TALLY_STATE, "twice"));
    CHECK_OK(group, expect(group, tally_ddp_grad_absent(ddp, 1), TALLY_STATE, "'fc1.weight'"));
    for (int i = 0; i < DDP_N_MIXED - 2; i++) {
        if (i != 1) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
    }
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, 4), TALLY_STATE, "'half'"));
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK(group, ddp_wrong_means(model, ddp, seed, tally_group_size(group)) == 0);
    return 0;
}

/* On one rank only: the others wait for it inside their wait. */
static int missing(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    int rank = tally_group_rank(group);

    ddp_fill_grads(model, ddp, seed, rank);
    for (int i = 0; i < DDP_N_MIXED - 2; i++) {
        if (rank > 0 || (i != 3 && i != 6)) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
    }
    if (rank == 0) {
        for (int k = 0; k < 2; k++) {
            CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_STATE);
            CHECK_TEXT(group, tally_last_error(), "2 gradients");
            CHECK_TEXT(group, tally_last_error(), "3 'norm'");
            CHECK_TEXT(group, tally_last_error(), "6 'embedding'");
            CHECK(group, strstr(tally_last_error(), "'half'") == NULL);
            CHECK(group, strstr(tally_last_error(), "'frozen'") == NULL);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 6));
        CHECK_OK(group, expect(group, tally_ddp_wait(ddp), TALLY_STATE, "1 gradient was not"));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 3));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK(group, ddp_wrong_means(model, ddp, seed, tally_group_size(group)) == 0);
    return 0;
}

static int between(tally_group *group, tally_ddp *ddp, const struct ddp_model *model)
{
    double value = 1;
    tally_hook *hook = (tally_hook *)(void *)&value;

    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, expect(group, tally_ddp_zero_grad(ddp), TALLY_STATE, "tally_ddp_wait"));
    CHECK_STATUS(group, tally_ddp_clip_grad_norm(ddp, 1, &value), TALLY_STATE);
    CHECK_STATUS(group, tally_ddp_mean_scalar(ddp, &value), TALLY_STATE);
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, hook), TALLY_STATE);
    CHECK_STATUS(group, tally_ddp_no_sync_begin(ddp), TALLY_STATE);
    CHECK_STATUS(group, tally_ddp_join(ddp), TALLY_STATE);
    CHECK(group, value == 1);
    for (size_t i = 1; i < model->n; i++) {
        if (ddp_has_gradient(model, i)) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

static int wrong_calls(tally_group *group, tally_ddp *ddp)
{
    double value = 1;
    int unused = 7;

    CHECK_OK(group, expect(group, tally_ddp_wait(ddp), TALLY_STATE, "no gradient"));
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, -1), TALLY_ARG, "-1"));
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, DDP_N_MIXED), TALLY_ARG, "10"));
    CHECK_OK(group, expect(group, tally_ddp_grad_absent(ddp, DDP_N_MIXED), TALLY_ARG, "0..9"));
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, 8), TALLY_ARG, "'frozen'"));
    CHECK_OK(group, expect(group, tally_ddp_grad_ready(ddp, 9), TALLY_ARG, "'ignored'"));
    CHECK_OK(group, expect(group, tally_ddp_grad_absent(ddp, 8), TALLY_ARG, "'frozen'"));
    CHECK_STATUS(group, tally_ddp_grad_ready(NULL, 0), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_grad_absent(NULL, 0), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_wait(NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_is_unused(ddp, -1, &unused), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_is_unused(ddp, DDP_N_MIXED, &unused), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_is_unused(ddp, 0, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_is_unused(NULL, 0, &unused), TALLY_ARG);
    CHECK(group, unused == 7);
    CHECK_STATUS(group, tally_ddp_no_sync_begin(NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_no_sync_end(NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_no_sync_end(ddp), TALLY_STATE);
    CHECK_STATUS(group, tally_ddp_zero_grad(NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_clip_grad_norm(NULL, 1, &value), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_clip_grad_norm(ddp, -1, &value), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_mean_scalar(ddp, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_mean_scalar(NULL, &value), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_attach_hook(NULL, NULL), TALLY_ARG);
    CHECK_OK(group, expect(group, tally_ddp_join(ddp), TALLY_STATE, "config.join"));
    CHECK_STATUS(group, tally_ddp_join(NULL), TALLY_ARG);
    CHECK_OK(group, expect(group, tally_ddp_reduce_delayed(ddp), TALLY_STATE, "DELAYED"));
    CHECK_STATUS(group, tally_ddp_reduce_delayed(NULL), TALLY_ARG);
    CHECK_OK(group, tally_ddp_free(NULL));
    CHECK(group, value == 1);
    return 0;
}

static int step_body(tally_group *group, void *user)
{
    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        (void)user;
        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = 300;
        CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        for (unsigned s = 0; s < 3; s++) {
            CHECK_OK(group, wrong_calls(group, ddp));
            CHECK_OK(group, twice(group, ddp, &model, s));
            CHECK_OK(group, missing(group, ddp, &model, s + 100));
            CHECK_OK(group, between(group, ddp, &model));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- a group that is given up in the middle of a step ---- */

static int given_up_body(tally_group *group, void *user)
{
    int last = tally_group_size(group) - 1;

    for (int when = 0; when < 3; when++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_group *own;
        tally_ddp *ddp;
        int rc = TALLY_OK;

        (void)user;
        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = 300;
        CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, false) == 0);
        CHECK_OK(group, tally_group_split(group, 0, 0, &own));
        CHECK_OK(group, tally_ddp_create(own, model.params, model.n, &config, &ddp));
        CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
        /* The end of this step must not meet with the end of the group. */
        atomic_fetch_add(&ranks_words()[when], 1);
        CHECK(group, ranks_await(&ranks_words()[when], (uint32_t)last + 1) == 0);
        for (int i = DDP_N_MIXED - 3; i >= 0 && rc == TALLY_OK; i--) {
            if (tally_group_rank(group) == last && i == 2 * when) {
                CHECK_OK(group, tally_group_abort(own, "on purpose"));
            }
            rc = tally_ddp_grad_ready(ddp, i);
            CHECK(group, rc == TALLY_OK || rc == TALLY_ABORTED);
        }
        /* With any announcements the step ends, says why, and the ddp can be freed. */
        CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_ABORTED);
        CHECK_TEXT(group, tally_last_error(), "on purpose");
        CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_ABORTED);
        CHECK_OK(group, tally_ddp_free(ddp));
        CHECK_OK(group, tally_group_close(own));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- creation ---- */

enum mistake {
    NO_PARAMS,
    NO_COUNT,
    SMALL_PARAM,
    NO_NAME,
    EMPTY_NAME,
    SAME_NAMES,
    UNKNOWN_FLAG,
    SPARSE,
    INTEGER,
    BAD_DTYPE,
    NEGATIVE_DIMS,
    NO_SHAPE,
    HUGE,
    NO_DATA,
    ALL_FROZEN,
    SMALL_CONFIG,
    CAPS_NULL,
    CAPS_AND_CAP,
    BUFFERS_NULL,
    BUFFER_SMALL,
    BUFFER_NO_DATA,
    NO_OUTPUT,
    N_MISTAKES
};

struct expected {
    int status;
    const char *part;
};

static const struct expected expected[N_MISTAKES] = {
    {TALLY_ARG, "params"},      {TALLY_ARG, "no parameters"},
    {TALLY_ARG, "parameter 1"}, {TALLY_ARG, "parameter 1"},
    {TALLY_ARG, "parameter 1"}, {TALLY_ARG, "'a'"},
    {TALLY_ARG, "'b'"},         {TALLY_UNSUPPORTED, "'b' has a sparse"},
    {TALLY_ARG, "'b'"},         {TALLY_ARG, "'b'"},
    {TALLY_ARG, "'b'"},         {TALLY_ARG, "'b'"},
    {TALLY_ARG, "'b'"},         {TALLY_ARG, "'b' has no data"},
    {TALLY_ARG, "gradient"},    {TALLY_ARG, "tally_ddp_config_init"},
    {TALLY_ARG, "bucket_caps"}, {TALLY_ARG, "bucket_caps"},
    {TALLY_ARG, "buffers"},     {TALLY_ARG, "buffer 0"},
    {TALLY_ARG, "buffer 0"},    {TALLY_ARG, "ddp is NULL"},
};

/* The arguments of creation, and memory for what the mistakes point to. */
struct given {
    struct ddp_model model;
    tally_ddp_config config;
    tally_buffer buffer;
    size_t huge[2];
    size_t cap;
    const tally_param *params;
    size_t n;
    tally_ddp **output;
};

static void spoil_param(tally_param *param, struct given *given, enum mistake mistake)
{
    switch (mistake) {
    case SMALL_PARAM:
        param->size--;
        break;
    case NO_NAME:
        param->name = NULL;
        break;
    case EMPTY_NAME:
        param->name = "";
        break;
    case SAME_NAMES:
        param->name = "a";
        break;
    case UNKNOWN_FLAG:
        param->flags = 64;
        break;
    case SPARSE:
        param->flags = TALLY_PARAM_SPARSE;
        break;
    case INTEGER:
        param->dtype = TALLY_I32;
        break;
    case BAD_DTYPE:
        param->dtype = -1;
        break;
    case NEGATIVE_DIMS:
        param->n_dims = -1;
        break;
    case NO_SHAPE:
        param->shape = NULL;
        break;
    case HUGE:
        param->n_dims = 2;
        param->shape = given->huge;
        break;
    default:
        param->data = NULL;
        break;
    }
}

static void spoil(struct given *given, enum mistake mistake)
{
    tally_ddp_config *config = &given->config;

    switch (mistake) {
    case NO_PARAMS:
        given->params = NULL;
        break;
    case NO_COUNT:
        given->n = 0;
        break;
    case NO_OUTPUT:
        given->output = NULL;
        break;
    case ALL_FROZEN:
        given->model.params[0].flags = TALLY_PARAM_FROZEN;
        given->model.params[1].flags = TALLY_PARAM_IGNORED;
        break;
    case SMALL_CONFIG:
        config->size--;
        break;
    case CAPS_NULL:
        config->n_bucket_caps = 1;
        break;
    case CAPS_AND_CAP:
        config->n_bucket_caps = 1;
        config->bucket_caps = &given->cap;
        config->bucket_cap_bytes = 1;
        break;
    case BUFFERS_NULL:
        config->n_buffers = 1;
        break;
    case BUFFER_SMALL:
    case BUFFER_NO_DATA:
        config->n_buffers = 1;
        config->buffers = &given->buffer;
        given->buffer.size -= mistake == BUFFER_SMALL;
        given->buffer.data = mistake == BUFFER_SMALL ? given : NULL;
        break;
    default:
        spoil_param(&given->model.params[1], given, mistake);
        break;
    }
}

static int created_wrongly(tally_group *group, int whose, enum mistake mistake)
{
    static const struct ddp_spec specs[] = {{"a", TALLY_F32, 0, 1, {9}},
                                            {"b", TALLY_F32, 0, 2, {3, 4}}};
    struct given given = {.buffer = {.size = sizeof(tally_buffer), .name = "buffer", .bytes = 8},
                          .huge = {(size_t)1 << 40, (size_t)1 << 40},
                          .cap = 1};
    tally_ddp *ddp = NULL;

    CHECK(group, ddp_model_make(&given.model, specs, 2, true) == 0);
    {
        void *data = given.model.params[1].data;

        tally_ddp_config_init(&given.config, sizeof given.config);
        given.params = given.model.params;
        given.n = 2;
        given.output = &ddp;
        if (whose < 0 || whose == tally_group_rank(group)) {
            spoil(&given, mistake);
        }
        CHECK_STATUS(group,
                     tally_ddp_create(group, given.params, given.n, &given.config, given.output),
                     expected[mistake].status);
        CHECK_TEXT(group, tally_last_error(), expected[mistake].part);
        if (whose >= 0) {
            char rank[32];

            (void)snprintf(rank, sizeof rank, "rank %d:", whose);
            CHECK_TEXT(group, tally_last_error(), rank);
        }
        CHECK(group, ddp == NULL);
        given.model.params[1].data = data;
    }
    ddp_model_free(&given.model);
    return 0;
}

static int creation_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_ddp *ddp = NULL;

    (void)user;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, false) == 0);
    CHECK_STATUS(group, tally_ddp_create(NULL, model.params, model.n, NULL, &ddp), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_create(group, model.params, model.n, NULL, NULL), TALLY_ARG);
    for (int mistake = 0; mistake < N_MISTAKES; mistake++) {
        int last = tally_group_size(group) - 1;

        CHECK_OK(group, created_wrongly(group, -1, (enum mistake)mistake));
        CHECK_OK(group, created_wrongly(group, 0, (enum mistake)mistake));
        CHECK_OK(group, created_wrongly(group, last, (enum mistake)mistake));
    }
    /* The caller's group is as good as before. */
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("refused in a step", step_body, NULL, 1);

    n_failures += ddp_run("refused in a step", step_body, NULL, 0);
    n_failures += ddp_run("given up", given_up_body, NULL, 1);
    n_failures += ddp_run("given up", given_up_body, NULL, 3);
    n_failures += ddp_run("creation", creation_body, NULL, 1);
    return n_failures != 0;
}

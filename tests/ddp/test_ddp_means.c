/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain promise: after wait every gradient is the mean, to the bit, for every dtype and shape,
 * where gradients live in the buckets and where they are copied; and what creation does with the
 * parameters themselves.
 */
#include <stdlib.h>
#include <string.h>

#include "support/ddp_model.h"

static bool copies_of(const void *user)
{
    return *(const int *)user != 0;
}

/* ---- values at the start ---- */

static int check_data(tally_group *group, const struct ddp_model *model, int keep)
{
    int rank = tally_group_rank(group);

    for (size_t i = 0; i < model->n; i++) {
        bool ignored = (model->spec[i].flags & TALLY_PARAM_IGNORED) != 0;
        int whose = keep || ignored ? rank : 0;

        CHECK(group, ddp_not_of(model, i, model->params[i].data, 3, whose) == 0);
    }
    return 0;
}

static int means_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);

    for (int keep = 0; keep < 2; keep++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp_stats stats = {.size = sizeof stats};
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, copies_of(user)) == 0);
        for (size_t i = 0; i < model.n; i++) {
            ddp_fill_data(&model, i, 3, rank);
        }
        tally_ddp_config_init(&config, sizeof config);
        config.keep_parameters = keep;
        config.bucket_cap_bytes = 500;
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        CHECK_OK(group, check_data(group, &model, keep));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, stats.views == !copies_of(user));
        for (unsigned step = 0; step < 4; step++) {
            CHECK_OK(group, ddp_right_step(group, ddp, &model, step));
        }
        /* Steps touch gradients only. */
        CHECK_OK(group, check_data(group, &model, keep));
        ranks_note(group, 0, ddp_hash_grads(&model, ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- where gradients are ---- */

static int places_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, copies_of(user)) == 0);
    if (copies_of(user)) {
        /* One array of the application's makes them all copies; tally makes the rest. */
        for (size_t i = 1; i < model.n; i++) {
            free(model.params[i].grad);
            model.params[i].grad = NULL;
        }
    }
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    for (size_t i = 0; i < model.n; i++) {
        unsigned char *grad = tally_ddp_grad(ddp, (int)i);
        size_t bytes = model.count[i] * tally_dtype_bytes(model.spec[i].dtype);

        CHECK(group, (grad != NULL) == ddp_has_gradient(&model, i));
        CHECK(group, !model.params[i].grad || grad == model.params[i].grad);
        /* Memory of ours is zeroed, and aligned for its type. */
        for (size_t b = 0; grad && b < bytes; b++) {
            CHECK(group, grad[b] == 0);
        }
        CHECK(group, (uintptr_t)grad % tally_dtype_bytes(model.spec[i].dtype) == 0);
    }
    CHECK(group, tally_ddp_grad(ddp, -1) == NULL);
    CHECK(group, tally_ddp_grad(ddp, (int)model.n) == NULL);
    CHECK(group, tally_ddp_grad(NULL, 0) == NULL);
    for (unsigned step = 0; step < 3; step++) {
        CHECK_OK(group, ddp_right_step(group, ddp, &model, step));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- sizes at the edge ---- */

static int edges_body(tally_group *group, void *user)
{
    static const struct ddp_spec empty[] = {{"a", TALLY_F32, 0, 1, {0}},
                                            {"b", TALLY_F16, 0, 3, {2, 0, 2}}};
    static const struct ddp_spec single[] = {{"only", TALLY_F64, 0, 0, {0}}};
    /* Larger than what passes through a stage in one piece. */
    static const struct ddp_spec large[] = {{"x", TALLY_F32, 0, 1, {300001}},
                                            {"y", TALLY_BF16, 0, 2, {5, 40001}},
                                            {"z", TALLY_F64, 0, 1, {7}}};
    static const struct {
        const struct ddp_spec *specs;
        size_t n;
    } sets[] = {{empty, 2}, {single, 1}, {large, 3}};

    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, sets[s].specs, sets[s].n, copies_of(user)) == 0);
        if (sets[s].specs == empty && !copies_of(user)) {
            /* A parameter without elements needs no memory. */
            free(model.params[0].data);
            model.params[0].data = NULL;
        }
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
        for (unsigned step = 0; step < 3; step++) {
            CHECK_OK(group, ddp_right_step(group, ddp, &model, step));
        }
        CHECK_OK(group, tally_ddp_zero_grad(ddp));
        CHECK_OK(group, tally_ddp_clip_grad_norm(ddp, 1, NULL));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- strides ---- */

struct strided {
    int status;
    int n_dims;
    size_t shape[4];
    size_t strides[4];
};

static const struct strided strided[] = {
    {TALLY_OK, 2, {3, 4}, {4, 1}},
    {TALLY_OK, 2, {3, 4}, {1, 3}},
    {TALLY_OK, 4, {2, 3, 4, 5}, {60, 1, 15, 3}}, /* channels last */
    {TALLY_OK, 3, {2, 3, 4}, {1, 2, 6}},
    {TALLY_OK, 3, {1, 3, 1}, {77, 1, 99}}, /* of one element: any stride */
    {TALLY_OK, 2, {1, 1}, {0, 0}},
    {TALLY_OK, 1, {5}, {1}},
    {TALLY_OK, 2, {0, 3}, {3, 1}},
    {TALLY_OK, 2, {3, 0}, {0, 1}}, /* nothing: row-major, and no element to misplace */
    {TALLY_ARG, 2, {3, 4}, {5, 1}},
    {TALLY_ARG, 2, {3, 4}, {3, 1}},
    {TALLY_ARG, 2, {3, 4}, {8, 2}},
    {TALLY_ARG, 1, {5}, {2}},
    {TALLY_ARG, 1, {5}, {0}},
    {TALLY_ARG, 2, {3, 3}, {1, 1}},
    {TALLY_ARG, 3, {2, 3, 4}, {12, 4, 0}},
    {TALLY_ARG, 2, {2, 2}, {(size_t)-1, 1}},
    {TALLY_ARG, 3, {(size_t)1 << 32, (size_t)1 << 32, 2}, {1, (size_t)1 << 32, 0}},
};

/* The gradient of a permuted parameter is permuted like it: one mean per place in memory. */
static int strides_body(tally_group *group, void *user)
{
    for (size_t s = 0; s < sizeof strided / sizeof strided[0]; s++) {
        struct ddp_spec spec = {"w", TALLY_F32, 0, strided[s].n_dims, {0}};
        struct ddp_model model;
        tally_ddp *ddp = NULL;

        if (strided[s].status == TALLY_OK) {
            memcpy(spec.shape, strided[s].shape, sizeof spec.shape);
        }
        CHECK(group, ddp_model_make(&model, &spec, 1, copies_of(user)) == 0);
        memcpy(model.spec[0].shape, strided[s].shape, sizeof spec.shape);
        model.params[0].strides = strided[s].strides;
        CHECK_STATUS(group, tally_ddp_create(group, model.params, 1, NULL, &ddp),
                     strided[s].status);
        if (ddp) {
            CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
            CHECK_OK(group, ddp_right_step(group, ddp, &model, 2));
        } else {
            CHECK_TEXT(group, tally_last_error(), "'w'");
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- several at once ---- */

static int two_body(tally_group *group, void *user)
{
    struct ddp_model models[2];
    tally_ddp *ddps[2];

    for (int k = 0; k < 2; k++) {
        CHECK(group, ddp_model_make(&models[k], ddp_mixed, DDP_N_MIXED, copies_of(user)) == 0);
        CHECK_OK(group, tally_ddp_create(group, models[k].params, models[k].n, NULL, &ddps[k]));
    }
    for (unsigned step = 0; step < 3; step++) {
        double one = 1;
        tally_future *future;

        /* Both steps are under way at once, and the application's own collective between them. */
        for (size_t i = DDP_N_MIXED - 2; i-- > 0;) {
            for (unsigned k = 0; k < 2; k++) {
                ddp_fill_grad(&models[k], ddps[k], i, 2 * step + k, tally_group_rank(group));
                CHECK_OK(group, tally_ddp_grad_ready(ddps[k], (int)i));
            }
        }
        CHECK_OK(group, tally_all_reduce(group, &one, 1, TALLY_F64, TALLY_SUM, &future));
        CHECK_OK(group, tally_ddp_wait(ddps[1]));
        CHECK_OK(group, tally_ddp_wait(ddps[0]));
        CHECK_OK(group, ranks_finish(future));
        CHECK(group, one == tally_group_size(group));
        for (unsigned k = 0; k < 2; k++) {
            CHECK(group,
                  ddp_wrong_means(&models[k], ddps[k], 2 * step + k, tally_group_size(group)) == 0);
        }
    }
    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, tally_ddp_free(ddps[k]));
        ddp_model_free(&models[k]);
    }
    return 0;
}

int main(void)
{
    int n_failures = 0;

    for (int copies = 0; copies < 2; copies++) {
        n_failures += ddp_run_seven("means", means_body, &copies, 1);
        n_failures += ddp_run("means, no lane thread", means_body, &copies, 0);
        n_failures += ddp_run("places", places_body, &copies, 1);
        n_failures += ddp_run("edges", edges_body, &copies, 1);
        n_failures += ddp_run("strides", strides_body, &copies, 1);
        n_failures += ddp_run("two at once", two_body, &copies, 2);
    }
    return n_failures != 0;
}

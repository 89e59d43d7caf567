/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that tally provides: where they lie, that they are zeros at first, that one rank's
 * values reach all, and that they can be mixed with the application's own where gradients are
 * views.
 */
#include <stdlib.h>
#include <string.h>

#include "ddp/ddp.h"
#include "support/ddp_model.h"

#define CAP_BYTES 500
#define SEED 3

/* The parameters without data. */
enum which { ALL, EVERY_OTHER, N_WHICH };

static bool is_provided(const struct ddp_model *model, size_t i, enum which which)
{
    return (which == ALL || i % 2 == 1) && model->count[i] > 0 &&
           !(model->spec[i].flags & TALLY_PARAM_IGNORED);
}

static int make(tally_group *group, struct ddp_model *model, enum which which, tally_ddp **ddp)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = CAP_BYTES;
    CHECK(group, ddp_model_make(model, ddp_mixed, DDP_N_MIXED, false) == 0);
    for (size_t i = 0; i < model->n; i++) {
        ddp_fill_data(model, i, SEED, tally_group_rank(group));
        if (which == ALL || i % 2 == 1) {
            free(model->params[i].data);
            model->params[i].data = NULL;
        }
    }
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}

/* The application's are where they were, and rank 0's; ours are zeros; nothing else has a place. */
static int check_start(tally_group *group, const struct ddp_model *model, const tally_ddp *ddp,
                       enum which which)
{
    for (size_t i = 0; i < model->n; i++) {
        const unsigned char *data = tally_ddp_data(ddp, (int)i);
        size_t bytes = model->count[i] * tally_dtype_bytes(model->spec[i].dtype);
        size_t n_set = 0;

        if (!is_provided(model, i, which)) {
            bool ignored = (model->spec[i].flags & TALLY_PARAM_IGNORED) != 0;

            CHECK(group, data == model->params[i].data);
            CHECK(group, !data || ddp_not_of(model, i, data, SEED,
                                             ignored ? tally_group_rank(group) : 0) == 0);
            continue;
        }
        CHECK(group, data && (uintptr_t)data % tally_dtype_bytes(model->spec[i].dtype) == 0);
        for (size_t e = 0; e < bytes; e++) {
            n_set += data[e] != 0;
        }
        CHECK(group, n_set == 0);
    }
    CHECK(group, !tally_ddp_data(ddp, -1) && !tally_ddp_data(ddp, (int)model->n));
    CHECK(group, !tally_ddp_data(NULL, 0));
    return 0;
}

/* A bucket's parameters lie as its gradients do, where all of them are tally's. */
static int check_runs(tally_group *group, const struct ddp_model *model, tally_ddp *ddp,
                      enum which which)
{
    size_t n_runs = 0;
    int index[DDP_MAX_PARAMS];
    size_t n;

    for (size_t b = 0; (n = tally_ddp_bucket_params(ddp, b, index, DDP_MAX_PARAMS)) > 0; b++) {
        const unsigned char *run = tally__bucket_run(&ddp->buckets.bucket[b]);
        const unsigned char *first = tally_ddp_grad(ddp, index[0]);
        bool whole = true;

        for (size_t k = 0; k < n; k++) {
            size_t i = (size_t)index[k];

            whole = whole && (model->count[i] == 0 || is_provided(model, i, which));
        }
        CHECK(group, whole == (run != NULL));
        n_runs += whole;
        for (size_t k = 0; k < n && whole; k++) {
            const unsigned char *grad = tally_ddp_grad(ddp, index[k]);
            const unsigned char *data = tally_ddp_data(ddp, index[k]);

            CHECK(group, model->count[index[k]] == 0 || data - run == grad - first);
        }
    }
    CHECK(group, which != ALL || n_runs > 2);
    return 0;
}

/* From the last rank to all; then steps, which touch gradients only. */
static int check_values(tally_group *group, struct ddp_model *model, tally_ddp *ddp)
{
    int last = tally_group_size(group) - 1;

    for (size_t i = 0; i < model->n; i++) {
        model->params[i].data = tally_ddp_data(ddp, (int)i);
        if (model->params[i].data) {
            ddp_fill_data(model, i, SEED + 1, tally_group_rank(group));
        }
    }
    CHECK_OK(group, tally_ddp_broadcast(ddp, last));
    for (unsigned step = 0; step < 2; step++) {
        CHECK_OK(group, ddp_right_step(group, ddp, model, step));
    }
    for (size_t i = 0; i < model->n; i++) {
        bool ignored = (model->spec[i].flags & TALLY_PARAM_IGNORED) != 0;

        CHECK(group,
              !model->params[i].data || ddp_not_of(model, i, model->params[i].data, SEED + 1,
                                                   ignored ? tally_group_rank(group) : last) == 0);
    }
    return 0;
}

static int memory_body(tally_group *group, void *user)
{
    (void)user;
    for (enum which which = ALL; which < N_WHICH; which++) {
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK_OK(group, make(group, &model, which, &ddp));
        CHECK_OK(group, check_start(group, &model, ddp, which));
        CHECK_OK(group, check_runs(group, &model, ddp, which));
        CHECK_OK(group, check_values(group, &model, ddp));
        CHECK_STATUS(group, tally_ddp_broadcast(ddp, tally_group_size(group)), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "is not in 0..");
        CHECK_STATUS(group, tally_ddp_broadcast(NULL, 0), TALLY_ARG);
        for (size_t i = 0; i < model.n; i++) {
            CHECK(group, !ddp_has_gradient(&model, i) || tally_ddp_grad_ready(ddp, (int)i) == 0);
            CHECK_STATUS(group, tally_ddp_broadcast(ddp, 0), TALLY_STATE);
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
        for (size_t i = 0; i < model.n; i++) {
            model.params[i].data = which == ALL || i % 2 == 1 ? NULL : model.params[i].data;
        }
        ddp_model_free(&model);
    }
    return 0;
}

/* One array of the application's for a gradient makes all of them copies. */
static int copies_body(tally_group *group, void *user)
{
    static const struct ddp_spec specs[] = {{"a", TALLY_F32, 0, 1, {3}},
                                            {"b", TALLY_F32, 0, 0, {0}}};
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, specs, 2, true) == 0);
    free(model.params[1].data);
    model.params[1].data = NULL;
    CHECK_STATUS(group, tally_ddp_create(group, model.params, 2, NULL, &ddp), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(),
               "parameter 'b' has no data: tally provides it only where");
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("parameters of tally's", memory_body, NULL, 1);

    n_failures += ddp_run("not with copies", copies_body, NULL, 1);
    return n_failures != 0;
}

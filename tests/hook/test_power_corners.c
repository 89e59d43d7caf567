/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD in the cases in which PyTorch's fails: zero gradients, zero columns, more columns than
 * the matrix has, scalars and vectors, parameters without elements, values that are not finite, and
 * parameters that are not compressed, whose means must stay exact for ever.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])
#define CAP 1500

static const char *const texts[] = {
    "powersgd:start=0",
    "powersgd:rank=2,start=0",
    "powersgd:rank=8,start=0,min_rate=0",
    "powersgd:rank=2,start=0,feedback=0",
    "batched_powersgd:start=0",
    "batched_powersgd:rank=2,start=0",
};

static int make(tally_group *group, const char *text, bool copies, struct ddp_model *model,
                tally_ddp **ddp)
{
    CHECK(group, ddp_model_make(model, power_specs, POWER_N_PARAMS, copies) == 0);
    return power_create(group, model, CAP, text, ddp);
}

static int end(tally_group *group, struct ddp_model *model, tally_ddp *ddp)
{
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(model);
    return 0;
}

static uint64_t hash_of(const struct ddp_model *model, const tally_ddp *ddp, size_t i)
{
    return ranks_hash(0, tally_ddp_grad(ddp, (int)i),
                      model->count[i] * tally_dtype_bytes(model->spec[i].dtype));
}

/* ---- zeros ---- */

static double zeros(unsigned step, int rank, size_t i, size_t e)
{
    (void)step;
    (void)rank;
    (void)i;
    (void)e;
    return 0;
}

/* After zeros everything is as at the start. */
static int check_zeros(tally_group *group, const char *text, bool copies)
{
    struct ddp_model models[2];
    tally_ddp *ddps[2];

    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, make(group, text, copies, &models[k], &ddps[k]));
        /* So that both have the same buckets from here on. */
        CHECK_OK(group, power_run_step(group, ddps[k], &models[k], zeros, 0));
    }
    for (unsigned s = 1; s < 5; s++) {
        CHECK_OK(group, power_run_step(group, ddps[0], &models[0], zeros, s));
        for (size_t i = 0; i < models[0].n; i++) {
            const float *grad = tally_ddp_grad(ddps[0], (int)i);

            for (size_t e = 0; e < models[0].count[i] && i != 7; e++) {
                CHECK(group, grad[e] == 0);
            }
        }
    }
    for (unsigned s = 5; s < 8; s++) {
        for (int k = 0; k < 2; k++) {
            CHECK_OK(group, power_run_step(group, ddps[k], &models[k], power_value, s));
        }
        CHECK(group, ddp_hash_grads(&models[0], ddps[0]) == ddp_hash_grads(&models[1], ddps[1]));
    }
    CHECK_OK(group, end(group, &models[0], ddps[0]));
    return end(group, &models[1], ddps[1]);
}

static int zeros_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < N_OF(texts); k++) {
        bool copies = (k + (size_t)tally_group_size(group)) % 2 == 1;

        if (check_zeros(group, texts[k], copies) != 0) {
            (void)fprintf(stderr, "%s, %s\n", texts[k], copies ? "copies" : "views");
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* ---- as many columns as the matrix has, and more ---- */

static const struct ddp_spec small_specs[] = {
    {"nothing", TALLY_F32, 0, 1, {0}},        {"scalar", TALLY_F32, 0, 0, {0}},
    {"one", TALLY_F32, 0, 3, {1, 1, 1}},      {"row", TALLY_F32, 0, 2, {1, 33}},
    {"column", TALLY_F32, 0, 2, {33, 1}},     {"vector", TALLY_F32, 0, 1, {7}},
    {"no rows", TALLY_F32, 0, 2, {0, 4}},     {"no columns", TALLY_F32, 0, 2, {4, 0}},
    {"three", TALLY_F32, 0, 2, {3, 4}},       {"conv", TALLY_F32, 0, 4, {4, 2, 3, 1}},
    {"zero column", TALLY_F32, 0, 2, {5, 3}}, {"zero row", TALLY_F32, 0, 2, {4, 5}},
};

static double small_value(unsigned step, int rank, size_t i, size_t e)
{
    bool zero = (i == 10 && e % 3 == 1) || (i == 11 && e / 5 == 2);

    return zero ? 0 : power_value(step, rank, i, e);
}

/* With all columns there can be, nothing is left out. */
static int check_small(tally_group *group, const char *text, size_t cap, bool whole)
{
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, small_specs, N_OF(small_specs), cap % 2 == 0) == 0);
    CHECK_OK(group, power_create(group, &model, cap, text, &ddp));
    for (unsigned s = 0; s < 12; s++) {
        CHECK_OK(group, power_run_step(group, ddp, &model, small_value, s));
        for (size_t at = 0; at < model.n * 40; at++) {
            size_t i = at / 40;
            const float *grad = tally_ddp_grad(ddp, (int)i);
            double sum = 0;

            if (at % 40 >= model.count[i]) {
                continue;
            }
            for (int r = 0; r < world; r++) {
                sum += small_value(s, r, i, at % 40);
            }
            CHECK(group, isfinite(grad[at % 40]));
            CHECK(group, !whole || fabs((double)grad[at % 40] - sum / world) <= 1e-5);
        }
        ranks_note(group, 0, ddp_hash_grads(&model, ddp));
    }
    return end(group, &model, ddp);
}

static int small_body(tally_group *group, void *user)
{
    static const size_t caps[] = {1, 100, 1001, 100000};

    (void)user;
    for (size_t k = 0; k < N_OF(caps); k++) {
        CHECK_OK(group, check_small(group, "powersgd:rank=8,start=0,min_rate=0", caps[k], true));
        CHECK_OK(group, check_small(group, "powersgd:rank=8,start=0,min_rate=0,warm_start=0",
                                    caps[k], true));
        CHECK_OK(group, check_small(group, "powersgd:start=0,min_rate=0", caps[k], false));
        CHECK_OK(group, check_small(group, "batched_powersgd:rank=100,start=0", caps[k], true));
        CHECK_OK(group, check_small(group, "batched_powersgd:start=0", caps[k], false));
    }
    return 0;
}

/* ---- values that are not finite ---- */

#define N_STEPS 6
#define BAD_STEP 2

/* The parameter, and the last rank's value there. The same for all threads of a run. */
static struct {
    size_t param;
    float value;
} bad;

static double bad_value(unsigned step, int rank, size_t i, size_t e)
{
    bool is_bad = step == BAD_STEP && i == bad.param && rank == 0 && e == 5;

    return is_bad ? (double)bad.value : power_value(step, rank, i, e);
}

/* The bucket of a parameter; SIZE_MAX: it has none. */
static size_t bucket_of(tally_ddp *ddp, size_t param)
{
    for (size_t b = 0;; b++) {
        int params[64];
        size_t n = tally_ddp_bucket_params(ddp, b, params, N_OF(params));

        if (n == 0) {
            return SIZE_MAX;
        }
        for (size_t k = 0; k < n; k++) {
            if ((size_t)params[k] == param) {
                return b;
            }
        }
    }
}

/* A bad step is bad for one parameter, or for a bucket; the others never notice, and the steps
 * after it are those after a fresh start. */
static int check_bad(tally_group *group, const char *text, bool copies)
{
    bool batched = text[0] == 'b';
    struct ddp_model models[3];
    tally_ddp *ddps[3]; /* the bad one, one that is well, one that starts after the bad step */
    const float *grad;

    for (int k = 0; k < 3; k++) {
        CHECK_OK(group, make(group, text, copies, &models[k], &ddps[k]));
    }
    CHECK_OK(group, power_run_step(group, ddps[2], &models[2], zeros, 0));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, power_run_step(group, ddps[0], &models[0], bad_value, s));
        CHECK_OK(group, power_run_step(group, ddps[1], &models[1], power_value, s));
        if (s > BAD_STEP) {
            CHECK_OK(group, power_run_step(group, ddps[2], &models[2], power_value, s));
        }
        for (size_t i = 0; i < models[0].n; i++) {
            bool concerned = s >= BAD_STEP &&
                             bucket_of(ddps[0], i) == bucket_of(ddps[0], bad.param) &&
                             (batched || i == bad.param);
            uint64_t hash = hash_of(&models[0], ddps[0], i);

            if (!concerned) {
                CHECK(group, hash == hash_of(&models[1], ddps[1], i));
            } else if (s > BAD_STEP) {
                CHECK(group, hash == hash_of(&models[2], ddps[2], i));
            }
        }
        grad = tally_ddp_grad(ddps[0], (int)bad.param);
        CHECK(group, isfinite(grad[5]) == (s != BAD_STEP));
    }
    for (int k = 0; k < 3; k++) {
        CHECK_OK(group, end(group, &models[k], ddps[k]));
    }
    return 0;
}

static int bad_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < N_OF(texts); k++) {
        bool copies = (k + (size_t)tally_group_size(group)) % 2 == 1;

        if (check_bad(group, texts[k], copies) != 0) {
            (void)fprintf(stderr, "%s, %s, %g in parameter %zu\n", texts[k],
                          copies ? "copies" : "views", (double)bad.value, bad.param);
            return RANKS_FAILED;
        }
    }
    return 0;
}

static int run_bad(int world)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    int n_failures = 0;

    for (size_t k = 0; k < N_OF(values); k++) {
        /* A matrix, and a vector. */
        bad.param = k == 1 ? 2 : 8;
        bad.value = values[k];
        n_failures += hook_run("bad", bad_body, NULL, world);
    }
    return n_failures;
}

/* ---- what is not compressed stays exact ---- */

static double apart(unsigned step, int rank, size_t i, size_t e)
{
    (void)step;
    return (double)(float)(0.6 + 0.1 * rank + 0.01 * (double)(e % 7) + 0.001 * (double)i);
}

static int apart_body(tally_group *group, void *user)
{
    static const struct ddp_spec specs[] = {{"weight", TALLY_F32, 0, 2, {10, 10}},
                                            {"bias", TALLY_F32, 0, 1, {10}}};
    struct ddp_model model;
    uint64_t expected;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, specs, 2, false) == 0);
    CHECK_OK(group, power_create(group, &model, 1 << 20, "allreduce", &ddp));
    CHECK_OK(group, power_run_step(group, ddp, &model, apart, 0));
    expected = hash_of(&model, ddp, 1);
    CHECK_OK(group, tally_ddp_set_hook(ddp, "powersgd:start=0"));
    for (unsigned s = 0; s < RANKS_REPEATS(2000, 200); s++) {
        CHECK_OK(group, power_run_step(group, ddp, &model, apart, s));
        CHECK(group, hash_of(&model, ddp, 1) == expected);
    }
    /* A residual would be delivered now. */
    CHECK_OK(group, tally_ddp_set_hook(ddp, "allreduce"));
    CHECK_OK(group, power_run_step(group, ddp, &model, apart, 0));
    CHECK(group, hash_of(&model, ddp, 1) == expected);
    return end(group, &model, ddp);
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS - 1; w++) {
        n_failures += hook_run("zeros", zeros_body, NULL, ranks_worlds[w]);
        n_failures += hook_run("small", small_body, NULL, ranks_worlds[w]);
        n_failures += run_bad(ranks_worlds[w]);
    }
    n_failures += hook_run("apart", apart_body, NULL, 3);
    return n_failures != 0;
}

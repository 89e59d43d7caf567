/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the ddp tests. Keeps no state: every rank has its own model. */
#include "support/ddp_model.h"

#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"

const struct ddp_spec ddp_mixed[DDP_N_MIXED] = {
    {"scale", TALLY_F32, 0, 0, {0}},
    {"fc1.weight", TALLY_F32, 0, 2, {7, 5}},
    {"nothing", TALLY_F32, 0, 2, {0, 3}},
    {"norm", TALLY_F64, 0, 1, {33}},
    {"half", TALLY_F16, 0, 1, {101}},
    {"brain", TALLY_BF16, 0, 3, {3, 3, 3}},
    {"embedding", TALLY_F32, 0, 2, {100, 51}},
    {"one", TALLY_F16, 0, 1, {1}},
    {"frozen", TALLY_F32, TALLY_PARAM_FROZEN, 1, {11}},
    {"ignored", TALLY_F32, TALLY_PARAM_IGNORED, 1, {4}},
};

bool ddp_has_gradient(const struct ddp_model *model, size_t i)
{
    return (model->spec[i].flags & (TALLY_PARAM_FROZEN | TALLY_PARAM_IGNORED)) == 0;
}

int ddp_model_make(struct ddp_model *model, const struct ddp_spec *specs, size_t n, bool copies)
{
    *model = (struct ddp_model){.n = n};
    for (size_t i = 0; i < n; i++) {
        tally_param *param = &model->params[i];
        size_t bytes;

        model->spec[i] = specs[i];
        model->count[i] = 1;
        for (int d = 0; d < specs[i].n_dims; d++) {
            model->count[i] *= specs[i].shape[d];
        }
        bytes = model->count[i] * tally_dtype_bytes(specs[i].dtype);
        *param = (tally_param){.size = sizeof *param,
                               .name = model->spec[i].name,
                               .n_dims = specs[i].n_dims,
                               .shape = model->spec[i].shape,
                               .dtype = specs[i].dtype,
                               .flags = specs[i].flags};
        param->data = calloc(1, bytes + 1);
        param->grad = copies && ddp_has_gradient(model, i) ? calloc(1, bytes + 1) : NULL;
        if (!param->data || (copies && ddp_has_gradient(model, i) && !param->grad)) {
            return RANKS_FAILED;
        }
    }
    return 0;
}

void ddp_model_free(struct ddp_model *model)
{
    for (size_t i = 0; i < model->n; i++) {
        free(model->params[i].data);
        free(model->params[i].grad);
    }
    model->n = 0;
}

/* ---- values ---- */

static double random_value(unsigned seed, int rank, size_t i, size_t e)
{
    uint64_t z = (uint64_t)seed * 0x9e3779b97f4a7c15u + (uint64_t)(rank + 1) * 0xd1342543de82ef95u +
                 (uint64_t)(i + 1) * 0x2545f4914f6cdd1du + (uint64_t)(e + 1) * 0x9fb21c651e98df25u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(int64_t)z * 0x1p-63;
}

double ddp_value(int dtype, unsigned seed, int rank, size_t i, size_t e)
{
    double value = random_value(seed, rank, i, e);

    switch (dtype) {
    case TALLY_F32:
        return (double)(float)value;
    case TALLY_F16:
        return (double)oracle_from_half(oracle_to_half((float)value));
    case TALLY_BF16:
        return (double)oracle_from_bfloat(oracle_to_bfloat((float)value));
    default:
        return value;
    }
}

static void put(int dtype, void *array, size_t e, double value)
{
    if (dtype == TALLY_F32) {
        ((float *)array)[e] = (float)value;
    } else if (dtype == TALLY_F64) {
        ((double *)array)[e] = value;
    } else {
        ((uint16_t *)array)[e] =
            dtype == TALLY_F16 ? oracle_to_half((float)value) : oracle_to_bfloat((float)value);
    }
}

static void fill(const struct ddp_model *model, size_t i, void *array, unsigned seed, int rank)
{
    int dtype = model->spec[i].dtype;

    for (size_t e = 0; e < model->count[i]; e++) {
        put(dtype, array, e, ddp_value(dtype, seed, rank, i, e));
    }
}

void ddp_fill_data(const struct ddp_model *model, size_t i, unsigned seed, int rank)
{
    fill(model, i, model->params[i].data, seed, rank);
}

void ddp_fill_grad(const struct ddp_model *model, const tally_ddp *ddp, size_t i, unsigned seed,
                   int rank)
{
    fill(model, i, tally_ddp_grad(ddp, (int)i), seed, rank);
}

void ddp_fill_grads(const struct ddp_model *model, const tally_ddp *ddp, unsigned seed, int rank)
{
    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i)) {
            ddp_fill_grad(model, ddp, i, seed, rank);
        }
    }
}

/* Whether element e of an array has the bits of this value. */
static bool is(int dtype, const void *array, size_t e, double value)
{
    size_t bytes = tally_dtype_bytes(dtype);
    uint64_t expected = 0;

    put(dtype, &expected, 0, value);
    return memcmp((const unsigned char *)array + e * bytes, &expected, bytes) == 0;
}

size_t ddp_not_of(const struct ddp_model *model, size_t i, const void *array, unsigned seed,
                  int rank)
{
    int dtype = model->spec[i].dtype;
    size_t n_wrong = 0;

    for (size_t e = 0; e < model->count[i]; e++) {
        n_wrong += !is(dtype, array, e, ddp_value(dtype, seed, rank, i, e));
    }
    return n_wrong;
}

/* ---- means ---- */

static double value_or_zero(int dtype, const struct ddp_mean *mean, int rank, size_t i, size_t e)
{
    return mean->ranks >> rank & 1 ? ddp_value(dtype, mean->seed, rank, i, e) : 0;
}

size_t ddp_wrong(const struct ddp_model *model, const tally_ddp *ddp, size_t i,
                 struct ddp_mean mean)
{
    const void *grad = tally_ddp_grad(ddp, (int)i);
    int dtype = model->spec[i].dtype;
    size_t n_wrong = 0;

    for (size_t e = 0; e < model->count[i]; e++) {
        double wide = value_or_zero(dtype, &mean, 0, i, e);
        float sum = (float)wide;

        for (int r = 1; r < mean.world; r++) {
            wide += value_or_zero(dtype, &mean, r, i, e);
            sum += (float)value_or_zero(dtype, &mean, r, i, e);
        }
        wide = dtype == TALLY_F64 ? wide / mean.divisor : (double)(sum / (float)mean.divisor);
        n_wrong += !is(dtype, grad, e, wide);
    }
    return n_wrong;
}

size_t ddp_wrong_means(const struct ddp_model *model, const tally_ddp *ddp, unsigned seed,
                       int world)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i) && !(model->spec[i].flags & TALLY_PARAM_DELAYED)) {
            n_wrong += ddp_wrong(model, ddp, i, ((struct ddp_mean){seed, world, ~0u, world}));
        }
    }
    return n_wrong;
}

int ddp_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    for (size_t i = model->n; i-- > 0;) {
        if (ddp_has_gradient(model, i) && !(model->spec[i].flags & TALLY_PARAM_DELAYED)) {
            ddp_fill_grad(model, ddp, i, seed, tally_group_rank(group));
            CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

int ddp_right_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    CHECK_OK(group, ddp_step(group, ddp, model, seed));
    CHECK(group, ddp_wrong_means(model, ddp, seed, tally_group_size(group)) == 0);
    return 0;
}

uint64_t ddp_hash_grads(const struct ddp_model *model, const tally_ddp *ddp)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i)) {
            hash = ranks_hash(hash, tally_ddp_grad(ddp, (int)i),
                              model->count[i] * tally_dtype_bytes(model->spec[i].dtype));
        }
    }
    return hash;
}

int ddp_doubled_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    float *data = bucket->data;
    int rc;

    (void)state;
    for (size_t e = 0; e < bucket->n; e++) {
        data[e] *= 2;
    }
    rc = tally_lane_all_reduce(lane, data, bucket->n, bucket->dtype, TALLY_SUM);
    for (size_t e = 0; e < bucket->n; e++) {
        data[e] /= 2 * (float)bucket->divisor;
    }
    return rc;
}

/* ---- runs ---- */

int ddp_run_world(const char *name, ranks_body *body, void *user, int lanes, int world)
{
    const struct ranks ranks = {.lanes = lanes, .timeout_s = 60};

    oracle_start();
    return ranks_run_worlds(name, &ranks, (const int[]){world, 0}, body, user);
}

int ddp_run(const char *name, ranks_body *body, void *user, int lanes)
{
    int n_failures = 0;

    for (int world = 1; world <= RANKS_REPEATS(4, 3); world++) {
        n_failures += ddp_run_world(name, body, user, lanes, world);
    }
    return n_failures;
}

int ddp_run_seven(const char *name, ranks_body *body, void *user, int lanes)
{
    return ddp_run(name, body, user, lanes) + ddp_run_world(name, body, user, lanes, 7);
}

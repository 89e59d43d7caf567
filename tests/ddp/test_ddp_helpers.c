/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients between steps: zeroing, clipping their joint norm against an oracle in double
 * precision, and the mean of a number.
 */
#include <math.h>
#include <string.h>

#include "support/ddp_model.h"
#include "support/oracle.h"

#define MAX_BYTES 20400 /* of a gradient */

static size_t bytes_of(const struct ddp_model *model, size_t i)
{
    return model->count[i] * tally_dtype_bytes(model->spec[i].dtype);
}

static double element(const struct ddp_model *model, const void *array, size_t i, size_t e)
{
    switch (model->spec[i].dtype) {
    case TALLY_F32:
        return (double)((const float *)array)[e];
    case TALLY_F64:
        return ((const double *)array)[e];
    case TALLY_F16:
        return (double)oracle_from_half(((const uint16_t *)array)[e]);
    default:
        return (double)oracle_from_bfloat(((const uint16_t *)array)[e]);
    }
}

/* An element scaled: in double for f64, in float and then rounded for the others. */
static double scaled(int dtype, double value, double factor)
{
    float product = (float)value * (float)factor;

    switch (dtype) {
    case TALLY_F64:
        return value * factor;
    case TALLY_F32:
        return (double)product;
    case TALLY_F16:
        return (double)oracle_from_half(oracle_to_half(product));
    default:
        return (double)oracle_from_bfloat(oracle_to_bfloat(product));
    }
}

/* All gradients as they were. */
struct kept {
    _Alignas(double) unsigned char grads[DDP_N_MIXED][MAX_BYTES];
};

static int keep(tally_group *group, const struct ddp_model *model, const tally_ddp *ddp,
                struct kept *kept)
{
    memset(kept, 0, sizeof *kept);
    for (size_t i = 0; i < model->n; i++) {
        CHECK(group, bytes_of(model, i) <= MAX_BYTES);
        if (ddp_has_gradient(model, i)) {
            memcpy(kept->grads[i], tally_ddp_grad(ddp, (int)i), bytes_of(model, i));
        }
    }
    return 0;
}

static double joint_norm(const struct ddp_model *model, const struct kept *kept, int without)
{
    double sum = 0;

    for (size_t i = 0; i < model->n; i++) {
        bool counts = ddp_has_gradient(model, i) && (int)i != without;

        for (size_t e = 0; counts && e < model->count[i]; e++) {
            double value = element(model, kept->grads[i], i, e);

            sum += value * value;
        }
    }
    return sqrt(sum);
}

/* Clips and compares each element; without is a parameter that no rank had a gradient for. */
static int clip(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, double max_norm,
                int without)
{
    struct kept before;
    double norm = -1;
    double right;
    double factor;

    CHECK_OK(group, keep(group, model, ddp, &before));
    right = joint_norm(model, &before, without);
    CHECK_OK(group, tally_ddp_clip_grad_norm(ddp, max_norm, &norm));
    CHECK(group, fabs(norm - right) <= 1e-12 * right);
    factor = norm > max_norm ? max_norm / norm : 1;
    for (size_t i = 0; i < model->n; i++) {
        const void *grad = tally_ddp_grad(ddp, (int)i);
        double own = (int)i == without ? 1 : factor;

        for (size_t e = 0; grad && e < model->count[i]; e++) {
            CHECK(group,
                  element(model, grad, i, e) ==
                      scaled(model->spec[i].dtype, element(model, before.grads[i], i, e), own));
        }
    }
    ranks_note(group, 0, ranks_hash(ddp_hash_grads(model, ddp), &norm, sizeof norm));
    return 0;
}

/* One bad element: nothing is scaled, and the first parameter that has one is named. */
static int numeric(tally_group *group, tally_ddp *ddp, const struct ddp_model *model)
{
    static const uint64_t bad[4][2] = {{0x7f800000, 0xffc00000},
                                       {0xfff0000000000000, 0x7ff8000000000001},
                                       {0x7c00, 0xfe00},
                                       {0xff80, 0x7fc1}};

    for (size_t i = 0; i < model->n; i++) {
        int dtype = model->spec[i].dtype;
        unsigned char *grad = tally_ddp_grad(ddp, (int)i);
        uint64_t hash;
        double norm = -1;

        if (!grad || model->count[i] == 0) {
            continue;
        }
        for (int kind = 0; kind < 2; kind++) {
            size_t at = (model->count[i] - 1) * tally_dtype_bytes(dtype);
            float last = NAN;

            CHECK_OK(group, ddp_step(group, ddp, model, 5));
            memcpy(grad + at, &bad[dtype][kind], tally_dtype_bytes(dtype));
            if (i < 6) {
                memcpy(tally_ddp_grad(ddp, 6), &last, sizeof last);
            }
            hash = ddp_hash_grads(model, ddp);
            CHECK_STATUS(group, tally_ddp_clip_grad_norm(ddp, 0.01, &norm), TALLY_NUMERIC);
            CHECK_TEXT(group, tally_last_error(), model->spec[i].name);
            CHECK(group, norm == -1);
            CHECK(group, ddp_hash_grads(model, ddp) == hash);
        }
    }
    return 0;
}

static int clip_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        static const double norms[] = {0.5, 3, 1e9, 1e-30, 0, INFINITY};
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
        for (unsigned k = 0; k < sizeof norms / sizeof norms[0]; k++) {
            CHECK_OK(group, ddp_step(group, ddp, &model, k));
            CHECK_OK(group, clip(group, ddp, &model, norms[k], -1));
        }
        CHECK_STATUS(group, tally_ddp_clip_grad_norm(ddp, (double)NAN, NULL), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "max_norm takes 0 or more, not nan");
        /* A parameter without a gradient on any rank is not part of the norm. */
        ddp_fill_grads(&model, ddp, 3, 0);
        for (int i = 0; i < DDP_N_MIXED - 2; i++) {
            CHECK_OK(group, i == 6 ? tally_ddp_grad_absent(ddp, i) : tally_ddp_grad_ready(ddp, i));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, clip(group, ddp, &model, 0.25, 6));
        CHECK_OK(group, numeric(group, ddp, &model));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* Squares beyond fp64: the norm is found all the same, and what is scaled is right. The others'
 * part of it is lost in the rounding. */
static int huge_body(tally_group *group, void *user)
{
    static const struct ddp_spec specs[] = {
        {"f", TALLY_F32, 0, 1, {5}}, {"d", TALLY_F64, 0, 1, {4}}, {"e", TALLY_F64, 0, 1, {1}}};
    static const double sizes[] = {1e154, 1e160, 1e200, 1e300, 0x1p1022};
    struct ddp_model model;
    tally_ddp *ddp;
    double *d;
    double *e;
    double norm = -1;

    (void)user;
    CHECK(group, ddp_model_make(&model, specs, 3, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    d = tally_ddp_grad(ddp, 1);
    e = tally_ddp_grad(ddp, 2);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        double size = sizes[k];

        CHECK_OK(group, ddp_step(group, ddp, &model, (unsigned)k));
        for (int i = 0; i < 4; i++) {
            d[i] = i % 2 ? size / 2 : -size / 2;
        }
        e[0] = 0;
        /* Each is half of it, and there are four. */
        CHECK_OK(group, tally_ddp_clip_grad_norm(ddp, size / 4, &norm));
        CHECK(group, fabs(norm - size) <= 1e-12 * size);
        for (int i = 0; i < 4; i++) {
            CHECK(group, fabs(fabs(d[i]) - size / 8) <= 1e-12 * size);
        }
    }
    norm = -1;
    for (int i = 0; i < 4; i++) {
        d[i] = 0x1.8p1023;
    }
    CHECK_STATUS(group, tally_ddp_clip_grad_norm(ddp, 1, &norm), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "beyond");
    CHECK(group, norm == -1 && d[3] == 0x1.8p1023);
    e[0] = -INFINITY;
    CHECK_STATUS(group, tally_ddp_clip_grad_norm(ddp, 1, &norm), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "'e'");
    CHECK(group, norm == -1 && d[3] == 0x1.8p1023);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int all_zero(tally_group *group, const struct ddp_model *model, const tally_ddp *ddp)
{
    for (size_t i = 0; i < model->n; i++) {
        const unsigned char *grad = tally_ddp_grad(ddp, (int)i);

        for (size_t b = 0; grad && b < bytes_of(model, i); b++) {
            CHECK(group, grad[b] == 0);
        }
    }
    return 0;
}

static int zero_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        struct ddp_spec specs[DDP_N_MIXED];
        struct ddp_model model;
        tally_ddp *ddp;

        memcpy(specs, ddp_mixed, sizeof specs);
        specs[3].flags = TALLY_PARAM_DELAYED;
        CHECK(group, ddp_model_make(&model, specs, DDP_N_MIXED, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
        for (unsigned s = 0; s < 3; s++) {
            CHECK_OK(group, ddp_right_step(group, ddp, &model, s));
            ddp_fill_grad(&model, ddp, 3, s, 0);
            CHECK_OK(group, tally_ddp_zero_grad(ddp));
            CHECK_OK(group, all_zero(group, &model, ddp));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

static int mean_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    for (unsigned s = 0; s < 10; s++) {
        double value = ddp_value(TALLY_F64, s, tally_group_rank(group), 0, 0);
        double sum = ddp_value(TALLY_F64, s, 0, 0, 0);

        for (int r = 1; r < world; r++) {
            sum += ddp_value(TALLY_F64, s, r, 0, 0);
        }
        CHECK_OK(group, tally_ddp_mean_scalar(ddp, &value));
        CHECK(group, value == sum / world);
        /* If one rank cannot make the call, no rank waits for it. */
        value = 7;
        CHECK_STATUS(
            group, tally_ddp_mean_scalar(ddp, tally_group_rank(group) == world - 1 ? NULL : &value),
            TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "NULL");
        CHECK(group, value == 7);
        CHECK_OK(group, ddp_right_step(group, ddp, &model, s));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* Many at once are what each is by itself. */
static int scalars_body(tally_group *group, void *user)
{
    static const size_t counts[] = {0, 1, 16, 17, 200};
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        double values[200];

        for (size_t e = 0; e < counts[c]; e++) {
            values[e] = ddp_value(TALLY_F64, 3, rank, 0, e);
        }
        CHECK_OK(group, tally_ddp_mean_scalars(ddp, values, counts[c]));
        for (size_t e = 0; e < counts[c]; e++) {
            double one = ddp_value(TALLY_F64, 3, rank, 0, e);

            CHECK_OK(group, tally_ddp_mean_scalar(ddp, &one));
            CHECK(group, one == values[e]);
        }
        values[0] = 7;
        CHECK_STATUS(group,
                     tally_ddp_mean_scalars(ddp, rank == world - 1 ? NULL : values, counts[c]),
                     counts[c] > 0 ? TALLY_ARG : TALLY_OK);
        CHECK(group, values[0] == 7);
    }
    CHECK_STATUS(group, tally_ddp_mean_scalars(NULL, NULL, 1), TALLY_ARG);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("clip", clip_body, NULL, 1);

    n_failures += ddp_run("clip, huge", huge_body, NULL, 1);
    n_failures += ddp_run("scalars", scalars_body, NULL, 1);
    n_failures += ddp_run("zero", zero_body, NULL, 1);
    n_failures += ddp_run("mean", mean_body, NULL, 1);
    return n_failures != 0;
}

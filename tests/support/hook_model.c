/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the hook tests. Keeps no state: every rank has its own model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

const struct ddp_spec hook_specs[HOOK_N_PARAMS] = {
    {"scale", TALLY_F32, 0, 0, {0}},         {"w1", TALLY_F32, 0, 2, {40, 20}},
    {"bias", TALLY_F32, 0, 1, {700}},        {"nothing", TALLY_F32, 0, 2, {0, 3}},
    {"conv", TALLY_F32, 0, 4, {8, 3, 5, 7}}, {"big", TALLY_F32, 0, 2, {129, 100}},
    {"norm", TALLY_F64, 0, 1, {33}},         {"half", TALLY_F16, 0, 1, {101}},
    {"one", TALLY_F32, 0, 2, {1, 1}},        {"w2", TALLY_F32, 0, 2, {64, 64}},
};

/* Half way between two codes, where any error of rounding shows; every few elements are the ends of
 * the range, so that all blocks have the same scale. */
static float between_codes(unsigned seed, int rank, size_t e)
{
    const float lo = -1;
    const float hi = 1.55f;
    float step = (hi - lo) / 255;

    if (e % 16 < 2) {
        return e % 16 ? lo : hi;
    }
    return (floorf((float)ddp_value(TALLY_F32, seed, rank, 99, e) * 90) + 0.5f) * step;
}

float hook_value(unsigned seed, int rank, size_t i, size_t e)
{
    static const double scales[] = {1, 0.01, 0.5, 1, 1e-6, 0.1, 1, 1, 30};
    double value = ddp_value(TALLY_F64, seed, rank, i, e);

    if (i == HOOK_N_PARAMS - 1) {
        return between_codes(seed, rank, e);
    }
    return (float)(value * scales[i % 9] * (e % 100 == 37 ? 20 : 1));
}

int hook_try_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    int rank = tally_group_rank(group);

    for (size_t i = model->n; i-- > 0;) {
        float *grad = tally_ddp_grad(ddp, (int)i);

        if (model->spec[i].dtype != TALLY_F32) {
            ddp_fill_grad(model, ddp, i, seed, rank);
        }
        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            grad[e] = hook_value(seed, rank, i, e);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
    }
    return tally_ddp_wait(ddp);
}

int hook_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    CHECK_OK(group, hook_try_step(group, ddp, model, seed));
    return 0;
}

size_t hook_wrong(const struct ddp_model *model, const tally_ddp *ddp, unsigned seed, int world,
                  const float *expected)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < model->n; i++) {
        const void *grad = tally_ddp_grad(ddp, (int)i);

        if (model->spec[i].dtype == TALLY_F32) {
            n_wrong += memcmp(grad, expected + i * HOOK_MOST, model->count[i] * sizeof(float)) != 0;
        } else {
            n_wrong += ddp_wrong(model, ddp, i, (struct ddp_mean){seed, world, ~0u, world}) != 0;
        }
    }
    return n_wrong;
}

/* ---- what to expect ---- */

static size_t count_of(const struct ddp_spec *spec)
{
    size_t n = spec->dtype == TALLY_F32;

    for (int d = 0; d < spec->n_dims; d++) {
        n *= spec->shape[d];
    }
    return n;
}

/* All ranks' values of the parameters from last down to first, one after the other. */
struct flat {
    size_t n;
    float *rank[16];
};

static struct flat flatten(size_t first, size_t last, unsigned seed, int world)
{
    struct flat flat = {0};

    for (size_t i = first; i <= last; i++) {
        flat.n += count_of(&hook_specs[i]);
    }
    for (int r = 0; r < world; r++) {
        float *to = malloc(flat.n * sizeof *to + 1);

        if (!to) {
            (void)fprintf(stderr, "no memory for gradients\n");
            exit(1);
        }
        flat.rank[r] = to;
        for (size_t i = last + 1; i-- > first;) {
            for (size_t e = 0; e < count_of(&hook_specs[i]); e++) {
                *to++ = hook_value(seed, r, i, e);
            }
        }
    }
    return flat;
}

static void release(struct flat *flat, int world)
{
    for (int r = 0; r < world; r++) {
        free(flat->rank[r]);
    }
}

static void expect_bucket(const struct hook_rule *rule, unsigned seed, int world, float *expected)
{
    struct flat flat = flatten(0, HOOK_N_PARAMS - 1, seed, world);
    float *out = malloc(flat.n * sizeof *out + 1);
    size_t at = 0;

    if (!out) {
        (void)fprintf(stderr, "no memory for means\n");
        exit(1);
    }
    hook_expect(rule, 2, flat.n, world, (const float *const *)flat.rank, out);
    for (size_t i = HOOK_N_PARAMS; i-- > 0;) {
        size_t n = count_of(&hook_specs[i]);

        memcpy(expected + i * HOOK_MOST, out + at, n * sizeof *out);
        at += n;
    }
    free(out);
    release(&flat, world);
}

void hook_expect_all(const struct hook_rule *rule, unsigned seed, int world, float *expected)
{
    if (rule->whole) {
        expect_bucket(rule, seed, world, expected);
        return;
    }
    for (size_t i = 0; i < HOOK_N_PARAMS; i++) {
        struct flat flat = flatten(i, i, seed, world);

        hook_expect(rule, hook_specs[i].n_dims, flat.n, world, (const float *const *)flat.rank,
                    expected + i * HOOK_MOST);
        release(&flat, world);
    }
}

/* ---- runs ---- */

int hook_run(const char *name, ranks_body *body, void *user, int world)
{
    static const struct {
        enum ranks_kind kind;
        int lanes;
    } ways[] = {{RANKS_THREADS, 1}, {RANKS_THREADS, 3}, {RANKS_PROCESSES, 1}};
    int n_failures = 0;

    /* Under a sanitizer, odd worlds have three lanes only: one lane is in the even ones. */
    for (size_t k = RANKS_REPEATS(0, (size_t)world % 2); k < sizeof ways / sizeof ways[0]; k++) {
        const struct ranks ranks = {
            .kind = ways[k].kind, .world = world, .lanes = ways[k].lanes, .timeout_s = 60};

        n_failures += ranks_run_named(name, &ranks, body, user);
    }
    return n_failures;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The means that pass through codes: every instruction set and the reference against the chain of
 * kernels that they replace, each of which has a separate test.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

/* More inputs than one pass over a block takes. */
#define MAX_IN 11
#define MAX_OUT 3
#define MAX_N 4099

/* In place: the outputs are the last inputs. */
struct plan {
    size_t n_in;
    size_t n_out;
    size_t block;
    float divisor;
    bool in_place;
    bool has_maps;
    struct tally__affine maps[MAX_IN];
};

static const size_t blocks[] = {1, 5, 16, 31, 33, 64, 512, TALLY__MEAN_BLOCK_MOST};
static const float divisors[] = {2.0f, 3.0f, 1.0f, 7.0f, 11.0f, 0x1p-140f, 0.0f};

/* A map that fits, one with bounds that most values pass, one without a number, one of zeros. */
static struct tally__affine map_of(const struct num_case *c, size_t k, const float *x)
{
    float lo;
    float hi;

    switch (num_random(c->n + c->shift, k) % 8) {
    case 0:
        return (struct tally__affine){0x1p-23f, (float)(num_random(c->n, k) % 256)};
    case 1:
        return (struct tally__affine){c->n % 2 == 0 ? INFINITY : NAN, k % 2 == 0 ? 0.0f : 9.0f};
    case 2:
        return (struct tally__affine){0.0f, 128.0f};
    default:
        tally__kernels_ref.minmax_f32(c->n, x, &lo, &hi);
        return tally__affine_of(c->n, lo, hi);
    }
}

static struct plan plan_of(const struct num_case *c, const float *const *in)
{
    size_t k = c->n + 3 * c->shift + 5 * (size_t)c->data;
    struct plan plan = {
        .n_in = 1 + k % MAX_IN,
        .n_out = 1 + k / 2 % MAX_OUT,
        .block = blocks[k % (sizeof blocks / sizeof blocks[0])],
        .divisor = divisors[k % (sizeof divisors / sizeof divisors[0])],
        .in_place = k % 3 != 0,
        .has_maps = k % 4 == 0,
    };

    plan.n_out = plan.in_place && plan.n_out > plan.n_in ? plan.n_in : plan.n_out;
    for (size_t i = 0; i < plan.n_in; i++) {
        plan.maps[i] = map_of(c, i, in[i]);
    }
    return plan;
}

/* One block by the kernels that the mean stands for; the first input with a scale that is not
 * finite, or n_in. */
static size_t chain_block(const struct tally__kernels *kernels, const struct plan *plan, size_t n,
                          const float *const *in, float *y)
{
    static uint8_t codes[MAX_IN][MAX_N];
    const uint8_t *q[MAX_IN];
    struct tally__affine maps[MAX_IN];
    size_t unsound = plan->n_in;

    for (size_t k = plan->n_in; k-- > 0;) {
        q[k] = codes[k];
        maps[k] = plan->maps[k];
        if (plan->has_maps) {
            kernels->affine_encode_fast(n, in[k], maps[k], codes[k]);
        } else {
            kernels->affine_encode_fast_blocks(n, in[k], n, &maps[k], codes[k]);
        }
        unsound = isfinite(maps[k].scale) ? unsound : k;
    }
    kernels->affine_sum(n, plan->n_in, q, maps, plan->divisor, y);
    kernels->affine_encode_fast_blocks(n, y, n, maps, codes[0]);
    kernels->affine_decode_blocks(n, codes[0], n, maps, y);
    return unsound;
}

static size_t chain(const struct num_case *c, const struct plan *plan, const float *const *in,
                    float *y)
{
    size_t unsound = plan->n_in;

    for (size_t i = 0; i < c->n; i += plan->block) {
        size_t n_here = c->n - i < plan->block ? c->n - i : plan->block;
        const float *here[MAX_IN];
        size_t unsound_here;

        for (size_t k = 0; k < plan->n_in; k++) {
            here[k] = in[k] + i;
        }
        unsound_here = chain_block(c->isa->kernels, plan, n_here, here, y + i);
        unsound = unsound == plan->n_in ? unsound_here : unsound;
    }
    return unsound;
}

/* Input k. An input with specials comes with many without. As many values above 0 as below, in
 * pairs, make both ends of a block halfway between two codes: one of them is then beyond its code.
 */
static void fill(const struct num_case *c, size_t k, float *x)
{
    enum num_data data = c->data == NUM_WILD && (k + c->n) % 4 != 0 ? NUM_PLAIN : c->data;
    bool in_pairs = c->n % 3 == 0 || (k + c->n) % 3 == 0;

    for (size_t i = 0; i < c->n; i++) {
        x[i] = in_pairs && i % 2 == 1 ? -x[i - 1] : num_float(data, 1000 * c->n + k, i);
    }
}

static void check_mean_f32_by_affine(const struct num_case *c)
{
    const struct tally__kernels *const isas[2] = {c->isa->kernels, &tally__kernels_ref};
    static float want[MAX_N];
    static float inputs[MAX_IN][MAX_N];
    const float *in[MAX_IN];

    for (size_t k = 0; k < MAX_IN; k++) {
        fill(c, k, inputs[k]);
        in[k] = inputs[k];
    }

    const struct plan plan = plan_of(c, in);
    const struct tally__affine_mean mean = {plan.has_maps ? plan.maps : NULL, plan.block,
                                            plan.divisor};
    size_t unsound = chain(c, &plan, in, want);

    for (size_t set = 0; set < 2; set++) {
        const float *from[MAX_IN] = {0};
        float *to[MAX_OUT];
        size_t got;

        for (size_t k = 0; k < plan.n_in; k++) {
            from[k] = num_output_copy(c, c->n * 4, 4, inputs[k]);
        }
        for (size_t k = 0; k < plan.n_out; k++) {
            to[k] = plan.in_place ? (float *)(uintptr_t)from[plan.n_in - 1 - k]
                                  : num_output(c, c->n * 4, 4);
        }
        got = isas[set]->mean_f32_by_affine(c->n, plan.n_in, from, &mean, plan.n_out, to);
        num_assert(c, got == unsound, got, "not the first input without a finite scale");
        for (size_t k = 0; k < plan.n_out; k++) {
            num_assert_f32(c, to[k], want, c->n);
        }
    }
}

void test_mean_f32_by_affine(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_mean_f32_by_affine);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of codes: every instruction set and the reference against the chain of kernels that they
 * stand for, and against sums by way of doubles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

#define MAX_IN 8
#define MAX_N 4099

/* The codes of a case, their maps, and by what the sum is divided. */
struct operands {
    size_t n_in;
    const uint8_t *q[MAX_IN];
    struct tally__affine affine[MAX_IN];
    float scale[MAX_IN];
    float divisor;
};

static struct operands make(const struct num_case *c)
{
    static const float divisors[] = {1.0f, 2.0f, 3.0f, 8.0f, 7.0f, 0x1p127f, 0x1p-140f};
    struct operands o = {
        .n_in = 1 + (c->n + c->shift) % MAX_IN,
        .divisor = divisors[(c->n + 2 * c->shift) % (sizeof divisors / sizeof divisors[0])],
    };

    for (size_t k = 0; k < o.n_in; k++) {
        o.q[k] = num_input_bytes(c, c->n, 1, c->n + k);
        o.scale[k] = num_float(c->data, c->n + 9, k);
        o.affine[k].scale = o.scale[k];
        o.affine[k].zero = (float)(num_random(c->n, k) % 256);
    }
    return o;
}

/* Each product is exact in a double before its one rounding, and so are sum and quotient. */
static float oracle(const struct operands *o, const struct tally__affine *affine, size_t i)
{
    float sum = 0.0f;

    for (size_t k = 0; k < o->n_in; k++) {
        double steps = (double)o->q[k][i] - (double)affine[k].zero;
        float value = (float)((double)affine[k].scale * steps);

        sum = k == 0 ? value : (float)((double)sum + (double)value);
    }
    return (float)((double)sum / (double)o->divisor);
}

static void check_affine_sum(const struct num_case *c)
{
    const struct operands o = make(c);
    const struct tally__kernels *const isas[2] = {c->isa->kernels, &tally__kernels_ref};
    float chain[MAX_N] = {0};
    float next[MAX_N] = {0};
    const float *in = chain;
    float *out = chain;

    for (size_t k = 0; k < o.n_in; k++) {
        c->isa->kernels->affine_decode(c->n, o.q[k], o.affine[k], k == 0 ? chain : next);
        if (k > 0) {
            c->isa->kernels->axpy_f32(c->n, next, 1, chain);
        }
    }
    c->isa->kernels->sum_f32(c->n, 1, &in, o.divisor, 1, &out);
    for (size_t set = 0; set < 2; set++) {
        float *y = num_output(c, c->n * 4, 4);

        isas[set]->affine_sum(c->n, o.n_in, o.q, o.affine, o.divisor, y);
        num_assert_f32(c, y, chain, c->n);
        for (size_t i = 0; i < c->n; i++) {
            num_assert(c, num_same_f32(y[i], oracle(&o, o.affine, i)), i, "the oracle differs");
        }
    }
}

void test_affine_sum(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_sum);
}

static void check_scaled_sum(const struct num_case *c)
{
    const struct operands o = make(c);
    const struct tally__kernels *const isas[2] = {c->isa->kernels, &tally__kernels_ref};
    struct tally__affine affine[MAX_IN] = {0};
    float chain[MAX_N] = {0};
    float next[MAX_N] = {0};
    const float *in = chain;
    float *out = chain;

    for (size_t k = 0; k < o.n_in; k++) {
        affine[k] = (struct tally__affine){o.scale[k], 128.0f};
        c->isa->kernels->scaled_decode_blocks(c->n, o.q[k], MAX_N, &o.scale[k],
                                              k == 0 ? chain : next);
        if (k > 0) {
            c->isa->kernels->axpy_f32(c->n, next, 1, chain);
        }
    }
    c->isa->kernels->sum_f32(c->n, 1, &in, o.divisor, 1, &out);
    for (size_t set = 0; set < 2; set++) {
        float *y = num_output(c, c->n * 4, 4);

        isas[set]->scaled_sum(c->n, o.n_in, o.q, o.scale, o.divisor, y);
        num_assert_f32(c, y, chain, c->n);
        for (size_t i = 0; i < c->n; i++) {
            num_assert(c, num_same_f32(y[i], oracle(&o, affine, i)), i, "the oracle differs");
        }
    }
}

void test_scaled_sum(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_scaled_sum);
}

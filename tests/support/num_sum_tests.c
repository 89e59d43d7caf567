/* SPDX-License-Identifier: Apache-2.0 */
/* The sums: every instruction set against the reference, the reference against sums in a wider
 * type. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

#define MAX_IN 5
#define MAX_OUT 3

/* The number of arrays of a case and its divisor. In place: the first output is the last input. */
struct plan {
    size_t n_in;
    size_t n_out;
    float divisor;
    bool in_place;
};

static struct plan plan_of(const struct num_case *c)
{
    /* Powers of two with and without a normal reciprocal, and others. */
    static const float divisors[] = {1.0f,     2.0f,     3.0f,      7.0f,      0.5f,
                                     0x1p126f, 0x1p127f, 0x1p-126f, 0x1p-140f, -4.0f};
    size_t k = c->n + 3 * c->shift + 5 * (size_t)c->data;

    return (struct plan){
        .n_in = 1 + k % MAX_IN,
        .n_out = 1 + (k / 2) % MAX_OUT,
        .divisor = divisors[k % 10],
        .in_place = k % 3 == 0,
    };
}

/* The inputs, twice: the instruction set and the reference may overwrite one. Outputs of the first
 * set are at out[0], of the second at out[1]. */
struct operands {
    const void *in[2][MAX_IN];
    void *out[2][MAX_OUT];
};

static void make(const struct num_case *c, const struct plan *plan, size_t element,
                 const void *(*input)(const struct num_case *, uint64_t stream),
                 struct operands *operands)
{
    size_t bytes = c->n * element;

    for (size_t k = 0; k < plan->n_in; k++) {
        const void *x = input(c, k);

        for (size_t set = 0; set < 2; set++) {
            operands->in[set][k] = k + 1 == plan->n_in ? num_output_copy(c, bytes, element, x) : x;
        }
    }
    for (size_t set = 0; set < 2; set++) {
        for (size_t k = 0; k < plan->n_out; k++) {
            operands->out[set][k] = num_output(c, bytes, element);
        }
        if (plan->in_place) {
            operands->out[set][0] = (void *)(uintptr_t)operands->in[set][plan->n_in - 1];
        }
    }
}

static const void *floats(const struct num_case *c, uint64_t stream)
{
    return num_input_f32(c, c->n, stream);
}

static const void *words(const struct num_case *c, uint64_t stream)
{
    return num_input_bytes(c, c->n * 4, 4, stream);
}

static const void *long_words(const struct num_case *c, uint64_t stream)
{
    return num_input_bytes(c, c->n * 8, 8, stream);
}

static const void *bytes(const struct num_case *c, uint64_t stream)
{
    return num_input_bytes(c, c->n, 1, stream);
}

/* A type of halves, by the oracles. */
struct half {
    uint16_t (*of)(float x);
    float (*value)(uint16_t half);
    uint16_t infinity; /* the bits above this are a NaN, the sign apart */
};

static float value_of_f16(uint16_t half)
{
    return (float)num_value_of_f16(half);
}

static float value_of_bf16(uint16_t half)
{
    return num_from_bits((uint32_t)half << 16);
}

static const struct half f16 = {num_oracle_f16, value_of_f16, 0x7c00};
static const struct half bf16 = {num_oracle_bf16, value_of_bf16, 0x7f80};

/* Halves of the same kinds as the floats. */
static const void *halves(const struct half *half, const struct num_case *c, uint64_t stream)
{
    const float *x = num_input_f32(c, c->n, stream);
    uint16_t *y = num_input_bytes(c, c->n * 2, 2, 0);

    for (size_t i = 0; i < c->n; i++) {
        y[i] = half->of(x[i]);
    }
    return y;
}

static const void *f16s(const struct num_case *c, uint64_t stream)
{
    return halves(&f16, c, stream);
}

static const void *bf16s(const struct num_case *c, uint64_t stream)
{
    return halves(&bf16, c, stream);
}

/* Doubles of all sizes; special ones in wild data. */
static const void *doubles(const struct num_case *c, uint64_t stream)
{
    double *x = num_input_bytes(c, c->n * 8, 8, stream);

    for (size_t i = 0; i < c->n; i++) {
        x[i] = (double)num_float(c->data, stream, i) * (1.0 + 0x1p-40 * (double)i);
    }
    return x;
}

/* One fp32 addition or division: a double has more than twice the digits, so rounding twice gives
 * the same as rounding once. */
static float oracle_sum(const float *terms, size_t n, float divisor)
{
    float sum = terms[0];

    for (size_t k = 1; k < n; k++) {
        sum = (float)((double)sum + (double)terms[k]);
    }
    return (float)((double)sum / (double)divisor);
}

static void check_sum_f32(const struct num_case *c)
{
    struct plan plan = plan_of(c);
    struct operands o;
    float want[4099];

    make(c, &plan, 4, floats, &o);
    for (size_t i = 0; i < c->n; i++) {
        float terms[MAX_IN] = {0};

        for (size_t k = 0; k < plan.n_in; k++) {
            terms[k] = ((const float *)o.in[0][k])[i];
        }
        want[i] = oracle_sum(terms, plan.n_in, plan.divisor);
    }
    c->isa->kernels->sum_f32(c->n, plan.n_in, (const float *const *)o.in[0], plan.divisor,
                             plan.n_out, (float *const *)o.out[0]);
    tally__kernels_ref.sum_f32(c->n, plan.n_in, (const float *const *)o.in[1], plan.divisor,
                               plan.n_out, (float *const *)o.out[1]);
    for (size_t k = 0; k < plan.n_out; k++) {
        num_assert_f32(c, o.out[0][k], want, c->n);
        num_assert_f32(c, o.out[1][k], want, c->n);
    }
}

void test_sum_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_f32);
}

/* No wider type everywhere: the reference is checked within rounding errors. */
static void check_sum_f64(const struct num_case *c)
{
    struct plan plan = plan_of(c);
    double divisor = (double)plan.divisor;
    struct operands o;
    double exact[4099] = {0};
    double sizes[4099] = {0};

    make(c, &plan, 8, doubles, &o);
    for (size_t i = 0; i < c->n; i++) {
        exact[i] = 0.0;
        sizes[i] = 0.0;
        for (size_t k = plan.n_in; k-- > 0;) {
            exact[i] += ((const double *)o.in[0][k])[i];
            sizes[i] += fabs(((const double *)o.in[0][k])[i]);
        }
    }
    c->isa->kernels->sum_f64(c->n, plan.n_in, (const double *const *)o.in[0], divisor, plan.n_out,
                             (double *const *)o.out[0]);
    tally__kernels_ref.sum_f64(c->n, plan.n_in, (const double *const *)o.in[1], divisor, plan.n_out,
                               (double *const *)o.out[1]);
    for (size_t k = 0; k < plan.n_out; k++) {
        const double *got = o.out[0][k];
        const double *want = o.out[1][k];

        for (size_t i = 0; i < c->n; i++) {
            double error = fabs(want[i] - exact[i] / divisor);

            num_assert(c, num_same_f64(got[i], want[i]), i, "this value differs");
            num_assert(c, isnan(want[i]) == isnan(exact[i] / divisor), i, "NaN lost or made");
            num_assert(c, !isfinite(error) || error <= 0x1p-49 * sizes[i] / fabs(divisor), i,
                       "not the sum");
        }
    }
}

void test_sum_f64(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_f64);
}

/* NaN payloads of sums are not specified: any NaN equals any other. */
static bool same_half(const struct half *half, uint16_t a, uint16_t b)
{
    return a == b || ((a & 0x7fff) > half->infinity && (b & 0x7fff) > half->infinity);
}

typedef void half_sum(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                      uint16_t *const *out);

/* sums: the kernel of the instruction set and the reference's. */
static void check_half_sum(const struct num_case *c, const struct half *half,
                           const void *(*input)(const struct num_case *, uint64_t stream),
                           half_sum *const sums[2])
{
    struct plan plan = plan_of(c);
    struct operands o;
    uint16_t want[4099];

    make(c, &plan, 2, input, &o);
    for (size_t i = 0; i < c->n; i++) {
        float terms[MAX_IN] = {0};

        for (size_t k = 0; k < plan.n_in; k++) {
            terms[k] = half->value(((const uint16_t *)o.in[0][k])[i]);
        }
        want[i] = half->of(oracle_sum(terms, plan.n_in, plan.divisor));
    }
    for (size_t set = 0; set < 2; set++) {
        sums[set](c->n, plan.n_in, (const uint16_t *const *)o.in[set], plan.divisor, plan.n_out,
                  (uint16_t *const *)o.out[set]);
        for (size_t k = 0; k < plan.n_out; k++) {
            const uint16_t *got = o.out[set][k];

            for (size_t i = 0; i < c->n; i++) {
                num_assert(c, same_half(half, got[i], want[i]), i, set == 0 ? "differs" : "ref");
            }
        }
    }
}

static void check_sum_f16(const struct num_case *c)
{
    half_sum *const sums[2] = {c->isa->kernels->sum_f16, tally__kernels_ref.sum_f16};

    check_half_sum(c, &f16, f16s, sums);
}

void test_sum_f16(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_f16);
}

static void check_sum_bf16(const struct num_case *c)
{
    half_sum *const sums[2] = {c->isa->kernels->sum_bf16, tally__kernels_ref.sum_bf16};

    check_half_sum(c, &bf16, bf16s, sums);
}

void test_sum_bf16(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_bf16);
}

typedef void stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out);

static void check_stepwise(const struct num_case *c, const struct half *half,
                           const void *(*input)(const struct num_case *, uint64_t stream),
                           stepwise *const sums[2])
{
    struct plan plan = plan_of(c);
    struct operands o;
    uint16_t want[4099];

    make(c, &plan, 2, input, &o);
    for (size_t i = 0; i < c->n; i++) {
        want[i] = ((const uint16_t *)o.in[0][0])[i];
        for (size_t k = 1; k < plan.n_in; k++) {
            double sum = (double)half->value(want[i]);

            sum += (double)half->value(((const uint16_t *)o.in[0][k])[i]);
            want[i] = half->of((float)sum);
        }
    }
    for (size_t set = 0; set < 2; set++) {
        const uint16_t *got = o.out[set][0];

        sums[set](c->n, plan.n_in, (const uint16_t *const *)o.in[set], o.out[set][0]);
        for (size_t i = 0; i < c->n; i++) {
            num_assert(c, same_half(half, got[i], want[i]), i, set == 0 ? "differs" : "ref");
        }
    }
}

static void check_sum_f16_stepwise(const struct num_case *c)
{
    stepwise *const sums[2] = {c->isa->kernels->sum_f16_stepwise,
                               tally__kernels_ref.sum_f16_stepwise};

    check_stepwise(c, &f16, f16s, sums);
}

void test_sum_f16_stepwise(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_f16_stepwise);
}

static void check_sum_bf16_stepwise(const struct num_case *c)
{
    stepwise *const sums[2] = {c->isa->kernels->sum_bf16_stepwise,
                               tally__kernels_ref.sum_bf16_stepwise};

    check_stepwise(c, &bf16, bf16s, sums);
}

void test_sum_bf16_stepwise(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_bf16_stepwise);
}

typedef void mean(size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,
                  float *const *out);

static void check_mean(const struct num_case *c, const struct half *half, mean *const means[2])
{
    struct plan plan = plan_of(c);
    struct operands o;
    float want[4099];

    make(c, &plan, 4, floats, &o);
    for (size_t i = 0; i < c->n; i++) {
        float terms[MAX_IN] = {0};

        for (size_t k = 0; k < plan.n_in; k++) {
            terms[k] = half->value(half->of(((const float *)o.in[0][k])[i]));
        }
        want[i] = half->value(half->of(oracle_sum(terms, plan.n_in, plan.divisor)));
    }
    for (size_t set = 0; set < 2; set++) {
        means[set](c->n, plan.n_in, (const float *const *)o.in[set], plan.divisor, plan.n_out,
                   (float *const *)o.out[set]);
        for (size_t k = 0; k < plan.n_out; k++) {
            num_assert_f32(c, o.out[set][k], want, c->n);
        }
    }
}

static void check_mean_f32_by_f16(const struct num_case *c)
{
    mean *const means[2] = {c->isa->kernels->mean_f32_by_f16, tally__kernels_ref.mean_f32_by_f16};

    check_mean(c, &f16, means);
}

void test_mean_f32_by_f16(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_mean_f32_by_f16);
}

static void check_mean_f32_by_bf16(const struct num_case *c)
{
    mean *const means[2] = {c->isa->kernels->mean_f32_by_bf16, tally__kernels_ref.mean_f32_by_bf16};

    check_mean(c, &bf16, means);
}

void test_mean_f32_by_bf16(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_mean_f32_by_bf16);
}

/* Element i of an array of unsigned integers of `element` bytes. */
static uint64_t integer_at(const void *x, size_t element, size_t i)
{
    switch (element) {
    case 1:
        return ((const uint8_t *)x)[i];
    case 4:
        return ((const uint32_t *)x)[i];
    default:
        return ((const uint64_t *)x)[i];
    }
}

/* Modulo 2^64, then cut: the same as wrapping around in the narrower type. */
static void integer_sums(const struct num_case *c, const struct plan *plan,
                         const struct operands *o, size_t element, uint64_t *want)
{
    uint64_t mask = element == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * element)) - 1;

    for (size_t i = 0; i < c->n; i++) {
        want[i] = 0;
        for (size_t k = 0; k < plan->n_in; k++) {
            want[i] += integer_at(o->in[0][k], element, i);
        }
        want[i] &= mask;
    }
}

static void assert_integers(const struct num_case *c, const struct plan *plan,
                            const struct operands *o, size_t element, const uint64_t *want)
{
    for (size_t k = 0; k < plan->n_out; k++) {
        for (size_t i = 0; i < c->n; i++) {
            num_assert(c, integer_at(o->out[0][k], element, i) == want[i], i, "differs");
            num_assert(c, integer_at(o->out[1][k], element, i) == want[i], i, "ref differs");
        }
    }
}

#define CHECK_INTEGERS(kernel, type, input)                                                  \
    static void check_##kernel(const struct num_case *c)                                     \
    {                                                                                        \
        struct plan plan = plan_of(c);                                                       \
        struct operands o;                                                                   \
        uint64_t want[4099];                                                                 \
                                                                                             \
        make(c, &plan, sizeof(type), input, &o);                                             \
        integer_sums(c, &plan, &o, sizeof(type), want);                                      \
        c->isa->kernels->kernel(c->n, plan.n_in, (const type *const *)o.in[0], plan.n_out,   \
                                (type *const *)o.out[0]);                                    \
        tally__kernels_ref.kernel(c->n, plan.n_in, (const type *const *)o.in[1], plan.n_out, \
                                  (type *const *)o.out[1]);                                  \
        assert_integers(c, &plan, &o, sizeof(type), want);                                   \
    }

CHECK_INTEGERS(sum_i32, int32_t, words)
CHECK_INTEGERS(sum_i64, int64_t, long_words)
CHECK_INTEGERS(sum_u8, uint8_t, bytes)

void test_sum_i32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_i32);
}

void test_sum_i64(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_i64);
}

void test_sum_u8(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sum_u8);
}

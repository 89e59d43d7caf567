/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatched kernels give the same bits in every floating-point environment that the caller may
 * have set, and leave it unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/num_check.h"
#include "support/num_env.h"
#include "tally.h"

#define N 83
#define BLOCK 32
#define N_BLOCKS ((N + BLOCK - 1) / BLOCK)

/* The operands, and the results of all kernels on them. */
struct operands {
    float x[N];
    float y[N];
    double d[N];
    uint16_t f16[N];
    uint16_t bf16[N];
    uint8_t q[N];
    int32_t i32[N];
    int64_t i64[N];
};

struct results {
    uint16_t f16[N], f16_sat[N], bf16[N];
    float from_f16[N], from_bf16[N];
    float sum_f32[N];
    double sum_f64[N];
    uint16_t sum_f16[N], sum_bf16[N];
    float mean_by_f16[N], mean_by_bf16[N];
    uint16_t stepwise_f16[N], stepwise_bf16[N];
    int32_t sum_i32[N];
    int64_t sum_i64[N];
    uint8_t sum_u8[N];
    float lo, hi;
    uint8_t affine_q[N], affine_block_q[N], scaled_q[N];
    float affine_y[N], affine_block_y[N];
    struct tally__affine affine[N_BLOCKS];
    float scale[N_BLOCKS], scaled_y[N];
    float feedback_scale[N_BLOCKS], residual[N];
    uint8_t feedback_q[N];
    uint8_t affine_fast_q[N], affine_fast_block_q[N];
    struct tally__affine affine_fast[N_BLOCKS];
    float affine_mean[N], scaled_mean[N];
    float mean_by_affine[N];
    float difference[N], multiple[N];
    double sqnorm;
    uint64_t n_saturated, first_nonfinite, first_unsound;
};

/* Numbers of all sizes, many of them subnormal in one of the formats; no NaN, whose payload is not
 * promised. */
static void fill(struct operands *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < N; i++) {
        o->x[i] = num_float(i % 3 == 0 ? NUM_TINY : NUM_PLAIN, 1, i);
        o->y[i] = num_float(i % 2 == 0 ? NUM_TINY : NUM_PLAIN, 2, i);
        if (i / BLOCK == 1) {
            o->x[i] = num_float(NUM_TINY, 3, i);
        }
        o->d[i] = (double)o->x[i] * 0x1p-900;
        o->f16[i] = (uint16_t)(num_random(4, i) & 0x87ff);
        o->bf16[i] = (uint16_t)(num_random(5, i) & 0x80ff);
        o->q[i] = (uint8_t)num_random(6, i);
        o->i32[i] = (int32_t)num_random(7, i);
        o->i64[i] = (int64_t)num_random(8, i);
    }
}

static void compute_casts_and_sums(const struct operands *o, struct results *r)
{
    r->n_saturated = tally__f32_to_f16_sat(N, o->x, r->f16_sat);
    tally__f32_to_f16(N, o->x, r->f16);
    tally__f32_to_bf16(N, o->x, r->bf16);
    tally__f16_to_f32(N, o->f16, r->from_f16);
    tally__bf16_to_f32(N, o->bf16, r->from_bf16);
    tally__sum_f32(N, 2, (const float *[]){o->x, o->y}, 3.0f, 1, (float *[]){r->sum_f32});
    tally__sum_f64(N, 2, (const double *[]){o->d, o->d}, 3.0, 1, (double *[]){r->sum_f64});
    tally__sum_f16(N, 2, (const uint16_t *[]){o->f16, r->f16}, 3.0f, 1, (uint16_t *[]){r->sum_f16});
    tally__sum_bf16(N, 2, (const uint16_t *[]){o->bf16, r->bf16}, 3.0f, 1,
                    (uint16_t *[]){r->sum_bf16});
    tally__mean_f32_by_f16(N, 2, (const float *[]){o->x, o->y}, 3.0f, 1,
                           (float *[]){r->mean_by_f16});
    tally__mean_f32_by_bf16(N, 2, (const float *[]){o->x, o->y}, 3.0f, 1,
                            (float *[]){r->mean_by_bf16});
    tally__sum_f16_stepwise(N, 2, (const uint16_t *[]){o->f16, r->f16}, r->stepwise_f16);
    tally__sum_bf16_stepwise(N, 2, (const uint16_t *[]){o->bf16, r->bf16}, r->stepwise_bf16);
    tally__sum_i32(N, 2, (const int32_t *[]){o->i32, o->i32}, 1, (int32_t *[]){r->sum_i32});
    tally__sum_i64(N, 2, (const int64_t *[]){o->i64, o->i64}, 1, (int64_t *[]){r->sum_i64});
    tally__sum_u8(N, 2, (const uint8_t *[]){o->q, o->q}, 1, (uint8_t *[]){r->sum_u8});
}

static void compute_rest(const struct operands *o, struct results *r)
{
    const struct tally__affine map = {0x1.234p-140f, 77.0f};
    const struct tally__affine fine = {0x1.234p-20f, 77.0f};
    const struct tally__affine maps[N_BLOCKS] = {map, map, fine};
    const struct tally__affine_mean mean = {NULL, BLOCK, 3.0f};
    const float scales[N_BLOCKS] = {0x1.5p-140f, 0x1.7p-30f, 1.1f};

    tally__minmax_f32(N, o->x, &r->lo, &r->hi);
    tally__affine_encode(N, o->x, fine, r->affine_q);
    tally__affine_encode_fast(N, o->x, fine, r->affine_fast_q);
    tally__affine_encode_fast_blocks(N, o->x, BLOCK, r->affine_fast, r->affine_fast_block_q);
    tally__affine_sum(N, 2, (const uint8_t *[]){o->q, o->q}, maps, 3.0f, r->affine_mean);
    r->first_unsound = tally__mean_f32_by_affine(N, 2, (const float *[]){o->x, o->y}, &mean, 1,
                                                 (float *[]){r->mean_by_affine});
    tally__scaled_sum(N, 2, (const uint8_t *[]){o->q, o->q}, scales, 3.0f, r->scaled_mean);
    tally__affine_decode(N, o->q, map, r->affine_y);
    tally__affine_encode_blocks(N, o->x, BLOCK, r->affine, r->affine_block_q);
    tally__affine_decode_blocks(N, o->q, BLOCK, maps, r->affine_block_y);
    tally__scaled_encode_blocks(N, o->x, BLOCK, r->scale, r->scaled_q);
    tally__scaled_decode_blocks(N, o->q, BLOCK, scales, r->scaled_y);
    tally__scaled_encode_feedback_blocks(N, o->x, r->residual, BLOCK, r->feedback_scale,
                                         r->feedback_q);
    tally__sub_f32(N, o->x, o->y, r->difference);
    tally__axpy_f32(N, o->x, 0.3f, r->multiple);
    r->sqnorm = tally__sqnorm_f32(N, o->x);
    r->first_nonfinite = tally__find_nonfinite_f32(N, o->x);
}

static void compare_environments(void)
{
    static struct operands operands;
    static struct results usual;
    static struct results other;

    fill(&operands);
    for (unsigned i = 0; i < num_n_environments; i++) {
        struct results *results = i == 0 ? &usual : &other;
        uint64_t before;
        uint64_t after;

        memset(results, 0, sizeof *results);
        memcpy(results->residual, operands.y, sizeof operands.y);
        memcpy(results->multiple, operands.y, sizeof operands.y);
        num_set_environment(i);
        before = num_environment();
        compute_casts_and_sums(&operands, results);
        compute_rest(&operands, results);
        after = num_environment();
        num_set_environment(0);
        assert_int_equal(before, after);
        assert_memory_equal(results, &usual, sizeof usual);
    }
}

/* Before tally__num_start the reference computes. */
static void reference_ignores_the_environment(void **state)
{
    (void)state;
    compare_environments();
}

static void best_isa_ignores_the_environment(void **state)
{
    (void)state;
    assert_int_equal(tally__num_start(), TALLY_OK);
    compare_environments();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_ignores_the_environment),
        cmocka_unit_test(best_isa_ignores_the_environment),
    };

    return cmocka_run_group_tests_name("floating-point environment", tests, NULL, NULL);
}

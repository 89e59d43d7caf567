/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measured call per kernel. Sums take two inputs to two outputs and divide by 3, so that a real
 * division is measured; block forms use the default block.
 */
#include "bench/kernel_cases.h"

#define BLOCK TALLY__BLOCK_DEFAULT
#define GOAL 1.25
#define GOAL_TRUE_DIVISION 2.0
#define DIVISOR 3

static const struct tally__affine one_affine = {1.0f / 127, 128};
static const struct tally__affine two_affine[2] = {{1.0f / 127, 128}, {1.0f / 60, 31}};
static const struct tally__affine_mean one_mean = {NULL, BLOCK, DIVISOR};
static const float two_scales[2] = {1.0f / 127, 1.0f / 60};

/* Defines run_<kernel>, with kernels k and arrays a in scope. */
#define RUN(kernel, call)                                                           \
    static void run_##kernel(const struct tally__isa *isa, struct kernel_arrays *a) \
    {                                                                               \
        const struct tally__kernels *k = isa->kernels;                              \
                                                                                    \
        call;                                                                       \
    }

RUN(f32_to_f16, k->f32_to_f16(a->n, a->f32[0], a->out[0]))
RUN(f32_to_f16_sat, a->value_out = (double)k->f32_to_f16_sat(a->n, a->f32[0], a->out[0]))
RUN(f16_to_f32, k->f16_to_f32(a->n, a->f16[0], a->out[0]))
RUN(f32_to_bf16, k->f32_to_bf16(a->n, a->f32[0], a->out[0]))
RUN(bf16_to_f32, k->bf16_to_f32(a->n, a->bf16[0], a->out[0]))

/* The two inputs and two outputs of a sum, as arrays of its type. */
#define SUM_ARRAYS(type, member)                            \
    const type *const in[2] = {a->member[0], a->member[1]}; \
    type *const out[2] = {a->out[0], a->out[1]}

RUN(sum_f32, SUM_ARRAYS(float, f32); k->sum_f32(a->n, 2, in, DIVISOR, 2, out))
RUN(sum_f64, SUM_ARRAYS(double, f64); k->sum_f64(a->n, 2, in, DIVISOR, 2, out))
RUN(sum_f16, SUM_ARRAYS(uint16_t, f16); k->sum_f16(a->n, 2, in, DIVISOR, 2, out))
RUN(sum_bf16, SUM_ARRAYS(uint16_t, bf16); k->sum_bf16(a->n, 2, in, DIVISOR, 2, out))
RUN(mean_f32_by_f16, SUM_ARRAYS(float, f32); k->mean_f32_by_f16(a->n, 2, in, DIVISOR, 2, out))
RUN(mean_f32_by_bf16, SUM_ARRAYS(float, f32); k->mean_f32_by_bf16(a->n, 2, in, DIVISOR, 2, out))
RUN(sum_f16_stepwise, SUM_ARRAYS(uint16_t, f16); k->sum_f16_stepwise(a->n, 2, in, out[0]))
RUN(sum_bf16_stepwise, SUM_ARRAYS(uint16_t, bf16); k->sum_bf16_stepwise(a->n, 2, in, out[0]))
RUN(sum_i32, SUM_ARRAYS(int32_t, i32); k->sum_i32(a->n, 2, in, 2, out))
RUN(sum_i64, SUM_ARRAYS(int64_t, i64); k->sum_i64(a->n, 2, in, 2, out))
RUN(sum_u8, SUM_ARRAYS(uint8_t, u8); k->sum_u8(a->n, 2, in, 2, out))

RUN(minmax_f32, k->minmax_f32(a->n, a->f32[0], &a->scale_out[0], &a->scale_out[1]))
RUN(affine_encode, k->affine_encode(a->n, a->f32[0], one_affine, a->out[0]))
RUN(affine_encode_fast, k->affine_encode_fast(a->n, a->f32[0], one_affine, a->out[0]))
RUN(affine_decode, k->affine_decode(a->n, a->u8[0], one_affine, a->out[0]))
RUN(affine_encode_blocks, k->affine_encode_blocks(a->n, a->f32[0], BLOCK, a->affine_out, a->out[0]))
RUN(affine_encode_fast_blocks,
    k->affine_encode_fast_blocks(a->n, a->f32[0], BLOCK, a->affine_out, a->out[0]))
RUN(affine_decode_blocks, k->affine_decode_blocks(a->n, a->u8[0], BLOCK, a->affine, a->out[0]))

/* The two arrays of codes of a sum. */
#define CODES const uint8_t *const in[2] = {a->u8[0], a->u8[1]}

RUN(affine_sum, CODES; k->affine_sum(a->n, 2, in, two_affine, DIVISOR, a->out[0]))
RUN(mean_f32_by_affine, SUM_ARRAYS(float, f32);
    a->value_out = (double)k->mean_f32_by_affine(a->n, 2, in, &one_mean, 2, out))
RUN(scaled_encode_blocks, k->scaled_encode_blocks(a->n, a->f32[0], BLOCK, a->scale_out, a->out[0]))
RUN(scaled_decode_blocks, k->scaled_decode_blocks(a->n, a->u8[0], BLOCK, a->scale, a->out[0]))
RUN(scaled_sum, CODES; k->scaled_sum(a->n, 2, in, two_scales, DIVISOR, a->out[0]))
RUN(scaled_encode_feedback_blocks,
    k->scaled_encode_feedback_blocks(a->n, a->f32[0], a->out[0], BLOCK, a->scale_out, a->out[1]))
RUN(copy, k->copy(a->n * 4, (const uint8_t *)a->f32[0], a->out[0]))
RUN(sub_f32, k->sub_f32(a->n, a->f32[0], a->f32[1], a->out[0]))
RUN(axpy_f32, k->axpy_f32(a->n, a->f32[0], 0.5f, a->out[0]))
RUN(sqnorm_f32, a->value_out = k->sqnorm_f32(a->n, a->f32[0]))
RUN(find_nonfinite_f32, a->value_out = (double)k->find_nonfinite_f32(a->n, a->f32[0]))

/* TRAFFIC_<kernel>: bytes read and written per element, goal. */
#define TRAFFIC_f32_to_f16 4, 2, GOAL
#define TRAFFIC_f32_to_f16_sat 4, 2, GOAL
#define TRAFFIC_f16_to_f32 2, 4, GOAL
#define TRAFFIC_f32_to_bf16 4, 2, GOAL
#define TRAFFIC_bf16_to_f32 2, 4, GOAL
#define TRAFFIC_sum_f32 8, 8, GOAL
#define TRAFFIC_sum_f64 16, 16, GOAL
#define TRAFFIC_sum_f16 4, 4, GOAL
#define TRAFFIC_sum_bf16 4, 4, GOAL
#define TRAFFIC_mean_f32_by_f16 8, 8, GOAL
#define TRAFFIC_mean_f32_by_bf16 8, 8, GOAL
#define TRAFFIC_sum_f16_stepwise 4, 2, GOAL
#define TRAFFIC_sum_bf16_stepwise 4, 2, GOAL
#define TRAFFIC_sum_i32 8, 8, GOAL
#define TRAFFIC_sum_i64 16, 16, GOAL
#define TRAFFIC_sum_u8 2, 2, GOAL
#define TRAFFIC_minmax_f32 4, 0, GOAL
#define TRAFFIC_affine_encode 4, 1, GOAL_TRUE_DIVISION
#define TRAFFIC_affine_encode_fast 4, 1, GOAL
#define TRAFFIC_affine_decode 1, 4, GOAL
#define TRAFFIC_affine_encode_blocks 4, 1, GOAL_TRUE_DIVISION
#define TRAFFIC_affine_encode_fast_blocks 4, 1, GOAL
#define TRAFFIC_affine_decode_blocks 1, 4, GOAL
#define TRAFFIC_affine_sum 2, 4, GOAL
#define TRAFFIC_mean_f32_by_affine 8, 8, GOAL
#define TRAFFIC_scaled_encode_blocks 4, 1, GOAL
#define TRAFFIC_scaled_decode_blocks 1, 4, GOAL
#define TRAFFIC_scaled_sum 2, 4, GOAL
#define TRAFFIC_scaled_encode_feedback_blocks 8, 5, GOAL
#define TRAFFIC_copy 4, 4, GOAL
#define TRAFFIC_sub_f32 8, 4, GOAL
#define TRAFFIC_axpy_f32 8, 4, GOAL
#define TRAFFIC_sqnorm_f32 4, 0, GOAL
#define TRAFFIC_find_nonfinite_f32 4, 0, GOAL

const struct kernel_case kernel_cases[] = {
#define KERNEL_CASE(kernel, result, parameters, arguments) \
    {#kernel, run_##kernel, TRAFFIC_##kernel},
    TALLY__KERNEL_LIST(KERNEL_CASE)
#undef KERNEL_CASE
};
const size_t n_kernel_cases = sizeof kernel_cases / sizeof kernel_cases[0];

const struct kernel_case *kernel_case_at(size_t i)
{
    if (i < n_kernel_cases) {
        return &kernel_cases[i];
    }
    return i - n_kernel_cases < n_optim_cases ? &optim_cases[i - n_kernel_cases] : NULL;
}

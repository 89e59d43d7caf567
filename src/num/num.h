/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic under every hook. A kernel is a flat function: length, pointers, parameters; no
 * allocation, no error return. Any length including 0, any alignment of the element type. Inputs
 * and outputs may be the same array, element for element, where the types have the same width;
 * otherwise they must not overlap.
 *
 * Every kernel gives the same bits on every instruction set (NaN payloads of sums apart). Each call
 * sets round-to-nearest without flushing of subnormals and restores the caller's floating-point
 * environment, so a program built with -Ofast gets the same results.
 *
 * Casts. f32_to_f16, f32_to_bf16: round to nearest even; overflow gives infinity; subnormals are
 * kept; a NaN stays a NaN (sign and leading payload bits kept, made quiet). f32_to_f16_sat: finite
 * values that would overflow become +-65504 instead, and their number is returned; infinities and
 * NaN pass, so that a scan still finds them.
 *
 * Sums. sum_T adds n_in >= 1 arrays in the order given, starting from in[0], divides by divisor
 * (IEEE division), and writes the result to each of n_out >= 1 arrays. f16 and bf16 are added in
 * fp32 and rounded once, after the division. Integers wrap around and have no divisor. An output
 * may be one of the inputs. mean_f32_by_H replaces the exchange of halves between ranks that
 * share memory: the bits of f32_to_H on each input, sum_H, and H_to_f32, in one pass.
 * sum_H_stepwise is arithmetic in halves: rounded after each addition, not divided.
 *
 * affine_*: uint8 quantization with a scale and a zero point, bit for bit what PyTorch's hooks
 * compute: q = clamp(rint(x / scale) + zero, 0, 255), y = scale * (q - zero). A block with an
 * infinity or a NaN in it decodes to NaN throughout. The _blocks forms take one struct
 * tally__affine per block of `block` elements; the last block may be short. affine_encode_fast
 * multiplies by 1 / scale instead: at most one code away from affine_encode, where the scale is at
 * least TALLY__AFFINE_SCALE_FLOOR.
 *
 * scaled_*: tally's uint8 form: one scale per block, q = 128 + rint(x * 127 / max|x|)
 * in 1..255, y = scale * (q - 128). There is no floor under the scale: a block of subnormals
 * survives. A block with an infinity or a NaN in it decodes to NaN throughout.
 * scaled_encode_feedback_blocks encodes v = x + residual and leaves residual = v - (what v decodes
 * to), in one pass; a block with a value that does not decode to a number leaves a residual of 0.
 *
 * affine_sum and scaled_sum take n_in >= 1 arrays of codes, each with one map: the bits of decode
 * on each of them, fp32 addition in the order given, and IEEE division by divisor.
 *
 * mean_f32_by_affine replaces the exchange of codes between ranks that share memory: the bits of
 * affine_encode_fast_blocks on each of n_in >= 1 inputs, affine_sum, affine_encode_fast_blocks on
 * the mean, and affine_decode_blocks to each of n_out >= 1 outputs. Returns n_in when the scales of
 * all inputs are finite, else the number of the first input, in the order of the blocks, with one
 * that is not.
 *
 * minmax_f32: smallest and largest value, +0 rather than -0; n = 0 gives 0 and 0; a NaN anywhere
 * makes both NaN. copy: n bytes, x and y apart, by ordinary loads and stores (the C library's
 * memcpy is several times slower on some CPUs when x and y start at like places in their pages, and
 * goes past the caches when n is large). sub_f32: y = a - b. axpy_f32: y = y + a * x, two
 * roundings. sqnorm_f32: sum of squares in fp64, in sixteen interleaved partial sums that are added
 * pairwise at the end: the relative error is below n * 2^-53 and the bits are the same on every
 * instruction set. find_nonfinite_f32: index of the first infinity or NaN, n when there is none.
 */
#ifndef TALLY_NUM_NUM_H
#define TALLY_NUM_NUM_H

#include <stddef.h>
#include <stdint.h>

#include "num/kernel_list.h"

/* PyTorch's scale floor: the machine epsilon of float32. */
#define TALLY__AFFINE_SCALE_FLOOR 0x1p-23f

/* Elements per block unless a hook sets another number. */
#define TALLY__BLOCK_DEFAULT 512

/* Most elements per block in the means that go through codes. */
#define TALLY__MEAN_BLOCK_MOST 4096

/* Maps a range of floats to 0..255. Travels as two floats: zero is a whole number. */
struct tally__affine {
    float scale;
    float zero;
};

/* The parameters of mean_f32_by_affine. */
struct tally__affine_mean {
    const struct tally__affine
        *maps;    /* maps of all blocks of each input; NULL: each block computes its own */
    size_t block; /* elements, at most TALLY__MEAN_BLOCK_MOST */
    float divisor;
};

/*
 * The map for values between lo and hi: zero is always representable; the scale is at least
 * TALLY__AFFINE_SCALE_FLOOR. n = 0 elements have scale 1 and zero 0 by convention. When lo or hi is
 * not finite, or hi - lo overflows, scale is not finite and zero is 0.
 */
struct tally__affine tally__affine_of(size_t n, float lo, float hi);

/* The dispatching functions tally__<kernel>. */
#define TALLY__KERNEL_DECLARE(name, result, parameters, arguments) result tally__##name parameters;
TALLY__KERNEL_LIST(TALLY__KERNEL_DECLARE)
#undef TALLY__KERNEL_DECLARE

/* One instruction set's kernels. */
struct tally__kernels {
#define TALLY__KERNEL_MEMBER(name, result, parameters, arguments) result(*name) parameters;
    TALLY__KERNEL_LIST(TALLY__KERNEL_MEMBER)
#undef TALLY__KERNEL_MEMBER
};

/* The table of an instruction set is a list between braces:
 * TALLY__KERNEL_LIST(TALLY__KERNEL_ENTRY). The target machine decides which tables exist. */
#define TALLY__KERNEL_ENTRY(name, ...) .name = name,
extern const struct tally__kernels tally__kernels_ref;
extern const struct tally__kernels tally__kernels_avx2;
extern const struct tally__kernels tally__kernels_avx512;
extern const struct tally__kernels tally__kernels_neon;

/* An instruction set: its name in TALLY_ISA, whether this CPU can run it, and its kernels. */
struct tally__isa {
    const char *name;
    int (*usable)(void);
    const struct tally__kernels *kernels;
    const struct tally__low_rank_kernels *low_rank; /* num/low_rank.h */
    const struct tally__optim_kernels *optim;       /* num/optim.h */
};

/* The instruction sets of this build, the reference first, better ones later. */
extern const struct tally__isa tally__isas[];
extern const size_t tally__n_isas;

/*
 * Chooses the instruction set for this process, once: the last usable one, or the one that
 * TALLY_ISA names. Every entry point of the library that leads to arithmetic calls this first;
 * kernels called earlier run on the reference. Errors: ARG, the same on every later call.
 */
int tally__num_start(void);

/* The chosen instruction set. */
const struct tally__isa *tally__isa(void);

#endif

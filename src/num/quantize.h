/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions that the uint8 kernels of all instruction sets share. */
#ifndef TALLY_NUM_QUANTIZE_H
#define TALLY_NUM_QUANTIZE_H

#include <math.h>
#include <stdbool.h>

/*
 * Rounds to a whole number, half to even, without the mathematics library. From 2^23 on every float
 * is a whole number; below, adding and taking away 2^23 rounds in the current mode, which is to
 * nearest even. Differs from rintf only in the sign of a zero.
 */
static inline float tally__rint(float x)
{
    const float whole = 0x1p23f;

    if (x >= 0.0f) {
        return x < whole ? (x + whole) - whole : x;
    }
    return x > -whole ? (x - whole) + whole : x;
}

/*
 * Below this largest magnitude a block takes the slow path of the reference: 127 / max|x| would
 * come near overflow and max|x| / 127 near the subnormals.
 */
#define TALLY__SCALED_TINY 0x1p-100f

/* Whether all codes decode to numbers. A block up to about FLT_MAX has a finite scale and yet may
 * decode to infinity: 127 times the rounded scale. */
static inline bool tally__scaled_is_sound(float scale)
{
    return isfinite(scale * 127.0f);
}

#endif

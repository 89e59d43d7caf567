/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to a whole number, half to even, without the mathematics library. */
#ifndef TALLY_NUM_RINT_H
#define TALLY_NUM_RINT_H

/*
 * From 2^23 on every float is a whole number; below, adding and taking away 2^23 rounds in the
 * current mode, which is to nearest even. Differs from rintf only in the sign of a zero.
 */
static inline float tally__rint(float x)
{
    const float whole = 0x1p23f;

    if (x >= 0.0f) {
        return x < whole ? (x + whole) - whole : x;
    }
    return x > -whole ? (x - whole) + whole : x;
}

#endif

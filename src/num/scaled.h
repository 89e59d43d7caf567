/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of the scaled uint8 form that all levels share. */
#ifndef TALLY_NUM_SCALED_H
#define TALLY_NUM_SCALED_H

#include <math.h>
#include <stdbool.h>

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

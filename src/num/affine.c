/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale and the zero point of uint8 quantization, as PyTorch's hooks compute them: in fp32, one
 * rounding per operation. Shared by all instruction sets. Any thread enters; nothing is kept.
 */
#include <math.h>

#include "num/num.h"
#include "num/quantize.h"

static float clamp(float x, float lo, float hi)
{
    float raised = x > lo ? x : lo;

    return raised < hi ? raised : hi;
}

struct tally__affine tally__affine_of(size_t n, float lo, float hi)
{
    if (n == 0) {
        return (struct tally__affine){.scale = 1.0f, .zero = 0.0f};
    }
    if (isnan(lo) || isnan(hi)) {
        return (struct tally__affine){.scale = NAN, .zero = 0.0f};
    }
    lo = lo < 0.0f ? lo : 0.0f;
    hi = hi > 0.0f ? hi : 0.0f;

    float scale = (hi - lo) / 255.0f;

    if (isinf(scale)) {
        return (struct tally__affine){.scale = scale, .zero = 0.0f};
    }
    scale = scale > TALLY__AFFINE_SCALE_FLOOR ? scale : TALLY__AFFINE_SCALE_FLOOR;
    return (struct tally__affine){
        .scale = scale,
        .zero = clamp(0.0f - tally__rint(lo / scale), 0.0f, 255.0f),
    };
}

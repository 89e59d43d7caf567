/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orthonormal columns by modified Gram-Schmidt. Every rank does this to the same bits and must get
 * the same bits: inner products are in fp64 in a fixed order, the rest is element by element. Any
 * thread enters; nothing is kept.
 */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "num/low_rank.h"
#include "num/num.h"

/* When no more than this is left of a column of norm 1, it is rounding error: the column was
 * computed in fp32, by sums of many terms. */
#define NOTHING_LEFT 0x1p-20

static double norm_of(size_t n, const float *column)
{
    return sqrt(tally__sqnorm_f32(n, column));
}

/* In fp64, so that a column of subnormals comes out as good as any. */
static void scale(size_t n, double factor, float *column)
{
    for (size_t i = 0; i < n; i++) {
        column[i] = (float)((double)column[i] * factor);
    }
}

/* Subtracts from column j its projection on the columns before it; returns the norm of the rest. */
static double project(size_t n, size_t j, float *p)
{
    float *column = p + j * n;

    for (size_t i = 0; i < j; i++) {
        double along = tally__dot_f32(n, p + i * n, column);

        tally__axpy_f32(n, p + i * n, (float)-along, column);
    }
    return norm_of(n, column);
}

/* Column j, after those before it; norm > 0 is its norm. False when nothing is left of it. */
static bool orthogonalise_column(size_t n, size_t j, double norm, double epsilon, float *p)
{
    float *column = p + j * n;

    if (j == 0) {
        scale(n, 1.0 / (norm + epsilon), column);
        return true;
    }
    scale(n, 1.0 / norm, column);

    /* The first projection leaves rounding errors along the other columns, which are large compared
     * with a small rest; the second takes them away. If even the second takes most of the column,
     * the rest is only rounding error. */
    double once = project(n, j, p);
    double left = project(n, j, p);

    if (left <= NOTHING_LEFT || left < once / 2) {
        memset(column, 0, n * sizeof *column);
        return false;
    }
    scale(n, norm / (left * norm + epsilon), column);
    return true;
}

size_t tally__low_rank_orthogonalise(size_t n, size_t r, double epsilon, float *p)
{
    tally__fpenv saved = tally__fpenv_enter();
    size_t n_kept = 0;

    if (tally__find_nonfinite_f32(n * r, p) < n * r) {
        for (size_t i = 0; i < n * r; i++) {
            p[i] = NAN;
        }
        tally__fpenv_leave(saved);
        return 0;
    }
    for (size_t j = 0; j < r; j++) {
        double norm = norm_of(n, p + j * n);

        n_kept += norm > 0.0 && orthogonalise_column(n, j, norm, epsilon, p);
    }
    tally__fpenv_leave(saved);
    return n_kept;
}

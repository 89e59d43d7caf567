/* SPDX-License-Identifier: Apache-2.0 */
/* Copies parameters whose elements lie in another order to row-major order, and back. Keeps no
 * state. */
#include <string.h>

#include "train/checkpoint.h"

/* Row-major positions in order, and where each lies in the parameter. The dimensions of a
 * parameter are few; the last one is the inner loop. */
static void copy(const struct tally__param *param, unsigned char *rows, bool takes)
{
    size_t bytes = tally_dtype_bytes(param->dtype);
    unsigned char *data = param->data;
    size_t width = param->shape[param->n_dims - 1];

    for (size_t row = 0; row < param->n / width; row++) {
        size_t left = row;
        size_t at = 0;

        for (int d = param->n_dims - 2; d >= 0; d--) {
            at += left % param->shape[d] * param->steps[d];
            left /= param->shape[d];
        }
        for (size_t k = 0; k < width; k++) {
            memcpy(takes ? rows : data + at * bytes, takes ? data + at * bytes : rows, bytes);
            at += param->steps[param->n_dims - 1];
            rows += bytes;
        }
    }
}

void tally__rows_take(const struct tally__param *param, void *rows)
{
    if (param->permuted) {
        copy(param, rows, true);
    } else if (param->bytes > 0) {
        memcpy(rows, param->data, param->bytes);
    }
}

void tally__rows_put(const struct tally__param *param, const void *rows)
{
    if (param->permuted) {
        copy(param, (unsigned char *)rows, false);
    } else if (param->bytes > 0) {
        memcpy(param->data, rows, param->bytes);
    }
}

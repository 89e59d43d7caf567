/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks the gradients of the hooks bench, in loops that the compiler can vectorize.
 * Keeps no state. */
#include "bench/hooks_input.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define WIDTH 1024
#define MIN_WIDTH 8
#define MIN_LAYERS 8
#define LOWEST_SCALE 1e-2
#define OUTLIER 10.0f
#define CHUNK 1024

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

/* The 24 high bits as a number in -1..1, exact in fp32. */
static float to_unit(uint32_t hash)
{
    return (float)((int32_t)(hash >> 8) - (1 << 23)) * 0x1p-23f;
}

/* ---- the layers ---------------------------------------------------------------------------- */

/* A layer of some rows: all but the last are the matrix, the last one and the rest are the bias. */
static void cut_layer(struct hooks_param *params, size_t layer, size_t first, size_t n_rows,
                      size_t width)
{
    struct hooks_param *matrix = &params[0];
    struct hooks_param *bias = &params[1];

    *matrix = (struct hooks_param){
        .n_dims = 2, .shape = {n_rows - 1, width}, .first = first, .n = (n_rows - 1) * width};
    *bias =
        (struct hooks_param){.n_dims = 1, .shape = {width}, .first = first + matrix->n, .n = width};
    (void)snprintf(matrix->name, sizeof matrix->name, "layer %zu weight", layer);
    (void)snprintf(bias->name, sizeof bias->name, "layer %zu bias", layer);
}

static size_t choose_width(size_t n)
{
    size_t width = WIDTH;

    while (width > MIN_WIDTH && MIN_LAYERS * (width + 1) * width > n) {
        width /= 2;
    }
    return width;
}

int hooks_input_create(size_t n, struct hooks_input *input)
{
    size_t width = choose_width(n);
    size_t n_rows = n / width;
    size_t n_layers = n_rows / (width + 1);
    size_t first = 0;
    struct hooks_param *params;

    if (n < HOOKS_MIN_ELEMENTS) {
        return tally__fail(TALLY_ARG, "%zu elements are too few for %d layers", n, MIN_LAYERS);
    }
    params = tally__alloc_array(2 * n_layers, sizeof *params, "the layers of the hooks bench");
    TRY(params ? TALLY_OK : TALLY_NOMEM);
    for (size_t layer = 0; layer < n_layers; layer++) {
        struct hooks_param *pair = &params[2 * layer];
        double part = (double)layer / (double)(n_layers - 1);

        cut_layer(pair, layer, first, n_rows / n_layers + (layer < n_rows % n_layers), width);
        pair[0].scale = (float)pow(LOWEST_SCALE, 1 - part);
        pair[1].scale = pair[0].scale;
        first += pair[0].n + pair[1].n;
    }
    params[2 * n_layers - 1].n += n - first;
    params[2 * n_layers - 1].shape[0] += n - first;
    *input = (struct hooks_input){n, 2 * n_layers, params};
    return TALLY_OK;
}

void hooks_input_free(struct hooks_input *input)
{
    tally__free(input->params);
    *input = (struct hooks_input){0};
}

/* ---- their elements ------------------------------------------------------------------------ */

void hooks_input_fill(const struct hooks_param *param, int rank, size_t first, size_t n,
                      float *data)
{
    uint32_t start = (uint32_t)(param->first + first);
    uint32_t of_rank = mix((uint32_t)rank + 1);

    for (size_t i = 0; i < n; i++) {
        uint32_t common = mix(start + (uint32_t)i);
        float value = to_unit(common) + to_unit(mix(common ^ of_rank));
        float scale = (common & 1023) < 10 ? param->scale * OUTLIER : param->scale;

        data[i] = value * scale;
    }
}

void hooks_input_mean(const struct hooks_param *param, int ranks, size_t first, size_t n,
                      double *mean)
{
    for (size_t done = 0; done < n; done += CHUNK) {
        size_t n_here = n - done < CHUNK ? n - done : CHUNK;
        double *sum = mean + done;
        float values[CHUNK];

        memset(sum, 0, n_here * sizeof *sum);
        for (int r = 0; r < ranks; r++) {
            hooks_input_fill(param, r, first + done, n_here, values);
            for (size_t i = 0; i < n_here; i++) {
                sum[i] += (double)values[i];
            }
        }
        for (size_t i = 0; i < n_here; i++) {
            sum[i] /= ranks;
        }
    }
}

struct hooks_error hooks_input_compare(const struct hooks_input *input, const double *means,
                                       const float *const *gradients)
{
    struct hooks_error error = {0};
    double all_off = 0;
    double all_mean = 0;

    for (size_t p = 0; p < input->n_params; p++) {
        const double *mean = means + input->params[p].first;
        double sum_off = 0;
        double sum_mean = 0;
        double own;

        for (size_t i = 0; i < input->params[p].n; i++) {
            double off = (double)gradients[p][i] - mean[i];

            sum_off += off * off;
            sum_mean += mean[i] * mean[i];
        }
        own = sqrt(sum_off / sum_mean);
        /* NaN is the worst of all, and stays. */
        error.worst = isnan(error.worst) || own <= error.worst ? error.worst : own;
        all_off += sum_off;
        all_mean += sum_mean;
    }
    error.all = sqrt(all_off / all_mean);
    return error;
}

uint64_t hooks_input_hash(const struct hooks_input *input, const float *const *gradients)
{
    uint64_t hash = 0;

    for (size_t p = 0; p < input->n_params; p++) {
        uint32_t start = (uint32_t)input->params[p].first;

        for (size_t i = 0; i < input->params[p].n; i++) {
            uint32_t bits;

            memcpy(&bits, &gradients[p][i], sizeof bits);
            hash += mix(bits ^ mix(start + (uint32_t)i));
        }
    }
    return hash;
}

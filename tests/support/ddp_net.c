/* SPDX-License-Identifier: Apache-2.0 */
/* The network of the ddp tests: plain loops, no state. */
#include "support/ddp_net.h"

#include <math.h>
#include <string.h>

#define MAX_WIDTH 50
#define MAX_SAMPLES 128

const size_t ddp_net_width[DDP_NET_LAYERS + 1] = {2, 10, 50, 4};

size_t ddp_net_count(int layer)
{
    return ddp_net_width[layer] * ddp_net_width[layer + 1];
}

void ddp_net_init(int layer, float *weight)
{
    for (size_t e = 0; e < ddp_net_count(layer); e++) {
        weight[e] =
            (float)(sin((double)(e * 7 + 3) * (layer + 1)) / sqrt((double)ddp_net_width[layer]));
    }
}

/* The activations of one sample, layer by layer. */
struct pass {
    double out[DDP_NET_LAYERS + 1][MAX_WIDTH];
    double error[DDP_NET_LAYERS + 1][MAX_WIDTH]; /* of the loss by each of these */
};

static void forward(float *const *weight, size_t sample, struct pass *pass)
{
    pass->out[0][0] = sin((double)sample * 1.7);
    pass->out[0][1] = cos((double)sample * 0.9);
    for (int l = 0; l < DDP_NET_LAYERS; l++) {
        for (size_t o = 0; o < ddp_net_width[l + 1]; o++) {
            double sum = 0;

            for (size_t i = 0; i < ddp_net_width[l]; i++) {
                sum += (double)weight[l][o * ddp_net_width[l] + i] * pass->out[l][i];
            }
            pass->out[l + 1][o] = l + 1 < DDP_NET_LAYERS && sum < 0 ? 0 : sum;
        }
    }
}

static void backward(float *const *weight, size_t sample, struct pass *pass)
{
    size_t n_out = ddp_net_width[DDP_NET_LAYERS];

    for (size_t o = 0; o < n_out; o++) {
        double target = sin((double)(sample + o));

        pass->error[DDP_NET_LAYERS][o] =
            2 * (pass->out[DDP_NET_LAYERS][o] - target) / (double)n_out;
    }
    for (int l = DDP_NET_LAYERS - 1; l > 0; l--) {
        for (size_t i = 0; i < ddp_net_width[l]; i++) {
            double sum = 0;

            for (size_t o = 0; o < ddp_net_width[l + 1]; o++) {
                sum += (double)weight[l][o * ddp_net_width[l] + i] * pass->error[l + 1][o];
            }
            pass->error[l][i] = pass->out[l][i] > 0 ? sum : 0;
        }
    }
}

void ddp_net_backward(float *const *weight, float *const *grad, size_t first, size_t n,
                      void (*ready)(void *user, int layer), void *user)
{
    struct pass pass[MAX_SAMPLES];

    for (size_t s = 0; s < n; s++) {
        forward(weight, first + s, &pass[s]);
        backward(weight, first + s, &pass[s]);
    }
    for (int l = DDP_NET_LAYERS - 1; l >= 0; l--) {
        for (size_t e = 0; e < ddp_net_count(l); e++) {
            size_t o = e / ddp_net_width[l];
            size_t i = e % ddp_net_width[l];
            double sum = 0;

            for (size_t s = 0; s < n; s++) {
                sum += pass[s].error[l + 1][o] * pass[s].out[l][i];
            }
            grad[l][e] += (float)(sum / (double)n);
        }
        if (ready) {
            ready(user, l);
        }
    }
}

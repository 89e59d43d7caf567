/* SPDX-License-Identifier: Apache-2.0 */
/* Forward, backward and update of the network of 05_digits.c, in plain loops. Independent of ranks;
 * prints nothing. One thread. */
#include "examples/digits/digits_net.h"

#include <math.h>
#include <string.h>

#define RATE 0.05f
#define MOMENTUM 0.9f

void digits_net_start(struct digits_net *net, unsigned seed)
{
    static const size_t widths[] = {DIGITS_PIXELS, DIGITS_WIDEST, DIGITS_MIDDLE, DIGITS_CLASSES};
    unsigned random = seed + 2;
    size_t at = 0;

    memset(net, 0, sizeof *net);
    for (int l = 0; l < DIGITS_LAYERS; l++) {
        struct digits_layer *layer = &net->layers[l];
        size_t n_in = widths[l], n_out = widths[l + 1], n_weights = n_in * n_out;

        *layer = (struct digits_layer){{n_in, n_out},
                                       &net->values[at],
                                       &net->values[at + n_weights],
                                       &net->grads[at],
                                       &net->grads[at + n_weights]};
        at += n_weights + n_out;
        for (size_t k = 0; k < n_weights; k++) {
            float uniform = (float)digits_random(&random) / (float)(1 << 23) - 1;
            layer->weights[k] = uniform * sqrtf(6.0f / (float)n_in);
        }
    }
}

static void add_scaled(float *restrict sums, const float *restrict values, float scale, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        sums[k] += scale * values[k];
    }
}

static float dot(const float *a, const float *b, size_t n)
{
    float sum = 0;

    for (size_t k = 0; k < n; k++) {
        sum += a[k] * b[k];
    }
    return sum;
}

/* Softmax and cross entropy: returns the loss, and sets its derivative by each output. */
static double judge(const float *out, int label, float scale, float *error)
{
    float largest = out[0], sum = 0;

    for (int o = 1; o < DIGITS_CLASSES; o++) {
        largest = out[o] > largest ? out[o] : largest;
    }
    for (int o = 0; o < DIGITS_CLASSES; o++) {
        error[o] = expf(out[o] - largest);
        sum += error[o];
    }
    for (int o = 0; o < DIGITS_CLASSES; o++) {
        error[o] = scale * (error[o] / sum - (float)(o == label));
    }
    return (double)(logf(sum) + largest - out[label]);
}

double digits_net_forward(struct digits_net *net, int s, const struct digit *digit, float scale,
                          int *n_right)
{
    const float *out = net->inputs[DIGITS_LAYERS][s];
    int best = 0;

    memcpy(net->inputs[0][s], digit->pixels, sizeof digit->pixels);
    for (int l = 0; l < DIGITS_LAYERS; l++) {
        const struct digits_layer *layer = &net->layers[l];
        size_t n_in = layer->shape[0], n_out = layer->shape[1];
        const float *in = net->inputs[l][s];
        float *sums = net->inputs[l + 1][s];

        memcpy(sums, layer->biases, n_out * sizeof *sums);
        for (size_t i = 0; i < n_in; i++) {
            if (in[i] != 0) {
                add_scaled(sums, &layer->weights[i * n_out], in[i], n_out);
            }
        }
        for (size_t o = 0; l < DIGITS_LAYERS - 1 && o < n_out; o++) {
            sums[o] = sums[o] > 0 ? sums[o] : 0;
        }
    }
    for (int o = 1; o < DIGITS_CLASSES; o++) {
        best = out[o] > out[best] ? o : best;
    }
    *n_right += best == digit->label;
    return judge(out, digit->label, scale, net->errors[DIGITS_LAYERS][s]);
}

void digits_net_backward(struct digits_net *net, int l, int n)
{
    const struct digits_layer *layer = &net->layers[l];
    size_t n_in = layer->shape[0], n_out = layer->shape[1];

    memset(layer->weights_grad, 0, n_in * n_out * sizeof(float));
    memset(layer->biases_grad, 0, n_out * sizeof(float));
    for (int s = 0; s < n; s++) {
        const float *in = net->inputs[l][s], *error = net->errors[l + 1][s];

        add_scaled(layer->biases_grad, error, 1, n_out);
        for (size_t i = 0; i < n_in; i++) {
            float back = 0;

            /* An input of 0 adds nothing to the gradient, and no error passes through it. */
            if (in[i] != 0) {
                add_scaled(&layer->weights_grad[i * n_out], error, in[i], n_out);
                back = l > 0 ? dot(&layer->weights[i * n_out], error, n_out) : 0;
            }
            net->errors[l][s][i] = back;
        }
    }
}

void digits_net_update(struct digits_net *net)
{
    for (size_t k = 0; k < DIGITS_FLOATS; k++) {
        net->velocity[k] = MOMENTUM * net->velocity[k] + net->grads[k];
        net->values[k] -= RATE * net->velocity[k];
    }
}

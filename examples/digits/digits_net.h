/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of a network with three layers that reads digits. Independent of ranks. */
#ifndef TALLY_EXAMPLES_DIGITS_NET_H
#define TALLY_EXAMPLES_DIGITS_NET_H

#include "examples/digits/digits_data.h"

#include <stddef.h>

enum {
    DIGITS_LAYERS = 3,
    DIGITS_WIDEST = 256,
    DIGITS_MIDDLE = 128,
    DIGITS_BATCH = 96, /* the largest batch */
    DIGITS_FLOATS = (DIGITS_PIXELS + 1) * DIGITS_WIDEST + (DIGITS_WIDEST + 1) * DIGITS_MIDDLE +
                    (DIGITS_MIDDLE + 1) * DIGITS_CLASSES
};

struct digits_layer {
    size_t shape[2];         /* inputs, outputs */
    float *weights, *biases; /* in values below: [inputs][outputs], [outputs] */
    float *weights_grad, *biases_grad;
};

struct digits_net {
    struct digits_layer layers[DIGITS_LAYERS];
    float values[DIGITS_FLOATS], grads[DIGITS_FLOATS], velocity[DIGITS_FLOATS];
    /* For each image: the input of each layer, and the derivative of the loss by it. */
    float inputs[DIGITS_LAYERS + 1][DIGITS_BATCH][DIGITS_WIDEST];
    float errors[DIGITS_LAYERS + 1][DIGITS_BATCH][DIGITS_WIDEST];
};

/* Sets the initial weights, which are random but the same for the same seed, and zero velocity. */
void digits_net_start(struct digits_net *net, unsigned seed);

/* Runs forward for image number s of a batch. Returns its loss, and adds 1 to *n_right if the digit
 * was recognized. scale is the weight of the image in the gradients. */
double digits_net_forward(struct digits_net *net, int s, const struct digit *digit, float scale,
                          int *n_right);

/* Computes the gradients of one layer over the images 0..n-1; the layers above must be done. */
void digits_net_backward(struct digits_net *net, int layer, int n);

/* Makes a step of gradient descent with momentum. */
void digits_net_update(struct digits_net *net);

#endif

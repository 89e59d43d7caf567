/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small network with a backward by hand, 2 -> 10 -> 50 -> 4 without biases, ReLU between, mean
 * squared error: enough to compare ranks that share a batch with one process that has all of it.
 */
#ifndef TALLY_TESTS_DDP_NET_H
#define TALLY_TESTS_DDP_NET_H

#include <stddef.h>

#define DDP_NET_LAYERS 3

/* Sizes of the layers' ends: layer l goes from width l to width l + 1. */
extern const size_t ddp_net_width[DDP_NET_LAYERS + 1];

size_t ddp_net_count(int layer);

/* Starting values; the same everywhere. */
void ddp_net_init(int layer, float *weight);

/*
 * Adds the gradient of the mean loss over samples first..first+n-1, which everybody knows, to grad,
 * the last layer's first; calls ready(user, layer) after each layer, unless it is NULL.
 */
void ddp_net_backward(float *const *weight, float *const *grad, size_t first, size_t n,
                      void (*ready)(void *user, int layer), void *user);

#endif

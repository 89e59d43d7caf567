/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the optimizers: one pass over a range of elements reads the gradient, the
 * parameter and the state, and writes the parameter and the state.
 *
 *   void tally__<name>_step(size_t n, const float *g, float *p, float *const *state,
 *                           const struct tally__<name> *c);
 *
 * Everything is element by element: an element's bits depend neither on n nor on where the range
 * begins, so a shard of a parameter gets the bits that the whole parameter would. The
 * constants depend on the step, and are computed once per step, in fp64, by
 *
 *   void tally__<name>_constants(const struct tally__<name>_options *o, uint64_t t,
 *                                struct tally__<name> *c);
 *
 * where t counts the parameter's steps from 1. Powers there are products, not pow(): ranks on
 * unlike machines get the same constants. Options are not checked.
 *
 * state has TALLY__OPTIM_STATES entries, each an array beside p, or NULL for one that is not in
 * use. Arrays do not overlap. They begin as zeros unless said otherwise.
 *
 * All arithmetic is fp32 addition, subtraction, multiplication, division and square root, in the
 * order written below, from left to right, each rounded once. It gives the same bits on every
 * instruction set; the payload of a NaN apart. Each call has our floating-point environment, like
 * all of num: nothing traps, subnormals are kept. A gradient that is not finite makes the parameter
 * or the state so, as the formulas have it.
 *
 * In the formulas, w is the weight decay. When w is 0, p does not enter g at all: an infinite
 * parameter stays what it is. max(a, b) is a > b ? a : b, and min(a, b) is a < b ? a : b.
 *
 * sgd. State: buf, if momentum is not 0; what it holds before the first step does not matter.
 *   g = g * sign                         sign is -1 to maximize, else 1
 *   g = g + w * p
 *   buf = g                              when t is 1
 *   buf = momentum * buf + gain * g      else; gain = 1 - dampening
 *   g = g + momentum * buf               with nesterov
 *   g = buf                              with momentum, without nesterov
 *   p = p - lr * g
 *
 * adam. State: m, v and, with amsgrad, top. AdamW is this with decoupled weight decay: w is then 0
 * below, and keep = 1 - lr * weight_decay; else keep is 1.
 *   g = g + w * p
 *   p = p * keep
 *   m = m + gain1 * (g - m)              gain1 = 1 - beta1
 *   v = beta2 * v + gain2 * (g * g)      gain2 = 1 - beta2
 *   v' = top = max(top, v)               with amsgrad; else v' = v
 *   p = p - rate * m / (sqrt(v') / correction + epsilon)
 * rate = lr / (1 - beta1^t), correction = sqrt(1 - beta2^t).
 *
 * adagrad. State: s, which begins as the initial accumulator.
 *   g = g + w * p
 *   s = s + g * g
 *   p = p - rate * g / (sqrt(s) + epsilon)
 * rate = lr / (1 + (t - 1) * lr_decay).
 *
 * rmsprop. State: v; h, if centered; buf, if momentum is not 0.
 *   g = g + w * p
 *   v = alpha * v + gain * (g * g)       gain = 1 - alpha
 *   h = alpha * h + gain * g             if centered
 *   d = sqrt(max(0, v - h * h)) + epsilon    if centered: rounding may take the difference below 0
 *   d = sqrt(v) + epsilon                else
 *   buf = momentum * buf + g / d, p = p - lr * buf    with momentum
 *   p = p - lr * g / d                   else
 *
 * adadelta. State: v, u.
 *   g = g + w * p
 *   v = rho * v + gain * (g * g)         gain = 1 - rho
 *   d = sqrt(u + epsilon) / sqrt(v + epsilon) * g
 *   u = rho * u + gain * (d * d)
 *   p = p - lr * d
 *
 * adamax. State: m, u.
 *   g = g + w * p
 *   m = m + gain1 * (g - m)              gain1 = 1 - beta1
 *   u = max(beta2 * u, |g| + epsilon)
 *   p = p - rate * m / u                 rate = lr / (1 - beta1^t)
 *
 * rprop. State: old; size, which begins as the learning rate.
 *   s = g * old
 *   size = size * grow, if s > 0; size * shrink, if s < 0; else, also for a NaN, size
 *   g = 0, if s < 0
 *   size = min(most, max(least, size))
 *   p = p - size, if g > 0; p + size, if g < 0; p, if g is 0; a NaN, if g is one
 *   old = g
 */
#ifndef TALLY_NUM_OPTIM_H
#define TALLY_NUM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every optimizer's kernel: the list is expanded into the declarations below, the table of each
 * instruction set, the dispatching functions, the tests and the benches. */
#define TALLY__OPTIM_LIST(X) X(sgd) X(adam) X(adagrad) X(rmsprop) X(adadelta) X(adamax) X(rprop)

/* The indices of a kernel's state arrays; no kernel has more than three. */
enum {
    TALLY__SGD_BUF = 0,
    TALLY__ADAM_M = 0,
    TALLY__ADAM_V = 1,
    TALLY__ADAM_TOP = 2,
    TALLY__ADAGRAD_S = 0,
    TALLY__RMSPROP_V = 0,
    TALLY__RMSPROP_H = 1,
    TALLY__RMSPROP_BUF = 2,
    TALLY__ADADELTA_V = 0,
    TALLY__ADADELTA_U = 1,
    TALLY__ADAMAX_M = 0,
    TALLY__ADAMAX_U = 1,
    TALLY__RPROP_OLD = 0,
    TALLY__RPROP_SIZE = 1,
    TALLY__OPTIM_STATES = 3
};

struct tally__sgd_options {
    double lr;
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov;
    bool maximize;
};

struct tally__sgd {
    float lr;
    float sign;
    float momentum;
    float gain;
    float weight_decay;
    bool nesterov;
    bool first;
};

struct tally__adam_options {
    double lr;
    double beta1;
    double beta2;
    double epsilon;
    double weight_decay;
    bool decoupled; /* AdamW */
    bool amsgrad;
};

struct tally__adam {
    float rate;
    float gain1;
    float beta2;
    float gain2;
    float correction;
    float epsilon;
    float weight_decay; /* added to the gradient */
    float keep;
    bool amsgrad;
};

struct tally__adagrad_options {
    double lr;
    double lr_decay;
    double weight_decay;
    double epsilon;
};

struct tally__adagrad {
    float rate;
    float weight_decay;
    float epsilon;
};

struct tally__rmsprop_options {
    double lr;
    double alpha;
    double epsilon;
    double weight_decay;
    double momentum;
    bool centered;
};

struct tally__rmsprop {
    float lr;
    float alpha;
    float gain;
    float epsilon;
    float weight_decay;
    float momentum;
    bool centered;
};

struct tally__adadelta_options {
    double lr;
    double rho;
    double epsilon;
    double weight_decay;
};

struct tally__adadelta {
    float lr;
    float rho;
    float gain;
    float epsilon;
    float weight_decay;
};

struct tally__adamax_options {
    double lr;
    double beta1;
    double beta2;
    double epsilon;
    double weight_decay;
};

struct tally__adamax {
    float rate;
    float gain1;
    float beta2;
    float epsilon;
    float weight_decay;
};

struct tally__rprop_options {
    double shrink;
    double grow;
    double least;
    double most;
};

struct tally__rprop {
    float shrink;
    float grow;
    float least;
    float most;
};

/* The dispatching functions tally__<name>_step, and the functions that compute their constants. */
#define TALLY__OPTIM_DECLARE(name)                                                      \
    void tally__##name##_step(size_t n, const float *g, float *p, float *const *state,  \
                              const struct tally__##name *c);                           \
    void tally__##name##_constants(const struct tally__##name##_options *o, uint64_t t, \
                                   struct tally__##name *c);
TALLY__OPTIM_LIST(TALLY__OPTIM_DECLARE)
#undef TALLY__OPTIM_DECLARE

/* The kernels of one instruction set; the target machine decides which exist. */
struct tally__optim_kernels {
#define TALLY__OPTIM_MEMBER(name)                                         \
    void (*name)(size_t n, const float *g, float *p, float *const *state, \
                 const struct tally__##name *c);
    TALLY__OPTIM_LIST(TALLY__OPTIM_MEMBER)
#undef TALLY__OPTIM_MEMBER
};

extern const struct tally__optim_kernels tally__optim_ref;
extern const struct tally__optim_kernels tally__optim_avx2;
extern const struct tally__optim_kernels tally__optim_avx512;
extern const struct tally__optim_kernels tally__optim_neon;

#endif

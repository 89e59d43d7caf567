/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' kernels in plain C; every other instruction set reproduces them bit for bit. Any
 * thread enters. */
#include <math.h>

#include "num/num.h"
#include "num/optim.h"

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static float smaller(float a, float b)
{
    return a < b ? a : b;
}

/* Without weight decay p must not enter: 0 times an infinity is a NaN. */
static float decayed(float weight_decay, float g, float p)
{
    return weight_decay == 0.0f ? g : g + weight_decay * p;
}

static void sgd(size_t n, const float *grad, float *p, float *const *state,
                const struct tally__sgd *c)
{
    float *buf = state[TALLY__SGD_BUF];

    for (size_t i = 0; i < n; i++) {
        float g = decayed(c->weight_decay, grad[i] * c->sign, p[i]);

        if (c->momentum != 0.0f) {
            buf[i] = c->first ? g : c->momentum * buf[i] + c->gain * g;
            g = c->nesterov ? g + c->momentum * buf[i] : buf[i];
        }
        p[i] = p[i] - c->lr * g;
    }
}

static void adam(size_t n, const float *grad, float *p, float *const *state,
                 const struct tally__adam *c)
{
    float *m = state[TALLY__ADAM_M];
    float *v = state[TALLY__ADAM_V];
    float *top = state[TALLY__ADAM_TOP];

    for (size_t i = 0; i < n; i++) {
        float g = decayed(c->weight_decay, grad[i], p[i]);
        float square;

        m[i] = m[i] + c->gain1 * (g - m[i]);
        v[i] = c->beta2 * v[i] + c->gain2 * (g * g);
        square = v[i];
        if (c->amsgrad) {
            top[i] = larger(top[i], v[i]);
            square = top[i];
        }
        p[i] = p[i] * c->keep - c->rate * m[i] / (sqrtf(square) / c->correction + c->epsilon);
    }
}

static void adagrad(size_t n, const float *grad, float *p, float *const *state,
                    const struct tally__adagrad *c)
{
    float *s = state[TALLY__ADAGRAD_S];

    for (size_t i = 0; i < n; i++) {
        float g = decayed(c->weight_decay, grad[i], p[i]);

        s[i] = s[i] + g * g;
        p[i] = p[i] - c->rate * g / (sqrtf(s[i]) + c->epsilon);
    }
}

static void rmsprop(size_t n, const float *grad, float *p, float *const *state,
                    const struct tally__rmsprop *c)
{
    float *v = state[TALLY__RMSPROP_V];
    float *h = state[TALLY__RMSPROP_H];
    float *buf = state[TALLY__RMSPROP_BUF];

    for (size_t i = 0; i < n; i++) {
        float g = decayed(c->weight_decay, grad[i], p[i]);
        float square;
        float d;

        v[i] = c->alpha * v[i] + c->gain * (g * g);
        square = v[i];
        if (c->centered) {
            h[i] = c->alpha * h[i] + c->gain * g;
            square = larger(0.0f, v[i] - h[i] * h[i]);
        }
        d = sqrtf(square) + c->epsilon;
        if (c->momentum != 0.0f) {
            buf[i] = c->momentum * buf[i] + g / d;
            p[i] = p[i] - c->lr * buf[i];
        } else {
            p[i] = p[i] - c->lr * g / d;
        }
    }
}

static void adadelta(size_t n, const float *grad, float *p, float *const *state,
                     const struct tally__adadelta *c)
{
    float *v = state[TALLY__ADADELTA_V];
    float *u = state[TALLY__ADADELTA_U];

    for (size_t i = 0; i < n; i++) {
        float g = decayed(c->weight_decay, grad[i], p[i]);
        float d;

        v[i] = c->rho * v[i] + c->gain * (g * g);
        d = sqrtf(u[i] + c->epsilon) / sqrtf(v[i] + c->epsilon) * g;
        u[i] = c->rho * u[i] + c->gain * (d * d);
        p[i] = p[i] - c->lr * d;
    }
}

static void adamax(size_t n, const float *grad, float *p, float *const *state,
                   const struct tally__adamax *c)
{
    float *m = state[TALLY__ADAMAX_M];
    float *u = state[TALLY__ADAMAX_U];

    for (size_t i = 0; i < n; i++) {
        float g = decayed(c->weight_decay, grad[i], p[i]);

        m[i] = m[i] + c->gain1 * (g - m[i]);
        u[i] = larger(c->beta2 * u[i], fabsf(g) + c->epsilon);
        p[i] = p[i] - c->rate * m[i] / u[i];
    }
}

static void rprop(size_t n, const float *grad, float *p, float *const *state,
                  const struct tally__rprop *c)
{
    float *old = state[TALLY__RPROP_OLD];
    float *size = state[TALLY__RPROP_SIZE];

    for (size_t i = 0; i < n; i++) {
        float s = grad[i] * old[i];
        float g = s < 0.0f ? 0.0f : grad[i];
        float step = isnan(g) ? g : 0.0f;

        if (s > 0.0f) {
            size[i] = size[i] * c->grow;
        } else if (s < 0.0f) {
            size[i] = size[i] * c->shrink;
        }
        size[i] = smaller(c->most, larger(c->least, size[i]));
        if (g > 0.0f) {
            step = size[i];
        } else if (g < 0.0f) {
            step = -size[i];
        }
        p[i] = p[i] - step;
        old[i] = g;
    }
}

const struct tally__optim_kernels tally__optim_ref = {TALLY__OPTIM_LIST(TALLY__KERNEL_ENTRY)};

/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers in double precision. Any thread; nothing is kept. */
#include "support/optim_oracle.h"

#include <math.h>

void optim_oracle_sgd(const struct tally__sgd_options *o, uint64_t t, struct optim_element *x)
{
    double *buf = &x->state[TALLY__SGD_BUF];
    double g = o->maximize ? -x->g : x->g;

    g += o->weight_decay * x->p;
    if (o->momentum != 0.0) {
        *buf = t == 1 ? g : o->momentum * *buf + (1.0 - o->dampening) * g;
        g = o->nesterov ? g + o->momentum * *buf : *buf;
    }
    x->p -= o->lr * g;
}

void optim_oracle_adam(const struct tally__adam_options *o, uint64_t t, struct optim_element *x)
{
    double *m = &x->state[TALLY__ADAM_M];
    double *v = &x->state[TALLY__ADAM_V];
    double *top = &x->state[TALLY__ADAM_TOP];
    double g = x->g;

    if (o->decoupled) {
        x->p *= 1.0 - o->lr * o->weight_decay;
    } else {
        g += o->weight_decay * x->p;
    }
    *m += (1.0 - o->beta1) * (g - *m);
    *v = o->beta2 * *v + (1.0 - o->beta2) * g * g;
    *top = fmax(*top, *v);
    x->p -= o->lr / (1.0 - pow(o->beta1, (double)t)) * *m /
            (sqrt(o->amsgrad ? *top : *v) / sqrt(1.0 - pow(o->beta2, (double)t)) + o->epsilon);
}

void optim_oracle_adagrad(const struct tally__adagrad_options *o, uint64_t t,
                          struct optim_element *x)
{
    double *s = &x->state[TALLY__ADAGRAD_S];
    double g = x->g + o->weight_decay * x->p;

    *s += g * g;
    x->p -= o->lr / (1.0 + ((double)t - 1.0) * o->lr_decay) * g / (sqrt(*s) + o->epsilon);
}

void optim_oracle_rmsprop(const struct tally__rmsprop_options *o, uint64_t t,
                          struct optim_element *x)
{
    double *v = &x->state[TALLY__RMSPROP_V];
    double *h = &x->state[TALLY__RMSPROP_H];
    double *buf = &x->state[TALLY__RMSPROP_BUF];
    double g = x->g + o->weight_decay * x->p;
    double d;

    (void)t;
    *v = o->alpha * *v + (1.0 - o->alpha) * g * g;
    *h = o->alpha * *h + (1.0 - o->alpha) * g;
    d = sqrt(o->centered ? *v - *h * *h : *v) + o->epsilon;
    *buf = o->momentum * *buf + g / d;
    x->p -= o->momentum != 0.0 ? o->lr * *buf : o->lr * g / d;
}

void optim_oracle_adadelta(const struct tally__adadelta_options *o, uint64_t t,
                           struct optim_element *x)
{
    double *v = &x->state[TALLY__ADADELTA_V];
    double *u = &x->state[TALLY__ADADELTA_U];
    double g = x->g + o->weight_decay * x->p;
    double d;

    (void)t;
    *v = o->rho * *v + (1.0 - o->rho) * g * g;
    d = sqrt(*u + o->epsilon) / sqrt(*v + o->epsilon) * g;
    *u = o->rho * *u + (1.0 - o->rho) * d * d;
    x->p -= o->lr * d;
}

void optim_oracle_adamax(const struct tally__adamax_options *o, uint64_t t, struct optim_element *x)
{
    double *m = &x->state[TALLY__ADAMAX_M];
    double *u = &x->state[TALLY__ADAMAX_U];
    double g = x->g + o->weight_decay * x->p;

    *m += (1.0 - o->beta1) * (g - *m);
    *u = fmax(o->beta2 * *u, fabs(g) + o->epsilon);
    x->p -= o->lr / (1.0 - pow(o->beta1, (double)t)) * *m / *u;
}

void optim_oracle_rprop(const struct tally__rprop_options *o, uint64_t t, struct optim_element *x)
{
    double *old = &x->state[TALLY__RPROP_OLD];
    double *size = &x->state[TALLY__RPROP_SIZE];
    double g = x->g;

    (void)t;
    if (g * *old > 0.0) {
        *size *= o->grow;
    } else if (g * *old < 0.0) {
        *size *= o->shrink;
        g = 0.0;
    }
    *size = fmin(fmax(*size, o->least), o->most);
    x->p -= (double)((g > 0.0) - (g < 0.0)) * *size;
    *old = g;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the constants of an optimizer's step, and forwards every optimizer's kernel to the
 * instruction set of this process; both inside our own floating-point environment. Any thread
 * enters; nothing is kept.
 *
 * Options are read and constants written through pointers: that is what keeps the compiler from
 * moving arithmetic out from between enter and leave.
 */
#include "num/optim.h"

#include <math.h>

#include "base/cpu.h"
#include "num/num.h"

/* By squaring; the error stays below exponent * 2^-52, where the power is not negligible. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent > 0; exponent >>= 1) {
        result = (exponent & 1) != 0 ? result * base : result;
        base *= base;
    }
    return result;
}

static struct tally__sgd sgd_constants(const struct tally__sgd_options *o, uint64_t t)
{
    return (struct tally__sgd){
        .lr = (float)o->lr,
        .sign = o->maximize ? -1.0f : 1.0f,
        .momentum = (float)o->momentum,
        .gain = (float)(1.0 - o->dampening),
        .weight_decay = (float)o->weight_decay,
        .nesterov = o->nesterov,
        .first = t == 1,
    };
}

static struct tally__adam adam_constants(const struct tally__adam_options *o, uint64_t t)
{
    return (struct tally__adam){
        .rate = (float)(o->lr / (1.0 - power(o->beta1, t))),
        .gain1 = (float)(1.0 - o->beta1),
        .beta2 = (float)o->beta2,
        .gain2 = (float)(1.0 - o->beta2),
        .correction = (float)sqrt(1.0 - power(o->beta2, t)),
        .epsilon = (float)o->epsilon,
        .weight_decay = o->decoupled ? 0.0f : (float)o->weight_decay,
        .keep = o->decoupled ? (float)(1.0 - o->lr * o->weight_decay) : 1.0f,
        .amsgrad = o->amsgrad,
    };
}

static struct tally__adagrad adagrad_constants(const struct tally__adagrad_options *o, uint64_t t)
{
    return (struct tally__adagrad){
        .rate = (float)(o->lr / (1.0 + (double)(t - 1) * o->lr_decay)),
        .weight_decay = (float)o->weight_decay,
        .epsilon = (float)o->epsilon,
    };
}

static struct tally__rmsprop rmsprop_constants(const struct tally__rmsprop_options *o, uint64_t t)
{
    (void)t;
    return (struct tally__rmsprop){
        .lr = (float)o->lr,
        .alpha = (float)o->alpha,
        .gain = (float)(1.0 - o->alpha),
        .epsilon = (float)o->epsilon,
        .weight_decay = (float)o->weight_decay,
        .momentum = (float)o->momentum,
        .centered = o->centered,
    };
}

static struct tally__adadelta adadelta_constants(const struct tally__adadelta_options *o,
                                                 uint64_t t)
{
    (void)t;
    return (struct tally__adadelta){
        .lr = (float)o->lr,
        .rho = (float)o->rho,
        .gain = (float)(1.0 - o->rho),
        .epsilon = (float)o->epsilon,
        .weight_decay = (float)o->weight_decay,
    };
}

static struct tally__adamax adamax_constants(const struct tally__adamax_options *o, uint64_t t)
{
    return (struct tally__adamax){
        .rate = (float)(o->lr / (1.0 - power(o->beta1, t))),
        .gain1 = (float)(1.0 - o->beta1),
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .weight_decay = (float)o->weight_decay,
    };
}

static struct tally__rprop rprop_constants(const struct tally__rprop_options *o, uint64_t t)
{
    (void)t;
    return (struct tally__rprop){
        .shrink = (float)o->shrink,
        .grow = (float)o->grow,
        .least = (float)o->least,
        .most = (float)o->most,
    };
}

#define DISPATCH(name)                                                                  \
    void tally__##name##_constants(const struct tally__##name##_options *o, uint64_t t, \
                                   struct tally__##name *c)                             \
    {                                                                                   \
        tally__fpenv saved = tally__fpenv_enter();                                      \
        *c = name##_constants(o, t);                                                    \
        tally__fpenv_leave(saved);                                                      \
    }                                                                                   \
    void tally__##name##_step(size_t n, const float *g, float *p, float *const *state,  \
                              const struct tally__##name *c)                            \
    {                                                                                   \
        const struct tally__isa *isa = tally__isa();                                    \
        tally__fpenv saved = tally__fpenv_enter();                                      \
        isa->optim->name(n, g, p, state, c);                                            \
        tally__fpenv_leave(saved);                                                      \
    }
TALLY__OPTIM_LIST(DISPATCH)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers' kernels of every vector instruction set, written once over the vectors of a
 * vec_*.h, which the including file has included before. Elements that do not fill a vector go to
 * the reference, which gives the same bits.
 *
 * Memory bounds all of this, so a kernel is one loop that loads a vector of each array, computes,
 * and stores. The set of state arrays is a constant to that loop; the other options
 * are tested in it, which costs nothing compared with the divisions.
 * No include guard, as in kernels_simd.h.
 */
#include "num/optim.h"

#define INLINE static inline __attribute__((always_inline))

/* Floats per vector. */
#define LANES ((size_t)16)

/* A set of states, to be joined by |. */
#define USES(state) (1u << (state))

/* The arrays of a step, n a multiple of LANES. */
struct arrays {
    size_t n;
    const float *g;
    float *p;
    float *const *state;
};

/* A vector of each of them. */
struct elements {
    vf g;
    vf p;
    vf state[TALLY__OPTIM_STATES];
};

INLINE struct elements load(const struct arrays *a, unsigned used, size_t i)
{
    struct elements x = {.g = vf_load(a->g + i), .p = vf_load(a->p + i)};

    fetch_ahead(a->g + i);
    fetch_ahead(a->p + i);
    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        if ((used & USES(k)) != 0) {
            fetch_ahead(a->state[k] + i);
            x.state[k] = vf_load(a->state[k] + i);
        }
    }
    return x;
}

INLINE void store(const struct arrays *a, unsigned used, size_t i, const struct elements *x)
{
    vf_store(a->p + i, x->p);
    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        if ((used & USES(k)) != 0) {
            vf_store(a->state[k] + i, x->state[k]);
        }
    }
}

/* Without weight decay p must not enter: 0 times an infinity is a NaN. */
INLINE vf decayed(float weight_decay, vf g, vf p)
{
    return weight_decay == 0.0f ? g : vf_add(g, vf_mul(vf_set1(weight_decay), p));
}

/* keep * old + gain * x */
INLINE vf mix(float keep, vf old, float gain, vf x)
{
    return vf_add(vf_mul(vf_set1(keep), old), vf_mul(vf_set1(gain), x));
}

/* old + gain * (x - old) */
INLINE vf approach(vf old, float gain, vf x)
{
    return vf_add(old, vf_mul(vf_set1(gain), vf_sub(x, old)));
}

/* p - rate * x / d */
INLINE vf descend(vf p, float rate, vf x, vf d)
{
    return vf_sub(p, vf_div(vf_mul(vf_set1(rate), x), d));
}

INLINE void sgd_loop(const struct tally__sgd *c, unsigned used, const struct arrays *a)
{
    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf g = decayed(c->weight_decay, vf_mul(x.g, vf_set1(c->sign)), x.p);

        if (used != 0) {
            vf *buf = &x.state[TALLY__SGD_BUF];

            *buf = c->first ? g : mix(c->momentum, *buf, c->gain, g);
            g = c->nesterov ? vf_add(g, vf_mul(vf_set1(c->momentum), *buf)) : *buf;
        }
        x.p = vf_sub(x.p, vf_mul(vf_set1(c->lr), g));
        store(a, used, i, &x);
    }
}

INLINE void sgd_vectors(const struct tally__sgd *c, const struct arrays *a)
{
    if (c->momentum == 0.0f) {
        sgd_loop(c, 0, a);
    } else {
        sgd_loop(c, USES(TALLY__SGD_BUF), a);
    }
}

INLINE void adam_loop(const struct tally__adam *c, unsigned used, const struct arrays *a)
{
    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf g = decayed(c->weight_decay, x.g, x.p);
        vf *m = &x.state[TALLY__ADAM_M];
        vf *v = &x.state[TALLY__ADAM_V];
        vf square;
        vf d;

        *m = approach(*m, c->gain1, g);
        *v = mix(c->beta2, *v, c->gain2, vf_mul(g, g));
        square = *v;
        if ((used & USES(TALLY__ADAM_TOP)) != 0) {
            square = vf_max(x.state[TALLY__ADAM_TOP], *v);
            x.state[TALLY__ADAM_TOP] = square;
        }
        d = vf_add(vf_div(vf_sqrt(square), vf_set1(c->correction)), vf_set1(c->epsilon));
        x.p = descend(vf_mul(x.p, vf_set1(c->keep)), c->rate, *m, d);
        store(a, used, i, &x);
    }
}

INLINE void adam_vectors(const struct tally__adam *c, const struct arrays *a)
{
    const unsigned used = USES(TALLY__ADAM_M) | USES(TALLY__ADAM_V);

    if (c->amsgrad) {
        adam_loop(c, used | USES(TALLY__ADAM_TOP), a);
    } else {
        adam_loop(c, used, a);
    }
}

INLINE void adagrad_vectors(const struct tally__adagrad *c, const struct arrays *a)
{
    const unsigned used = USES(TALLY__ADAGRAD_S);

    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf g = decayed(c->weight_decay, x.g, x.p);
        vf *s = &x.state[TALLY__ADAGRAD_S];

        *s = vf_add(*s, vf_mul(g, g));
        x.p = descend(x.p, c->rate, g, vf_add(vf_sqrt(*s), vf_set1(c->epsilon)));
        store(a, used, i, &x);
    }
}

INLINE void rmsprop_loop(const struct tally__rmsprop *c, unsigned used, const struct arrays *a)
{
    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf g = decayed(c->weight_decay, x.g, x.p);
        vf *v = &x.state[TALLY__RMSPROP_V];
        vf square;
        vf d;

        *v = mix(c->alpha, *v, c->gain, vf_mul(g, g));
        square = *v;
        if ((used & USES(TALLY__RMSPROP_H)) != 0) {
            vf *h = &x.state[TALLY__RMSPROP_H];

            *h = mix(c->alpha, *h, c->gain, g);
            square = vf_max(vf_set1(0.0f), vf_sub(*v, vf_mul(*h, *h)));
        }
        d = vf_add(vf_sqrt(square), vf_set1(c->epsilon));
        if ((used & USES(TALLY__RMSPROP_BUF)) != 0) {
            vf *buf = &x.state[TALLY__RMSPROP_BUF];

            *buf = vf_add(vf_mul(vf_set1(c->momentum), *buf), vf_div(g, d));
            x.p = vf_sub(x.p, vf_mul(vf_set1(c->lr), *buf));
        } else {
            x.p = descend(x.p, c->lr, g, d);
        }
        store(a, used, i, &x);
    }
}

INLINE void rmsprop_vectors(const struct tally__rmsprop *c, const struct arrays *a)
{
    const unsigned v = USES(TALLY__RMSPROP_V);
    const unsigned h = USES(TALLY__RMSPROP_H);
    const unsigned buf = USES(TALLY__RMSPROP_BUF);

    if (c->centered && c->momentum != 0.0f) {
        rmsprop_loop(c, v | h | buf, a);
    } else if (c->centered) {
        rmsprop_loop(c, v | h, a);
    } else if (c->momentum != 0.0f) {
        rmsprop_loop(c, v | buf, a);
    } else {
        rmsprop_loop(c, v, a);
    }
}

INLINE void adadelta_vectors(const struct tally__adadelta *c, const struct arrays *a)
{
    const unsigned used = USES(TALLY__ADADELTA_V) | USES(TALLY__ADADELTA_U);
    const vf epsilon = vf_set1(c->epsilon);

    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf g = decayed(c->weight_decay, x.g, x.p);
        vf *v = &x.state[TALLY__ADADELTA_V];
        vf *u = &x.state[TALLY__ADADELTA_U];
        vf d;

        *v = mix(c->rho, *v, c->gain, vf_mul(g, g));
        d = vf_div(vf_sqrt(vf_add(*u, epsilon)), vf_sqrt(vf_add(*v, epsilon)));
        d = vf_mul(d, g);
        *u = mix(c->rho, *u, c->gain, vf_mul(d, d));
        x.p = vf_sub(x.p, vf_mul(vf_set1(c->lr), d));
        store(a, used, i, &x);
    }
}

INLINE void adamax_vectors(const struct tally__adamax *c, const struct arrays *a)
{
    const unsigned used = USES(TALLY__ADAMAX_M) | USES(TALLY__ADAMAX_U);

    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf g = decayed(c->weight_decay, x.g, x.p);
        vf *m = &x.state[TALLY__ADAMAX_M];
        vf *u = &x.state[TALLY__ADAMAX_U];

        *m = approach(*m, c->gain1, g);
        *u = vf_max(vf_mul(vf_set1(c->beta2), *u), vf_add(vf_abs(g), vf_set1(c->epsilon)));
        x.p = descend(x.p, c->rate, *m, *u);
        store(a, used, i, &x);
    }
}

/* One of four for each element, by the sign of x. */
INLINE vf by_sign(vf x, vf positive, vf negative, vf zero, vf nan)
{
    vm not_below = vf_le(vf_set1(0.0f), x);
    vm not_above = vf_le(x, vf_set1(0.0f));

    return vf_select(not_below, vf_select(not_above, zero, positive),
                     vf_select(not_above, negative, nan));
}

INLINE void rprop_vectors(const struct tally__rprop *c, const struct arrays *a)
{
    const unsigned used = USES(TALLY__RPROP_OLD) | USES(TALLY__RPROP_SIZE);
    const vf zero = vf_set1(0.0f);
    const vf one = vf_set1(1.0f);
    const vf grow = vf_set1(c->grow);
    const vf shrink = vf_set1(c->shrink);

    for (size_t i = 0; i < a->n; i += LANES) {
        struct elements x = load(a, used, i);
        vf s = vf_mul(x.g, x.state[TALLY__RPROP_OLD]);
        vf g = by_sign(s, x.g, zero, x.g, x.g);
        vf size = vf_mul(x.state[TALLY__RPROP_SIZE], by_sign(s, grow, shrink, one, one));

        size = vf_min(vf_set1(c->most), vf_max(vf_set1(c->least), size));
        x.p = vf_sub(x.p, by_sign(g, size, vf_mul(size, vf_set1(-1.0f)), zero, g));
        x.state[TALLY__RPROP_OLD] = g;
        x.state[TALLY__RPROP_SIZE] = size;
        store(a, used, i, &x);
    }
}

/* The index of the first element that does not fill a vector. */
static void skip(float *const *state, size_t n, float **rest)
{
    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        rest[k] = state[k] ? state[k] + n : NULL;
    }
}

/* The constants are copied, so that the compiler sees that no store changes them. */
#define KERNEL(name)                                                           \
    static void name(size_t n, const float *g, float *p, float *const *state,  \
                     const struct tally__##name *c)                            \
    {                                                                          \
        const struct tally__##name own = *c;                                   \
        const struct arrays whole = {n - n % LANES, g, p, state};              \
        float *rest[TALLY__OPTIM_STATES];                                      \
                                                                               \
        name##_vectors(&own, &whole);                                          \
        skip(state, whole.n, rest);                                            \
        tally__optim_ref.name(n - whole.n, g + whole.n, p + whole.n, rest, c); \
    }
TALLY__OPTIM_LIST(KERNEL)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward and backward of a small transformer like GPT-2. A layer: x += attention(norm(x)), then
 * x += mlp(norm(x)). The probabilities come from the token embedding, which is used twice. A row is
 * one token, width numbers; there are batch * context rows. CBLAS computes the matrix products.
 */
#include "examples/gpt/gpt_model.h"

#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors: two embeddings, these for every layer, and two for the last norm. */
enum { TOKENS, PLACES, N_EMBEDDINGS };
enum { NORM1, QKV = 2, OUT = 4, NORM2 = 6, UP = 8, DOWN = 10, N_PER_LAYER = 12 };

/* Kept by norm for its backward: x before gain and bias, its scale, the result. */
struct normed {
    float *x, *scale, *out;
};

/* Kept by the forward of a layer for its backward. */
struct layer {
    struct normed norm1, norm2;
    float *qkv, *attention, *mixed, *up, *bent;
};

struct gpt_work {
    float *memory;
    struct layer *layers;
    struct normed last;
    float *x, *chances;
    float *dx, *d_narrow, *d_wide, *d_attention; /* gradients of activations */
    const int *tokens, *next;
};

static int rows_of(const struct gpt *gpt)
{
    return gpt->shape.batch * gpt->shape.context;
}

static int number_of(int layer, int which)
{
    return N_EMBEDDINGS + layer * N_PER_LAYER + which;
}

/* ---- building blocks: out = f(in); gradients are added to their arrays ---- */

static void add(size_t n, const float *from, float *to)
{
    for (size_t k = 0; k < n; k++) {
        to[k] += from[k];
    }
}

/* out = in w' + bias */
static void linear(const struct gpt_tensor *w, int rows, const float *in, float *out)
{
    int n_out = (int)w->shape[0], n_in = (int)w->shape[1];
    const float *bias = w[1].value;

    for (int r = 0; r < rows; r++) {
        memcpy(out + (size_t)r * w->shape[0], bias, w->shape[0] * sizeof *out);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n_out, n_in, 1, in, n_in, w->value,
                n_in, 1, out, n_out);
}

/* Replaces d_in; adds to the gradients of the weights and of the bias. */
static void linear_back(const struct gpt_tensor *w, int rows, const float *in, const float *d_out,
                        float *d_in)
{
    int n_out = (int)w->shape[0], n_in = (int)w->shape[1];

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, n_in, n_out, 1, d_out, n_out,
                w->value, n_in, 0, d_in, n_in);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n_out, n_in, rows, 1, d_out, n_out, in,
                n_in, 1, w->grad, n_in);
    for (int r = 0; r < rows; r++) {
        add(w->shape[0], d_out + (size_t)r * w->shape[0], w[1].grad);
    }
}

static void norm(const struct gpt_tensor *gain, int rows, const float *in, const struct normed *to)
{
    size_t n = gain->n;

    for (int r = 0; r < rows; r++, in += n) {
        float *x = to->x + (size_t)r * n, *out = to->out + (size_t)r * n;
        float mean = 0, square = 0;

        for (size_t k = 0; k < n; k++) {
            mean += in[k] / (float)n;
        }
        for (size_t k = 0; k < n; k++) {
            square += (in[k] - mean) * (in[k] - mean) / (float)n;
        }
        to->scale[r] = 1 / sqrtf(square + 1e-5f);
        for (size_t k = 0; k < n; k++) {
            x[k] = (in[k] - mean) * to->scale[r];
            out[k] = x[k] * gain[0].value[k] + gain[1].value[k];
        }
    }
}

/* Adds to d_in. */
static void norm_back(const struct gpt_tensor *gain, int rows, const struct normed *from,
                      const float *d_out, float *d_in)
{
    size_t n = gain->n;

    for (int r = 0; r < rows; r++, d_out += n, d_in += n) {
        const float *x = from->x + (size_t)r * n;
        float mean = 0, along = 0;

        for (size_t k = 0; k < n; k++) {
            float d = d_out[k] * gain->value[k];

            gain[0].grad[k] += d_out[k] * x[k];
            gain[1].grad[k] += d_out[k];
            mean += d / (float)n;
            along += d * x[k] / (float)n;
        }
        for (size_t k = 0; k < n; k++) {
            d_in[k] += from->scale[r] * (d_out[k] * gain->value[k] - mean - x[k] * along);
        }
    }
}

/* GELU in its tanh approximation, and the derivative. */
static float bend(float x, float *slope)
{
    float t = tanhf(0.7978846f * (x + 0.044715f * x * x * x));

    *slope = (1 + t) / 2 + x * (1 - t * t) / 2 * 0.7978846f * (1 + 3 * 0.044715f * x * x);
    return x * (1 + t) / 2;
}

/* Softmax of n scores, in place; returns the logarithm of the sum of their exponentials. */
static float soften(float *row, int n)
{
    float most = row[0], sum = FLT_MIN;

    for (int k = 1; k < n; k++) {
        most = row[k] > most ? row[k] : most;
    }
    for (int k = 0; k < n; k++) {
        row[k] = expf(row[k] - most);
        sum += row[k];
    }
    for (int k = 0; k < n; k++) {
        row[k] /= sum;
    }
    return most + logf(sum);
}

/* One head of one sequence: offsets of its queries, its output and its attention weights. */
struct head {
    size_t qkv;       /* of the queries; keys and values are at width and 2 * width */
    size_t mixed;     /* of the output */
    size_t attention; /* of the square matrix of weights */
};

static struct head head_of(const struct gpt_shape *s, int b, int h)
{
    size_t size = (size_t)(s->width / s->heads), t = (size_t)s->context, row = (size_t)b * t;

    return (struct head){row * 3 * (size_t)s->width + (size_t)h * size,
                         row * (size_t)s->width + (size_t)h * size,
                         ((size_t)b * (size_t)s->heads + (size_t)h) * t * t};
}

static void attend(const struct gpt_shape *s, const struct layer *l, struct head at)
{
    int t = s->context, w = s->width, size = w / s->heads;
    const float *q = l->qkv + at.qkv;
    float *square = l->attention + at.attention;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, t, t, size, 1 / sqrtf((float)size), q,
                3 * w, q + w, 3 * w, 0, square, t);
    for (int i = 0; i < t; i++) {
        (void)soften(square + (size_t)i * (size_t)t, i + 1);
        memset(square + (size_t)i * (size_t)t + i + 1, 0, (size_t)(t - i - 1) * sizeof *square);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, size, t, 1, square, t, q + 2 * w,
                3 * w, 0, l->mixed + at.mixed, w);
}

static void attend_back(const struct gpt *gpt, const struct layer *l, struct head at)
{
    const struct gpt_shape *s = &gpt->shape;
    int t = s->context, w = s->width, size = w / s->heads;
    float factor = 1 / sqrtf((float)size);
    const float *q = l->qkv + at.qkv, *square = l->attention + at.attention;
    const float *d_mixed = gpt->work->d_narrow + at.mixed;
    float *dq = gpt->work->d_wide + at.qkv, *d_square = gpt->work->d_attention;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, t, t, size, 1, d_mixed, w, q + 2 * w,
                3 * w, 0, d_square, t);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, t, size, t, 1, square, t, d_mixed, w, 0,
                dq + 2 * w, 3 * w);
    for (int i = 0; i < t; i++) {
        float *d = d_square + (size_t)i * (size_t)t;
        const float *p = square + (size_t)i * (size_t)t;
        float along = 0;

        for (int k = 0; k <= i; k++) {
            along += d[k] * p[k];
        }
        for (int k = 0; k < t; k++) {
            d[k] = p[k] * (d[k] - along) * factor; /* p is 0 for later tokens */
        }
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, size, t, 1, d_square, t, q + w, 3 * w,
                0, dq, 3 * w);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, t, size, t, 1, d_square, t, q, 3 * w, 0,
                dq + w, 3 * w);
}

/* ---- the layers ---- */

static void layer_forward(const struct gpt *gpt, int layer)
{
    const struct gpt_shape *s = &gpt->shape;
    const struct gpt_tensor *t = &gpt->tensors[number_of(layer, 0)];
    const struct layer *l = &gpt->work->layers[layer];
    int rows = rows_of(gpt);
    size_t n = (size_t)rows * (size_t)s->width;
    float *out = gpt->work->d_narrow; /* not used otherwise in forward */
    float slope;

    norm(&t[NORM1], rows, gpt->work->x, &l->norm1);
    linear(&t[QKV], rows, l->norm1.out, l->qkv);
    for (int b = 0; b < s->batch; b++) {
        for (int h = 0; h < s->heads; h++) {
            attend(s, l, head_of(s, b, h));
        }
    }
    linear(&t[OUT], rows, l->mixed, out);
    add(n, out, gpt->work->x);
    norm(&t[NORM2], rows, gpt->work->x, &l->norm2);
    linear(&t[UP], rows, l->norm2.out, l->up);
    for (size_t k = 0; k < 4 * n; k++) {
        l->bent[k] = bend(l->up[k], &slope);
    }
    linear(&t[DOWN], rows, l->bent, out);
    add(n, out, gpt->work->x);
}

static void layer_backward(const struct gpt *gpt, int layer)
{
    const struct gpt_shape *s = &gpt->shape;
    const struct gpt_tensor *t = &gpt->tensors[number_of(layer, 0)];
    const struct layer *l = &gpt->work->layers[layer];
    const struct gpt_work *w = gpt->work;
    int rows = rows_of(gpt);
    float slope;

    linear_back(&t[DOWN], rows, l->bent, w->dx, w->d_wide);
    for (size_t k = 0; k < 4 * (size_t)rows * (size_t)s->width; k++) {
        (void)bend(l->up[k], &slope);
        w->d_wide[k] *= slope;
    }
    linear_back(&t[UP], rows, l->norm2.out, w->d_wide, w->d_narrow);
    norm_back(&t[NORM2], rows, &l->norm2, w->d_narrow, w->dx);
    linear_back(&t[OUT], rows, l->mixed, w->dx, w->d_narrow);
    for (int b = 0; b < s->batch; b++) {
        for (int h = 0; h < s->heads; h++) {
            attend_back(gpt, l, head_of(s, b, h));
        }
    }
    linear_back(&t[QKV], rows, l->norm1.out, w->d_wide, w->d_narrow);
    norm_back(&t[NORM1], rows, &l->norm1, w->d_narrow, w->dx);
}

double gpt_forward(struct gpt *gpt, const int *tokens, const int *next)
{
    int rows = rows_of(gpt), vocab = gpt->shape.vocab, width = gpt->shape.width;
    struct gpt_work *w = gpt->work;
    const struct gpt_tensor *last = &gpt->tensors[number_of(gpt->shape.layers, 0)];
    double loss = 0;

    w->tokens = tokens;
    w->next = next;
    for (int r = 0; r < rows; r++) {
        float *x = w->x + (size_t)r * (size_t)width;

        memcpy(x, gpt->tensors[TOKENS].value + tokens[r] * (ptrdiff_t)width,
               (size_t)width * sizeof *x);
        add((size_t)width, gpt->tensors[PLACES].value + r % gpt->shape.context * (ptrdiff_t)width,
            x);
    }
    for (int l = 0; l < gpt->shape.layers; l++) {
        layer_forward(gpt, l);
    }
    norm(last, rows, w->x, &w->last);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, vocab, width, 1, w->last.out, width,
                gpt->tensors[TOKENS].value, width, 0, w->chances, vocab);
    for (int r = 0; r < rows; r++) {
        float *row = w->chances + (size_t)r * (size_t)vocab;
        float score = row[next[r]];

        loss += (double)(soften(row, vocab) - score) / rows;
    }
    return loss;
}

/* Backward through softmax, the second use of the token embedding, and the last norm. */
static void end_backward(const struct gpt *gpt)
{
    int rows = rows_of(gpt), vocab = gpt->shape.vocab, width = gpt->shape.width;
    const struct gpt_work *w = gpt->work;
    float *d = w->chances; /* minus 1 for the token that followed: the gradient of the scores */

    for (int r = 0; r < rows; r++) {
        d[(size_t)r * (size_t)vocab + (size_t)w->next[r]] -= 1;
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, vocab, width, rows, 1 / (float)rows, d,
                vocab, w->last.out, width, 1, gpt->tensors[TOKENS].grad, width);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, width, vocab, 1 / (float)rows, d,
                vocab, gpt->tensors[TOKENS].value, width, 0, w->d_narrow, width);
    memset(w->dx, 0, (size_t)rows * (size_t)width * sizeof *w->dx);
    norm_back(&gpt->tensors[number_of(gpt->shape.layers, 0)], rows, &w->last, w->d_narrow, w->dx);
}

/* Announces n complete gradients, from tensor first on. */
static int tell(int (*ready)(void *user, int tensor), void *user, int first, int n)
{
    int rc = 0;

    for (int i = first + n - 1; i >= first && rc == 0; i--) {
        rc = ready(user, i);
    }
    return rc;
}

int gpt_backward(struct gpt *gpt, int (*ready)(void *user, int tensor), void *user)
{
    size_t width = (size_t)gpt->shape.width;
    int rc;

    end_backward(gpt);
    rc = tell(ready, user, number_of(gpt->shape.layers, 0), 2);
    for (int l = gpt->shape.layers - 1; l >= 0 && rc == 0; l--) {
        layer_backward(gpt, l);
        rc = tell(ready, user, number_of(l, 0), N_PER_LAYER);
    }
    for (int r = 0; r < rows_of(gpt) && rc == 0; r++) {
        const float *dx = gpt->work->dx + (size_t)r * width;

        add(width, dx, gpt->tensors[TOKENS].grad + (size_t)gpt->work->tokens[r] * width);
        add(width, dx, gpt->tensors[PLACES].grad + (size_t)(r % gpt->shape.context) * width);
    }
    /* The token embedding is used twice: its gradient is complete only now. */
    return rc == 0 ? tell(ready, user, TOKENS, N_EMBEDDINGS) : rc;
}

/* ---- memory ---- */

static void set_tensor(struct gpt *gpt, int i, const char *name, size_t n_out, size_t n_in)
{
    struct gpt_tensor *t = &gpt->tensors[i];

    (void)snprintf(t->name, sizeof t->name, "%s", name);
    t->n_dims = n_in ? 2 : 1;
    t->shape[0] = n_out;
    t->shape[1] = n_in;
    t->n = n_out * (n_in ? n_in : 1);
    gpt->n_values += t->n;
}

static void set_tensors(struct gpt *gpt)
{
    static const char *const names[N_PER_LAYER / 2] = {"norm1", "qkv", "out",
                                                       "norm2", "up",  "down"};
    static const size_t n_out[N_PER_LAYER / 2] = {1, 3, 1, 1, 4, 1}; /* as multiples of width */
    static const size_t n_in[N_PER_LAYER / 2] = {0, 1, 1, 0, 1, 4};
    size_t width = (size_t)gpt->shape.width;
    int last = number_of(gpt->shape.layers, 0);
    char name[24];

    set_tensor(gpt, TOKENS, "tokens", (size_t)gpt->shape.vocab, width);
    set_tensor(gpt, PLACES, "places", (size_t)gpt->shape.context, width);
    for (int i = N_EMBEDDINGS; i < last; i++) {
        int k = (i - N_EMBEDDINGS) % N_PER_LAYER;

        (void)snprintf(name, sizeof name, "%d.%s%s", (i - N_EMBEDDINGS) / N_PER_LAYER, names[k / 2],
                       k % 2 ? ".bias" : "");
        set_tensor(gpt, i, name, n_out[k / 2] * width, k % 2 ? 0 : n_in[k / 2] * width);
    }
    set_tensor(gpt, last, "norm", width, 0);
    set_tensor(gpt, last + 1, "norm.bias", width, 0);
}

/* Approximately normal: the sum of twelve uniform numbers. */
static float draw(unsigned *seed)
{
    float sum = -6;

    for (int k = 0; k < 12; k++) {
        *seed = *seed * 1664525u + 1013904223u;
        sum += (float)(*seed >> 8) / (float)(1 << 24);
    }
    return sum;
}

/* Sets small weights, gains of 1 and biases of 0. Weights that add to the residual stream are
 * smaller if there are more layers. */
static void set_values(struct gpt *gpt, unsigned seed)
{
    float *value = gpt->values;

    for (int i = 0; i < gpt->n_tensors; i++) {
        struct gpt_tensor *t = &gpt->tensors[i];
        int adds = strstr(t->name, "out") || strstr(t->name, "down");
        float size = adds ? 0.02f / sqrtf(2 * (float)gpt->shape.layers) : 0.02f;
        float start = strstr(t->name, "bias") ? 0 : 1;

        t->value = value;
        value += t->n;
        for (size_t k = 0; k < t->n; k++) {
            t->value[k] = t->n_dims == 2 ? size * draw(&seed) : start;
        }
    }
}

/* Without memory: only counts the floats that are needed. */
static size_t lay_out(const struct gpt *gpt)
{
    const struct gpt_shape *s = &gpt->shape;
    struct gpt_work *w = gpt->work;
    size_t rows = (size_t)rows_of(gpt), n = rows * (size_t)s->width, used = 0;
    size_t square = (size_t)s->context * (size_t)s->context;

#define TAKE(count) (used += (count), w->memory ? w->memory + used - (count) : NULL)
#define TAKE_NORMED(to) ((to).x = TAKE(n), (to).scale = TAKE(rows), (to).out = TAKE(n))
    w->x = TAKE(n);
    w->chances = TAKE(rows * (size_t)s->vocab);
    w->dx = TAKE(n);
    w->d_narrow = TAKE(n);
    w->d_wide = TAKE(4 * n);
    w->d_attention = TAKE(square);
    TAKE_NORMED(w->last);
    for (int l = 0; l < s->layers; l++) {
        TAKE_NORMED(w->layers[l].norm1);
        TAKE_NORMED(w->layers[l].norm2);
        w->layers[l].qkv = TAKE(3 * n);
        w->layers[l].attention = TAKE(square * (size_t)(s->batch * s->heads));
        w->layers[l].mixed = TAKE(n);
        w->layers[l].up = TAKE(4 * n);
        w->layers[l].bent = TAKE(4 * n);
    }
    return used;
}

static int allocate(struct gpt *gpt)
{
    gpt->tensors = calloc((size_t)gpt->n_tensors, sizeof *gpt->tensors);
    gpt->work = calloc(1, sizeof *gpt->work);
    if (!gpt->tensors || !gpt->work) {
        return -1;
    }
    set_tensors(gpt);
    gpt->values = malloc(gpt->n_values * sizeof *gpt->values);
    gpt->work->layers = calloc((size_t)gpt->shape.layers, sizeof *gpt->work->layers);
    if (!gpt->values || !gpt->work->layers) {
        return -1;
    }
    gpt->work->memory = malloc(lay_out(gpt) * sizeof(float));
    return gpt->work->memory ? 0 : -1;
}

int gpt_make(struct gpt *gpt, const struct gpt_shape *shape, unsigned seed)
{
    *gpt = (struct gpt){.shape = *shape, .n_tensors = number_of(shape->layers, 0) + 2};
    if (allocate(gpt) != 0) {
        gpt_free(gpt);
        return -1;
    }
    (void)lay_out(gpt);
    gpt->chances = gpt->work->chances;
    set_values(gpt, seed);
    return 0;
}

void gpt_free(struct gpt *gpt)
{
    if (gpt->work) {
        free(gpt->work->memory);
        free(gpt->work->layers);
    }
    free(gpt->work);
    free(gpt->values);
    free(gpt->tensors);
    *gpt = (struct gpt){0};
}

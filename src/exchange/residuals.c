/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals and their ownership; see residuals.h. residuals_move.c moves them between ranks. */
#include "exchange/residuals.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "num/num.h"

static const char what[] = "a residual";

int tally__residuals_make(size_t n_params, struct tally__residuals **residuals)
{
    struct tally__residuals *made = tally__alloc(sizeof *made, "residuals");

    if (!made) {
        return TALLY_NOMEM;
    }
    made->n_params = n_params;
    made->params = tally__alloc_array(n_params, sizeof *made->params, "residuals");
    if (!made->params) {
        tally__free(made);
        return TALLY_NOMEM;
    }
    *residuals = made;
    return TALLY_OK;
}

static void free_owned(struct tally__owned *owned)
{
    tally__free(owned->values);
    tally__free(owned->pending);
    tally__free(owned);
}

static void clear_owned(struct tally__residual *residual)
{
    while (residual->owned) {
        struct tally__owned *next = residual->owned->next;

        free_owned(residual->owned);
        residual->owned = next;
    }
}

static void drop_sent(struct tally__residual *residual)
{
    if (!residual->is_lent) {
        tally__free(residual->sent);
    }
    residual->sent = NULL;
    residual->is_lent = false;
}

void tally__residual_clear(struct tally__residual *residual)
{
    drop_sent(residual);
    clear_owned(residual);
    *residual = (struct tally__residual){.block = residual->block};
}

void tally__residuals_free(struct tally__residuals *residuals)
{
    for (size_t i = 0; residuals && i < residuals->n_params; i++) {
        tally__residual_clear(&residuals->params[i]);
        tally__free(residuals->params[i].block);
    }
    if (residuals) {
        tally__free(residuals->params);
    }
    tally__free(residuals);
}

/* ---- residuals of contributions ---- */

int tally__residual_allocate(struct tally__residual *residual, size_t n)
{
    if (!residual->sent) {
        residual->sent = tally__alloc_array(n, sizeof *residual->sent, what);
        residual->n = n;
    }
    assert(!residual->sent || residual->n == n);
    return residual->sent ? TALLY_OK : TALLY_NOMEM;
}

int tally__residuals_lend(struct tally__residuals *residuals, const tally_bucket *bucket)
{
    struct tally__residual *first = &residuals->params[bucket->params[0].index];

    if (first->block) {
        return TALLY_OK;
    }
    first->block = tally__alloc_array(bucket->n, sizeof *first->block, what);
    if (!first->block) {
        return TALLY_NOMEM;
    }
    for (int k = 0; k < bucket->n_params; k++) {
        const tally_bucket_param *param = &bucket->params[k];
        struct tally__residual *residual = &residuals->params[param->index];

        if (!residual->sent && param->n > 0) {
            residual->sent = first->block + (param->offset - bucket->params[0].offset);
            residual->n = param->n;
            residual->is_lent = true;
        }
    }
    return TALLY_OK;
}

void tally__residual_hold(struct tally__residual *residual, float *held,
                          const struct tally__holder *holder)
{
    assert(!residual->held && held && holder->write_down);
    residual->held = held;
    residual->holder = holder;
}

void tally__residual_became_plain(struct tally__residual *residual)
{
    assert(residual->held);
    residual->held = NULL;
    residual->holder = NULL;
}

int tally__residual_make_plain(struct tally__residuals *residuals, size_t i)
{
    const struct tally__residual *residual = &residuals->params[i];

    assert(i < residuals->n_params);
    return residual->held ? residual->holder->write_down(residual->holder->state, residuals, i)
                          : TALLY_OK;
}

int tally__residuals_make_plain(struct tally__residuals *residuals)
{
    for (size_t i = 0; i < residuals->n_params; i++) {
        TRY(tally__residual_make_plain(residuals, i));
    }
    return TALLY_OK;
}

void tally__residual_deliver(struct tally__residual *residual, float *gradient)
{
    assert(!residual->held);
    if (residual->sent) {
        tally__axpy_f32(residual->n, residual->sent, 1, gradient);
        drop_sent(residual);
    }
}

int tally__residuals_deliver(struct tally__residuals *residuals, const tally_bucket *bucket)
{
    for (int k = 0; k < bucket->n_params && !bucket->shadows; k++) {
        const tally_bucket_param *param = &bucket->params[k];

        TRY(tally__residual_make_plain(residuals, (size_t)param->index));
        tally__residual_deliver(&residuals->params[param->index], param->gradient);
    }
    return TALLY_OK;
}

void tally__residual_add(struct tally__residual *residual, size_t n, const float *values)
{
    float *here = residual->held ? residual->held : residual->sent;

    if (here) {
        tally__axpy_f32(n, values, 1, here);
    }
}

/* ---- residuals of means ---- */

/* The link to the owned residual of n_ranks ranks, or to where it would be inserted. */
static struct tally__owned **find_link(struct tally__owned **link, int n_ranks)
{
    while (*link && (*link)->n_ranks < n_ranks) {
        link = &(*link)->next;
    }
    return link;
}

struct tally__owned *tally__residual_owned(const struct tally__residual *residual, int n_ranks)
{
    struct tally__owned *owned = residual->owned;

    owned = *find_link(&owned, n_ranks);
    return owned && owned->n_ranks == n_ranks ? owned : NULL;
}

int tally__residual_add_owned(struct tally__residual *residual, int n_ranks,
                              struct tally__owned **owned)
{
    struct tally__owned **link = find_link(&residual->owned, n_ranks);

    if (!*link || (*link)->n_ranks != n_ranks) {
        struct tally__owned *made = tally__alloc(sizeof *made, what);

        if (!made) {
            return TALLY_NOMEM;
        }
        *made = (struct tally__owned){.next = *link, .n_ranks = n_ranks};
        *link = made;
    }
    *owned = *link;
    return TALLY_OK;
}

void tally__residual_disown(struct tally__residual *residual, int n_ranks)
{
    struct tally__owned **link = find_link(&residual->owned, n_ranks);

    if (*link && (*link)->n_ranks == n_ranks) {
        struct tally__owned *gone = *link;

        *link = gone->next;
        free_owned(gone);
    }
}

int tally__residual_own(struct tally__residual *residual, size_t first, size_t n, int n_ranks,
                        struct tally__owned **owned)
{
    bool is_new = !tally__residual_owned(residual, n_ranks);
    struct tally__owned *found;
    float *values = NULL;

    TRY(tally__residual_add_owned(residual, n_ranks, &found));
    *owned = found;
    if (!is_new && !found->is_whole && found->first == first && found->n == n) {
        return TALLY_OK;
    }
    /* A step that failed for lack of memory leaves a run of no elements. */
    if (!is_new && !found->is_whole && found->n > 0) {
        return tally__fail(TALLY_INTERNAL, "a residual was not moved to the new layout");
    }
    if (n > 0) {
        values = tally__alloc_array(n, sizeof *values, what);
        if (!values) {
            return TALLY_NOMEM;
        }
        if (found->is_whole) {
            assert(first + n <= residual->n);
            memcpy(values, found->values + first, n * sizeof *values);
        }
    }
    tally__free(found->values);
    found->values = values;
    found->is_whole = false;
    found->first = n > 0 ? first : 0;
    found->n = n;
    return TALLY_OK;
}

/* ---- copies ---- */

static size_t length_of(const struct tally__residual *residual, const struct tally__owned *owned)
{
    return owned->is_whole ? residual->n : owned->n;
}

/* Whether both own runs of the same length, so that one can overwrite the other. */
static bool are_alike(const struct tally__residual *a, const struct tally__residual *b)
{
    const struct tally__owned *x = a->owned;
    const struct tally__owned *y = b->owned;

    while (x && y && x->n_ranks == y->n_ranks && length_of(a, x) == length_of(b, y)) {
        x = x->next;
        y = y->next;
    }
    return a->n == b->n && !a->sent == !b->sent && !x && !y;
}

static int copy_owned(const struct tally__residual *from, const struct tally__owned *owned,
                      struct tally__residual *to)
{
    size_t n = length_of(from, owned);
    struct tally__owned *made;

    TRY(tally__residual_add_owned(to, owned->n_ranks, &made));
    if (n > 0 && !made->values) {
        made->values = tally__alloc_array(n, sizeof *made->values, what);
        if (!made->values) {
            return TALLY_NOMEM;
        }
    }
    made->first = owned->first;
    made->n = owned->n;
    made->is_whole = owned->is_whole;
    tally__copy(n * sizeof *owned->values, (const void *)owned->values, (void *)made->values);
    return TALLY_OK;
}

int tally__residual_copy(const struct tally__residual *from, struct tally__residual *to)
{
    to->held = NULL;
    to->holder = NULL;
    if (!are_alike(from, to)) {
        tally__residual_clear(to);
    }
    to->n = from->n;
    if (from->sent) {
        TRY(tally__residual_allocate(to, from->n));
        tally__copy(from->n * sizeof *from->sent, (const void *)from->sent, (void *)to->sent);
    }
    for (const struct tally__owned *owned = from->owned; owned; owned = owned->next) {
        TRY(copy_owned(from, owned, to));
    }
    return TALLY_OK;
}

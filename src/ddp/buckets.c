/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets: from the plan to memory. All buckets of a ddp lie in one piece of group memory, each
 * starting on a cache line; inside a bucket, gradients follow one another. The thread that creates
 * the ddp enters, and the one that ends a step after which the layout changes.
 */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "ddp/grad_cast.h"
#include "ddp/plan.h"
#include "num/num.h"

/* Splits the order: first the parameters that travel with the step, then the delayed ones. Keeps
 * the order inside both parts. Returns the length of the first. */
static size_t put_delayed_last(const tally_ddp *ddp, const int *from, int *order)
{
    size_t n_normal = 0;
    size_t k = 0;

    for (int delayed = 0; delayed < 2; delayed++) {
        for (size_t i = 0; i < ddp->n_order; i++) {
            bool is_delayed = (ddp->params[from[i]].flags & TALLY_PARAM_DELAYED) != 0;

            if (is_delayed == (delayed == 1)) {
                order[k++] = from[i];
            }
        }
        n_normal = delayed == 0 ? k : n_normal;
    }
    return n_normal;
}

/* Plans both parts of the order. bucket[k] is the bucket of entry k; delayed buckets are numbered
 * after the others. */
static int plan_buckets(const tally_ddp *ddp, const struct tally__packing *packing,
                        const int *order, size_t n_normal, size_t *bucket,
                        struct tally__buckets *buckets)
{
    static const size_t no_cap = SIZE_MAX;
    bool has_cap = packing->cap_bytes > 0;
    struct tally__plan_item *items =
        tally__alloc_array(ddp->n_params, sizeof *items, "the bucket plan");
    struct tally__plan normal = {.bucket = bucket};
    struct tally__plan delayed = {.bucket = bucket + n_normal};

    if (!items) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        items[i] = (struct tally__plan_item){.bytes = param->n *
                                                      tally_dtype_bytes(param->grad.reduce_dtype),
                                             .dtype = param->grad.reduce_dtype};
        /* Delayed parameters stay together. */
        if (packing->classes && !(param->flags & TALLY_PARAM_DELAYED)) {
            items[i].own_class = packing->classes[i];
        }
    }
    tally__plan_make(items, order, n_normal, has_cap ? &packing->cap_bytes : ddp->caps,
                     has_cap ? 1 : ddp->n_caps, &normal);
    tally__plan_make(items, order + n_normal, ddp->n_order - n_normal, &no_cap, 1, &delayed);
    for (size_t k = n_normal; k < ddp->n_order; k++) {
        bucket[k] += normal.n_buckets;
    }
    buckets->n = normal.n_buckets;
    buckets->n_delayed = delayed.n_buckets;
    tally__free(items);
    return TALLY_OK;
}

/* The hook's view of bucket b, still without parameters. */
static tally_bucket empty_bucket(const tally_ddp *ddp, const struct tally__buckets *buckets,
                                 size_t b)
{
    /* Delayed buckets have separate indices. */
    size_t first = b < buckets->n ? 0 : buckets->n;
    size_t count = b < buckets->n ? buckets->n : buckets->n_delayed;

    return (tally_bucket){.size = sizeof(tally_bucket),
                          .index = (int)(b - first),
                          .count = (int)count,
                          .is_last = b + 1 == first + count,
                          .n_ranks = tally_group_size(ddp->group)};
}

/* Appends a parameter to its bucket, at next. */
static void put_param(const tally_ddp *ddp, tally_bucket *seen, int index, tally_bucket_param *next)
{
    const struct tally__param *param = &ddp->params[index];

    *next = (tally_bucket_param){.index = index,
                                 .name = param->name,
                                 .n_dims = param->n_dims,
                                 .shape = param->shape,
                                 .offset = seen->n,
                                 .n = param->n,
                                 .data = param->data};
    seen->dtype = param->grad.reduce_dtype;
    seen->n += param->n;
    seen->n_params++;
}

/* Fills the buckets with their parameters. Two passes over the order, since parameters of several
 * buckets may alternate in it. */
static void fill_buckets(tally_ddp *ddp, struct tally__buckets *buckets, const int *order,
                         const size_t *bucket_of)
{
    tally_bucket_param *next = buckets->params;

    for (size_t k = 0; k < ddp->n_order; k++) {
        buckets->bucket[bucket_of[k]].n_missing++;
    }
    for (size_t b = 0; b < buckets->n + buckets->n_delayed; b++) {
        buckets->bucket[b].seen = empty_bucket(ddp, buckets, b);
        buckets->bucket[b].seen.params = next;
        buckets->bucket[b].ddp = ddp;
        next += buckets->bucket[b].n_missing;
    }
    assert(next == buckets->params + ddp->n_order);
    for (size_t k = 0; k < ddp->n_order; k++) {
        tally_bucket *seen = &buckets->bucket[bucket_of[k]].seen;

        put_param(ddp, seen, order[k],
                  buckets->params + (seen->params - buckets->params) + seen->n_params);
    }
}

/* Allocates copies of absent views where absence is expected, so that steps allocate nothing. */
static int make_saved(const tally_ddp *ddp, struct tally__buckets *buckets)
{
    for (size_t b = 0; b < buckets->n; b++) {
        const tally_bucket *seen = &buckets->bucket[b].seen;

        if (ddp->views && (ddp->config.find_unused || ddp->config.static_graph)) {
            buckets->bucket[b].saved =
                tally__alloc_array(seen->n, tally_dtype_bytes(seen->dtype), "unused gradients");
            if (!buckets->bucket[b].saved) {
                return TALLY_NOMEM;
            }
        }
    }
    return TALLY_OK;
}

/* Orders the plan by parameters, so that the parameters of a bucket keep the order in which their
 * gradients lie. */
static int keep_order(const tally_ddp *ddp, int *order, size_t *bucket_of)
{
    size_t *of_param = tally__alloc_array(ddp->n_params, sizeof *of_param, "the bucket plan");
    size_t n = 0;

    if (!of_param) {
        return TALLY_NOMEM;
    }
    for (size_t k = 0; k < ddp->n_order; k++) {
        of_param[order[k]] = bucket_of[k] + 1;
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        if (of_param[i] > 0) {
            order[n] = (int)i;
            bucket_of[n++] = of_param[i] - 1;
        }
    }
    assert(n == ddp->n_order);
    tally__free(of_param);
    return TALLY_OK;
}

static int build(tally_ddp *ddp, const int *from, const struct tally__packing *packing,
                 struct tally__buckets *buckets, int *order, size_t *bucket_of)
{
    size_t n_normal = put_delayed_last(ddp, from, order);
    size_t n;

    TRY(plan_buckets(ddp, packing, order, n_normal, bucket_of, buckets));
    if (ddp->is_flat) {
        TRY(keep_order(ddp, order, bucket_of));
    }
    n = buckets->n + buckets->n_delayed;
    buckets->bucket = tally__alloc_array(n, sizeof *buckets->bucket, "buckets");
    buckets->params = tally__alloc_array(ddp->n_order, sizeof *buckets->params, "buckets");
    if (!buckets->bucket || !buckets->params) {
        return TALLY_NOMEM;
    }
    fill_buckets(ddp, buckets, order, bucket_of);
    return make_saved(ddp, buckets);
}

static size_t bucket_bytes(const tally_bucket *seen)
{
    return tally__to_cache_line(seen->n * tally_dtype_bytes(seen->dtype));
}

int tally__buckets_make(tally_ddp *ddp, const int *order, const struct tally__packing *packing,
                        struct tally__buckets *buckets)
{
    int *planned = tally__alloc_array(ddp->n_order, sizeof *planned, "the bucket plan");
    size_t *bucket_of = tally__alloc_array(ddp->n_order, sizeof *bucket_of, "the bucket plan");
    size_t bytes = 0;
    int rc = TALLY_NOMEM;

    *buckets = (struct tally__buckets){0};
    if (planned && bucket_of) {
        rc = build(ddp, order, packing, buckets, planned, bucket_of);
    }
    tally__free(planned);
    tally__free(bucket_of);
    rc = tally__ddp_agree(ddp, rc, NULL, NULL);
    for (size_t b = 0; rc == TALLY_OK && b < buckets->n + buckets->n_delayed; b++) {
        bytes += bucket_bytes(&buckets->bucket[b].seen);
    }
    if (rc == TALLY_OK) {
        rc = tally_group_alloc(ddp->group, bytes, &buckets->memory);
    }
    if (rc != TALLY_OK) {
        tally__buckets_free(ddp, buckets);
    }
    return rc;
}

static void *array_of_mean(const struct tally__param *param, void *in_bucket)
{
    if (!tally__mean_is_apart(param)) {
        return param->grad.array;
    }
    return param->mean.owned ? param->mean.owned : in_bucket;
}

/* Whether the gradients of a bucket follow one another in the application's array too. */
static bool is_run(const tally_ddp *ddp, const tally_bucket *seen)
{
    const unsigned char *next = NULL;

    for (int k = 0; k < seen->n_params; k++) {
        const struct tally__param *param = &ddp->params[seen->params[k].index];

        if (param->n > 0 && next && param->grad.array != next) {
            return false;
        }
        next = param->n > 0 ? (unsigned char *)param->grad.array + param->grad.bytes : next;
    }
    return next != NULL;
}

void tally__buckets_adopt(tally_ddp *ddp, const struct tally__buckets *buckets)
{
    unsigned char *memory = buckets->memory;
    tally_bucket_param *seen_param = buckets->params;

    ddp->buckets = *buckets;
    ddp->generation++;
    for (size_t b = 0; b < buckets->n + buckets->n_delayed; b++) {
        tally_bucket *seen = &buckets->bucket[b].seen;

        seen->data = memory;
        seen->generation = ddp->generation;
        buckets->bucket[b].n_missing = (size_t)seen->n_params;
        buckets->bucket[b].is_run = ddp->is_flat && is_run(ddp, seen);
        for (int k = 0; k < seen->n_params; k++, seen_param++) {
            struct tally__param *param = &ddp->params[seen_param->index];

            assert(seen_param->offset + seen_param->n <= seen->n);
            param->bucket = (int)b;
            param->offset = seen_param->offset * tally_dtype_bytes(seen->dtype);
            seen_param->gradient = memory + param->offset;
            if (ddp->views) {
                param->grad.array = seen_param->gradient;
            }
            param->mean.array = array_of_mean(param, seen_param->gradient);
        }
        memory += bucket_bytes(seen);
    }
}

void tally__buckets_move_means(tally_ddp *ddp, const struct tally__buckets *old)
{
    for (size_t k = 0; k < ddp->n_order; k++) {
        const tally_bucket_param *was = &old->params[k];
        struct tally__param *param = &ddp->params[was->index];

        if (tally__mean_is_apart(param) && !param->mean.owned) {
            tally__copy(param->bytes, was->gradient, param->mean.array);
            param->mean.last = param->mean.last ? param->mean.array : NULL;
        }
    }
}

unsigned char *tally__slice(const tally_ddp *ddp, const struct tally__param *param)
{
    return (unsigned char *)ddp->buckets.bucket[param->bucket].seen.data + param->offset;
}

void tally__buckets_free(tally_ddp *ddp, struct tally__buckets *buckets)
{
    for (size_t b = 0; buckets->bucket && b < buckets->n + buckets->n_delayed; b++) {
        tally__free(buckets->bucket[b].saved);
    }
    if (buckets->memory) {
        (void)tally_group_free(ddp->group, buckets->memory);
    }
    tally__free(buckets->bucket);
    tally__free(buckets->params);
    *buckets = (struct tally__buckets){0};
}

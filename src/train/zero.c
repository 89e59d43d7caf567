/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZeRO-1; see zero.h. A rank gets the mean of its shard of a bucket (the first phase of an
 * exchange), updates that shard of the parameters, and sends it to all ranks (instead of the second
 * phase). Updated parameters travel directly if tally provides their memory; otherwise in the
 * bucket, whose gradients are no longer needed. Lanes enter, several at once for different buckets;
 * the application's thread makes and frees the shards.
 */
#include "train/zero.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "num/num.h"
#include "train/mixed.h"
#include "train/optimizer.h"
#include "train/training.h"
#include "train/zero_shards.h"

static tally_optimizer *optimizer_of(const struct tally__bucket *bucket)
{
    return tally__training_of(bucket->ddp)->optimizer;
}

static struct tally__bucket_shards *shards_of(const struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;

    return &optimizer_of(bucket)->zero->buckets[bucket - ddp->buckets.bucket];
}

static struct tally__zero_run run_of(const struct tally__bucket_shards *shards,
                                     const tally_bucket_param *entry, int rank)
{
    size_t begin = shards->starts[rank];
    size_t end = shards->starts[rank + 1];
    struct tally__zero_run run = {0};

    begin = begin > entry->offset ? begin : entry->offset;
    end = end < entry->offset + entry->n ? end : entry->offset + entry->n;
    if (begin < end) {
        run = (struct tally__zero_run){begin - entry->offset, end - begin};
    }
    return run;
}

struct tally__zero_run tally__zero_run(const struct tally__bucket *bucket,
                                       const tally_bucket_param *entry, int rank)
{
    return run_of(shards_of(bucket), entry, rank);
}

/* ---- making it ---- */

static void shard_bucket(const tally_optimizer *optimizer, const tally_bucket *seen, size_t *owned,
                         struct tally__bucket_shards *shards)
{
    int world = tally_group_size(optimizer->ddp->group);
    bool elementwise = true;

    for (int k = 0; k < seen->n_params; k++) {
        int group = optimizer->updated[seen->params[k].index].group;

        shards->is_sharded = shards->is_sharded || group >= 0;
        shards->keeps_means = shards->keeps_means || (group < 0 && seen->params[k].n > 0);
        elementwise = elementwise && (group < 0 || optimizer->rules[group]->table.elementwise);
    }
    if (!shards->is_sharded) {
        return;
    }
    if (!elementwise) {
        tally__zero_shard_params(seen, world, owned, shards->starts);
        return;
    }
    tally__zero_shard_elements(seen->n, world, shards->starts);
    for (int r = 0; r < world; r++) {
        owned[r] += shards->starts[r + 1] - shards->starts[r];
    }
}

static int cover_bucket(tally_optimizer *optimizer, const tally_bucket *seen,
                        const struct tally__bucket_shards *shards)
{
    int rank = tally_group_rank(optimizer->ddp->group);

    for (int k = 0; k < seen->n_params; k++) {
        struct tally__updated *updated = &optimizer->updated[seen->params[k].index];

        if (updated->group >= 0) {
            struct tally__zero_run own = run_of(shards, &seen->params[k], rank);

            TRY(tally__moments_cover(&updated->moments,
                                     optimizer->rules[updated->group]->table.n_states, own.first,
                                     own.n));
        }
    }
    return TALLY_OK;
}

static int allocate(const tally_ddp *ddp, struct tally__zero *zero)
{
    static const char what[] = "the shards of an optimizer";
    size_t n = ddp->buckets.n + ddp->buckets.n_delayed;
    size_t per_bucket = 2 * (size_t)tally_group_size(ddp->group) + 1;

    zero->buckets = tally__alloc_array(n, sizeof *zero->buckets, what);
    zero->numbers = tally__alloc_array(n, per_bucket * sizeof *zero->numbers, what);
    zero->flags = tally__alloc_array(ddp->n_order, sizeof *zero->flags, what);
    zero->squares = tally__alloc_array(ddp->n_params, sizeof *zero->squares, what);
    return zero->buckets && zero->numbers && zero->flags && zero->squares ? TALLY_OK : TALLY_NOMEM;
}

int tally__zero_make(tally_optimizer *optimizer)
{
    const tally_ddp *ddp = optimizer->ddp;
    size_t world = (size_t)tally_group_size(ddp->group);
    size_t *owned = tally__alloc_array(world, sizeof *owned, "the shards of an optimizer");
    struct tally__zero *zero = tally__alloc(sizeof *zero, "the shards of an optimizer");
    int rc = owned && zero ? TALLY_OK : TALLY_NOMEM;

    optimizer->zero = zero;
    if (rc == TALLY_OK) {
        rc = allocate(ddp, zero);
    }
    for (size_t b = 0; rc == TALLY_OK && b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        const tally_bucket *seen = &ddp->buckets.bucket[b].seen;
        struct tally__bucket_shards *shards = &zero->buckets[b];

        shards->starts = zero->numbers + b * (2 * world + 1);
        shards->bytes = shards->starts + world + 1;
        shards->used = zero->flags + (seen->params - ddp->buckets.params);
        shard_bucket(optimizer, seen, owned, shards);
        rc = shards->is_sharded ? cover_bucket(optimizer, seen, shards) : TALLY_OK;
    }
    tally__free(owned);
    return rc;
}

void tally__zero_free(tally_optimizer *optimizer)
{
    struct tally__zero *zero = optimizer->zero;

    if (zero) {
        tally__free(zero->buckets);
        tally__free(zero->numbers);
        tally__free(zero->flags);
        tally__free(zero->squares);
        tally__free(zero);
        optimizer->zero = NULL;
    }
}

void tally__zero_mark(const tally_optimizer *optimizer, bool is_sharded)
{
    tally_ddp *ddp = optimizer->ddp;

    if (!optimizer->zero) {
        return;
    }
    for (size_t b = 0; b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        ddp->buckets.bucket[b].sharded = is_sharded && optimizer->zero->buckets[b].is_sharded;
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        ddp->params[i].mean.sharded =
            is_sharded && optimizer->updated[i].group >= 0 && ddp->params[i].bucket >= 0;
    }
    ddp->buckets.pinned = is_sharded;
}

/* ---- the mean ---- */

/* Sets shards->used: the owner of a shard must know whether any rank has a gradient for a
 * parameter. Flags travel only where a rank lacks one: the others' are then not known here. */
static int find_used(tally_lane *lane, struct tally__bucket *bucket, bool *used)
{
    struct tally__bucket_shards *shards = shards_of(bucket);
    size_t n = (size_t)bucket->seen.n_params;
    uint64_t before = lane->job.bytes_sent;
    uint64_t any_lacks = 0;

    for (size_t k = 0; k < n; k++) {
        shards->used[k] = bucket->ddp->now.used[bucket->seen.params[k].index] != 0;
    }
    TRY(tally__agree_any(lane, memchr(shards->used, 0, n) != NULL, &any_lacks));
    if (any_lacks) {
        TRY(tally_lane_all_reduce(lane, shards->used, n, TALLY_U8, TALLY_MAX));
    }
    bucket->now.aside_bytes += lane->job.bytes_sent - before;
    *used = memchr(shards->used, 1, n) != NULL;
    return TALLY_OK;
}

int tally__zero_reduce(tally_lane *lane, struct tally__bucket *bucket)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);
    bool used = true;

    TRY(find_used(lane, bucket, &used));
    if (bucket->ddp->config.skip_unused && !used) {
        bucket->skipped = true;
        return TALLY_OK;
    }
    tally__bucket_gather(bucket);
    TRY(tally__run_hook(lane, bucket->ddp, &bucket->seen,
                        shards->keeps_means ? NULL : shards->starts));
    if (bucket->ddp->config.param_dtype || (!bucket->ddp->views && shards->keeps_means)) {
        tally__bucket_spread(bucket);
    }
    /* Now, since updated parameters will overwrite the means in the bucket. */
    for (int k = 0; k < bucket->seen.n_params; k++) {
        if (!shards->used[k] && !bucket->seen.shadows) {
            tally__residual_take_back(bucket->ddp,
                                      &bucket->ddp->params[bucket->seen.params[k].index]);
        }
    }
    return TALLY_OK;
}

/* The mean of a parameter: in the bucket, unless the bucket has halves. */
static float *mean_of(const struct tally__bucket *bucket, const tally_bucket_param *entry)
{
    const struct tally__param *param = &bucket->ddp->params[entry->index];

    return param->mean.owned ? param->mean.owned : entry->gradient;
}

/* ---- the update ---- */

static int update_own(tally_optimizer *optimizer, const struct tally__bucket *bucket, float factor)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);

    for (int k = 0; k < bucket->seen.n_params; k++) {
        size_t i = (size_t)bucket->seen.params[k].index;

        /* A rank without a part of the parameter counts its steps, too. */
        if (shards->used[k] && optimizer->updated[i].group >= 0) {
            TRY(tally__update_param(optimizer, i, mean_of(bucket, &bucket->seen.params[k]),
                                    factor));
        }
    }
    return TALLY_OK;
}

/* Gathers parameters that are laid out like their gradients, without copies. */
static int gather_run(tally_lane *lane, const struct tally__bucket *bucket, float *run)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);
    int rank = tally_group_rank(tally_lane_group(lane));

    for (int r = 0; r < tally_group_size(tally_lane_group(lane)); r++) {
        shards->bytes[r] = (shards->starts[r + 1] - shards->starts[r]) * sizeof *run;
    }
    return tally_lane_all_gather(lane, run + shards->starts[rank], shards->bytes, run);
}

/* Gathers parameters one by one, and leaves the bucket as it is. */
static int gather_params(tally_lane *lane, const struct tally__bucket *bucket)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);
    const tally_ddp *ddp = bucket->ddp;
    int rank = tally_group_rank(ddp->group);

    for (int k = 0; k < bucket->seen.n_params; k++) {
        const tally_bucket_param *entry = &bucket->seen.params[k];
        float *data = ddp->params[entry->index].data;

        if (!shards->used[k] || !ddp->params[entry->index].mean.sharded || entry->n == 0) {
            continue;
        }
        for (int r = 0; r < tally_group_size(ddp->group); r++) {
            shards->bytes[r] = run_of(shards, entry, r).n * sizeof *data;
        }
        TRY(tally_lane_all_gather(lane, data + run_of(shards, entry, rank).first, shards->bytes,
                                  data));
    }
    return TALLY_OK;
}

static void copy_part(size_t first, size_t end, const float *from, float *to)
{
    tally__copy((end - first) * sizeof *to, (const void *)(from + first), (void *)(to + first));
}

/* Gathers parameters through the bucket: this rank's shard goes in, the other ranks' shards come
 * out. */
static int gather_through_bucket(tally_lane *lane, const struct tally__bucket *bucket)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);
    int rank = tally_group_rank(tally_lane_group(lane));

    for (int k = 0; k < bucket->seen.n_params; k++) {
        const tally_bucket_param *entry = &bucket->seen.params[k];
        struct tally__zero_run own = run_of(shards, entry, rank);

        copy_part(own.first, own.first + own.n, bucket->ddp->params[entry->index].data,
                  entry->gradient);
    }
    TRY(gather_run(lane, bucket, bucket->seen.data));
    for (int k = 0; k < bucket->seen.n_params; k++) {
        const tally_bucket_param *entry = &bucket->seen.params[k];
        float *data = bucket->ddp->params[entry->index].data;
        struct tally__zero_run own = run_of(shards, entry, rank);

        if (shards->used[k]) {
            copy_part(0, own.first, entry->gradient, data);
            copy_part(own.first + own.n, entry->n, entry->gradient, data);
        }
    }
    return TALLY_OK;
}

static int gather(tally_lane *lane, const struct tally__bucket *bucket)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);
    float *run = tally__bucket_run(bucket);

    if (!memchr(shards->used, 1, (size_t)bucket->seen.n_params)) {
        return TALLY_OK;
    }
    if (shards->keeps_means || (!run && bucket->seen.dtype != TALLY_F32)) {
        return gather_params(lane, bucket);
    }
    return run ? gather_run(lane, bucket, run) : gather_through_bucket(lane, bucket);
}

/* Refreshes the low copies of updated parameters. */
static void refresh(const struct tally__bucket *bucket)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);

    for (int k = 0; k < bucket->seen.n_params; k++) {
        if (shards->used[k]) {
            tally__mixed_refresh_param(bucket->ddp, (size_t)bucket->seen.params[k].index);
        }
    }
}

/* Zeroes the gradients that were used, for release_gradients. */
static void release(const struct tally__bucket *bucket)
{
    const struct tally__bucket_shards *shards = shards_of(bucket);
    const tally_ddp *ddp = bucket->ddp;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        int i = bucket->seen.params[k].index;

        if (shards->used[k] && ddp->params[i].mean.sharded) {
            memset(ddp->params[i].grad.array, 0, ddp->params[i].grad.bytes);
        }
    }
}

/* Updates this rank's shard, and gathers all shards. update_ns is the time of the update alone. */
static int update(tally_lane *lane, const struct tally__bucket *bucket, float factor,
                  uint64_t *update_ns)
{
    tally_optimizer *optimizer = optimizer_of(bucket);
    uint64_t start_ns = tally__now_ns();

    TRY(update_own(optimizer, bucket, factor));
    *update_ns = tally__now_ns() - start_ns;
    TRY(gather(lane, bucket));
    refresh(bucket);
    if (optimizer->config.release_gradients) {
        release(bucket);
    }
    return TALLY_OK;
}

int tally__zero_update(tally_lane *lane, struct tally__bucket *bucket)
{
    uint64_t update_ns = 0;

    TRY(update(lane, bucket, 1, &update_ns));
    /* Times count as if the update had come after the gathering. */
    bucket->now.done_ns = tally__now_ns() - update_ns;
    return TALLY_OK;
}

/* ---- at the end of a step ---- */

/* Whether the step has a mean for the bucket. */
static bool was_reduced(const tally_ddp *ddp, size_t b)
{
    const struct tally__bucket *bucket = &ddp->buckets.bucket[b];

    return bucket->sharded && !bucket->skipped && (b < ddp->buckets.n || ddp->now.delayed_asked);
}

bool tally__zero_is_finite(const tally_optimizer *optimizer)
{
    const tally_ddp *ddp = optimizer->ddp;

    for (size_t b = 0; b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        const struct tally__bucket *bucket = &ddp->buckets.bucket[b];

        for (int k = 0; was_reduced(ddp, b) && k < bucket->seen.n_params; k++) {
            const tally_bucket_param *entry = &bucket->seen.params[k];
            const struct tally__moments *moments = &optimizer->updated[entry->index].moments;
            size_t n = shards_of(bucket)->used[k] ? moments->n : 0;

            if (tally__find_nonfinite_f32(n, mean_of(bucket, entry) + moments->first) < n) {
                return false;
            }
        }
    }
    return true;
}

int tally__zero_norms(tally_lane *lane, tally_optimizer *optimizer)
{
    const tally_ddp *ddp = optimizer->ddp;
    double *squares = optimizer->zero->squares;

    memset(squares, 0, ddp->n_params * sizeof *squares);
    for (size_t b = 0; b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        const struct tally__bucket *bucket = &ddp->buckets.bucket[b];

        for (int k = 0; was_reduced(ddp, b) && k < bucket->seen.n_params; k++) {
            const tally_bucket_param *entry = &bucket->seen.params[k];
            const struct tally__moments *moments = &optimizer->updated[entry->index].moments;

            if (shards_of(bucket)->used[k] && moments->n > 0) {
                squares[entry->index] =
                    tally__sqnorm_f32(moments->n, mean_of(bucket, entry) + moments->first);
            }
        }
    }
    return tally_lane_all_reduce(lane, squares, ddp->n_params, TALLY_F64, TALLY_SUM);
}

int tally__zero_update_all(tally_lane *lane, tally_optimizer *optimizer, float factor)
{
    tally_ddp *ddp = optimizer->ddp;

    for (size_t b = 0; b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        struct tally__bucket_times *now = &ddp->buckets.bucket[b].now;
        uint64_t start_ns = tally__now_ns();
        uint64_t before = lane->job.bytes_sent;
        uint64_t update_ns = 0;

        if (was_reduced(ddp, b)) {
            TRY(update(lane, &ddp->buckets.bucket[b], factor, &update_ns));
            now->late_bytes = lane->job.bytes_sent - before;
            now->late_ns = tally__now_ns() - start_ns - update_ns;
            optimizer->times.sent_ns += now->late_ns;
        }
    }
    return TALLY_OK;
}

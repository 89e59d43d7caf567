/* SPDX-License-Identifier: Apache-2.0 */
/* The segments of buckets; see bucket_segments.h. Lanes enter, several at once, each with a
 * different bucket. */
#include "hook/bucket_segments.h"

#include <assert.h>

#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"

void tally__segment_table_init(struct tally__segment_table *table, size_t block, bool keeps_small)
{
    *table = (struct tally__segment_table){.block = block, .keeps_small = keeps_small};
    (void)pthread_mutex_init(&table->mutex, NULL);
}

static void clear(struct tally__bucket_segments *segments)
{
    tally__free(segments->of_codec.start);
    tally__free(segments->of_codec.first_block);
    tally__free(segments->raw);
    tally__free(segments->maps);
    tally__free(segments->feedback);
    *segments = (struct tally__bucket_segments){0};
}

static void forget(struct tally__segment_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        clear(&table->buckets[i]);
    }
    tally__free(table->buckets);
    table->buckets = NULL;
    table->n = 0;
}

void tally__segment_table_free(void *state)
{
    struct tally__segment_table *table = state;

    forget(table);
    (void)pthread_mutex_destroy(&table->mutex);
    tally__free(table);
}

int tally__segment_table_attach(void *state, tally_ddp *ddp)
{
    struct tally__segment_table *table = state;
    bool taken;

    (void)ddp;
    (void)pthread_mutex_lock(&table->mutex);
    taken = table->attached;
    table->attached = true;
    (void)pthread_mutex_unlock(&table->mutex);
    return taken ? tally__fail(TALLY_STATE, "a hook that quantizes serves one ddp at a time")
                 : TALLY_OK;
}

void tally__segment_table_detach(void *state, tally_ddp *ddp)
{
    struct tally__segment_table *table = state;

    (void)ddp;
    (void)pthread_mutex_lock(&table->mutex);
    forget(table);
    table->attached = false;
    (void)pthread_mutex_unlock(&table->mutex);
}

static int allocate(struct tally__bucket_segments *segments, size_t n)
{
    static const char what[] = "a bucket's segments";

    segments->of_codec.start = tally__alloc_array(n + 1, sizeof *segments->of_codec.start, what);
    segments->of_codec.first_block =
        tally__alloc_array(n + 1, sizeof *segments->of_codec.first_block, what);
    segments->raw = tally__alloc_array(n, sizeof *segments->raw, what);
    segments->maps = tally__alloc_array(n, sizeof *segments->maps, what);
    segments->feedback = tally__alloc_array(n, sizeof *segments->feedback, what);
    return segments->of_codec.start && segments->of_codec.first_block && segments->raw &&
                   segments->maps && segments->feedback
               ? TALLY_OK
               : TALLY_NOMEM;
}

static int make(const struct tally__segment_table *table, const tally_bucket *bucket,
                struct tally__bucket_segments *segments)
{
    size_t n = (size_t)bucket->n_params;

    clear(segments);
    if (allocate(segments, n) != TALLY_OK) {
        clear(segments);
        return TALLY_NOMEM;
    }
    for (size_t s = 0; s < n; s++) {
        segments->of_codec.start[s] = bucket->params[s].offset - bucket->params[0].offset;
        segments->raw[s] = table->keeps_small && bucket->params[s].n_dims < 2;
    }
    segments->of_codec.start[n] = bucket->n;
    assert(n > 0 && segments->of_codec.start[0] == 0);
    segments->of_codec.n = n;
    segments->of_codec.raw = segments->raw;
    tally__segments_fill(&segments->of_codec, table->block);
    segments->generation = bucket->generation;
    return TALLY_OK;
}

/* The bucket's entry in the table, which is made at the first call. */
static struct tally__bucket_segments *find(struct tally__segment_table *table,
                                           const tally_bucket *bucket)
{
    struct tally__bucket_segments *found = NULL;

    (void)pthread_mutex_lock(&table->mutex);
    if (!table->buckets) {
        const struct tally__residuals *residuals = tally__reduction_here()->residuals;

        table->buckets =
            tally__alloc_array(residuals->n_params, sizeof *table->buckets, "buckets' segments");
        table->n = table->buckets ? residuals->n_params : 0;
    }
    if (table->buckets) {
        assert((size_t)bucket->params[0].index < table->n);
        found = &table->buckets[bucket->params[0].index];
    }
    (void)pthread_mutex_unlock(&table->mutex);
    return found;
}

int tally__bucket_segments_of(struct tally__segment_table *table, const tally_bucket *bucket,
                              struct tally__bucket_segments **segments)
{
    struct tally__bucket_segments *found = find(table, bucket);

    if (!found) {
        return TALLY_NOMEM;
    }
    if (found->generation != bucket->generation) {
        TRY(make(table, bucket, found));
    }
    *segments = found;
    return TALLY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How buckets are cut; see cuts.h. Lanes enter, several at once; each has a bucket of its own. */
#include "hook/cuts.h"

#include "base/memory.h"
#include "base/status.h"
#include "exchange/keeper.h"

void tally__cuts_init(struct tally__cuts *cuts, size_t block, bool keeps_small)
{
    *cuts = (struct tally__cuts){.block = block, .keeps_small = keeps_small};
    (void)pthread_mutex_init(&cuts->mutex, NULL);
}

static void clear(struct tally__cut *cut)
{
    tally__free(cut->segments.start);
    tally__free(cut->segments.first_block);
    tally__free(cut->raw);
    tally__free(cut->maps);
    tally__free(cut->feedback);
    *cut = (struct tally__cut){0};
}

static void forget(struct tally__cuts *cuts)
{
    for (size_t i = 0; i < cuts->n; i++) {
        clear(&cuts->cut[i]);
    }
    tally__free(cuts->cut);
    cuts->cut = NULL;
    cuts->n = 0;
}

void tally__cuts_clear(struct tally__cuts *cuts)
{
    forget(cuts);
    (void)pthread_mutex_destroy(&cuts->mutex);
}

int tally__cuts_attach(struct tally__cuts *cuts)
{
    bool taken;

    (void)pthread_mutex_lock(&cuts->mutex);
    taken = cuts->attached;
    cuts->attached = true;
    (void)pthread_mutex_unlock(&cuts->mutex);
    return taken ? tally__fail(TALLY_STATE, "a hook that quantizes serves one ddp at a time")
                 : TALLY_OK;
}

void tally__cuts_detach(struct tally__cuts *cuts)
{
    (void)pthread_mutex_lock(&cuts->mutex);
    forget(cuts);
    cuts->attached = false;
    (void)pthread_mutex_unlock(&cuts->mutex);
}

static int allocate(struct tally__cut *cut, size_t n)
{
    static const char what[] = "a bucket's segments";

    cut->segments.start = tally__alloc_array(n + 1, sizeof *cut->segments.start, what);
    cut->segments.first_block = tally__alloc_array(n + 1, sizeof *cut->segments.first_block, what);
    cut->raw = tally__alloc_array(n, sizeof *cut->raw, what);
    cut->maps = tally__alloc_array(n, sizeof *cut->maps, what);
    cut->feedback = tally__alloc_array(n, sizeof *cut->feedback, what);
    return cut->segments.start && cut->segments.first_block && cut->raw && cut->maps &&
                   cut->feedback
               ? TALLY_OK
               : TALLY_NOMEM;
}

static int make(const struct tally__cuts *cuts, const tally_bucket *bucket, struct tally__cut *cut)
{
    size_t n = (size_t)bucket->n_params;

    clear(cut);
    if (allocate(cut, n) != TALLY_OK) {
        clear(cut);
        return TALLY_NOMEM;
    }
    for (size_t s = 0; s < n; s++) {
        cut->segments.start[s] = bucket->params[s].offset - bucket->params[0].offset;
        cut->raw[s] = cuts->keeps_small && bucket->params[s].n_dims < 2;
    }
    cut->segments.start[n] = bucket->n;
    cut->segments.n = n;
    cut->segments.raw = cut->raw;
    tally__segments_fill(&cut->segments, cuts->block);
    cut->generation = bucket->generation;
    return TALLY_OK;
}

/* The place of the bucket's cut in the table, which is made at the first call. */
static struct tally__cut *place(struct tally__cuts *cuts, const tally_bucket *bucket)
{
    struct tally__cut *found = NULL;

    (void)pthread_mutex_lock(&cuts->mutex);
    if (!cuts->cut) {
        const struct tally__keeper *keeper = bucket->keeper;

        cuts->cut = tally__alloc_array(keeper->n_params, sizeof *cuts->cut, "buckets' segments");
        cuts->n = cuts->cut ? keeper->n_params : 0;
    }
    if (cuts->cut) {
        found = &cuts->cut[bucket->params[0].index];
    }
    (void)pthread_mutex_unlock(&cuts->mutex);
    return found;
}

int tally__cuts_of(struct tally__cuts *cuts, const tally_bucket *bucket, struct tally__cut **cut)
{
    struct tally__cut *found = place(cuts, bucket);

    if (!found) {
        return TALLY_NOMEM;
    }
    if (found->generation != bucket->generation) {
        TRY(make(cuts, bucket, found));
    }
    *cut = found;
    return TALLY_OK;
}

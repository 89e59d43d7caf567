/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buckets of a reducer between ranks and in the layout; see reducer.h. Residuals follow their
 * elements into a new layout, as in a ddp whose buckets are arranged again. Only jobs of the
 * reducer's lane enter.
 */
#include <stdio.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/doing.h"
#include "ddp/reducer.h"

/* ---- comparing buckets between ranks ---- */

/* A bucket as ranks compare it. */
struct description {
    int32_t first;
    int32_t is_last;
    uint64_t n_params;
    double divisor;
};

static void describe(const tally_ddp *ddp, const struct description *of, char *text, size_t room)
{
    const char *name = (size_t)of->first < ddp->n_params ? ddp->params[of->first].name : "?";

    (void)snprintf(text, room, "%llu parameter%s from '%.60s' on, divided by %g%s",
                   (unsigned long long)of->n_params, of->n_params == 1 ? "" : "s", name,
                   of->divisor, of->is_last ? ", as the last bucket of the step" : "");
}

static bool looks_alike(const struct description *a, const struct description *b)
{
    return a->first == b->first && a->is_last == b->is_last && a->n_params == b->n_params &&
           a->divisor == b->divisor;
}

/* All ranks fail alike. */
static int report_difference(tally_lane *lane, const struct tally__reducer_request *request,
                             int other)
{
    const tally_ddp *ddp = request->reducer->ddp;
    struct description ours = {.first = request->params[0],
                               .is_last = request->is_last,
                               .n_params = request->n,
                               .divisor = request->divisor};
    struct description first = ours;
    char of_first[160];
    char of_other[160];

    TRY(tally_lane_broadcast(lane, &first, sizeof first, 0));
    TRY(tally_lane_broadcast(lane, &ours, sizeof ours, other));
    describe(ddp, &first, of_first, sizeof of_first);
    describe(ddp, &ours, of_other, sizeof of_other);
    return tally__fail(TALLY_MISMATCH,
                       "%s reduces %s; %s reduces %s%s: all ranks must give a reducer the same "
                       "buckets in the same order",
                       tally__rank_text(lane->group, 0).text, of_first,
                       tally__rank_text(lane->group, other).text, of_other,
                       looks_alike(&first, &ours) ? ", but other parameters follow" : "");
}

int tally__reducer_compare(tally_lane *lane, const struct tally__reducer_request *request)
{
    const uint64_t facts[2] = {request->n, request->is_last};
    uint64_t digest = tally__checksum(0, facts, sizeof facts);
    int other;

    digest = tally__checksum(digest, &request->divisor, sizeof request->divisor);
    digest = tally__checksum(digest, request->params, request->n * sizeof request->params[0]);
    TRY(tally__agree_same(lane, digest, &other));
    return other < 0 ? TALLY_OK : report_difference(lane, request, other);
}

/* ---- the layout ---- */

static bool is_same(const struct tally__reducer_bucket *bucket,
                    const struct tally__reducer_request *request)
{
    bool same = (size_t)bucket->n_params == request->n;

    for (size_t k = 0; same && k < request->n; k++) {
        same = bucket->params[k].index == request->params[k];
    }
    return same;
}

/* Whether a parameter has a position in the layout already. */
static bool overlaps(const tally_reducer *reducer, const struct tally__reducer_request *request)
{
    for (size_t k = 0; k < request->n; k++) {
        if (reducer->home[request->params[k]]) {
            return true;
        }
    }
    return false;
}

static int make_bucket(const tally_reducer *reducer, const struct tally__reducer_request *request,
                       struct tally__reducer_bucket **bucket)
{
    struct tally__reducer_bucket *made =
        tally__alloc(sizeof *made + request->n * sizeof made->params[0], "the layout of a reducer");

    if (!made) {
        return TALLY_NOMEM;
    }
    *made = (struct tally__reducer_bucket){.n_params = (int)request->n};
    for (size_t k = 0; k < request->n; k++) {
        const struct tally__param *param = &reducer->ddp->params[request->params[k]];

        made->params[k] = (tally_bucket_param){.index = request->params[k],
                                               .name = param->name,
                                               .n_dims = param->n_dims,
                                               .shape = param->shape,
                                               .offset = made->n,
                                               .n = param->n};
        made->n += param->n;
        made->dtype = param->dtype;
    }
    *bucket = made;
    return TALLY_OK;
}

void tally__reducer_layout_free(tally_reducer *reducer)
{
    struct tally__reducer_bucket *next;

    for (struct tally__reducer_bucket *bucket = reducer->buckets; bucket; bucket = next) {
        next = bucket->next;
        for (int k = 0; k < bucket->n_params; k++) {
            reducer->home[bucket->params[k].index] = NULL;
        }
        tally__free(bucket);
    }
    reducer->buckets = NULL;
}

/* Before a new layout, on all ranks: no hook holds residuals in the form of the old one. */
static int leave_layout(tally_lane *lane, tally_reducer *reducer)
{
    tally_ddp *ddp = reducer->ddp;
    const struct tally__moving moving = {.how = TALLY__MOVE_WHOLE};

    if (ddp->hook->table.feedback) {
        TRY(tally__residuals_move(lane, ddp->residuals, &moving));
    }
    tally__reducer_layout_free(reducer);
    ddp->generation++;
    return TALLY_OK;
}

static void put_bucket(tally_reducer *reducer, struct tally__reducer_bucket *bucket)
{
    bucket->next = reducer->buckets;
    reducer->buckets = bucket;
    for (int k = 0; k < bucket->n_params; k++) {
        reducer->home[bucket->params[k].index] = bucket;
    }
}

/* Allocates everything that can fail on one rank alone; then all ranks know that none failed. */
static int prepare(tally_lane *lane, tally_reducer *reducer,
                   const struct tally__reducer_request *request, bool is_new,
                   struct tally__reducer_bucket **bucket)
{
    int rc = is_new ? tally__residuals_make_plain(reducer->ddp->residuals) : TALLY_OK;
    struct tally__outcome outcome;

    if (rc == TALLY_OK) {
        rc = make_bucket(reducer, request, bucket);
    }
    outcome = tally__outcome_of(rc);
    TRY(tally__agree_status(lane, &outcome));
    return tally_lane_barrier(lane);
}

int tally__reducer_bucket_of(tally_lane *lane, tally_reducer *reducer,
                             const struct tally__reducer_request *request,
                             struct tally__reducer_bucket **bucket)
{
    struct tally__reducer_bucket *known = reducer->home[request->params[0]];
    struct tally__reducer_bucket *made = NULL;
    bool is_new;
    int rc;

    if (known && is_same(known, request)) {
        *bucket = known;
        return TALLY_OK;
    }
    is_new = overlaps(reducer, request);
    rc = prepare(lane, reducer, request, is_new, &made);
    if (rc == TALLY_OK && is_new) {
        rc = leave_layout(lane, reducer);
    }
    if (rc != TALLY_OK || !made) {
        tally__free(made);
        return rc;
    }
    put_bucket(reducer, made);
    *bucket = made;
    return TALLY_OK;
}

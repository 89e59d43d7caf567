/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reducer object: creating and freeing it, and reducing bucket by bucket; see reducer.h.
 * Application threads enter, several at once in tally_reducer_reduce; jobs run on lane 0.
 */
#include "ddp/reducer.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/threads.h"

/* Buckets are held while the lane computes for this part of its time, from the moment at which all
 * ranks have come. Otherwise the next steps overlap: the least number, then twice as many each
 * time. */
#define LEAST_BUSY 0.75
#define MIN_OVERLAPPED 2
#define MAX_OVERLAPPED 64

/* ---- making and freeing ---- */

/* The arguments of tally_reducer_create for prepare, the only entry of its observer that uses them.
 */
struct creation {
    tally_reducer *reducer; /* NULL: there was no memory for it */
    bool is_wanted;         /* the caller has room for the result */
};

static int make_arrays(tally_reducer *reducer, size_t n)
{
    reducer->pass = 1;
    reducer->home = tally__alloc_array(n, sizeof(struct tally__reducer_bucket *), "a reducer");
    reducer->reduced_in = tally__alloc_array(n, sizeof *reducer->reduced_in, "a reducer");
    reducer->stamp = tally__alloc_array(n, sizeof *reducer->stamp, "a reducer");
    return reducer->home && reducer->reduced_in && reducer->stamp ? TALLY_OK : TALLY_NOMEM;
}

/* The ddp gets no buckets and no arrays. */
static int prepare(void *user, tally_ddp *ddp)
{
    const struct creation *creation = user;

    if (!creation->is_wanted) {
        return tally__fail(TALLY_ARG, "tally_reducer_create: reducer is NULL");
    }
    if (!creation->reducer) {
        return tally__fail(TALLY_NOMEM, "no memory for a reducer");
    }
    ddp->is_reducer = true;
    ddp->generation = 1;
    ddp->words = (struct tally__ddp_words){.object = "reducer", .steps = "steps"};
    for (size_t i = 0; i < ddp->n_params; i++) {
        struct tally__param *param = &ddp->params[i];

        if (param->flags != 0) {
            return tally__fail(TALLY_ARG,
                               "parameter '%s' has flags %#x: a reducer accepts none; leave out "
                               "parameters without a gradient",
                               param->name, param->flags);
        }
        param->data = NULL;
        param->grad.array = NULL;
        param->provided = false;
    }
    return make_arrays(creation->reducer, ddp->n_params);
}

/* After its ddp: no job is left. */
static void unmake(tally_reducer *reducer)
{
    struct tally__reducer_request *next;

    if (!reducer) {
        return;
    }
    for (struct tally__reducer_request *request = reducer->all; request; request = next) {
        next = request->next_of_all;
        tally__free(request);
    }
    if (reducer->home) {
        tally__reducer_layout_free(reducer);
    }
    tally__free(reducer->home);
    tally__free(reducer->reduced_in);
    tally__free(reducer->stamp);
    tally__free(reducer);
}

int tally_reducer_create(tally_group *group, const tally_param *params, size_t n, const char *hook,
                         tally_reducer **reducer)
{
    struct creation creation = {.reducer = tally__alloc(sizeof *creation.reducer, "a reducer"),
                                .is_wanted = reducer != NULL};
    const struct tally__observer observer = {.user = &creation, .prepare = prepare};
    tally_ddp_config config;
    tally_ddp *ddp;
    int rc;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.keep_parameters = 1;
    config.check = -1;
    rc = tally__ddp_create(group, params, n, &config, &observer, &ddp);
    if (rc != TALLY_OK || !reducer) {
        unmake(creation.reducer);
        return rc;
    }
    ddp->observer.user = NULL;
    creation.reducer->ddp = ddp;
    /* Far ranks have other CPUs, and a line to fill. */
    creation.reducer->hold.may = !ddp->group->far &&
                                 tally__threads_count(ddp->group->threads) > 0 &&
                                 tally__leaves_no_cpu(ddp->group->size);
    *reducer = creation.reducer;
    return TALLY_OK;
}

int tally_reducer_free(tally_reducer *reducer)
{
    if (!reducer || !tally__is_creator(&reducer->ddp->group->creator)) {
        return TALLY_OK;
    }
    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "tally_reducer_free: not from a job on a lane");
    }
    tally__ddp_free(reducer->ddp);
    unmake(reducer);
    return TALLY_OK;
}

/* ---- the job of a bucket ---- */

/* A parameter that comes again begins a new step: the one under way was given up. */
static void enter_step(tally_reducer *reducer, const struct tally__reducer_request *request)
{
    bool comes_again = false;

    for (size_t k = 0; k < request->n; k++) {
        comes_again = comes_again || reducer->reduced_in[request->params[k]] == reducer->pass;
    }
    if (comes_again) {
        reducer->pass++;
        tally__arrivals_reset(&reducer->ddp->lateness.arrivals[0]);
    }
    if (comes_again || reducer->now.index == 0) {
        reducer->now = (struct tally__reducer_step){.start_ns = tally__now_ns()};
    }
    for (size_t k = 0; k < request->n; k++) {
        reducer->reduced_in[request->params[k]] = reducer->pass;
    }
}

/* *is_known: all ranks gave the same bucket. */
static int reduce(tally_lane *lane, const struct tally__reducer_request *request, bool *is_known)
{
    tally_reducer *reducer = request->reducer;
    tally_ddp *ddp = reducer->ddp;
    struct tally__reducer_bucket *bucket;
    tally_bucket seen;

    TRY(tally__reducer_compare(lane, request));
    *is_known = true;
    enter_step(reducer, request);
    TRY(tally__reducer_bucket_of(lane, reducer, request, &bucket));
    for (int k = 0; k < bucket->n_params; k++) {
        bucket->params[k].gradient = (unsigned char *)request->data +
                                     bucket->params[k].offset * tally_dtype_bytes(bucket->dtype);
    }
    seen = (tally_bucket){.size = sizeof seen,
                          .index = reducer->now.index,
                          .count = request->is_last ? reducer->now.index + 1 : 0,
                          .is_last = request->is_last,
                          .step = ddp->step + ddp->steps_before,
                          .generation = ddp->generation,
                          .divisor = request->divisor,
                          .dtype = bucket->dtype,
                          .n = bucket->n,
                          .data = request->data,
                          .n_params = bucket->n_params,
                          .params = bucket->params,
                          .n_ranks = tally_group_size(ddp->group)};
    return tally__run_hook(lane, ddp, &seen, NULL);
}

/* With the mutex held: the step's figures become those of the last step. */
static void end_step(tally_reducer *reducer)
{
    struct tally__step_stats *stats = &reducer->ddp->stats;

    reducer->ddp->step++;
    reducer->n_buckets = (size_t)reducer->now.index;
    stats->last_first_ns = reducer->now.start_ns;
    stats->last_begin_ns = stats->last_end_ns ? stats->last_end_ns : reducer->now.start_ns;
    stats->last_end_ns = tally__now_ns();
    stats->comm_ns = reducer->now.comm_ns;
    stats->wire_bytes = reducer->now.wire_bytes;
    stats->counts = reducer->now.counts;
    stats->n_reduced = reducer->n_buckets;
    tally__stats_total(stats);
    tally__lateness_step(reducer->ddp);
}

/* The end of a job, with the status that all ranks have: the request is spare again. */
static void end_request(struct tally__reducer_request *request, int rc)
{
    tally_reducer *reducer = request->reducer;
    tally_ddp *ddp = reducer->ddp;

    (void)tally__stats_note(ddp, rc);
    (void)pthread_mutex_lock(&ddp->mutex);
    reducer->is_open = reducer->is_open && rc == TALLY_OK;
    reducer->n_pending--;
    ddp->now.begun = reducer->is_open || reducer->n_pending > 0;
    request->next = reducer->spare;
    reducer->spare = request;
    (void)pthread_mutex_unlock(&ddp->mutex);
}

/* After a step: decides about the next ones. */
static void note_hold(tally_reducer *reducer)
{
    struct tally__reducer_hold *hold = &reducer->hold;
    bool waited = (double)reducer->now.cpu_ns < LEAST_BUSY * (double)reducer->now.together_ns;

    if (!hold->may) {
        return;
    }
    (void)pthread_mutex_lock(&reducer->ddp->mutex);
    if (!reducer->now.held) {
        hold->n_overlapped -= hold->n_overlapped > 0;
    } else if (waited) {
        hold->n_last = hold->n_last > 0 ? 2 * hold->n_last : MIN_OVERLAPPED;
        hold->n_last = hold->n_last < MAX_OVERLAPPED ? hold->n_last : MAX_OVERLAPPED;
        hold->n_overlapped = hold->n_last;
    } else {
        hold->n_last = 0;
    }
    (void)pthread_mutex_unlock(&reducer->ddp->mutex);
}

/* After a bucket that all ranks know: the last one ends the step, which counts if all succeeded. */
static void leave_bucket(const struct tally__reducer_request *request, bool failed)
{
    tally_reducer *reducer = request->reducer;

    reducer->now.failed = reducer->now.failed || failed;
    reducer->now.index++;
    if (!request->is_last) {
        return;
    }
    if (!reducer->now.failed) {
        note_hold(reducer);
        (void)pthread_mutex_lock(&reducer->ddp->mutex);
        end_step(reducer);
        (void)pthread_mutex_unlock(&reducer->ddp->mutex);
        tally__lateness_log(reducer->ddp);
        tally__metrics_step(reducer->ddp);
        reducer->ddp->hook->private.step_over(reducer->ddp->hook->state, true);
    }
    tally__arrivals_reset(&reducer->ddp->lateness.arrivals[0]);
    reducer->now.index = 0;
    reducer->pass++;
}

/* The earliest time at which the lane could begin. Without lane threads, that is when the future is
 * waited for. A held bucket can begin with the last bucket of the step, or earlier if the lane
 * looked at its queue by itself. */
static uint64_t ready_ns(const struct tally__reducer_request *request, uint64_t start_ns)
{
    tally_reducer *reducer = request->reducer;
    uint64_t released_ns;

    if (tally__threads_count(reducer->ddp->group->threads) == 0) {
        return start_ns;
    }
    if (!request->is_held) {
        return request->called_ns;
    }
    (void)pthread_mutex_lock(&reducer->ddp->mutex);
    released_ns = reducer->released_ns;
    (void)pthread_mutex_unlock(&reducer->ddp->mutex);
    return released_ns > request->called_ns ? released_ns : start_ns;
}

/* The application waits for the step from its last bucket on: it has nothing left to announce. */
static void begin_arrivals(tally_lane *lane, const struct tally__reducer_request *request,
                           uint64_t start_ns)
{
    tally_ddp *ddp = request->reducer->ddp;

    atomic_store_explicit(&ddp->lateness.called_ns, request->is_last ? request->called_ns : 0,
                          memory_order_relaxed);
    tally__arrivals_begin(lane, &ddp->lateness.arrivals[0], ready_ns(request, start_ns),
                          request->is_last);
}

/* Ends with its own round, in which all ranks learn the status: they must count the same steps. */
static int bucket_job(tally_lane *lane, void *user)
{
    struct tally__reducer_request *request = user;
    tally_reducer *reducer = request->reducer;
    struct tally__reduction reduction = {.wire.dtype = TALLY_F32,
                                         .residuals = reducer->ddp->residuals};
    uint64_t start_ns = tally__now_ns();
    uint64_t start_cpu_ns = reducer->hold.may ? tally__thread_ns() : 0;
    bool is_known = false;
    int rc;

    tally__doing_part(lane, reducer->ddp, reducer->now.index, request->params[0], request->n);
    begin_arrivals(lane, request, start_ns);
    tally__reduction_enter(&reduction);
    rc = reduce(lane, request, &is_known);
    tally__reduction_enter(NULL);
    if (rc == TALLY_OK && request->is_last && !reducer->now.failed) {
        rc = reducer->ddp->hook->private.step_end(reducer->ddp->hook->state, lane);
    }
    rc = tally__end_job(lane, TALLY__ENDS_WITH_ROUND, rc);
    reduction.counts.host_bytes = lane->job.host_bytes;
    reducer->now.comm_ns += tally__now_ns() - start_ns;
    reducer->now.together_ns += tally__now_ns() - tally__larger_ns(start_ns, reducer->now.start_ns);
    reducer->now.cpu_ns += reducer->hold.may ? tally__thread_ns() - start_cpu_ns : 0;
    reducer->now.held = reducer->now.held || request->is_held;
    reducer->now.wire_bytes += lane->job.bytes_sent;
    tally__counts_add(&reducer->now.counts, &reduction.counts);
    if (is_known) {
        leave_bucket(request, rc != TALLY_OK);
    }
    end_request(request, rc);
    return rc;
}

/* ---- calling it ---- */

/* With the mutex held. */
static int check_params(tally_reducer *reducer, const int *params, size_t n, const void *data)
{
    const tally_ddp *ddp = reducer->ddp;
    size_t alignment;

    reducer->n_calls++;
    for (size_t k = 0; k < n; k++) {
        if (params[k] < 0 || (size_t)params[k] >= ddp->n_params) {
            return tally__fail(TALLY_ARG,
                               "tally_reducer_reduce: parameter %d is not in 0..%zu, the "
                               "parameters of this reducer",
                               params[k], ddp->n_params - 1);
        }
        if (reducer->stamp[params[k]] == reducer->n_calls) {
            return tally__fail(TALLY_ARG, "tally_reducer_reduce: parameter %d ('%s') comes twice",
                               params[k], ddp->params[params[k]].name);
        }
        reducer->stamp[params[k]] = reducer->n_calls;
        if (ddp->params[params[k]].dtype != ddp->params[params[0]].dtype) {
            return tally__fail(TALLY_ARG,
                               "tally_reducer_reduce: parameters '%s' and '%s' have different "
                               "dtypes: a bucket has one",
                               ddp->params[params[0]].name, ddp->params[params[k]].name);
        }
    }
    alignment = tally_dtype_bytes(ddp->params[params[0]].dtype);
    return (uintptr_t)data % alignment == 0
               ? TALLY_OK
               : tally__fail(
                     TALLY_ARG,
                     "tally_reducer_reduce: data %p, for '%s', is not aligned to %zu bytes, "
                     "the size of an element",
                     data, ddp->params[params[0]].name, alignment);
}

/* With the mutex held. */
static int take_request(tally_reducer *reducer, struct tally__reducer_request **request)
{
    struct tally__reducer_request *taken = reducer->spare;

    if (taken) {
        reducer->spare = taken->next;
        *request = taken;
        return TALLY_OK;
    }
    taken =
        tally__alloc(sizeof *taken + reducer->ddp->n_params * sizeof taken->params[0], "a bucket");
    if (!taken) {
        return TALLY_NOMEM;
    }
    taken->reducer = reducer;
    taken->next_of_all = reducer->all;
    reducer->all = taken;
    *request = taken;
    return TALLY_OK;
}

/* With the mutex held, so that calls and jobs have the same order. */
static int submit(tally_reducer *reducer, const struct tally__reducer_request *filled,
                  const int *params, tally_future **future)
{
    bool is_held = reducer->hold.may && reducer->hold.n_overlapped == 0 && !filled->is_last;
    struct tally__job job = {.fn = bucket_job,
                             .end = TALLY__ENDS_ITSELF,
                             .wake = is_held ? TALLY__WAKE_NOBODY : TALLY__WAKE};
    tally_ddp *ddp = reducer->ddp;
    struct tally__reducer_request *request;
    int rc;

    TRY(check_params(reducer, params, filled->n, filled->data));
    TRY(tally__check_alive(ddp->group));
    TRY(take_request(reducer, &request));
    request->data = filled->data;
    request->is_last = filled->is_last;
    request->is_held = is_held;
    request->divisor = filled->divisor;
    request->called_ns = filled->called_ns;
    request->n = filled->n;
    memcpy(request->params, params, filled->n * sizeof *params);
    job.user = request;
    reducer->released_ns = is_held ? reducer->released_ns : filled->called_ns;
    rc = tally__submit(&ddp->group->lanes[0], &job, future);
    if (rc != TALLY_OK) {
        request->next = reducer->spare;
        reducer->spare = request;
        return rc;
    }
    reducer->n_pending++;
    reducer->is_open = !request->is_last;
    ddp->now.begun = true;
    return TALLY_OK;
}

/* NOLINTNEXTLINE(readability-function-size): seven parameters, none of which has a default. */
int tally_reducer_reduce(tally_reducer *reducer, const int *params, size_t n, void *data,
                         int is_last, double divisor, tally_future **future)
{
    struct tally__reducer_request filled = {
        .data = data, .is_last = is_last != 0, .called_ns = tally__now_ns(), .n = n};
    int rc;

    TRY(tally__reducer_check(reducer, "tally_reducer_reduce"));
    if (!params || n == 0 || !data) {
        return tally__fail(TALLY_ARG, "tally_reducer_reduce: %s",
                           n == 0 ? "there are no parameters"
                                  : (params ? "data is NULL" : "params is NULL"));
    }
    if (!(divisor >= 0) || isinf(divisor)) {
        return tally__fail(TALLY_ARG, "tally_reducer_reduce: divisor %g is not a positive number",
                           divisor);
    }
    filled.divisor = divisor > 0 ? divisor : tally_group_size(reducer->ddp->group);
    (void)pthread_mutex_lock(&reducer->ddp->mutex);
    rc = submit(reducer, &filled, params, future);
    (void)pthread_mutex_unlock(&reducer->ddp->mutex);
    /* The other ranks must not wait for this bucket. */
    if (rc == TALLY_NOMEM) {
        (void)tally_group_abort(reducer->ddp->group, tally_last_error());
    }
    return tally__stats_note(reducer->ddp, rc);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step: counts each bucket's missing gradients down, launches buckets strictly in order, and
 * waits for them in the same order. step_end.c has what follows the last bucket. Any thread may
 * enter with grad_ready and grad_absent, one thread with wait. The mutex guards the states.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/sheet.h"
#include "base/status.h"
#include "comm/group.h"
#include "comm/threads.h"
#include "ddp/check.h"
#include "ddp/ddp.h"
#include "num/num.h"

static void lock(tally_ddp *ddp)
{
    (void)pthread_mutex_lock(&ddp->mutex);
}

static void unlock(tally_ddp *ddp)
{
    (void)pthread_mutex_unlock(&ddp->mutex);
}

/* ---- announcing ---- */

static int check_index(const tally_ddp *ddp, int i)
{
    if (i < 0 || (size_t)i >= ddp->n_params) {
        return tally__fail(TALLY_ARG, "there is no parameter %d: they are 0..%zu", i,
                           ddp->n_params - 1);
    }
    if (ddp->params[i].bucket < 0) {
        return tally__fail(TALLY_ARG, "parameter '%s' has no gradient: it is frozen or ignored",
                           ddp->params[i].name);
    }
    if (ddp->params[i].flags & TALLY_PARAM_DELAYED) {
        return tally__fail(TALLY_ARG,
                           "parameter '%s' is delayed: tally_ddp_reduce_delayed announces it",
                           ddp->params[i].name);
    }
    return TALLY_OK;
}

static bool is_missing(const struct tally__param *param)
{
    return param->bucket >= 0 && !(param->flags & TALLY_PARAM_DELAYED) &&
           param->now.state == TALLY__GRAD_WAITING;
}

/* An absent gradient counts as zeros. A view is saved first, in case no rank has a gradient; for
 * copies the lane writes the zeros. */
static int put_zeros(tally_ddp *ddp, const struct tally__param *param)
{
    struct tally__bucket *bucket = &ddp->buckets.bucket[param->bucket];

    if (!ddp->views) {
        return TALLY_OK;
    }
    if (!bucket->saved) {
        bucket->saved = tally__alloc_array(bucket->seen.n, tally_dtype_bytes(bucket->seen.dtype),
                                           "unused gradients");
    }
    if (!bucket->saved) {
        return TALLY_NOMEM;
    }
    tally__copy(param->grad.bytes, param->grad.array, bucket->saved + param->offset);
    memset(param->grad.array, 0, param->grad.bytes);
    return TALLY_OK;
}

/* With the mutex held: the gradient is complete or absent. */
static void mark(tally_ddp *ddp, struct tally__param *param, enum tally__grad_state state)
{
    struct tally__bucket *bucket = &ddp->buckets.bucket[param->bucket];
    int index = (int)(param - ddp->params);

    assert(param->now.state == TALLY__GRAD_WAITING && state != TALLY__GRAD_WAITING);
    assert(bucket->n_missing > 0 && bucket->state == TALLY__BUCKET_FILLING);
    param->now.state = state;
    if (ddp->checks && !ddp->recording) {
        tally__checks_note(ddp, param);
    }
    ddp->now.used[index] = state == TALLY__GRAD_READY;
    ddp->now.n_absent += state == TALLY__GRAD_ABSENT;
    bucket->n_missing--;
    bucket->now.ready_ns = tally__now_ns();
    ddp->now.marked_ns = bucket->now.ready_ns;
    tally__ddp_event(ddp, bucket,
                     &(struct tally__trace_event){.kind = TALLY__EVENT_GRAD_READY,
                                                  .begin_ns = bucket->now.ready_ns,
                                                  .end_ns = bucket->now.ready_ns,
                                                  .bytes = (float)param->grad.bytes,
                                                  .peer = index});
    if (!(param->flags & TALLY_PARAM_DELAYED)) {
        assert(ddp->ready.n < ddp->n_order);
        ddp->ready.order[ddp->ready.n++] = index;
        tally__status_ready(ddp->trace.status, (uint32_t)ddp->ready.n, bucket->now.ready_ns);
    }
}

/* With the mutex held: this pass has no gradient for param. Passes under no_sync may have had one.
 */
static int mark_absent(tally_ddp *ddp, struct tally__param *param)
{
    if (param->now.accumulated) {
        mark(ddp, param, TALLY__GRAD_READY);
        return TALLY_OK;
    }
    TRY(put_zeros(ddp, param));
    mark(ddp, param, TALLY__GRAD_ABSENT);
    return TALLY_OK;
}

/* With the mutex held: the gradient is complete, and may complete its bucket. */
static int make_ready(tally_ddp *ddp, struct tally__param *param)
{
    mark(ddp, param, TALLY__GRAD_READY);
    return tally__launch_complete(ddp);
}

/* With the mutex held: the same for a pass without a gradient. */
static int make_absent(tally_ddp *ddp, struct tally__param *param)
{
    TRY(mark_absent(ddp, param));
    return tally__launch_complete(ddp);
}

/* With the mutex held: the first announcement of a step. Under static_graph it also marks the
 * parameters that never have a gradient as absent, so that their buckets do not wait. */
static int begin_step(tally_ddp *ddp)
{
    if (ddp->now.begun) {
        return TALLY_OK;
    }
    TRY(tally__check_alive(ddp->group));
    ddp->stats.first_ns = tally__now_ns();
    tally__status_set(ddp->trace.status, TALLY__STATE_COMPUTING, "");
    if (ddp->config.join) {
        ddp->presence.active = true;
        TRY(tally_submit(ddp->group, 0, tally__presence_job, ddp, &ddp->presence.future));
    }
    ddp->now.begun = true;
    for (size_t k = 0; k < ddp->n_order && ddp->config.static_graph && !ddp->recording; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        if (param->n_expected == 0 && is_missing(param)) {
            TRY(mark_absent(ddp, param));
        }
    }
    return tally__launch_complete(ddp);
}

/* With the mutex held: a gradient was announced too often. If all had been announced before, the
 * next backward has begun without a wait. */
static int refuse_again(const tally_ddp *ddp, const struct tally__param *param)
{
    unsigned long long n_steps = ddp->step + ddp->steps_before;
    bool were_all = ddp->now.next_bucket >= ddp->buckets.n;
    char no_wait[80] = "tally_ddp_wait has not been called yet";

    if (n_steps > 0) {
        (void)snprintf(no_wait, sizeof no_wait, "tally_ddp_wait was not called since step %llu",
                       n_steps);
    }
    if (ddp->config.static_graph) {
        return tally__fail(TALLY_STATE,
                           "the graph has changed: parameter '%s' was announced %d times, %d in "
                           "the first step%s%s",
                           param->name, param->now.n_announced + 1, param->n_expected,
                           were_all ? "; or " : "", were_all ? no_wait : "");
    }
    if (were_all) {
        return tally__fail(TALLY_STATE,
                           "parameter %d ('%s') was announced again after all gradients of step "
                           "%llu: %s; call it after every backward",
                           (int)(param - ddp->params), param->name, n_steps + 1, no_wait);
    }
    return tally__fail(TALLY_STATE,
                       "parameter %d ('%s') was announced twice in one step: it is used in "
                       "several places, or backward ran twice (%s); announce it once, when "
                       "complete",
                       (int)(param - ddp->params), param->name, no_wait);
}

/* With the mutex held: one announcement of param. */
static int announce(tally_ddp *ddp, struct tally__param *param)
{
    TRY(begin_step(ddp));
    if (ddp->recording) {
        if (ddp->checks) {
            tally__checks_note(ddp, param);
        }
        param->now.n_announced++;
        return TALLY_OK;
    }
    /* A refused announcement does not count: the step can still end. */
    if (param->now.state != TALLY__GRAD_WAITING ||
        (ddp->config.static_graph && param->now.n_announced >= param->n_expected)) {
        return refuse_again(ddp, param);
    }
    param->now.n_announced++;
    if (ddp->config.static_graph && param->now.n_announced < param->n_expected) {
        return TALLY_OK;
    }
    return make_ready(ddp, param);
}

/* With the mutex held. */
static int announce_absent(tally_ddp *ddp, struct tally__param *param)
{
    TRY(begin_step(ddp));
    if (ddp->config.static_graph && !ddp->recording) {
        return param->n_expected == 0
                   ? TALLY_OK
                   : tally__fail(
                         TALLY_STATE,
                         "the graph has changed: parameter '%s' had a gradient in the first "
                         "step",
                         param->name);
    }
    if (param->now.state != TALLY__GRAD_WAITING || param->now.n_announced > 0) {
        return tally__fail(TALLY_STATE, "parameter '%s' is absent, but was announced already",
                           param->name);
    }
    return ddp->recording ? TALLY_OK : make_absent(ddp, param);
}

/* Announces that gradient i is complete or absent. */
static int announce_as(tally_ddp *ddp, const char *call, int i, enum tally__grad_state state)
{
    int rc;

    TRY(tally__check_ddp(ddp, call));
    rc = check_index(ddp, i);
    if (rc != TALLY_OK) {
        return tally__stats_note(ddp, rc);
    }
    lock(ddp);
    if (!ddp->no_sync) {
        rc = state == TALLY__GRAD_READY ? announce(ddp, &ddp->params[i])
                                        : announce_absent(ddp, &ddp->params[i]);
    } else if (state == TALLY__GRAD_READY) {
        /* The accumulated gradient counts even if the last pass does not add to it. */
        ddp->params[i].now.accumulated = true;
    }
    unlock(ddp);
    return tally__stats_note(ddp, rc);
}

int tally_ddp_grad_ready(tally_ddp *ddp, int i)
{
    return announce_as(ddp, "tally_ddp_grad_ready", i, TALLY__GRAD_READY);
}

int tally_ddp_grad_absent(tally_ddp *ddp, int i)
{
    return announce_as(ddp, "tally_ddp_grad_absent", i, TALLY__GRAD_ABSENT);
}

/* ---- waiting ---- */

static int report_missing(const tally_ddp *ddp)
{
    char list[512] = "";
    size_t n_missing = 0;

    for (size_t i = 0; i < ddp->n_params; i++) {
        if (is_missing(&ddp->params[i])) {
            n_missing++;
            tally__list_add(list, sizeof list, "%zu '%.60s'", i, ddp->params[i].name);
        }
    }
    return tally__fail(
        TALLY_STATE,
        "%s%zu gradient%s announced before tally_ddp_wait: %s; call tally_ddp_grad_ready or "
        "tally_ddp_grad_absent for each, or set find_unused",
        ddp->config.static_graph ? "the graph has changed: " : "", n_missing,
        n_missing == 1 ? " was not" : "s were not", list);
}

/* With the mutex held: completes the step's announcements. Under static_graph only the parameters
 * that were not announced in the first step are absent. */
static int announce_rest(tally_ddp *ddp)
{
    bool absent_is_fine = ddp->recording || (ddp->config.find_unused && !ddp->config.static_graph);

    if (!ddp->now.begun && !ddp->config.find_unused) {
        return tally__fail(TALLY_STATE, "tally_ddp_wait: no gradient was announced in this step");
    }
    TRY(begin_step(ddp));
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        if (!is_missing(param)) {
            continue;
        }
        if (ddp->recording && param->now.n_announced > 0) {
            TRY(make_ready(ddp, param));
        } else if (param->now.n_announced == 0 && absent_is_fine) {
            TRY(make_absent(ddp, param));
        } else {
            return report_missing(ddp);
        }
    }
    if (ddp->checks) {
        tally__checks_look(ddp);
    }
    /* Retries a bucket that could not be launched when it was complete. */
    return tally__launch_complete(ddp);
}

/* This rank did not launch all buckets: the other ranks must neither wait for the rest nor take the
 * next step's buckets for it. */
int tally__step_abort(tally_ddp *ddp, int status)
{
    const struct tally__outcome outcome = tally__outcome_of(status);
    int rc;

    /* Under the mutex: later announcements then launch no bucket, which would not be collected. */
    lock(ddp);
    (void)tally_group_abort(ddp->group, outcome.text);
    unlock(ddp);
    rc = tally__collect(ddp);
    /* A bucket's error says more than that the group was aborted. */
    return status == TALLY_ABORTED && rc != TALLY_OK ? rc : tally__outcome_return(&outcome);
}

void tally__step_reset(tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        ddp->params[i].now.state = TALLY__GRAD_WAITING;
        ddp->params[i].now.n_announced = 0;
        ddp->params[i].now.accumulated = false;
        ddp->now.used[i] = 0;
    }
    for (size_t b = 0; b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        assert(ddp->buckets.bucket[b].state == TALLY__BUCKET_FILLING);
        ddp->buckets.bucket[b].n_missing = (size_t)ddp->buckets.bucket[b].seen.n_params;
    }
    if (ddp->checks) {
        tally__checks_reset(ddp);
    }
    ddp->now = (struct tally__step_state){.used = ddp->now.used};
    ddp->ready.n = 0;
    atomic_store_explicit(&ddp->lateness.called_ns, 0, memory_order_relaxed);
    for (int i = 0; i < ddp->lateness.n_lanes; i++) {
        tally__arrivals_reset(&ddp->lateness.arrivals[i]);
    }
}

/* Ends a step whose buckets were launched with this status; then the next one may begin. called_ns
 * is when the application called wait; 0: this rank had no input. */
static int end_launched(tally_ddp *ddp, int launched, uint64_t called_ns)
{
    unsigned long long step = ddp->step;
    int rc = launched == TALLY_OK ? tally__collect(ddp) : tally__step_abort(ddp, launched);

    /* A job that fails, fails on every rank: all ranks end the step, or none. */
    rc = tally__step_end(ddp, rc);
    if (rc == TALLY_OK && called_ns > 0) {
        lock(ddp);
        tally__stats_take(ddp, called_ns);
        tally__lateness_step(ddp);
        unlock(ddp);
        tally__lateness_log(ddp);
        tally__metrics_step(ddp);
    }
    if (rc == TALLY_OK) {
        ddp->hook->private.step_over(ddp->hook->state, called_ns > 0);
        tally__layout_update(ddp);
        tally__checks_local(ddp);
    }
    lock(ddp);
    tally__step_reset(ddp);
    unlock(ddp);
    /* A step that counts has its means, even if the observer could not use them. */
    return ddp->observer.step_over
               ? ddp->observer.step_over(ddp->observer.user, rc, ddp->step > step)
               : rc;
}

static int wait_for_step(tally_ddp *ddp)
{
    struct tally__waited_step waited = {.step = ddp->step + ddp->steps_before + 1,
                                        .called_ns = tally__now_ns()};
    int rc;

    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "tally_ddp_wait: this call blocks: it is not for jobs");
    }
    if (tally__is_no_sync(ddp)) {
        return TALLY_OK;
    }
    ddp->call = "tally_ddp_wait";
    atomic_store_explicit(&ddp->lateness.called_ns, waited.called_ns, memory_order_relaxed);
    lock(ddp);
    tally__status_set(ddp->trace.status, TALLY__STATE_WAITING, ddp->call);
    /* If the group was aborted, other ranks may still read this rank's buckets. */
    rc = tally__check_alive(ddp->group);
    if (rc == TALLY_OK) {
        rc = announce_rest(ddp);
    }
    unlock(ddp);
    /* The step stays open: the application can announce the missing gradients and wait again. */
    rc = rc == TALLY_STATE ? rc : end_launched(ddp, rc, waited.called_ns);
    waited.has_ended = rc == TALLY_OK;
    tally__ddp_trace_wait(ddp, &waited);
    return rc;
}

int tally_ddp_wait(tally_ddp *ddp)
{
    TRY(tally__check_ddp(ddp, "tally_ddp_wait"));
    return tally__stats_note(ddp, wait_for_step(ddp));
}

int tally__shadow_step(tally_ddp *ddp)
{
    struct tally__buckets *buckets = &ddp->buckets;
    int rc = TALLY_OK;

    lock(ddp);
    for (size_t b = 0; rc == TALLY_OK && b < buckets->n; b++) {
        tally_bucket *seen = &buckets->bucket[b].seen;

        memset(seen->data, 0, seen->n * tally_dtype_bytes(seen->dtype));
        rc = tally__launch(ddp, &buckets->bucket[b]);
    }
    unlock(ddp);
    return end_launched(ddp, rc, 0);
}

/* With the mutex held: the delayed buckets follow the step's buckets, at once or when those are
 * complete. */
static int announce_delayed(tally_ddp *ddp)
{
    if (ddp->no_sync || ddp->now.delayed_asked) {
        return TALLY_OK;
    }
    TRY(begin_step(ddp));
    ddp->now.delayed_asked = true;
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        if (param->flags & TALLY_PARAM_DELAYED) {
            mark(ddp, param, TALLY__GRAD_READY);
        }
    }
    return tally__launch_complete(ddp);
}

int tally_ddp_reduce_delayed(tally_ddp *ddp)
{
    int rc;

    TRY(tally__check_ddp(ddp, "tally_ddp_reduce_delayed"));
    if (ddp->buckets.n_delayed == 0) {
        return tally__fail(TALLY_STATE, "no parameter is flagged TALLY_PARAM_DELAYED");
    }
    if (ddp->config.join) {
        return tally__fail(TALLY_STATE, "tally_ddp_reduce_delayed: not with config.join");
    }
    lock(ddp);
    rc = announce_delayed(ddp);
    unlock(ddp);
    return tally__stats_note(ddp, rc);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ddp object: creating and freeing it. Not responsible for its hook (ddp_hook.c) nor for steps
 * (step.c). One thread of the application enters at a time.
 */
#include "ddp/ddp.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "comm/doing.h"
#include "comm/group.h"
#include "comm/threads.h"
#include "ddp/check.h"

#define DEFAULT_CAP_BYTES ((size_t)25 << 20)
#define DEFAULT_FIRST_BYTES ((size_t)1 << 20)

#define DDP_CONFIG TALLY__SIZED(tally_ddp_config, join_divides_by_active)

const struct tally__observer tally__observer_none = {0};

void tally_ddp_config_init(tally_ddp_config *config, size_t size)
{
    const tally_ddp_config unset = {0};

    tally__sized_init(DDP_CONFIG, &unset, config, size);
}

/* A job that begins with an agreement. */
struct agreed_job {
    const tally_ddp *ddp;
    struct tally__outcome before; /* of the part on this rank */
    tally_job_fn fn;
    void *user;
};

static int run_agreed(tally_lane *lane, void *user)
{
    const struct agreed_job *job = user;

    tally__waits_show(job->ddp->trace.status);
    tally__doing_call(lane, job->ddp->call, job->ddp->step + job->ddp->steps_before);
    TRY(tally__agree_status(lane, &job->before));
    return job->fn ? job->fn(lane, job->user) : TALLY_OK;
}

int tally__ddp_run(tally_ddp *ddp, tally_job_fn job, void *user)
{
    return tally__ddp_agree(ddp, TALLY_OK, job, user);
}

int tally__ddp_agree(tally_ddp *ddp, int status, tally_job_fn job, void *user)
{
    struct agreed_job agreed = {ddp, tally__outcome_of(status), job, user};
    const struct tally__job made = {.fn = run_agreed,
                                    .user = &agreed,
                                    .end = TALLY__ENDS_WITH_ROUND,
                                    .wake = TALLY__WAKE_NOBODY};
    tally_future *future;
    int rc;

    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "this call blocks: it is not for jobs on a lane");
    }
    TRY(tally__check_alive(ddp->group));
    TRY(tally__submit(&ddp->group->lanes[0], &made, &future));
    rc = tally_future_wait(future);
    tally__stats_other(ddp, tally_future_bytes_sent(future));
    tally_future_free(future);
    return rc;
}

int tally__check_ddp(const tally_ddp *ddp, const char *call)
{
    return ddp ? tally__check_creator(&ddp->group->creator)
               : tally__fail(TALLY_ARG, "%s: ddp is NULL", call);
}

void tally__doing_part(tally_lane *lane, const tally_ddp *ddp, int bucket, int first, size_t n)
{
    const struct tally__step_words words = {.step = ddp->step + ddp->steps_before + 1,
                                            .bucket = bucket,
                                            .name = ddp->params[first].name,
                                            .has_more = n > 1,
                                            .hook = ddp->hook->table.name};

    tally__doing_step(lane, &words);
}

void tally__show_state(tally_ddp *ddp, enum tally__status_state state, const char *call)
{
    (void)pthread_mutex_lock(&ddp->mutex);
    tally__status_set(ddp->trace.status, state, call);
    (void)pthread_mutex_unlock(&ddp->mutex);
}

int tally__check_between_steps(tally_ddp *ddp, const char *call)
{
    bool in_step;

    TRY(tally__check_ddp(ddp, call));
    (void)pthread_mutex_lock(&ddp->mutex);
    in_step = ddp->now.begun;
    ddp->call = in_step ? ddp->call : call;
    (void)pthread_mutex_unlock(&ddp->mutex);
    if (in_step) {
        return tally__fail(TALLY_STATE, "%s: a step is under way; %s first", call,
                           ddp->is_reducer ? "wait for the futures of its buckets"
                                           : "call tally_ddp_wait");
    }
    tally__show_state(ddp, TALLY__STATE_COLLECTIVE, call);
    return TALLY_OK;
}

static int copy_caps(tally_ddp *ddp, const tally_ddp_config *config)
{
    size_t n = config->n_bucket_caps;

    if (n > 0 && (!config->bucket_caps || config->bucket_cap_bytes || config->first_bucket_bytes)) {
        return tally__fail(TALLY_ARG, "config: n_bucket_caps goes with bucket_caps, and instead of "
                                      "bucket_cap_bytes and first_bucket_bytes");
    }
    ddp->n_caps = n > 0 ? n : 2;
    ddp->caps = tally__alloc_array(ddp->n_caps, sizeof *ddp->caps, "bucket caps");
    if (!ddp->caps) {
        return TALLY_NOMEM;
    }
    if (n > 0) {
        memcpy(ddp->caps, config->bucket_caps, n * sizeof *ddp->caps);
        return TALLY_OK;
    }
    ddp->caps[1] = config->bucket_cap_bytes ? config->bucket_cap_bytes : DEFAULT_CAP_BYTES;
    ddp->caps[0] = config->bucket_cap_bytes ? config->bucket_cap_bytes : DEFAULT_FIRST_BYTES;
    if (config->first_bucket_bytes) {
        ddp->caps[0] = config->first_bucket_bytes;
    }
    return TALLY_OK;
}

/* The program's tally_buffer may be smaller or larger than ours: its hook walks the array by its
 * own sizeof. */
static int make_hook_buffers(tally_ddp *ddp, const tally_ddp_config *config)
{
    size_t size = config->buffers && ddp->n_buffers > 0 ? config->buffers[0].size : 0;

    if (!config->buffer_hook) {
        return TALLY_OK;
    }
    ddp->hook_buffers = tally__alloc_array(ddp->n_buffers, size, "buffers");
    if (!ddp->hook_buffers) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        memcpy((unsigned char *)ddp->hook_buffers + i * size, &size, sizeof size);
    }
    return TALLY_OK;
}

static int copy_buffers(tally_ddp *ddp, const tally_ddp_config *config)
{
    ddp->buffers = tally__alloc_array(config->n_buffers, sizeof *ddp->buffers, "buffers");
    if (!ddp->buffers) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < config->n_buffers; i++) {
        tally_buffer buffer = {0};

        TRY(tally__sized_read_entry(TALLY__BUFFER, "buffer", config->buffers, i, &buffer));
        if (!buffer.data && buffer.bytes > 0) {
            return tally__fail(TALLY_ARG, "buffer %zu has no data", i);
        }
        ddp->buffers[i] = buffer;
        ddp->buffers[i].name =
            buffer.name ? tally__alloc_text(buffer.name, "a buffer's name") : NULL;
        if (buffer.name && !ddp->buffers[i].name) {
            return TALLY_NOMEM;
        }
        ddp->n_buffers++;
    }
    return make_hook_buffers(ddp, config);
}

static int copy_config(tally_ddp *ddp, const tally_ddp_config *config)
{
    tally_ddp_config copy = {.size = sizeof copy};

    if (config) {
        TRY(tally__sized_read(DDP_CONFIG, "tally_ddp_create: config", config, &copy));
    }
    if (copy.n_buffers > 0 && !copy.buffers) {
        return tally__fail(TALLY_ARG, "config: %zu buffers, but buffers is NULL", copy.n_buffers);
    }
    TRY(copy_caps(ddp, &copy));
    TRY(copy_buffers(ddp, &copy));
    ddp->config = copy;
    return TALLY_OK;
}

/* The part of creation that needs no other rank. The ddp's own group will have as many ranks and
 * lanes as group. */
static int fill(tally_ddp *ddp, const tally_group *group, const tally_param *params, size_t n,
                const tally_ddp_config *config)
{
    if (!params || n == 0) {
        return tally__fail(TALLY_ARG, "tally_ddp_create: %s",
                           params ? "there are no parameters" : "params is NULL");
    }
    TRY(copy_config(ddp, config));
    TRY(tally__params_copy(ddp, params, n));
    TRY(ddp->observer.prepare ? ddp->observer.prepare(ddp->observer.user, ddp) : TALLY_OK);
    TRY(tally__params_allocate(ddp));
    TRY(tally__checks_make(ddp));
    TRY(tally__residuals_make(n, &ddp->residuals));
    TRY(tally__lateness_make(&ddp->lateness, group));
    return tally_hook_parse("allreduce", &ddp->hook);
}

struct creation {
    tally_ddp *ddp;                /* NULL: there was no memory for it */
    struct tally__outcome outcome; /* of making and filling it */
};

/* Ranks agree that each could make its ddp, compare what they were given, and take rank 0's
 * values. */
static int create_job(tally_lane *lane, void *user)
{
    struct creation *creation = user;
    tally_ddp *ddp = creation->ddp;
    uint64_t is_apart;

    TRY(tally__agree_status(lane, &creation->outcome));
    TRY(tally__params_compare(lane, ddp));
    /* The layout must be the same on all ranks. */
    TRY(tally__agree_any(lane, !ddp->is_flat, &is_apart));
    ddp->is_flat = !is_apart;
    if (!ddp->config.keep_parameters) {
        TRY(tally__values_broadcast(lane, ddp, 0));
    }
    return TALLY_OK;
}

/* Waits for no other rank: memory that others may still read is freed with the group. */
static void unmake(tally_ddp *ddp)
{
    if (!ddp) {
        return;
    }
    tally__status_leave(ddp->trace.status);
    ddp->buckets.memory = NULL;
    tally__buckets_free(ddp, &ddp->buckets);
    (void)tally_group_close(ddp->group);
    tally__checks_free(ddp);
    tally__params_free(ddp);
    tally_hook_free(ddp->hook);
    tally__residuals_free(ddp->residuals);
    tally__lateness_free(&ddp->lateness);
    tally__metrics_free(ddp);
    tally__free(ddp->caps);
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        tally__free((void *)ddp->buffers[i].name);
    }
    tally__free(ddp->buffers);
    tally__free(ddp->hook_buffers);
    (void)pthread_mutex_destroy(&ddp->mutex);
    tally__free(ddp);
}

/* Gives a filled ddp its own group, buckets and hook. Collective. */
static int start(tally_group *group, struct creation *creation)
{
    tally_ddp *ddp = creation->ddp;
    static const struct tally__packing planned = {0};
    struct tally__buckets buckets;

    ddp->group = group;
    tally__ddp_trace_begin(ddp);
    tally__metrics_make(ddp);
    ddp->call = "tally_ddp_create";
    TRY(tally__ddp_run(ddp, create_job, creation));
    if (!ddp->is_reducer) {
        TRY(tally__buckets_make(ddp, ddp->order, &planned, &buckets));
        tally__buckets_adopt(ddp, &buckets);
    }
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        param->mean.last = param->flags & TALLY_PARAM_DELAYED ? NULL : param->mean.array;
    }
    TRY(tally__param_memory_make(ddp));
    ddp->recording = ddp->config.static_graph != 0;
    ddp->presence.root = tally_group_size(group) - 1;
    /* Provided gradients never move. If gradients may be absent in any step, a ready order says
     * nothing about the next step. */
    ddp->may_rebuild = !ddp->provides && !ddp->is_reducer &&
                       (!ddp->config.find_unused || ddp->config.static_graph);
    ddp->rebuild_due = ddp->may_rebuild;
    tally__step_reset(ddp);
    TRY(tally__hook_start(ddp));
    /* Statistics count steps only, not creation. */
    ddp->stats = (struct tally__step_stats){0};
    return TALLY_OK;
}

/* Rank 0 logs the size of the model and the hook. */
static void say_created(const tally_ddp *ddp)
{
    size_t n = 0;

    for (size_t k = 0; k < ddp->n_order; k++) {
        n += ddp->params[ddp->order[k]].n;
    }
    if (ddp->group->rank == 0) {
        tally__log(TALLY_LOG_INFO,
                   "ddp: %zu parameter%s with %zu elements in %zu bucket%s, hook %s", ddp->n_order,
                   ddp->n_order == 1 ? "" : "s", n, ddp->buckets.n, ddp->buckets.n == 1 ? "" : "s",
                   ddp->hook->table.name);
    }
}

int tally__ddp_create(tally_group *group, const tally_param *params, size_t n,
                      const tally_ddp_config *config, const struct tally__observer *observer,
                      tally_ddp **ddp)
{
    struct creation creation = {0};
    tally_group *own = NULL;
    int rc = TALLY_NOMEM;

    if (!group) {
        return tally__fail(TALLY_ARG, "tally_ddp_create: group is NULL");
    }
    TRY(tally__check_creator(&group->creator));
    creation.ddp = tally__alloc(sizeof *creation.ddp, "a ddp");
    if (creation.ddp) {
        (void)pthread_mutex_init(&creation.ddp->mutex, NULL);
        creation.ddp->observer = *observer;
        creation.ddp->words = (struct tally__ddp_words){.object = "ddp", .steps = "steps"};
        rc = ddp ? fill(creation.ddp, group, params, n, config)
                 : tally__fail(TALLY_ARG, "tally_ddp_create: ddp is NULL");
    }
    /* A rank that failed takes part until all know, so that no rank waits for it. */
    creation.outcome = tally__outcome_of(rc);
    rc = tally__group_split(group, 0, tally_group_rank(group), TALLY__THREADS_OWN, &own);
    if (rc == TALLY_OK) {
        rc = creation.ddp ? start(own, &creation)
                          : tally__submit_and_wait(&own->lanes[0], create_job, &creation);
    }
    if (rc != TALLY_OK || !ddp) {
        creation.outcome = tally__outcome_of(rc);
        if (!creation.ddp) {
            (void)tally_group_close(own);
        }
        unmake(creation.ddp);
        return tally__outcome_return(&creation.outcome);
    }
    *ddp = creation.ddp;
    say_created(creation.ddp);
    return TALLY_OK;
}

tally_group *tally_ddp_group(const tally_ddp *ddp)
{
    return ddp ? ddp->group : NULL;
}

void tally__ddp_free(tally_ddp *ddp)
{
    if (!ddp) {
        return;
    }
    /* A step under way will never end: the other ranks must not wait for it. */
    if (ddp->now.begun) {
        (void)tally__fail(TALLY_ABORTED, "freed its %s in the middle of step %llu",
                          ddp->words.object, ddp->step + ddp->steps_before + 1);
        (void)tally__step_abort(ddp, TALLY_ABORTED);
    }
    /* No thread has waited for the jobs of a reducer, and they use the hook's state. */
    for (int i = 0; ddp->is_reducer && i < ddp->group->n_lanes; i++) {
        (void)tally__drain(&ddp->group->lanes[i]);
    }
    ddp->hook->table.detach(ddp->hook->state, ddp);
    ddp->hook->private.leave(ddp->hook->state);
    (void)snprintf(ddp->group->farewell, sizeof ddp->group->farewell, "freed its %s after %llu %s",
                   ddp->words.object, ddp->step + ddp->steps_before, ddp->words.steps);
    unmake(ddp);
}

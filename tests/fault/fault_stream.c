/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endless stream of a rank. All ranks draw the same sequence of collectives from the seed: as
 * separate calls or inside jobs, in group memory or ordinary memory, on either lane, on the group
 * or on a sub-group, one at a time or two at once. The rank's main thread enters; jobs run on the
 * lanes and touch only their task.
 */
#include "fault/fault_stream.h"

#include <stdlib.h>

#include "fault/fault_op.h"

#define N_TASKS 2
#define AT_ONCE_NS (UINT64_C(2000) * FAULT_NS_PER_MS)

enum form { AS_CALL, AS_JOB, AS_JOB_OF_HALF, N_FORMS };

/* A collective under way, with its buffers. */
struct task {
    struct fault_op op;
    int form;
    int n_times; /* in a job */
    int lane;
    tally_group *group; /* of the job, and of its collectives */
    tally_group *target;
    tally_future *future;
    struct fault_report *report;
    int32_t *in_group[2]; /* data and received, in group memory and in ordinary memory */
    int32_t *ordinary[2];
};

struct stream {
    const struct fault_plan *plan;
    struct fault_report *report;
    uint64_t random;
    tally_group *world;
    tally_group *half; /* a sub-group, or NULL */
    struct task task[N_TASKS];
    int32_t tag;
};

/* Every result counts: a round that a dead rank never reached must not look like a success. */
static void check_result(const struct task *task)
{
    if (!fault_op_is_right(&task->op, task->target)) {
        fault_complain(task->report, "wrong result: collective %d of %zu elements, tag %d",
                       task->op.kind, task->op.count, (int)task->op.tag);
    }
}

static int run_task(tally_lane *lane, void *user)
{
    struct task *task = user;

    for (int i = 0; i < task->n_times; i++) {
        tally_lane *on = task->target == task->group ? lane : tally_lane_for(lane, task->target);
        int rc;

        fault_op_prepare(&task->op, task->target);
        rc = fault_op_on_lane(&task->op, on);
        if (rc != TALLY_OK) {
            return rc;
        }
        check_result(task);
    }
    return TALLY_OK;
}

static void draw_task(struct stream *stream, struct task *task)
{
    uint64_t *random = &stream->random;
    bool is_small = fault_random(random, 3) != 0;
    bool in_group = fault_random(random, 2) != 0;
    bool on_half = fault_random(random, 3) == 0;

    task->op.kind = (int)fault_random(random, FAULT_N_OP_KINDS);
    task->op.count = fault_random(random, is_small ? 2000 : (uint32_t)FAULT_MAX_ELEMENTS / 2);
    task->op.tag = ++stream->tag;
    task->op.data = in_group ? task->in_group[0] : task->ordinary[0];
    task->op.received = in_group ? task->in_group[1] : task->ordinary[1];
    task->form = (int)fault_random(random, N_FORMS);
    task->n_times = 1 + (int)fault_random(random, 3);
    task->lane = (int)fault_random(random, (uint32_t)stream->plan->lanes);
    task->target = stream->half && on_half ? stream->half : stream->world;
    /* A job of the group may use the lane of the sub-group, or be the sub-group's own. */
    task->group = task->form == AS_JOB_OF_HALF ? task->target : stream->world;
}

static int begin_task(struct task *task)
{
    task->future = NULL;
    if (task->form == AS_CALL) {
        fault_op_prepare(&task->op, task->target);
        return fault_op_submit(&task->op, task->target, &task->future);
    }
    return tally_submit(task->group, task->lane, run_task, task, &task->future);
}

static int end_task(struct task *task)
{
    int rc = tally_future_wait(task->future);

    if (rc == TALLY_OK && task->form == AS_CALL) {
        check_result(task);
    }
    tally_future_free(task->future);
    return rc;
}

/* One or two collectives; false when any of them failed. */
static bool run_batch(struct stream *stream)
{
    int n = 1 + (int)fault_random(&stream->random, N_TASKS);
    bool is_well = true;
    int n_begun = 0;

    for (int i = 0; i < n && is_well; i++) {
        int rc;

        draw_task(stream, &stream->task[i]);
        rc = begin_task(&stream->task[i]);
        if (rc != TALLY_OK) {
            fault_note_failure(stream->report, rc);
            is_well = false;
        } else {
            n_begun++;
        }
    }
    for (int i = 0; i < n_begun; i++) {
        int rc = end_task(&stream->task[i]);

        if (rc != TALLY_OK) {
            fault_note_failure(stream->report, rc);
            is_well = false;
        }
    }
    stream->report->n_done += is_well ? (uint64_t)n : 0;
    return is_well;
}

/* Splits the world again from time to time, as the seed decides. */
static bool divide(struct stream *stream)
{
    int rank = tally_group_rank(stream->world);
    int color = fault_random(&stream->random, 3) == 0 ? 0 : rank % 2;
    int rc;

    if (stream->half && tally_group_close(stream->half) != TALLY_OK) {
        fault_complain(stream->report, "closing a sub-group: %s", tally_last_error());
    }
    stream->half = NULL;
    rc = tally_group_split(stream->world, color, -rank, &stream->half);
    if (rc != TALLY_OK) {
        fault_note_failure(stream->report, rc);
    }
    return rc == TALLY_OK;
}

static bool is_asked_to_leave(const struct stream *stream)
{
    return stream->plan->leave && atomic_load_explicit(stream->plan->leave, memory_order_acquire);
}

/*
 * A rank that failed in a sub-group has not yet heard from the whole group. A rank that was stopped
 * may find that all others came to its next barrier before they gave up: that barrier is complete.
 */
static void fail_in_world(struct stream *stream)
{
    int rc = fault_barrier(stream->world);

    if (rc == TALLY_OK) {
        rc = fault_barrier(stream->world);
    }
    if (rc == TALLY_OK) {
        fault_complain(stream->report, "the group is well although a rank is gone");
        return;
    }
    fault_note_failure(stream->report, rc);
}

static void check_later_calls(struct stream *stream)
{
    uint64_t start = fault_now_ns();
    tally_group *group;
    tally_future *future;
    void *memory;
    const struct {
        const char *name;
        int rc;
    } calls[] = {
        {"barrier", tally_barrier(stream->world, &future)},
        {"submit", tally_submit(stream->world, 0, run_task, &stream->task[0], &future)},
        {"split", tally_group_split(stream->world, 0, 0, &group)},
        {"alloc", tally_group_alloc(stream->world, 64, &memory)},
    };
    uint64_t took = fault_now_ns() - start;

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (calls[i].rc != TALLY_ABORTED) {
            fault_complain(stream->report, "a later %s is %s", calls[i].name,
                           tally_status_name(calls[i].rc));
        }
    }
    if (took > AT_ONCE_NS) {
        fault_complain(stream->report, "later calls took %llu ms",
                       (unsigned long long)(took / FAULT_NS_PER_MS));
    }
}

static bool get_buffers(struct stream *stream)
{
    size_t bytes = FAULT_MAX_ELEMENTS * sizeof(int32_t);

    for (int i = 0; i < 2 * N_TASKS; i++) {
        struct task *task = &stream->task[i / 2];
        void *memory = NULL;
        int rc = tally_group_alloc(stream->world, bytes, &memory);

        if (rc != TALLY_OK) {
            fault_note_failure(stream->report, rc);
            return false;
        }
        task->report = stream->report;
        task->in_group[i % 2] = memory;
        task->ordinary[i % 2] = calloc(1, bytes);
    }
    return true;
}

static void close_all(struct stream *stream)
{
    if (stream->half && tally_group_close(stream->half) != TALLY_OK) {
        fault_complain(stream->report, "close of the sub-group: %s", tally_last_error());
    }
    if (tally_group_close(stream->world) != TALLY_OK) {
        fault_complain(stream->report, "close: %s", tally_last_error());
    }
    for (int i = 0; i < 2 * N_TASKS; i++) {
        free(stream->task[i / 2].ordinary[i % 2]);
    }
    fault_set_milestone(stream->report, FAULT_CLOSED);
}

int fault_stream(const struct fault_plan *plan, int rank, struct fault_report *report)
{
    /* Static: a rank that exits in the middle of it leaves nothing unreachable behind. */
    static struct stream stream;
    tally_group_config config =
        fault_config(rank, plan->world, plan->rendezvous, plan->timeout_s, 30);
    bool is_well;
    int rc;

    stream = (struct stream){.plan = plan, .report = report, .random = plan->seed};
    config.lanes = plan->lanes;
    rc = tally_group_open(&config, &stream.world);
    if (rc != TALLY_OK) {
        fault_complain(report, "open: %s", tally_last_error());
        return 1;
    }
    fault_set_milestone(report, FAULT_OPEN);
    is_well = get_buffers(&stream);
    for (unsigned i = 0; is_well && !is_asked_to_leave(&stream); i++) {
        is_well = (!plan->splits || i % 40 != 0 || divide(&stream)) && run_batch(&stream);
    }
    if (!is_well) {
        fail_in_world(&stream);
        report->failed_ns = fault_now_ns();
        fault_set_milestone(report, FAULT_FAILED);
        check_later_calls(&stream);
    }
    close_all(&stream);
    return 0;
}

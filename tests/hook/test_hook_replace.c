/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that replace others in the middle of a run: an equal one continues to the bit, any other
 * one delivers the residuals, and the state of a hook passes to the next one of its kind. If ranks
 * do not agree about a hook, or cannot attach it, nothing changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hook_states.h"

#define N_BEFORE 3
#define N_AFTER 4

/* As in test_hook_save.c. */
#define ROUNDING 4e-6

/* ---- an equal one ---- */

static int equal_body(tally_group *group, void *user)
{
    static const struct {
        struct state_setup setup;
        const char *next;
    } cases[] = {
        {{"int8", false, 0}, "int8"},
        {{"int8", true, 0}, "int8 : block = 512"},
        {{"bf16(int8)", false, 0}, "bf16(int8)"},
        {{"int8:block=64,exempt=none", true, 0}, "int8:exempt=none,block=64"},
        {{"powersgd:rank=2,start=1", false, 0}, "powersgd:start=1,rank=2"},
        {{"batched_powersgd:rank=1,start=2", true, 0}, "batched_powersgd:rank=1,start=2"},
    };

    (void)user;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        uint64_t hash[2][2];

        for (int replaces = 0; replaces < 2; replaces++) {
            struct state_run run;

            CHECK_OK(group, state_run_start(group, &cases[k].setup, &run));
            CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash[replaces][0]));
            if (replaces) {
                CHECK_OK(group, tally_ddp_set_hook(run.ddp, cases[k].next));
                CHECK_OK(group, tally_ddp_set_hook(run.ddp, cases[k].next));
            }
            CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &hash[replaces][1]));
            CHECK_OK(group, state_run_end(group, &run));
        }
        if (memcmp(hash[0], hash[1], sizeof hash[0]) != 0) {
            (void)fprintf(stderr, "with %s\n", cases[k].setup.hook);
        }
        CHECK(group, memcmp(hash[0], hash[1], sizeof hash[0]) == 0);
    }
    return 0;
}

/* ---- another one ---- */

/* A hook with feedback that leaves out all but every third element, in turn; or nothing. */
static int part_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const unsigned *n_parts = state;

    for (int k = 0; k < bucket->n_params && bucket->dtype == TALLY_F32; k++) {
        float *gradient = bucket->params[k].gradient;
        float *residual;
        int rc = tally_bucket_residual(bucket, k, &residual);

        if (rc != TALLY_OK) {
            return rc;
        }
        for (size_t e = 0; e < bucket->params[k].n; e++) {
            float owed = gradient[e] + residual[e];
            bool sends = (e + bucket->step) % *n_parts == 0;

            gradient[e] = sends ? owed : 0;
            residual[e] = sends ? 0 : owed;
        }
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

/* Sets a hook by its text; "thirds" and "all" are the one above. */
static int set_hook(tally_group *group, tally_ddp *ddp, const char *text)
{
    static unsigned thirds = 3;
    static unsigned all = 1;
    const tally_hook_table table = {
        .size = sizeof table, .name = text, .feedback = 1, .reduce = part_reduce};
    bool is_all = strcmp(text, "all") == 0;
    tally_hook *hook;

    if (!is_all && strcmp(text, "thirds") != 0) {
        CHECK_OK(group, tally_ddp_set_hook(ddp, text));
        return 0;
    }
    CHECK_OK(group, tally_hook_create(&table, is_all ? &all : &thirds, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    tally_hook_free(hook);
    return 0;
}

struct change {
    const char *from;
    const char *to;
    bool pays; /* one step with the second one leaves nothing */
};

static const struct change changes[] = {
    {"int8", "allreduce", true},
    {"int8", "int8:feedback=0", false},
    {"int8", "int8:block=64", false},
    {"int8", "thirds", false},
    {"int8:exempt=none", "all", true},
    {"thirds", "int8", false},
    {"int8:exempt=none", "int8", false},
    {"int8:exempt=none,block=64", "bf16(int8:exempt=none,block=64)", false},
    {"bf16(int8:exempt=none)", "int8", false},
    {"int8", "powersgd:rank=1,start=0", false},
    {"powersgd:rank=1,start=0", "int8", false},
    {"powersgd:rank=2,start=0", "allreduce", true},
    {"powersgd:rank=2,start=0", "powersgd:rank=1,start=0", false},
    {"batched_powersgd:rank=1,start=0", "powersgd:rank=1,start=0", false},
    {"thirds", "batched_powersgd:rank=1,start=0", false},
    {"thirds", "quantize_per_channel", false},
};

static int change_hooks(tally_group *group, const struct change *change, bool copies)
{
    const struct state_setup setup = {"allreduce", copies, 0};
    struct state_totals totals = {0};
    struct state_run run;
    double owed;

    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, set_hook(group, run.ddp, change->from));
    CHECK_OK(group, state_count_steps(group, &run, 0, N_BEFORE, &totals));
    owed = state_owed(&totals);
    CHECK(group, owed > 100 * ROUNDING);
    CHECK_OK(group, set_hook(group, run.ddp, change->to));
    CHECK_OK(group, state_count_steps(group, &run, N_BEFORE, 1, &totals));
    CHECK(group, (state_owed(&totals) < ROUNDING) == change->pays);
    /* What a hook without feedback leaves out does not come back: then only the feedback of the
     * earlier hooks is seen. */
    if (strstr(change->to, "feedback=0") || strstr(change->to, "quantize")) {
        CHECK(group, state_owed(&totals) < 0.1);
    } else {
        CHECK_OK(group, state_count_steps(group, &run, N_BEFORE + 1, N_AFTER, &totals));
        CHECK_OK(group, tally_ddp_set_hook(run.ddp, "allreduce"));
        CHECK_OK(group, state_count_steps(group, &run, 50, 1, &totals));
        CHECK(group, state_owed(&totals) < ROUNDING);
    }
    CHECK_OK(group, state_run_end(group, &run));
    return 0;
}

static int change_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < 2 * sizeof changes / sizeof changes[0]; k++) {
        const struct change *change = &changes[k / 2];

        if (change_hooks(group, change, k % 2 != 0) != 0) {
            (void)fprintf(stderr, "from %s to %s, %s\n", change->from, change->to,
                          k % 2 ? "copies" : "views");
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* A parameter that is compressed no more gets what is left of it at once. */
static int exempt_body(tally_group *group, void *user)
{
    static const char *const next[] = {"int8", "powersgd:rank=1,start=0"};
    const struct state_setup setup = {"int8:exempt=none", false, 0};

    (void)user;
    for (size_t k = 0; k < sizeof next / sizeof next[0]; k++) {
        struct state_totals totals = {0};
        struct state_run run;

        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, state_count_steps(group, &run, 0, N_BEFORE, &totals));
        CHECK_OK(group, tally_ddp_set_hook(run.ddp, next[k]));
        CHECK_OK(group, state_count_steps(group, &run, N_BEFORE, 1, &totals));
        /* All but the vector, which comes second. */
        memset(totals.delivered, 0, run.model.count[0] * sizeof totals.delivered[0]);
        memset(totals.expected, 0, run.model.count[0] * sizeof totals.expected[0]);
        for (size_t e = run.model.count[0] + run.model.count[1]; e < STATE_N_ELEMENTS; e++) {
            totals.delivered[e] = totals.expected[e];
        }
        CHECK(group, state_owed(&totals) < ROUNDING);
        CHECK_OK(group, state_run_end(group, &run));
    }
    return 0;
}

/* After noop, gradients are the rank's own plus its residual, as an all-reduce expects them. */
static int noop_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"int8", false, 0};
    struct state_totals totals = {0};
    struct state_run run;
    size_t at = 0;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, state_count_steps(group, &run, 0, N_BEFORE, &totals));
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, "noop"));
    CHECK_OK(group, state_step(group, &run, N_BEFORE));
    for (size_t i = 0; i < run.model.n; i++) {
        float *grad = tally_ddp_grad(run.ddp, (int)i);
        tally_future *future;

        if (!grad || run.model.spec[i].dtype != TALLY_F32) {
            continue;
        }
        CHECK_OK(group,
                 tally_all_reduce(group, grad, run.model.count[i], TALLY_F32, TALLY_MEAN, &future));
        CHECK_OK(group, ranks_finish(future));
        for (size_t e = 0; e < run.model.count[i]; e++, at++) {
            totals.delivered[at] += (double)grad[e];
            for (int r = 0; r < tally_group_size(group); r++) {
                totals.expected[at] +=
                    ddp_value(TALLY_F32, N_BEFORE, r, i, e) / tally_group_size(group);
            }
        }
    }
    CHECK(group, state_owed(&totals) < ROUNDING);
    CHECK_OK(group, state_run_end(group, &run));
    return 0;
}

/* ---- the state of an application hook ---- */

struct counter {
    int n_steps;      /* the state */
    bool is_attached; /* and must not be attached again */
    int attach_status;
    int load_status;
};

static int counter_attach(void *state, tally_ddp *ddp)
{
    struct counter *counter = state;

    (void)ddp;
    if (counter->attach_status != TALLY_OK || counter->is_attached) {
        return counter->is_attached ? TALLY_STATE : counter->attach_status;
    }
    counter->is_attached = true;
    return TALLY_OK;
}

static void counter_detach(void *state, tally_ddp *ddp)
{
    (void)ddp;
    ((struct counter *)state)->is_attached = false;
}

static int counter_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    ((struct counter *)state)->n_steps += bucket->is_last;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int counter_save(void *state, void *blob, size_t *bytes)
{
    if (blob) {
        memcpy(blob, &((struct counter *)state)->n_steps, sizeof(int));
    }
    *bytes = sizeof(int);
    return TALLY_OK;
}

static int counter_load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct counter *counter = state;

    if (counter->load_status != TALLY_OK) {
        return tally_job_fail(NULL, counter->load_status, "the counter is stuck");
    }
    memcpy(&counter->n_steps, blobs[0].data, sizeof counter->n_steps);
    return n_blobs == 1 && blobs[0].bytes == sizeof counter->n_steps ? TALLY_OK : TALLY_ARG;
}

static int make_counter(tally_group *group, const char *name, struct counter *counter,
                        tally_hook **hook)
{
    const tally_hook_table table = {.size = sizeof table,
                                    .name = name,
                                    .attach = counter_attach,
                                    .reduce = counter_reduce,
                                    .detach = counter_detach,
                                    .save = counter_save,
                                    .load = counter_load};

    CHECK_OK(group, tally_hook_create(&table, counter, hook));
    return 0;
}

/* Attaches and drops the hook. */
static int attach(tally_group *group, tally_ddp *ddp, tally_hook *hook, int status)
{
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, hook), status);
    tally_hook_free(hook);
    return 0;
}

static int hand_over_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"allreduce", false, 0};
    struct counter counters[5] = {0};
    struct state_run run;
    tally_hook *hook;
    tally_hook *wrapper;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, make_counter(group, "counter", &counters[0], &hook));
    CHECK_OK(group, attach(group, run.ddp, hook, TALLY_OK));
    CHECK_OK(group, state_step(group, &run, 0));
    CHECK(group, counters[0].n_steps == 1 && counters[0].is_attached);
    /* To one of the same name, with options, and wrapped. */
    CHECK_OK(group, make_counter(group, "counter", &counters[1], &hook));
    CHECK_OK(group, attach(group, run.ddp, hook, TALLY_OK));
    CHECK_OK(group, state_step(group, &run, 1));
    CHECK(group, counters[1].n_steps == 2 && !counters[0].is_attached);
    CHECK_OK(group, make_counter(group, "counter:from=3", &counters[2], &hook));
    CHECK_OK(group, tally_hook_wrap("bf16", hook, &wrapper));
    tally_hook_free(hook);
    CHECK_OK(group, attach(group, run.ddp, wrapper, TALLY_OK));
    CHECK_OK(group, state_step(group, &run, 2));
    CHECK(group, counters[2].n_steps == 3 && counters[2].is_attached);
    /* To one of another name: it starts by itself. */
    CHECK_OK(group, make_counter(group, "counter2", &counters[3], &hook));
    CHECK_OK(group, attach(group, run.ddp, hook, TALLY_OK));
    CHECK_OK(group, state_step(group, &run, 3));
    CHECK(group, counters[3].n_steps == 1 && !counters[2].is_attached);
    CHECK_OK(group, state_run_end(group, &run));
    for (size_t k = 0; k < sizeof counters / sizeof counters[0]; k++) {
        CHECK(group, !counters[k].is_attached);
    }
    return 0;
}

/* The hook there is, given again, with and without a wrapper; on one rank an equal one instead. */
static int again_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"allreduce", false, 0};
    bool odd = tally_group_rank(group) == tally_group_size(group) - 1;
    struct counter counter = {0};
    struct counter equal = {0};
    struct state_run run;
    tally_hook *hook;
    tally_hook *wrapper;
    tally_hook *other;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, make_counter(group, "counter", &counter, &hook));
    CHECK_OK(group, tally_hook_wrap("fp16", hook, &wrapper));
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, hook));
    for (int k = 0; k < 4; k++) {
        CHECK_OK(group, tally_ddp_attach_hook(run.ddp, k % 2 ? hook : wrapper));
        CHECK_OK(group, tally_ddp_attach_hook(run.ddp, k % 2 ? hook : wrapper));
        CHECK(group, counter.is_attached);
        CHECK_OK(group, state_step(group, &run, 0));
        CHECK(group, counter.n_steps == k + 1);
    }
    CHECK_OK(group, make_counter(group, "counter", &equal, &other));
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, odd ? other : hook));
    CHECK_OK(group, state_step(group, &run, 1));
    CHECK(group, (odd ? equal : counter).n_steps == 5);
    CHECK(group, counter.is_attached == !odd && equal.is_attached == odd);
    tally_hook_free(other);
    tally_hook_free(wrapper);
    tally_hook_free(hook);
    CHECK_OK(group, ddp_right_step(group, run.ddp, &run.model, 2));
    CHECK_OK(group, state_run_end(group, &run));
    CHECK(group, !counter.is_attached && !equal.is_attached);
    return 0;
}

/* ---- what fails changes nothing ---- */

static int try_in_vain(tally_group *group, tally_ddp *ddp, struct counter *counter)
{
    bool odd = tally_group_rank(group) == tally_group_size(group) - 1;
    char name[260];
    tally_hook *hook;

    /* Different texts and names, an unknown name, and NULL. */
    if (tally_group_size(group) > 1) {
        CHECK_STATUS(group, tally_ddp_set_hook(ddp, odd ? "int8:block=64" : "int8"),
                     TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(), "'int8:block=64'");
        /* Names that differ at their ends. */
        memset(name, 'x', sizeof name);
        (void)snprintf(name + 250, 10, "%d", odd);
        CHECK_OK(group, make_counter(group, name, counter, &hook));
        CHECK_OK(group, attach(group, ddp, hook, TALLY_MISMATCH));
    }
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, odd ? "int9" : "int8"), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "int9");
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, NULL), TALLY_ARG);
    /* One that cannot attach on one rank, and says no word. */
    counter->attach_status = odd ? TALLY_SYSTEM : TALLY_OK;
    CHECK_OK(group, make_counter(group, "counter", counter, &hook));
    CHECK_OK(group, attach(group, ddp, hook, TALLY_SYSTEM));
    CHECK_TEXT(group, tally_last_error(), "hook 'counter': attach failed: the operating system");
    CHECK(group, !counter->is_attached);
    counter->attach_status = TALLY_OK;
    return 0;
}

static int in_vain_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"int8", true, 0};
    struct counter counter = {0};
    struct hook_states states;
    uint64_t hash[2];

    (void)user;
    for (int tries = 0; tries < 2; tries++) {
        struct state_run run;

        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash[tries]));
        if (tries) {
            CHECK_OK(group, hook_states_take(group, run.ddp, &states));
            CHECK_OK(group, try_in_vain(group, run.ddp, &counter));
            CHECK(group, hook_states_unchanged(group, run.ddp, &states));
            hook_states_free(&states);
        }
        CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &hash[tries]));
        CHECK_OK(group, state_run_end(group, &run));
    }
    CHECK(group, hash[0] == hash[1]);
    return 0;
}

/* The next one cannot take the state on one rank: the one before goes on, with its own. */
static int stuck_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"allreduce", false, 0};
    bool odd = tally_group_rank(group) == tally_group_size(group) - 1;
    struct counter counter = {0};
    struct counter stuck = {.load_status = odd ? TALLY_NUMERIC : TALLY_OK};
    struct state_run run;
    tally_hook *hook;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, make_counter(group, "counter", &counter, &hook));
    CHECK_OK(group, attach(group, run.ddp, hook, TALLY_OK));
    CHECK_OK(group, state_step(group, &run, 0));
    CHECK_OK(group, make_counter(group, "counter", &stuck, &hook));
    CHECK_OK(group, attach(group, run.ddp, hook, TALLY_NUMERIC));
    CHECK_TEXT(group, tally_last_error(), "the counter is stuck");
    CHECK(group, !stuck.is_attached && counter.is_attached);
    CHECK_OK(group, state_step(group, &run, 1));
    CHECK(group, counter.n_steps == 2 && stuck.n_steps <= 1);
    CHECK_OK(group, state_run_end(group, &run));
    return 0;
}

int main(void)
{
    int n_failures = ddp_run_seven("an equal one", equal_body, NULL, 1);

    n_failures += ddp_run_seven("another one", change_body, NULL, 1);
    n_failures += ddp_run_seven("exempt", exempt_body, NULL, 1);
    n_failures += ddp_run_seven("noop", noop_body, NULL, 1);
    n_failures += ddp_run("handing over", hand_over_body, NULL, 1);
    n_failures += ddp_run("the same again", again_body, NULL, 1);
    n_failures += ddp_run_seven("in vain", in_vain_body, NULL, 1);
    n_failures += ddp_run("stuck", stuck_body, NULL, 1);
    return n_failures != 0;
}

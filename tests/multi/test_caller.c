/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that a job runs on. A wait without a deadline may run the job itself: then with
 * tally's floating-point environment, in the order of the lane, and as on a lane in every other
 * way. Timed waits and tests never run a job, and a job with a callback stays on the lane thread. A
 * job runs also if nobody waits for it, after any number of jobs that somebody waited for at once.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/num_env.h"
#include "support/ranks.h"

/* Waits after which a queue expects that the next one comes at once: more than it needs. */
#define N_LEARN 40
/* Repetitions of something that happens almost every time, but may be lost to the lane thread. */
#define N_TRIES RANKS_REPEATS(400, 100)

/* For something that must happen once: how many times to try all of these again. */
#define N_PATIENCE 1000

static bool has_lane_threads(void)
{
    return ranks_now()->lanes > 0;
}

/* ---- the thread of a job ---- */

struct seen {
    pthread_t thread;
    uint64_t environment;
    atomic_int n;
};

static int seen_job(tally_lane *lane, void *user)
{
    struct seen *seen = user;

    (void)lane;
    seen->thread = pthread_self();
    seen->environment = num_environment();
    atomic_fetch_add(&seen->n, 1);
    return TALLY_OK;
}

static bool is_here(const struct seen *seen)
{
    return pthread_equal(seen->thread, pthread_self()) != 0;
}

/* Submits and waits at once, so that the lane expects it to be so again. Returns how many of the
 * jobs ran on this thread; negative: one failed. */
static int learn(tally_group *group, int n)
{
    int n_here = 0;

    for (int i = 0; i < n; i++) {
        struct seen seen = {0};

        CHECK_OK(group, ranks_job(group, 0, seen_job, &seen));
        CHECK(group, atomic_load(&seen.n) == 1);
        n_here += is_here(&seen);
    }
    return n_here;
}

static int here_body(tally_group *group, void *user)
{
    int n_here = learn(group, N_TRIES);

    (void)user;
    CHECK(group, has_lane_threads() ? n_here >= 0 : n_here == N_TRIES);
    /* A busy machine may let the lane thread win many times. */
    for (int i = 0; n_here == 0 && tally_group_size(group) == 1 && i < N_PATIENCE; i++) {
        n_here = learn(group, N_TRIES);
    }
    CHECK(group, n_here > 0 || tally_group_size(group) > 1);
    return 0;
}

/* A job must not block, whichever thread runs it. */
static int blocking_job(tally_lane *lane, void *user)
{
    tally_group *group = tally_lane_group(lane);
    tally_future *future;
    void *memory;

    (void)seen_job(lane, user);
    CHECK_STATUS(group, tally_group_alloc(group, 8, &memory), TALLY_STATE);
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_STATUS(group, tally_future_wait(future), TALLY_STATE);
    CHECK_STATUS(group, tally_future_wait_for(future, 1), TALLY_STATE);
    tally_future_free(future);
    return tally_lane_barrier(lane);
}

/* After a job that ran here, this thread may block again. */
static int blocking_body(tally_group *group, void *user)
{
    int n_here = 0;

    (void)user;
    for (int i = 0; i < N_TRIES / 4; i++) {
        struct seen seen = {0};
        void *memory;

        CHECK_OK(group, ranks_job(group, 0, blocking_job, &seen));
        CHECK_OK(group, tally_group_alloc(group, 8, &memory));
        CHECK_OK(group, tally_group_free(group, memory));
        n_here += is_here(&seen);
    }
    CHECK(group, has_lane_threads() || n_here == N_TRIES / 4);
    return 0;
}

/* The caller's floating-point environment is unseen in the job, and in force after it. */
static int environment_body(tally_group *group, void *user)
{
    uint64_t usual = num_environment();

    (void)user;
    for (unsigned i = 0; i < num_n_environments * N_LEARN; i++) {
        struct seen seen = {0};
        uint64_t after;
        uint64_t mine;
        int rc;

        num_set_environment(i % num_n_environments);
        mine = num_environment();
        rc = ranks_job(group, 0, seen_job, &seen);
        after = num_environment();
        num_set_environment(0);
        CHECK_OK(group, rc);
        CHECK(group, after == mine);
        CHECK(group, seen.environment == usual);
    }
    return 0;
}

/* ---- jobs that stay on the lane thread ---- */

/* Neither a timed wait nor a test runs a job, also when the lane expects a wait. */
static int timed_body(tally_group *group, void *user)
{
    (void)user;
    for (int i = 0; has_lane_threads() && i < N_TRIES / 10; i++) {
        struct seen seen = {0};
        tally_future *future;
        int done = 0;

        CHECK(group, learn(group, N_LEARN) >= 0);
        CHECK_OK(group, tally_submit(group, 0, seen_job, &seen, &future));
        if (i % 2) {
            CHECK_OK(group, tally_future_wait_for(future, 60));
        }
        while (!done) {
            CHECK_OK(group, tally_future_test(future, &done));
        }
        CHECK(group, !is_here(&seen));
        tally_future_free(future);
    }
    return 0;
}

/* A job runs on the lane thread even if no thread waits for it or tests it. */
static int alone_body(tally_group *group, void *user)
{
    (void)user;
    for (int i = 0; has_lane_threads() && i < N_TRIES / 10; i++) {
        struct seen seen = {0};
        tally_future *future = NULL;

        CHECK(group, learn(group, N_LEARN) >= 0);
        CHECK_OK(group, tally_submit(group, 0, seen_job, &seen, i % 3 ? &future : NULL));
        if (i % 3 == 2) {
            tally_future_free(future);
        }
        for (int ms = 0; atomic_load(&seen.n) == 0 && ms < 60000; ms++) {
            ranks_sleep_ms(1);
        }
        CHECK(group, atomic_load(&seen.n) == 1);
        CHECK(group, !is_here(&seen));
        if (i % 3 == 1) {
            CHECK_OK(group, ranks_finish(future));
        }
    }
    return 0;
}

static void note_done(void *user, int status, const char *text)
{
    struct seen *seen = user;

    (void)text;
    if (status == TALLY_OK) {
        seen->thread = pthread_self();
        atomic_fetch_add(&seen->n, 1);
    }
}

static int callback_body(tally_group *group, void *user)
{
    (void)user;
    for (int i = 0; i < N_TRIES / 10; i++) {
        struct seen job = {0};
        struct seen done = {0};
        struct seen last = {0};
        tally_future *first;
        tally_future *second;

        CHECK(group, learn(group, N_LEARN) >= 0);
        CHECK_OK(group, tally_submit(group, 0, seen_job, &job, &first));
        CHECK_OK(group, tally_future_on_done(first, note_done, &done));
        CHECK_OK(group, tally_submit(group, 0, seen_job, &last, &second));
        /* A wait for the job behind it does not run it either. */
        CHECK_OK(group, tally_future_wait(i % 2 ? first : second));
        CHECK(group, atomic_load(&done.n) <= 1);
        CHECK_OK(group, ranks_finish(second));
        CHECK_OK(group, ranks_finish(first));
        CHECK(group, atomic_load(&done.n) == 1 && atomic_load(&last.n) == 1);
        /* The job may have been done before it had a callback. */
        CHECK(group, !has_lane_threads() || !is_here(&job));
        CHECK(group, pthread_equal(job.thread, done.thread) || is_here(&done));
    }
    return 0;
}

/* ---- a callback for a job under way ---- */

struct late {
    tally_future *future;
    _Atomic uint32_t begun;
    _Atomic uint32_t attached;
    struct seen job;
    struct seen done;
    int rc;
};

static int held_job(tally_lane *lane, void *user)
{
    struct late *late = user;

    (void)seen_job(lane, &late->job);
    atomic_store(&late->begun, 1);
    return ranks_await(&late->attached, 1) == 0 ? TALLY_OK : TALLY_STATE;
}

static void *attach(void *user)
{
    struct late *late = user;

    late->rc = ranks_await(&late->begun, 1) == 0
                   ? tally_future_on_done(late->future, note_done, &late->done)
                   : TALLY_STATE;
    atomic_store(&late->attached, 1);
    return NULL;
}

/* Another thread asks for a callback while this one runs the job: the lane thread makes the call,
 * and the wait is over after it. */
static int late_callback_body(tally_group *group, void *user)
{
    int n_here = 0;

    (void)user;
    CHECK(group, learn(group, N_LEARN) >= 0);
    for (int i = 0; i < N_TRIES / 10; i++) {
        struct late late = {0};
        struct seen last = {0};
        pthread_t thread;
        tally_future *second;

        CHECK(group, learn(group, N_LEARN) >= 0);
        CHECK_OK(group, tally_submit(group, 0, held_job, &late, &late.future));
        CHECK(group, pthread_create(&thread, NULL, attach, &late) == 0);
        CHECK_OK(group, tally_future_wait(late.future));
        CHECK(group, atomic_load(&late.done.n) == 1);
        CHECK(group, pthread_join(thread, NULL) == 0);
        CHECK_OK(group, late.rc);
        CHECK(group, is_here(&late.done) == !has_lane_threads());
        n_here += is_here(&late.job);
        tally_future_free(late.future);
        CHECK_OK(group, tally_submit(group, 0, seen_job, &last, &second));
        CHECK_OK(group, ranks_finish(second));
    }
    CHECK(group, has_lane_threads() || n_here == N_TRIES / 10);
    return 0;
}

/* ---- order ---- */

#define N_THREADS 3

struct crowd {
    tally_group *group;
    pthread_mutex_t mutex; /* tickets are in the order of submission */
    int n_tickets;
    atomic_int n_run;
    atomic_int n_running;
    atomic_int n_wrong;
};

struct ticket {
    struct crowd *crowd;
    int number;
    bool has_run;
};

static int ticket_job(tally_lane *lane, void *user)
{
    struct ticket *ticket = user;
    struct crowd *crowd = ticket->crowd;

    (void)lane;
    if (atomic_fetch_add(&crowd->n_running, 1) != 0 ||
        atomic_fetch_add(&crowd->n_run, 1) != ticket->number) {
        atomic_fetch_add(&crowd->n_wrong, 1);
    }
    ticket->has_run = true;
    atomic_fetch_sub(&crowd->n_running, 1);
    return TALLY_OK;
}

static void *visit(void *user)
{
    struct crowd *crowd = user;

    for (int i = 0; i < N_TRIES / 2; i++) {
        struct ticket tickets[2];
        tally_future *futures[2];
        int rc = TALLY_OK;

        (void)pthread_mutex_lock(&crowd->mutex);
        for (int k = 0; k < 2 && rc == TALLY_OK; k++) {
            tickets[k] = (struct ticket){crowd, crowd->n_tickets++, false};
            rc = tally_submit(crowd->group, 0, ticket_job, &tickets[k], &futures[k]);
        }
        (void)pthread_mutex_unlock(&crowd->mutex);
        /* Waits for the second job first: the thread runs the first one too, or finds that it has
         * run. */
        for (int k = 1; k >= 0 && rc == TALLY_OK; k--) {
            rc = i % 5 == 4 ? tally_future_wait_for(futures[k], 60) : tally_future_wait(futures[k]);
            tally_future_free(futures[k]);
            rc = rc == TALLY_OK && !tickets[k].has_run ? TALLY_INTERNAL : rc;
        }
        if (rc != TALLY_OK) {
            atomic_fetch_add(&crowd->n_wrong, 1);
            return NULL;
        }
    }
    return NULL;
}

/* Threads that wait for jobs of one lane run them in the order of submission, one at a time. */
static int crowd_body(tally_group *group, void *user)
{
    struct crowd crowd = {.group = group, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[N_THREADS];

    (void)user;
    for (int i = 0; i < N_THREADS; i++) {
        CHECK(group, pthread_create(&threads[i], NULL, visit, &crowd) == 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        CHECK(group, pthread_join(threads[i], NULL) == 0);
    }
    CHECK(group, atomic_load(&crowd.n_wrong) == 0);
    CHECK(group, atomic_load(&crowd.n_run) == N_THREADS * (N_TRIES / 2) * 2);
    return 0;
}

/* Blocking calls, which wake nobody, beside threads that run jobs of the same lane. One rank: other
 * threads' jobs have no order that several ranks could share. */
static int beside_body(tally_group *group, void *user)
{
    struct crowd crowd = {.group = group, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;

    (void)user;
    if (tally_group_size(group) > 1) {
        return 0;
    }
    CHECK(group, pthread_create(&thread, NULL, visit, &crowd) == 0);
    for (int i = 0; i < N_TRIES; i++) {
        void *memory;

        CHECK_OK(group, tally_group_alloc(group, 8, &memory));
        CHECK_OK(group, tally_group_free(group, memory));
    }
    CHECK(group, pthread_join(thread, NULL) == 0);
    CHECK(group, atomic_load(&crowd.n_wrong) == 0);
    return 0;
}

/* ---- cancellation ---- */

static void *wait_for_held(void *user)
{
    struct late *late = user;

    (void)tally_future_wait(late->future);
    return NULL;
}

/* A thread that is cancelled while it waits does not take a job with it: other ranks take part in
 * the job. */
static int cancel_body(tally_group *group, void *user)
{
    (void)user;
    for (int i = 0; i < N_TRIES / 10; i++) {
        struct late late = {0};
        pthread_t thread;

        CHECK(group, learn(group, N_LEARN) >= 0);
        CHECK_OK(group, tally_submit(group, 0, held_job, &late, &late.future));
        CHECK(group, pthread_create(&thread, NULL, wait_for_held, &late) == 0);
        CHECK(group, ranks_await(&late.begun, 1) == 0);
        CHECK(group, pthread_cancel(thread) == 0);
        atomic_store(&late.attached, 1);
        CHECK(group, pthread_join(thread, NULL) == 0);
        CHECK_OK(group, ranks_finish(late.future));
        CHECK(group, atomic_load(&late.job.n) == 1);
    }
    return 0;
}

/* ---- error texts ---- */

static int failing_job(tally_lane *lane, void *user)
{
    (void)user;
    return tally_job_fail(lane, TALLY_NUMERIC, "on purpose");
}

/* A wait that runs another job, which fails, leaves the text of this thread unchanged. */
static int text_body(tally_group *group, void *user)
{
    char before[256];

    (void)user;
    for (int i = 0; i < N_LEARN; i++) {
        struct seen seen = {0};
        tally_future *failing;
        tally_future *future;

        CHECK_STATUS(group, tally_future_wait(NULL), TALLY_ARG);
        (void)snprintf(before, sizeof before, "%s", tally_last_error());
        CHECK_OK(group, tally_submit(group, 0, failing_job, NULL, &failing));
        CHECK_OK(group, tally_submit(group, 0, seen_job, &seen, &future));
        CHECK_OK(group, ranks_finish(future));
        CHECK(group, strcmp(tally_last_error(), before) == 0);
        CHECK_STATUS(group, tally_future_wait(failing), TALLY_NUMERIC);
        CHECK_TEXT(group, tally_last_error(), "on purpose");
        tally_future_free(failing);
    }
    return 0;
}

static int test(const char *name, ranks_body *body)
{
    static const int worlds[] = {1, 2, 3, 0};

    return ranks_run_lanes(name, worlds, body);
}

int main(void)
{
    int n_failures = test("on the thread that waits", here_body);

    n_failures += test("blocking calls in a job", blocking_body);
    n_failures += test("floating-point environment", environment_body);
    n_failures += test("timed waits", timed_body);
    n_failures += test("jobs that nobody waits for", alone_body);
    n_failures += test("callbacks", callback_body);
    n_failures += test("a callback for a job under way", late_callback_body);
    n_failures += test("order with several threads", crowd_body);
    n_failures += test("blocking calls beside other threads", beside_body);
    n_failures += test("a thread that is cancelled", cancel_body);
    n_failures += test("error texts", text_body);
    return n_failures != 0;
}

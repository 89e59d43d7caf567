/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that start and end traces: no trace replaces another one of this process or one that
 * somebody writes, no bound is too large, and any thread may call them, in any order.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ddp_model.h"
#include "support/trace_reader.h"

#define BOUND (256 << 10)

static const struct ddp_spec specs[] = {{"a", TALLY_F32, 0, 1, {10}},
                                        {"b", TALLY_F32, 0, 1, {4000}}};

static char folder[] = "/tmp/tally-trace-XXXXXX";

static void path_of(const char *name, int rank, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/%s.%d", folder, name, rank);
}

static int steps(tally_group *group, int n)
{
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, specs, 2, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 2, NULL, &ddp));
    for (int s = 0; s < n; s++) {
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* No bound is too large: the file can be read. */
static int boundless_body(tally_group *group, void *user)
{
    static const unsigned long long bounds[] = {(1ull << 54) + (1ull << 22) + 1000, ULLONG_MAX};
    struct trace trace;
    char name[64];
    char path[80];

    (void)user;
    (void)snprintf(name, sizeof name, "%s/boundless", folder);
    path_of("boundless", 0, path, sizeof path);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        (void)unlink(path);
        CHECK_OK(group, tally_trace_start(group, name, bounds[i]));
        CHECK_OK(group, steps(group, 2));
        CHECK_OK(group, tally_trace_stop(group));
        CHECK_OK(group, trace_read(group, path, &trace));
        free(trace.bytes);
        CHECK(group, trace.head.n_segments == TALLY__TRACE_SEGMENTS);
    }
    return 0;
}

/* Starts and ends a trace without steps. */
static int trace_briefly(tally_group *group, const char *name)
{
    CHECK_OK(group, tally_trace_start(group, name, 0));
    CHECK_OK(group, tally_trace_stop(group));
    return 0;
}

/* Changes the head of a file, as if another process had written it. */
static int forge_head(tally_group *group, const char *path, int64_t pid, uint64_t opened_ns)
{
    struct tally__trace_head head;
    int fd = open(path, O_RDWR);

    CHECK(group, fd >= 0 && read(fd, &head, sizeof head) == (ssize_t)sizeof head);
    head.pid = pid;
    head.opened_ns = opened_ns;
    CHECK(group, pwrite(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && close(fd) == 0);
    return 0;
}

/* A file that this process wrote, or that somebody writes, stays, and the next one has another
 * name. One of an earlier run is replaced, even of a process with the same number. */
static int taken_body(tally_group *group, void *user)
{
    const uint64_t forged_ns = 1;
    struct trace trace;
    char name[64];
    char path[80];
    char second[88];
    int holder;

    (void)user;
    (void)snprintf(name, sizeof name, "%s/taken", folder);
    path_of("taken", 0, path, sizeof path);
    (void)snprintf(second, sizeof second, "%s.2", path);
    CHECK_OK(group, trace_briefly(group, name));
    CHECK(group, access(path, F_OK) == 0 && access(second, F_OK) != 0);
    CHECK_OK(group, trace_briefly(group, name));
    CHECK(group, unlink(second) == 0);
    CHECK_OK(group, forge_head(group, path, getpid(), forged_ns));
    CHECK_OK(group, trace_briefly(group, name));
    CHECK(group, access(second, F_OK) != 0);
    CHECK_OK(group, trace_read(group, path, &trace));
    free(trace.bytes);
    CHECK(group, trace.head.opened_ns > forged_ns);
    CHECK_OK(group, forge_head(group, path, 1, forged_ns));
    holder = open(path, O_RDONLY);
    CHECK(group, holder >= 0 && flock(holder, LOCK_EX) == 0);
    CHECK_OK(group, trace_briefly(group, name));
    CHECK(group, close(holder) == 0 && unlink(second) == 0);
    CHECK_OK(group, trace_read(group, path, &trace));
    free(trace.bytes);
    CHECK(group, trace.head.opened_ns == forged_ns);
    (void)snprintf(name, sizeof name, "%s/", folder);
    CHECK_STATUS(group, tally_trace_start(group, name, 0), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "is a folder");
    return 0;
}

/* ---- threads ---- */

#define N_THREADS 3
#define N_CALLS 60

struct calls {
    tally_group *group;
    char name[64];
    int thread;
    int n_refused; /* in another way than documented */
};

/* Starts, writes and stops in an order that has no sense: each call works or is STATE. */
static void *call_oddly(void *user)
{
    struct calls *calls = user;

    for (int i = 0; i < N_CALLS; i++) {
        int which = (i * (calls->thread + 3) + i / 7) % 3;
        int rc = which == 0   ? tally_trace_start(calls->group, calls->name, BOUND)
                 : which == 1 ? tally_trace_write(calls->group)
                              : tally_trace_stop(calls->group);

        calls->n_refused += rc != TALLY_OK && rc != TALLY_STATE;
    }
    return NULL;
}

static int threads_body(tally_group *group, void *user)
{
    struct calls calls[N_THREADS];
    pthread_t threads[N_THREADS];
    struct trace trace;
    char path[80];

    (void)user;
    path_of("threads", tally_group_rank(group), path, sizeof path);
    for (int t = 0; t < N_THREADS; t++) {
        calls[t] = (struct calls){.group = group, .thread = t};
        (void)snprintf(calls[t].name, sizeof calls[t].name, "%s/threads", folder);
        CHECK(group, pthread_create(&threads[t], NULL, call_oddly, &calls[t]) == 0);
    }
    CHECK_OK(group, steps(group, 200));
    for (int t = 0; t < N_THREADS; t++) {
        CHECK(group, pthread_join(threads[t], NULL) == 0);
        CHECK(group, calls[t].n_refused == 0);
    }
    (void)tally_trace_stop(group);
    CHECK_OK(group, trace_read(group, path, &trace));
    free(trace.bytes);
    return 0;
}

static void test_taken(void **state)
{
    const struct ranks alone = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};

    (void)state;
    assert_int_equal(ranks_run(&alone, taken_body, NULL), 0);
}

static void test_boundless(void **state)
{
    const struct ranks alone = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};

    (void)state;
    assert_int_equal(ranks_run(&alone, boundless_body, NULL), 0);
}

static void test_several_threads(void **state)
{
    const struct ranks two = {.kind = RANKS_THREADS, .world = 2, .lanes = 1};

    (void)state;
    assert_int_equal(ranks_run(&two, threads_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_boundless),
        cmocka_unit_test(test_several_threads),
    };

    if (!mkdtemp(folder)) {
        return 1;
    }
    return trace_end_in(folder, cmocka_run_group_tests(tests, NULL, NULL));
}

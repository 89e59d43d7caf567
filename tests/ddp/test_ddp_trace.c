/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace files: every bucket of every step is there once, spans nest, the file keeps its bound and
 * the last steps, memory does not grow, and a file that cannot be opened or written costs no step.
 * TALLY_TEST_STEPS is the number of steps for the bound.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ddp_model.h"
#include "support/trace_reader.h"

#define N 4
#define N_STEPS 12

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {10}},
    {"b", TALLY_F32, 0, 2, {300, 51}},
    {"c", TALLY_F32, 0, 1, {9001}},
    {"d", TALLY_F32, 0, 1, {4000}},
};

static char folder[] = "/tmp/tally-trace-XXXXXX";

/* ---- what is in it ---- */

struct found {
    uint64_t first_step;
    uint64_t last_step;
    int n_buckets[N_STEPS + 1][N];
    int n_ready[N_STEPS + 1];
    int n_launched[N_STEPS + 1];
    int n_waits[N_STEPS + 1];
    int n_steps[N_STEPS + 1];
    int n_notes;
    int n_layouts;
    int n_accounts;
    int n_checkpoints;
    struct tally__trace_event bucket[N_STEPS + 1][N];
};

static int count_event(tally_group *group, const struct tally__trace_event *event,
                       struct found *found)
{
    CHECK(group, event->kind > 0 && event->kind < TALLY__N_EVENT_KINDS);
    CHECK(group, event->begin_ns > 0 && event->begin_ns <= event->end_ns);
    found->n_checkpoints += event->kind == TALLY__EVENT_CHECKPOINT;
    if (event->step < 1 || event->step > N_STEPS) {
        return 0;
    }
    found->n_ready[event->step] += event->kind == TALLY__EVENT_GRAD_READY;
    found->n_launched[event->step] += event->kind == TALLY__EVENT_LAUNCH;
    found->n_waits[event->step] += event->kind == TALLY__EVENT_WAIT;
    found->n_steps[event->step] += event->kind == TALLY__EVENT_STEP;
    if (event->kind == TALLY__EVENT_BUCKET) {
        CHECK(group, event->bucket < N && event->ddp == 1);
        found->n_buckets[event->step][event->bucket]++;
        found->bucket[event->step][event->bucket] = *event;
    }
    return 0;
}

static int count_record(tally_group *group, const struct tally__trace_record *record,
                        const unsigned char *payload, void *user)
{
    struct found *found = user;

    found->n_notes += record->kind == TALLY__RECORD_NOTE;
    if (record->kind == TALLY__RECORD_BUCKETS) {
        struct tally__trace_buckets buckets;

        memcpy(&buckets, payload, sizeof buckets);
        CHECK(group, buckets.n == N && strcmp(buckets.hook, "allreduce") == 0);
        CHECK(group, record->bytes == sizeof buckets + N * sizeof(struct tally__trace_bucket));
        found->n_layouts++;
    }
    if (record->kind == TALLY__RECORD_RANKS) {
        struct tally__trace_ranks ranks;

        memcpy(&ranks, payload, sizeof ranks);
        CHECK(group, ranks.n == (uint32_t)tally_group_size(group) && ranks.ddp == 1);
        CHECK(group, record->bytes == sizeof ranks + ranks.n * sizeof(struct tally__trace_rank));
        CHECK(group, ranks.n_steps == found->last_step + 1 || found->last_step == 0);
        found->n_accounts++;
    }
    if (record->kind == TALLY__RECORD_STEP) {
        struct tally__trace_step step;

        memcpy(&step, payload, sizeof step);
        CHECK(group, step.step == found->last_step + 1 || found->last_step == 0);
        CHECK(group, step.begin_ns < step.end_ns && step.exposed_ns <= step.end_ns - step.begin_ns);
        found->first_step = found->first_step ? found->first_step : step.step;
        found->last_step = step.step;
    }
    if (record->kind == TALLY__RECORD_THREAD) {
        struct tally__trace_thread thread;

        memcpy(&thread, payload, sizeof thread);
        CHECK(group, thread.thread > 0 && thread.name[0] && thread.n_lost == 0);
        for (size_t at = sizeof thread; at < record->bytes;
             at += sizeof(struct tally__trace_event)) {
            struct tally__trace_event event;

            memcpy(&event, payload + at, sizeof event);
            CHECK_OK(group, count_event(group, &event, found));
        }
    }
    return 0;
}

/* Memory of this process, in bytes. */
static long resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    char line[80] = "";
    char *second;
    long pages;

    if (file) {
        (void)(fgets(line, sizeof line, file) != NULL);
        (void)fclose(file);
    }
    (void)strtol(line, &second, 10);
    pages = strtol(second, NULL, 10);
    return pages * sysconf(_SC_PAGESIZE);
}

static int steps(tally_group *group, int n)
{
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;
    long before = 0;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1;
    CHECK(group, ddp_model_make(&model, specs, N, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
    for (int s = 0; s < n; s++) {
        for (int i = N; i-- > 0;) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        before = s == n / 10 ? resident() : before;
    }
    /* Sanitizers keep freed memory. */
    CHECK(group, TALLY_TESTS_SANITIZED || n < 1000 || resident() - before < (1 << 20));
    if (n == N_STEPS) {
        char directory[64];

        (void)snprintf(directory, sizeof directory, "%s/saved", folder);
        CHECK_OK(group, tally_checkpoint_save(ddp, directory, NULL));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static void path_of(const char *name, int rank, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/%s.%d", folder, name, rank);
}

static int whole_body(tally_group *group, void *user)
{
    struct found found = {0};
    struct trace trace;
    char name[64];
    char path[80];

    (void)user;
    (void)snprintf(name, sizeof name, "%s/whole", folder);
    path_of("whole", tally_group_rank(group), path, sizeof path);
    CHECK_STATUS(group, tally_trace_write(group), TALLY_STATE);
    CHECK_STATUS(group, tally_trace_stop(group), TALLY_STATE);
    (void)unlink(path);
    CHECK_OK(group, tally_trace_start(group, name, 0));
    CHECK_STATUS(group, tally_trace_start(group, name, 0), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "already writes a trace");
    CHECK_OK(group, steps(group, N_STEPS));
    CHECK_OK(group, tally_trace_write(group));
    CHECK_OK(group, tally_trace_stop(group));
    CHECK_OK(group, trace_read(group, path, &trace));
    CHECK(group, trace.head.rank == tally_group_rank(group));
    CHECK(group, trace.head.world == tally_group_size(group));
    CHECK_OK(group, trace_each(group, &trace, count_record, &found));
    CHECK(group, found.first_step == 1 && found.last_step == N_STEPS && found.n_layouts == 1);
    CHECK(group, found.n_accounts == N_STEPS && found.n_checkpoints == 1);
    for (int s = 1; s <= N_STEPS; s++) {
        CHECK(group, found.n_ready[s] == N && found.n_launched[s] == N);
        CHECK(group, found.n_waits[s] == 1 && found.n_steps[s] == 1);
        for (int b = 0; b < N; b++) {
            CHECK(group, found.n_buckets[s][b] == 1);
        }
    }
    free(trace.bytes);
    return 0;
}

/* ---- bounds ---- */

#define BOUND (256 << 10)

static int n_bound_steps(void)
{
    const char *text = getenv("TALLY_TEST_STEPS");

    return text ? (int)strtol(text, NULL, 10) : RANKS_REPEATS(10000, 1000);
}

static int bound_body(tally_group *group, void *user)
{
    struct found found = {0};
    struct trace trace;
    char name[64];
    char path[80];
    int n = n_bound_steps();

    (void)user;
    (void)snprintf(name, sizeof name, "%s/bound-%%r", folder);
    (void)snprintf(path, sizeof path, "%s/bound-%d", folder, tally_group_rank(group));
    (void)unlink(path);
    CHECK_STATUS(group, tally_trace_start(group, name, 1000), TALLY_ARG);
    CHECK_OK(group, tally_trace_start(group, name, BOUND));
    CHECK_OK(group, steps(group, n));
    CHECK_OK(group, tally_trace_stop(group));
    CHECK_OK(group, trace_read(group, path, &trace));
    CHECK(group, trace.n_bytes <= BOUND);
    CHECK_OK(group, trace_each(group, &trace, count_record, &found));
    CHECK(group, found.last_step == (uint64_t)n && found.first_step > 1 && found.n_layouts > 1);
    free(trace.bytes);
    return 0;
}

static void count_line(void *user, int level, const char *text)
{
    *(int *)user += level == TALLY_LOG_WARN && strstr(text, "the trace ends here");
}

/* The file system is full: steps go on, and one line of the log says so. Only for processes: the
 * limit and the log are the process's. */
static int full_body(tally_group *group, void *user)
{
    const struct rlimit small = {2 << 20, 2 << 20};
    char name[64];
    int n_lines = 0;

    (void)user;
    CHECK_OK(group, tally_log_set(count_line, &n_lines, TALLY_LOG_WARN));
    (void)snprintf(name, sizeof name, "%s/full", folder);
    CHECK_OK(group, tally_trace_start(group, name, 0));
    CHECK(group, signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(group, setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_OK(group, steps(group, 5000));
    CHECK(group, n_lines == 1);
    CHECK_STATUS(group, tally_trace_write(group), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "cannot be written");
    CHECK_STATUS(group, tally_trace_stop(group), TALLY_SYSTEM);
    CHECK_STATUS(group, tally_trace_start(group, "/no/such/folder/x", 0), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "/no/such/folder/x");
    CHECK_OK(group, tally_log_set(NULL, NULL, TALLY_LOG_WARN));
    return 0;
}

/* If a file cannot be opened, or its head cannot be written, that is an error, not a log line.
 * Opening a FIFO without a reader must not block. */
static int refused_body(tally_group *group, void *user)
{
    char name[64];
    char path[80];
    int n_lines = 0;

    (void)user;
    CHECK_OK(group, tally_log_set(count_line, &n_lines, TALLY_LOG_WARN));
    (void)snprintf(name, sizeof name, "%s/fifo", folder);
    path_of("fifo", 0, path, sizeof path);
    CHECK(group, mkfifo(path, 0600) == 0);
    CHECK_STATUS(group, tally_trace_start(group, name, 0), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "cannot create the trace file");
    (void)snprintf(name, sizeof name, "%s/device", folder);
    path_of("device", 0, path, sizeof path);
    if (access("/dev/full", W_OK) == 0) {
        CHECK(group, symlink("/dev/full", path) == 0);
        CHECK_STATUS(group, tally_trace_start(group, name, 0), TALLY_SYSTEM);
        CHECK_TEXT(group, tally_last_error(), "No space left");
    }
    CHECK(group, n_lines == 0);
    CHECK_OK(group, tally_log_set(NULL, NULL, TALLY_LOG_WARN));
    return 0;
}

static void test_whole(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all(whole_body, NULL, 1, false), 0);
}

static void test_bound(void **state)
{
    const struct ranks alone = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};

    (void)state;
    assert_int_equal(ranks_run(&alone, bound_body, NULL), 0);
}

static void test_refused(void **state)
{
    const struct ranks alone = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};

    (void)state;
    assert_int_equal(ranks_run(&alone, refused_body, NULL), 0);
}

static void test_full(void **state)
{
    const struct ranks two = {.kind = RANKS_PROCESSES, .world = 2, .lanes = 1};

    (void)state;
    if (!ranks_have_processes()) {
        skip();
    }
    assert_int_equal(ranks_run(&two, full_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_full),
    };

    if (!mkdtemp(folder)) {
        return 1;
    }
    return trace_end_in(folder, cmocka_run_group_tests(tests, NULL, NULL));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a failure: a rank that waits in vain writes one file, once, which says what failed,
 * which ranks had arrived and what they did, and its last events: the latter only if the disk has
 * room. A link of its name is refused.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ddp_model.h"
#include "support/trace_reader.h"

static const struct ddp_spec specs[1] = {{"weights", TALLY_F32, 0, 1, {5000}}};

/* The error and the lines of two ranks take less, the events of three steps more. */
#define FULL_BYTES 1792

static char folder[] = "/tmp/tally-report-XXXXXX";
static char victim[sizeof folder + sizeof "-victim"];

struct found {
    int n_errors;
    int n_lines;
    int n_events;
    struct tally__trace_error error;
    struct tally__trace_line line[2];
};

static int look(tally_group *group, const struct tally__trace_record *record,
                const unsigned char *payload, void *user)
{
    struct found *found = user;

    if (record->kind == TALLY__RECORD_ERROR) {
        CHECK(group, record->bytes == sizeof found->error && found->n_errors++ == 0);
        memcpy(&found->error, payload, sizeof found->error);
    }
    if (record->kind == TALLY__RECORD_LINES) {
        struct tally__trace_lines head;

        memcpy(&head, payload, sizeof head);
        CHECK(group, head.n == 2 && record->bytes == sizeof head + sizeof found->line);
        memcpy(found->line, payload + sizeof head, sizeof found->line);
        found->n_lines++;
    }
    if (record->kind == TALLY__RECORD_THREAD) {
        found->n_events += (int)((record->bytes - sizeof(struct tally__trace_thread)) /
                                 sizeof(struct tally__trace_event));
    }
    return 0;
}

/* The place that the report is written to. */
enum report_case { WRITTEN, LINK, DISK_FULL };

/* Of a full disk: all except the events. */
static int check_report(tally_group *group, const char *path, enum report_case how)
{
    struct found found = {0};
    struct trace trace;

    CHECK_OK(group, trace_read(group, path, &trace));
    CHECK(group, trace.head.is_report && trace.head.rank == 0 && trace.head.world == 2);
    CHECK_OK(group, trace_each(group, &trace, look, &found));
    free(trace.bytes);
    CHECK_STATUS(group, found.error.status, TALLY_TIMEOUT);
    CHECK(group, found.error.step == 3 && found.error.ddp == 1);
    CHECK_TEXT(group, found.error.text, "rank 1 did not arrive");
    CHECK(group, found.n_lines == 1 && (how == DISK_FULL || found.n_events > 3 * 4));
    CHECK(group, found.line[0].rank == 0 && found.line[0].state == TALLY__ARRIVAL_ARRIVED);
    CHECK_TEXT(group, found.line[0].doing, "step 4 (bucket 0: 'weights')");
    CHECK(group, found.line[1].rank == 1 && found.line[1].state == TALLY__ARRIVAL_MISSING);
    CHECK_TEXT(group, found.line[1].doing, "step 3");
    return 0;
}

static int step(tally_group *group, tally_ddp *ddp)
{
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    return tally_ddp_wait(ddp);
}

/* The path is a link: nothing is written where it points to. */
static int check_no_report(tally_group *group, const char *path)
{
    char target[sizeof victim] = "";

    CHECK(group, access(victim, F_OK) != 0);
    CHECK(group, readlink(path, target, sizeof target - 1) > 0 && strcmp(target, victim) == 0);
    return 0;
}

/* From now on, files have room for the error and the lines, and not for the events. */
static int fill_disk(tally_group *group)
{
    const struct rlimit small = {FULL_BYTES, FULL_BYTES};

    CHECK(group, signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(group, setrlimit(RLIMIT_FSIZE, &small) == 0);
    return 0;
}

/* Rank 1 leaves out the fourth step until rank 0 has given up. user: enum report_case. */
static int late_body(tally_group *group, void *user)
{
    enum report_case how = *(const enum report_case *)user;
    struct ddp_model model;
    char path[80];
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, specs, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    for (int s = 0; s < 3; s++) {
        CHECK_OK(group, step(group, ddp));
    }
    if (tally_group_rank(group) == 0) {
        (void)snprintf(path, sizeof path, "%s/tally-%d.0", folder, (int)getpid());
        CHECK(group, how != LINK || symlink(victim, path) == 0);
        CHECK(group, how != DISK_FULL || fill_disk(group) == 0);
        CHECK_STATUS(group, step(group, ddp), TALLY_TIMEOUT);
        CHECK_OK(group,
                 how == LINK ? check_no_report(group, path) : check_report(group, path, how));
        /* Only once. */
        (void)unlink(path);
        CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_ABORTED);
        CHECK(group, access(path, F_OK) != 0);
        atomic_store(&ranks_words()[0], 1);
    } else {
        CHECK_OK(group, ranks_await(&ranks_words()[0], 1));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static void run(enum ranks_kind kind, enum report_case how)
{
    const struct ranks two = {
        .kind = kind, .world = 2, .lanes = 1, .timeout_s = 5, .may_leak = true};

    assert_int_equal(ranks_run(&two, late_body, &how), 0);
}

static void test_threads(void **state)
{
    (void)state;
    run(RANKS_THREADS, WRITTEN);
}

static void test_processes(void **state)
{
    (void)state;
    if (!ranks_have_processes()) {
        skip();
    }
    run(RANKS_PROCESSES, WRITTEN);
    run(RANKS_PROCESSES, DISK_FULL);
}

static void test_link(void **state)
{
    (void)state;
    run(RANKS_THREADS, LINK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_link),
    };
    int failed;

    if (!mkdtemp(folder) || setenv("TALLY_REPORT_DIR", folder, 1) != 0) {
        return 1;
    }
    (void)snprintf(victim, sizeof victim, "%s-victim", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(folder) == 0 ? failed : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the system that opening, memory, sub-groups and lanes make fails in turn, on one of
 * two ranks: both end in time, with a status and a text, and nothing is left. Calls that a program
 * can do without may fail, and opening succeeds.
 *
 *     test_failing_open [--calls N]     at most N calls of each function and rank; 0: all
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/fault_support.h"
#include "support/failing_calls.h"

#define WORLD 2
#define SLACK_S 20.0
#define CASE_BYTES 100

struct scene {
    const char *name; /* of the function */
    size_t n;
    int victim;
    char rendezvous[CASE_BYTES];
    bool *is_hit; /* shared */
};

static int use_ddp(tally_group *group)
{
    static float data[64];
    const size_t shape[] = {64};
    const tally_param param = {sizeof param, "p", 1, shape, NULL, TALLY_F32, data, NULL, 0};
    tally_ddp *ddp = NULL;
    int rc = tally_ddp_create(group, &param, 1, NULL, &ddp);

    if (rc == TALLY_OK) {
        rc = tally_ddp_grad_ready(ddp, 0);
    }
    if (rc == TALLY_OK) {
        rc = tally_ddp_wait(ddp);
    }
    (void)tally_ddp_free(ddp);
    return rc;
}

static int use_group(tally_group *group)
{
    tally_group *child = NULL;
    void *memory = NULL;
    int rc = tally_group_alloc(group, 1 << 20, &memory);

    if (rc == TALLY_OK) {
        rc = tally_group_split(group, 0, 0, &child);
    }
    if (rc == TALLY_OK) {
        rc = use_ddp(child);
    }
    (void)tally_group_close(child);
    (void)tally_group_free(group, memory);
    return rc;
}

static int open_and_use(int rank, struct fault_report *report, void *user)
{
    const struct scene *scene = user;
    tally_group_config config = fault_config(rank, WORLD, scene->rendezvous, 3, 3);
    tally_group *group = NULL;
    int rc;

    config.lanes = 1;
    if (rank == scene->victim) {
        failing_calls_arm(scene->name, scene->n);
    }
    rc = tally_group_open(&config, &group);
    if (rc == TALLY_OK) {
        rc = use_group(group);
        if (tally_group_close(group) != TALLY_OK) {
            fault_complain(report, "close: %s", tally_last_error());
        }
    }
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
    }
    if (rank == scene->victim) {
        *scene->is_hit = failing_calls_hit();
    }
    return 0;
}

/* The system's words for the failure of a function that opening cannot do without, or NULL. */
static const char *words_of(const char *name)
{
    return strcmp(name, "sendmsg") == 0   ? strerror(ENOBUFS)
           : strcmp(name, "recvmsg") == 0 ? strerror(ENOMEM)
                                          : NULL;
}

/* NULL, or what is wrong with what the rank reads whose call failed. */
static const char *judge_victim(const struct scene *scene, const struct fault_report *report)
{
    const char *words = words_of(scene->name);
    const struct fault_failure *failure = &report->failure[0];

    if (!words || !*scene->is_hit) {
        return NULL;
    }
    return report->n_failures > 0 && failure->status == TALLY_SYSTEM && strstr(failure->text, words)
               ? NULL
               : "it does not read the system's words";
}

/* NULL, or what is wrong with how a rank ended. */
static const char *judge_rank(const struct fault_crew *crew, int rank)
{
    const struct fault_report *report = &crew->report[rank];
    const struct fault_failure *failure = &report->failure[0];

    if (crew->member[rank].exit_status != 0) {
        return "it crashed";
    }
    if (report->complaint[0]) {
        return report->complaint;
    }
    if (report->n_failures == 0) {
        return NULL;
    }
    if (failure->status == TALLY_INTERNAL ||
        strcmp(tally_status_name(failure->status), "UNKNOWN") == 0 || !failure->text[0]) {
        return "no good status or text";
    }
    return NULL;
}

static bool judge(const struct scene *scene, const struct fault_crew *crew, bool is_hang)
{
    const char *leftovers = fault_leftovers(scene->rendezvous + 1);
    bool is_well = !is_hang && !leftovers;

    for (int r = 0; r < WORLD && is_well; r++) {
        is_well = judge_rank(crew, r) == NULL;
    }
    is_well = is_well && !judge_victim(scene, &crew->report[scene->victim]);
    /* One rank alone has failed: the other must have heard of it, or not have needed it. */
    for (int r = 0; r < WORLD && getenv("TALLY_TEST_SHOW"); r++) {
        printf("%s %zu of rank %d: rank %d: %s\n", scene->name, scene->n, scene->victim, r,
               crew->report[r].n_failures ? crew->report[r].failure[0].text : "ok");
    }
    if (is_well) {
        return true;
    }
    printf("FAILED call %zu of %s on rank %d: %s%s\n", scene->n, scene->name, scene->victim,
           is_hang ? "a rank hangs; " : "", leftovers ? leftovers : "");
    for (int r = 0; r < WORLD; r++) {
        const char *complaint = judge_rank(crew, r);

        if (!complaint && r == scene->victim) {
            complaint = judge_victim(scene, &crew->report[r]);
        }
        printf("    rank %d: %s; %s: %s\n", r, complaint ? complaint : "well",
               tally_status_name(crew->report[r].failure[0].status),
               crew->report[r].failure[0].text);
    }
    return false;
}

/* Returns how many cases failed. */
static int run_function(const char *name, int victim, size_t n_calls)
{
    bool *is_hit = fault_shared_alloc(sizeof *is_hit);
    struct scene scene = {.name = name, .victim = victim, .is_hit = is_hit};
    int n_failed = 0;

    for (scene.n = 1; n_calls == 0 || scene.n <= n_calls; scene.n++) {
        struct fault_crew crew;
        bool is_hang;

        *is_hit = false;
        (void)snprintf(scene.rendezvous, sizeof scene.rendezvous, "@tally-failing-%d-%s-%d-%zu",
                       (int)getpid(), name, victim, scene.n);
        is_hang = !fault_crew_run(&crew, WORLD, open_and_use, &scene, SLACK_S);
        n_failed += !judge(&scene, &crew, is_hang);
        fault_crew_free(&crew);
        if (!*is_hit) {
            break;
        }
    }
    fault_shared_free(is_hit, sizeof *is_hit);
    return n_failed;
}

/* A process per function: ranks mostly wait for deadlines. */
static int run_apart(const char *name, size_t n_calls)
{
    int n_failed = 0;

    fault_leftovers_begin();
    for (int victim = 0; victim < WORLD; victim++) {
        n_failed += run_function(name, victim, n_calls);
    }
    (void)fflush(stdout);
    return n_failed;
}

int main(int argc, char **argv)
{
    size_t n_calls = argc == 3 && strcmp(argv[1], "--calls") == 0 ? strtoul(argv[2], NULL, 10) : 3;
    int n_failed = 0;
    int status;

    (void)fault_private_dev_shm("64m");
    for (size_t i = 0; failing_calls_names[i]; i++) {
        if (fork() == 0) {
            exit(run_apart(failing_calls_names[i], n_calls) > 0);
        }
    }
    while (wait(&status) > 0) {
        n_failed += status != 0;
    }
    printf("test_failing_open: %d functions failed\n", n_failed);
    return n_failed > 0;
}

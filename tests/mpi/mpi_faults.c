/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose rank 1 does not do its part, over MPI. The first word says what the others meet,
 * the second how every rank ends, the third, where it is there, that MPI is the program's own. A
 * rank that met what it should ends with status 7. Compiled once per MPI, linked with libtally.so.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>
#include <time.h>
#include <unistd.h>

#define N 1003
#define MET 7
/* Rank 1 is late for so long; the others wait for one second, or, where that must not be twice the
 * time, three. */
#define LATE_S 60

static tally_group *group;
static tally_group *part; /* a sub-group that stays open, where closing is to fail */
static tally_ddp *ddp;
static struct timespec began;
static double timeout_s = 1;

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

static int complain(const char *what, int rc)
{
    (void)fprintf(stderr, "%s: %s: %s (%.1f s)\n", what, tally_status_name(rc), tally_last_error(),
                  seconds());
    return 1;
}

/* The operation must fail with this status and these words, within this number of seconds. */
static int expect(int rc, int wanted, const char *words, double most_s)
{
    return rc == wanted && strstr(tally_last_error(), words) && seconds() < most_s
               ? MET
               : complain("met something else", rc);
}

static int finish(int rc, tally_future *const *future)
{
    if (rc == TALLY_OK) {
        rc = tally_future_wait(*future);
        tally_future_free(*future);
    }
    return rc;
}

static int open_group(double open_timeout_s)
{
    tally_group_config config;

    tally_group_config_init(&config, sizeof config);
    config.timeout_s = timeout_s;
    config.open_timeout_s = open_timeout_s;
    return tally_group_open(&config, &group);
}

static int make_ddp(const char *hook)
{
    static float data[N];
    static const size_t shape[] = {N};
    const tally_param param = {.size = sizeof param,
                               .name = "w",
                               .n_dims = 1,
                               .shape = shape,
                               .dtype = TALLY_F32,
                               .data = data};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    return tally_ddp_create(group, &param, 1, &config, &ddp);
}

static int step(void)
{
    int rc = tally_ddp_grad_ready(ddp, 0);

    return rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
}

/* Opens, and takes a step together. */
static int begin(const char *hook)
{
    int rc = open_group(60);

    rc = rc == TALLY_OK && hook ? make_ddp(hook) : rc;
    rc = rc == TALLY_OK && hook ? step() : rc;
    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    return rc;
}

static int late_in_group(void)
{
    tally_future *future;
    int rc = begin(NULL);

    if (rc != TALLY_OK) {
        return complain("begin", rc);
    }
    if (tally_group_rank(group) == 1) {
        (void)sleep(LATE_S);
    }
    rc = finish(tally_barrier(group, &future), &future);
    return expect(rc, TALLY_TIMEOUT, "rank 1 ", 60);
}

static int late_in_step(const char *hook)
{
    int rc = begin(hook);

    if (rc != TALLY_OK) {
        return complain("begin", rc);
    }
    if (tally_group_rank(group) == 1) {
        (void)sleep(LATE_S);
    }
    rc = step();
    return expect(rc, TALLY_TIMEOUT, "did not arrive",
                  tally_group_rank(group) == 1 ? 60 : 2 * timeout_s - 0.5);
}

static int late_in_ddp(void)
{
    timeout_s = 3;
    return late_in_step("allreduce");
}

static int late_in_hosts(void)
{
    timeout_s = 3;
    return late_in_step("hosts(bf16)");
}

/* Messages within hosts as well, and hosts that the late rank is not on. */
static int late_in_sizes(void)
{
    timeout_s = 3;
    return late_in_step("hosts:size=2(bf16)");
}

/* While the others wait in a step, rank 1 gives up, or ends without a word. */
static int alone_in_hosts(int status, const char *words)
{
    int rc;

    timeout_s = 40;
    rc = begin("hosts(bf16)");
    if (rc != TALLY_OK) {
        return complain("begin", rc);
    }
    if (tally_group_rank(group) == 1) {
        (void)sleep(1);
        if (status == TALLY_PEER) {
            exit(MET);
        }
        (void)tally_group_abort(group, "a test");
    }
    rc = step();
    return expect(rc, status, words, 10);
}

static int abort_in_hosts(void)
{
    return alone_in_hosts(TALLY_ABORTED, "rank 1 gave up: a test");
}

static int exit_in_hosts(void)
{
    return alone_in_hosts(TALLY_PEER, "rank 1 ended without closing its group");
}

static int late_in_part(void)
{
    tally_future *future;
    int rc = begin(NULL);

    rc = rc == TALLY_OK ? tally_group_split(group, 0, 0, &part) : rc;
    if (rc != TALLY_OK) {
        return complain("begin", rc);
    }
    if (tally_group_rank(group) == 1) {
        (void)sleep(LATE_S);
    }
    rc = finish(tally_barrier(part, &future), &future);
    return expect(rc, TALLY_TIMEOUT, "rank 1 ", 60);
}

/* Rank 1 comes to MPI, but not to the group. */
static int late_in_open(void)
{
    int rc = open_group(60);

    if (rc != TALLY_OK) {
        return complain("begin", rc);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    if (tally_group_rank(group) == 1) {
        (void)sleep(LATE_S);
    }
    (void)tally_group_close(group);
    group = NULL;
    rc = open_group(1);
    return expect(rc, TALLY_TIMEOUT, "have opened the group", 60);
}

static void tidy(void)
{
    (void)tally_ddp_free(ddp);
    (void)tally_group_close(part);
    (void)tally_group_close(group);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        int (*run)(void);
    } cases[] = {{"group", late_in_group},        {"ddp", late_in_ddp},
                 {"hosts", late_in_hosts},        {"hosts-size", late_in_sizes},
                 {"hosts-abort", abort_in_hosts}, {"hosts-exit", exit_in_hosts},
                 {"part", late_in_part},          {"open", late_in_open}};
    const char *way = argc > 2 ? argv[2] : "";
    bool is_own = argc > 3 && strcmp(argv[3], "own") == 0;
    int met = 2;
    int level;

    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    if (is_own) {
        (void)MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    }
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].word) == 0) {
            met = cases[i].run();
        }
    }
    if (strcmp(way, "_exit") == 0) {
        _exit(met);
    } else if (strcmp(way, "quick_exit") == 0) {
        quick_exit(met);
    } else if (strcmp(way, "abort") == 0) {
        abort();
    } else if (strcmp(way, "exit") == 0) {
        exit(met);
    } else if (strcmp(way, "failed-close") == 0) {
        (void)tally_group_close(group); /* a sub-group is open */
        exit(met);
    }
    tidy();
    if (is_own) {
        (void)MPI_Finalize();
    }
    return met;
}

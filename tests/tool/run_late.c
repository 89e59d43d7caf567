/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_late CASE LATE STEPS: a rank that takes STEPS steps, of which it spends most asleep, as if it
 * computed elsewhere. After two steps rank LATE is late, in the way of CASE:
 *
 *   computes   it sleeps for another 20 ms in its backward pass
 *   lane       its lane, and no other thread, may run on the last CPU only, where something else
 *              runs; the hook works for 15 ms on the bucket that is complete first, as one that
 *              compresses: a lane with a CPU for itself does that in time, on every machine.
 *              RUN_LATE_HOOK is the name of that hook
 *   none       nothing is late; so with link, where a test has slowed the link of rank LATE
 *
 * Rank 0 prints a line "RANK CAUSE STEP" for each rank that the statistics call late for ten steps,
 * and "logged: TEXT" for each line of the log about one. Warnings are printed, too.
 */
#include <locale.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>
#include <time.h>
#include <unistd.h>

#define N_PARAMS 4
#define N 65536
#define N_LATE 10
#define N_BEFORE 2
#define PART_NS 3000000
#define SLEEP_NS 20000000
#define LANE_PART_NS 8000000
#define HOOK_CPU_NS 15000000

static float values[N_PARAMS][N];
static float grads[N_PARAMS][N];

static void sleep_ns(long ns)
{
    const struct timespec time = {0, ns};

    (void)nanosleep(&time, NULL);
}

static void show(void *user, int level, const char *text)
{
    (void)user;
    if (strstr(text, "makes the others wait")) {
        printf("logged: %s\n", text);
    } else if (level <= TALLY_LOG_WARN) {
        printf("%s\n", text);
    }
}

/* This thread, and those that it starts, may run on all CPUs of a range of the first n_cpus. */
static void bind_to(int first, int end)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (int cpu = first; cpu < end; cpu++) {
        CPU_SET((size_t)cpu, &set);
    }
    (void)sched_setaffinity(0, sizeof set, &set);
}

static long cpu_time_ns(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static int work_and_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    long end_ns = cpu_time_ns() + (bucket->index == 0 ? HOOK_CPU_NS : 0);

    (void)state;
    while (cpu_time_ns() < end_ns) {
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int attach_worker(tally_ddp *ddp)
{
    const char *name = getenv("RUN_LATE_HOOK");
    const tally_hook_table table = {
        .size = sizeof table, .name = name ? name : "worker", .reduce = work_and_reduce};
    tally_hook *hook = NULL;
    int rc = tally_hook_create(&table, NULL, &hook);

    rc = rc == TALLY_OK ? tally_ddp_attach_hook(ddp, hook) : rc;
    tally_hook_free(hook);
    return rc;
}

/* The lane threads start with the ddp. */
static int create(tally_group *group, int late, const char *how, tally_ddp **ddp)
{
    static const char *const names[N_PARAMS] = {"a", "b", "c", "d"};
    static const size_t shape = N;
    tally_param params[N_PARAMS] = {{0}};
    tally_ddp_config config;
    int n_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int is_bound = strcmp(how, "lane") == 0;
    int rc;

    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = 1,
                                  .shape = &shape,
                                  .dtype = TALLY_F32,
                                  .data = values[i],
                                  .grad = grads[i]};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = N * sizeof(float);
    if (is_bound && tally_group_rank(group) == late) {
        bind_to(n_cpus - 1, n_cpus);
    } else if (is_bound) {
        bind_to(0, n_cpus - 1);
    }
    rc = tally_ddp_create(group, params, N_PARAMS, &config, ddp);
    if (is_bound) {
        bind_to(0, n_cpus - 1);
    }
    if (rc == TALLY_OK && is_bound) {
        rc = attach_worker(*ddp);
    }
    return rc;
}

static int take_step(tally_ddp *ddp, long part_ns, int is_late)
{
    for (int i = N_PARAMS; i-- > 0;) {
        sleep_ns(part_ns);
        if (i == 1 && is_late) {
            sleep_ns(SLEEP_NS);
        }
        if (tally_ddp_grad_ready(ddp, i) != TALLY_OK) {
            return 0;
        }
    }
    return tally_ddp_wait(ddp) == TALLY_OK;
}

static int tell(tally_ddp *ddp, int world, int step)
{
    static const char *const causes[] = {"not", "computes", "lane", "link"};

    for (int r = 0; r < world; r++) {
        tally_rank_stats stats = {.size = sizeof stats};

        if (tally_ddp_get_rank_stats(ddp, r, &stats) != TALLY_OK) {
            return 0;
        }
        if (stats.n_late_steps == N_LATE) {
            printf("%d %s %d\n", r, causes[stats.cause], step);
        }
        if (getenv("RUN_LATE_VERBOSE")) {
            printf("# step %d rank %d: last %llu of %llu, %.1f ms, in all %.1f %.1f %.1f ms\n",
                   step, r, stats.n_last, stats.n_rounds, stats.step_waited_s * 1e3,
                   stats.computes_s * 1e3, stats.lane_s * 1e3, stats.link_s * 1e3);
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;
    int is_good = argc == 4;
    int late = is_good ? (int)strtol(argv[2], NULL, 10) : 0;
    int n_steps = is_good ? (int)strtol(argv[3], NULL, 10) : 0;
    long part_ns = is_good && strcmp(argv[1], "lane") == 0 ? LANE_PART_NS : PART_NS;
    int rank;
    int world;

    if (!is_good) {
        (void)fprintf(stderr, "usage: run_late CASE LATE STEPS\n");
        return 2;
    }
    (void)setlocale(LC_NUMERIC, ""); /* as programs with windows do */
    (void)tally_log_set(show, NULL, TALLY_LOG_INFO);
    is_good = tally_group_open(NULL, &group) == TALLY_OK &&
              create(group, late, argv[1], &ddp) == TALLY_OK;
    rank = tally_group_rank(group);
    world = tally_group_size(group);
    for (int step = 1; step <= n_steps && is_good; step++) {
        int is_late = strcmp(argv[1], "computes") == 0 && rank == late && step > N_BEFORE;

        is_good = take_step(ddp, part_ns, is_late) && (rank > 0 || tell(ddp, world, step));
    }
    if (!is_good) {
        (void)fprintf(stderr, "run_late: %s\n", tally_last_error());
    }
    (void)tally_ddp_free(ddp);
    (void)tally_group_close(group);
    return !is_good;
}

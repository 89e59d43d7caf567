/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a world, takes steps with every hook, and closes it. Checks the means of plain hooks, and
 * that all ranks have the same bits after each other hook. For world.py, and a test by itself.
 *
 *   world_rank             ranks that a launcher has started: tally run, mpirun
 *   world_rank threads N   N threads of this process
 *
 * Rank 0 prints one JSON object. Times are of the slowest rank; memory is that of a rank: the heap
 * and its share of mapped memory, without the memory that the program had before it opened the
 * world, right after opening and at the end.
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>
#include <time.h>

#define N_PARAMS 3
#define N_STEPS 2
#define MAX_THREADS 1024
#define TEXT_BYTES 96

struct rank {
    tally_group *group;
    bool is_thread;
    double start_kib;
    double open_ms;
    double open_kib;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "world_rank: %s: %s\n", what, why);
    exit(1);
}

static void check(int rc, const char *what)
{
    if (rc != TALLY_OK) {
        give_up(what, tally_last_error());
    }
}

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* This process's memory, with its share of the memory that other processes map too. */
static double memory_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kib = 0;

    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Pss:", 4) == 0) {
            kib = strtod(line + 4, NULL);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return kib;
}

/* The largest, or the sum, of a number over all ranks. */
static double over_ranks(tally_group *group, double number, int op)
{
    tally_future *future = NULL;

    check(tally_all_reduce(group, &number, 1, TALLY_F64, op, &future), "tally_all_reduce");
    check(tally_future_wait(future), "an all-reduce");
    tally_future_free(future);
    return number;
}

/* Of all ranks together; the threads of a process have one memory. */
static double world_kib(const struct rank *rank)
{
    double kib = memory_kib() - rank->start_kib;

    return rank->is_thread ? kib : over_ranks(rank->group, kib, TALLY_SUM);
}

/* ---- a step ---- */

/* Small integers: their sums are exact in every order. */
static float gradient_of(int rank, size_t i)
{
    return (float)((i + (size_t)rank) % 8);
}

static double mean_of(int ranks, size_t i)
{
    double sum = 0;

    for (int r = 0; r < ranks; r++) {
        sum += gradient_of(r, i);
    }
    return sum / ranks;
}

static void check_means(tally_group *group, const float *gradient, size_t n, const char *hook)
{
    for (size_t i = 0; i < n; i++) {
        double mean = mean_of(tally_group_size(group), i);

        if (fabs((double)gradient[i] - mean) > 1e-5) {
            give_up(hook, "a mean is wrong");
        }
    }
}

/* A double holds 32 bits. */
static double bits_of(double before, const float *values, size_t n)
{
    uint32_t hash = (uint32_t)before;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * 16777619u;
    }
    return (double)hash;
}

static void run_hook(tally_group *group, const char *text)
{
    static const size_t shapes[N_PARAMS][2] = {{40, 24}, {1000, 1}, {7, 1}};
    static const char *const names[N_PARAMS] = {"matrix", "row", "scale"};
    bool is_plain = strcmp(text, "allreduce") == 0 || strcmp(text, "hosts") == 0;
    bool is_local = strcmp(text, "noop") == 0 || strncmp(text, "postlocal", 9) == 0;
    tally_param params[N_PARAMS];
    tally_ddp_config config;
    tally_ddp *ddp = NULL;
    double bits = 0;

    for (int p = 0; p < N_PARAMS; p++) {
        params[p] = (tally_param){.size = sizeof params[p],
                                  .name = names[p],
                                  .n_dims = p == 0 ? 2 : 1,
                                  .shape = shapes[p],
                                  .dtype = TALLY_F32};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.hook = text;
    check(tally_ddp_create(group, params, N_PARAMS, &config, &ddp), text);
    for (int step = 0; step < N_STEPS; step++) {
        for (int p = N_PARAMS - 1; p >= 0; p--) {
            float *gradient = tally_ddp_grad(ddp, p);

            for (size_t i = 0; i < shapes[p][0] * shapes[p][1]; i++) {
                gradient[i] = gradient_of(tally_group_rank(group), i);
            }
            check(tally_ddp_grad_ready(ddp, p), text);
        }
        check(tally_ddp_wait(ddp), text);
    }
    for (int p = 0; p < N_PARAMS; p++) {
        const float *gradient = tally_ddp_grad(ddp, p);
        size_t n = shapes[p][0] * shapes[p][1];

        if (is_plain) {
            check_means(group, gradient, n, text);
        }
        bits = bits_of(bits, gradient, n);
    }
    if (!is_local && (over_ranks(group, bits, TALLY_MAX) != bits ||
                      over_ranks(group, bits, TALLY_MIN) != bits)) {
        give_up(text, "ranks have different gradients");
    }
    check(tally_ddp_free(ddp), text);
}

/* From the first step on, so that it does what its name says. */
static void text_of(size_t index, char *text)
{
    tally_hook_info info = {.size = sizeof info};
    tally_hook_option option = {.size = sizeof option};
    const char *more = "";

    check(tally_hook_describe(index, &info), "tally_hook_describe");
    for (size_t i = 0; i < info.n_options; i++) {
        check(tally_hook_describe_option(index, i, &option), "tally_hook_describe_option");
        if (strcmp(option.name, "start") == 0) {
            more = ":start=0";
        }
    }
    (void)snprintf(text, TEXT_BYTES, "%s%s", info.name, more);
}

/* ---- a rank ---- */

static void run_rank(struct rank *rank)
{
    tally_group *group = rank->group;
    bool prints = tally_group_rank(group) == 0;
    int size = tally_group_size(group);
    char backend[16];
    double open_kib = rank->is_thread ? rank->open_kib : world_kib(rank);
    double open_ms = over_ranks(group, rank->open_ms, TALLY_MAX);
    double start_ms = now_ms();
    double hooks_ms;
    double end_kib;

    for (size_t i = 0; i < tally_hook_count(); i++) {
        char text[TEXT_BYTES];

        text_of(i, text);
        run_hook(group, text);
    }
    hooks_ms = over_ranks(group, now_ms() - start_ms, TALLY_MAX);
    end_kib = world_kib(rank);
    (void)snprintf(backend, sizeof backend, "%s", tally_group_backend(group));
    start_ms = now_ms();
    check(tally_group_close(group), "tally_group_close");
    if (prints) {
        printf("{\"backend\": \"%s\", \"ranks\": %d, \"open_ms\": %.1f, \"hooks\": %zu, "
               "\"hooks_ms\": %.1f, \"close_ms\": %.1f, \"open_kib\": %.0f, \"end_kib\": %.0f}\n",
               backend, size, open_ms, tally_hook_count(), hooks_ms, now_ms() - start_ms,
               open_kib / size, end_kib / size);
        (void)fflush(stdout);
    }
}

static void *thread_main(void *rank)
{
    run_rank(rank);
    return NULL;
}

static void run_threads(int n)
{
    static tally_group *groups[MAX_THREADS];
    static struct rank ranks[MAX_THREADS];
    static pthread_t threads[MAX_THREADS];
    double start_kib = memory_kib();
    double start_ms = now_ms();
    double open_ms;
    double open_kib;

    check(tally_group_open_threads(NULL, n, groups), "tally_group_open_threads");
    open_ms = now_ms() - start_ms;
    open_kib = memory_kib() - start_kib;
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){groups[r], true, start_kib, open_ms, open_kib};
        if (pthread_create(&threads[r], NULL, thread_main, &ranks[r]) != 0) {
            give_up("pthread_create", "no more threads");
        }
    }
    for (int r = 0; r < n; r++) {
        (void)pthread_join(threads[r], NULL);
    }
}

int main(int argc, char **argv)
{
    struct rank rank = {.start_kib = memory_kib()};
    double start_ms = now_ms();
    long n = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

    if (argc == 3 && strcmp(argv[1], "threads") == 0 && n > 0 && n <= MAX_THREADS) {
        run_threads((int)n);
        return 0;
    }
    if (argc != 1) {
        (void)fprintf(stderr, "usage: world_rank [threads N]\n");
        return 2;
    }
    check(tally_group_open(NULL, &rank.group), "tally_group_open");
    rank.open_ms = now_ms() - start_ms;
    run_rank(&rank);
    return 0;
}

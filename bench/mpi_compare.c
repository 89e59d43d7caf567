/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces of fp32 sums by tally and by MPI_Allreduce in turn, in one process, as an application
 * sees them: from the call to its return. A rank rewrites its array before each call, and looks at
 * every element of the result. Each call follows a barrier; its time is that of the slowest rank.
 *
 *   mpi_compare BYTES,... SECONDS [BOARD [alone]]
 *
 * BOARD: a file of zeros that the ranks of one machine map for their barriers, which are then the
 * same under every launcher; each rank is bound to its share of the CPUs. Without it the barriers
 * are MPI's. alone: MPI is not used, and tally finds its ranks by another launcher (tally run).
 *
 * Methods: "group" and "heap" are tally on memory of tally_group_alloc and on ordinary memory,
 * "mpi" is MPI_Allreduce on ordinary memory. Rank 0 prints one JSON object per size and method;
 * SECONDS is the time that each takes, roughly. Compiled once per MPI, linked with libtally and
 * mpi_count.
 */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tally_extend.h>
#include <time.h>
#include <unistd.h>

#include "bench/bind.h"
#include "bench/mpi_count.h"
#include "bench/pattern.h"

#define N_TURNS 3
/* Calls before the first time: tally chooses the size of messages by measuring, and a short call
 * varies more than a long one. */
#define WARM_UP_SHORT 45
#define WARM_UP_LONG 12
#define SHORT_BYTES 65536
#define MAX_TIMES 1500
#define FINALIZE_S 2

enum method { BY_GROUP, BY_HEAP, BY_MPI, N_METHODS };

static const char *const method_names[N_METHODS] = {"group", "heap", "mpi"};

/* Ranks meet when all have arrived; the last one starts the next generation. */
struct board {
    atomic_uint n_arrived;
    atomic_uint generation;
};

struct compare {
    tally_group *group;
    int rank;
    int ranks;
    bool uses_mpi;
    struct board *board; /* NULL: barriers are MPI's */
    bool crowded;        /* fewer CPUs than ranks */
    double seconds;
    size_t n;
    float *data[N_METHODS];
    uint32_t repetition;
};

struct samples {
    double us[MAX_TIMES]; /* this rank's, later the slowest rank's */
    size_t n;
    double cpu_us; /* of the calls with a time; later of all ranks */
    unsigned long long n_calls;
    struct mpi_count sent; /* in all of them */
};

static _Noreturn void give_up(const char *what)
{
    (void)fprintf(stderr, "mpi_compare: %s: %s\n", what, tally_last_error());
    (void)fflush(NULL);
    /* The launcher ends the others. */
    _exit(1);
}

static void check(int rc, const char *what)
{
    if (rc != TALLY_OK) {
        give_up(what);
    }
}

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static double cpu_us(void)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void barrier(const struct compare *c)
{
    unsigned generation;

    if (!c->board) {
        (void)MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    /* Release and acquire: with the ranks that arrive before and after. */
    generation = atomic_load_explicit(&c->board->generation, memory_order_acquire);
    if (atomic_fetch_add_explicit(&c->board->n_arrived, 1, memory_order_acq_rel) + 1 ==
        (unsigned)c->ranks) {
        atomic_store_explicit(&c->board->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&c->board->generation, generation + 1, memory_order_release);
        return;
    }
    for (unsigned n = 0;
         atomic_load_explicit(&c->board->generation, memory_order_acquire) == generation; n++) {
        if (c->crowded || n > 100000) {
            (void)sched_yield();
        }
    }
}

static void wait_and_free(int rc, tally_future **future)
{
    check(rc, "tally refuses a call");
    check(tally_future_wait(*future), "a call of tally failed");
    tally_future_free(*future);
}

static void reduce(const struct compare *c, enum method method)
{
    tally_future *future = NULL;

    if (method == BY_MPI) {
        (void)MPI_Allreduce(MPI_IN_PLACE, c->data[method], (int)c->n, MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD);
        return;
    }
    wait_and_free(tally_all_reduce(c->group, c->data[method], c->n, TALLY_F32, TALLY_SUM, &future),
                  &future);
}

/* One call; adds its time to the samples, unless they are NULL. Returns this rank's time. */
static double call_once(struct compare *c, enum method method, struct samples *samples)
{
    double start_us;
    double took_us;
    double start_cpu_us;

    c->repetition++;
    pattern_fill(c->data[method], 0, c->n, c->repetition, pattern_factor(c->rank));
    barrier(c);
    start_cpu_us = cpu_us();
    start_us = now_us();
    reduce(c, method);
    took_us = now_us() - start_us;
    if (samples) {
        samples->cpu_us += cpu_us() - start_cpu_us;
        samples->us[samples->n++] = took_us;
    }
    barrier(c);
    if (pattern_count_wrong(c->data[method], 0, c->n, c->repetition, pattern_sum_factor(c->ranks)) >
        0) {
        give_up("a result is wrong");
    }
    return took_us;
}

static int n_warm_up(const struct compare *c)
{
    return c->n * sizeof(float) < SHORT_BYTES ? WARM_UP_SHORT : WARM_UP_LONG;
}

/* The number of calls of a method in one turn; the same on all ranks. */
static size_t plan(struct compare *c, enum method method)
{
    tally_future *future = NULL;
    double start_us = 0;
    double wanted;

    for (int i = 0; i < n_warm_up(c); i++) {
        if (i == n_warm_up(c) - 1) {
            start_us = now_us();
        }
        (void)call_once(c, method, NULL);
    }
    /* With the pattern's time, which bounds the whole. */
    wanted = c->seconds * 1e6 / (now_us() - start_us) / N_TURNS;
    wanted = wanted < 1 ? 1 : wanted;
    wanted = wanted > MAX_TIMES / N_TURNS ? MAX_TIMES / N_TURNS : wanted;
    wait_and_free(tally_broadcast(c->group, &wanted, sizeof wanted, 0, &future), &future);
    return (size_t)wanted;
}

static void take_turn(struct compare *c, enum method method, size_t n, struct samples *samples)
{
    struct mpi_count before = mpi_count_read();
    struct mpi_count after;

    (void)call_once(c, method, NULL);
    for (size_t i = 0; i < n; i++) {
        (void)call_once(c, method, samples);
    }
    after = mpi_count_read();
    samples->n_calls += n + 1;
    samples->sent.messages += after.messages - before.messages;
    samples->sent.bytes += after.bytes - before.bytes;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Over all ranks: the longest times, the largest counts, the sum of CPU time. */
static void combine(const struct compare *c, struct samples *samples)
{
    double most[2] = {(double)samples->sent.messages, (double)samples->sent.bytes};
    tally_future *future = NULL;

    wait_and_free(
        tally_all_reduce(c->group, samples->us, samples->n, TALLY_F64, TALLY_MAX, &future),
        &future);
    wait_and_free(tally_all_reduce(c->group, most, 2, TALLY_F64, TALLY_MAX, &future), &future);
    wait_and_free(tally_all_reduce(c->group, &samples->cpu_us, 1, TALLY_F64, TALLY_SUM, &future),
                  &future);
    samples->sent.messages = (unsigned long long)most[0];
    samples->sent.bytes = (unsigned long long)most[1];
    qsort(samples->us, samples->n, sizeof samples->us[0], compare_doubles);
}

static void print(const struct compare *c, enum method method, const struct samples *s)
{
    double n_calls = (double)s->n_calls;

    printf("{\"ranks\": %d, \"backend\": \"%s\", \"bytes\": %zu, \"method\": \"%s\", "
           "\"us\": %.3f, \"us_p90\": %.3f, \"times\": %zu, \"calls\": %llu, "
           "\"messages\": %.3f, \"sent_bytes\": %.1f, \"cpu_us\": %.3f}\n",
           c->ranks, tally_group_backend(c->group), c->n * sizeof(float), method_names[method],
           s->us[s->n / 2], s->us[s->n * 9 / 10], s->n, s->n_calls + (unsigned)n_warm_up(c),
           (double)s->sent.messages / n_calls, (double)s->sent.bytes / n_calls,
           s->cpu_us / (double)s->n);
    (void)fflush(stdout);
}

static void measure_size(struct compare *c, size_t bytes, struct samples *samples)
{
    int n_methods = c->uses_mpi ? N_METHODS : BY_MPI;
    size_t n_calls[N_METHODS];
    void *memory = NULL;

    c->n = bytes / sizeof(float);
    check(tally_group_alloc(c->group, bytes, &memory), "tally_group_alloc");
    c->data[BY_GROUP] = memory;
    for (int method = BY_HEAP; method < N_METHODS; method++) {
        c->data[method] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!c->data[method]) {
            give_up("no memory for the arrays");
        }
    }
    memset(samples, 0, N_METHODS * sizeof *samples);
    for (int method = 0; method < n_methods; method++) {
        n_calls[method] = plan(c, (enum method)method);
    }
    for (int turn = 0; turn < N_TURNS; turn++) {
        for (int method = 0; method < n_methods; method++) {
            take_turn(c, (enum method)method, n_calls[method], &samples[method]);
        }
    }
    for (int method = 0; method < n_methods; method++) {
        combine(c, &samples[method]);
        if (c->rank == 0) {
            print(c, (enum method)method, &samples[method]);
        }
    }
    free(c->data[BY_MPI]);
    free(c->data[BY_HEAP]);
    check(tally_group_free(c->group, memory), "tally_group_free");
}

static void map_board(struct compare *c, const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *memory = file < 0
                       ? MAP_FAILED
                       : mmap(NULL, sizeof *c->board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (memory == MAP_FAILED) {
        give_up("BOARD cannot be mapped");
    }
    (void)close(file);
    c->board = memory;
}

/* MPI first, as in a program that uses MPI itself. */
static void open_group(struct compare *c, const char *board)
{
    int threads;

    if (c->uses_mpi) {
        (void)MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
        (void)MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
        (void)MPI_Comm_size(MPI_COMM_WORLD, &c->ranks);
    } else {
        c->rank = atoi(getenv("TALLY_RANK") ? getenv("TALLY_RANK") : "0");
        c->ranks = atoi(getenv("TALLY_WORLD") ? getenv("TALLY_WORLD") : "1");
    }
    if (board) {
        map_board(c, board);
        c->crowded = bench_cpus() < c->ranks;
        bench_bind(c->rank, c->ranks);
    }
    check(tally_group_open(NULL, &c->group), "tally_group_open");
    if (tally_group_size(c->group) != c->ranks || tally_group_rank(c->group) != c->rank) {
        give_up("tally and the launcher number the ranks differently");
    }
}

static void leave(int number)
{
    (void)number;
    _exit(0);
}

/* MPICH before 4.2 may hang in MPI_Finalize over TCP, less often when all ranks arrive together.
 * All results are out by then. */
static void end_mpi(const struct compare *c)
{
    barrier(c);
    (void)usleep(100000);
    (void)signal(SIGALRM, leave);
    (void)alarm(FINALIZE_S);
    (void)MPI_Finalize();
}

int main(int argc, char **argv)
{
    static struct samples samples[N_METHODS];
    struct compare c = {.uses_mpi = true};
    char *sizes = argc > 1 ? argv[1] : NULL;

    c.uses_mpi = argc != 5 || strcmp(argv[4], "alone") != 0;
    if (argc < 3 || argc > 5 - c.uses_mpi) {
        (void)fprintf(stderr, "usage: mpi_compare BYTES,... SECONDS [BOARD [alone]]\n");
        return 2;
    }
    c.seconds = strtod(argv[2], NULL);
    open_group(&c, argc > 3 ? argv[3] : NULL);
    while (*sizes) {
        size_t bytes = strtoull(sizes, &sizes, 10);

        if (bytes < sizeof(float) || bytes / sizeof(float) > INT32_MAX) {
            give_up("BYTES is not accepted");
        }
        measure_size(&c, bytes, samples);
        sizes += strspn(sizes, ",");
    }
    check(tally_group_close(c.group), "tally_group_close");
    if (c.uses_mpi) {
        end_mpi(&c);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI_Allreduce of fp32 sums in place, measured as `tally bench collective` measures its own: every
 * rank rewrites its array, barrier, the timed call, barrier, a look at every element; a time is
 * that from the first rank's leaving the barrier to the last one's having its result.
 *
 *   mpi_peer BYTES WARM_UP MIN MAX SECONDS [apart]
 *
 * Rank 0 prints one line: the version of MPI, how many times were taken, and the times in
 * microseconds. Ranks that are apart share no clock: each one's begins when it leaves the barrier.
 * Compiled once per MPI at hand; nothing of tally is linked, and tally links no MPI.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bind.h"
#include "bench/pattern.h"

struct peer {
    int rank;
    int ranks;
    size_t n;
    float *data;
    long warm_up;
    long min;
    long max;
    double seconds;
    int is_apart;
    double *start_us; /* of each time taken */
    double *end_us;
    long n_taken;
};

static _Noreturn void give_up(const char *text)
{
    (void)fprintf(stderr, "mpi_peer: %s\n", text);
    (void)MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* The same clock for all processes of one machine. */
static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int wants_more(const struct peer *p, long n_done, double loop_start_us)
{
    long n = n_done < p->warm_up ? 0 : n_done - p->warm_up;

    return n < p->max && (n < p->min || now_us() - loop_start_us < p->seconds * 1e6);
}

static void measure(struct peer *p)
{
    double loop_start_us = now_us();

    for (long i = 0;; i++) {
        int more = wants_more(p, i, loop_start_us);
        double start_us;
        double end_us;

        (void)MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!more) {
            return;
        }
        pattern_fill(p->data, 0, p->n, (uint32_t)i, pattern_factor(p->rank));
        (void)MPI_Barrier(MPI_COMM_WORLD);
        start_us = now_us();
        (void)MPI_Allreduce(MPI_IN_PLACE, p->data, (int)p->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        end_us = now_us();
        (void)MPI_Barrier(MPI_COMM_WORLD);
        if (pattern_count_wrong(p->data, 0, p->n, (uint32_t)i, pattern_sum_factor(p->ranks)) > 0) {
            give_up("a result is wrong");
        }
        if (i >= p->warm_up) {
            p->start_us[p->n_taken] = p->is_apart ? 0 : start_us;
            p->end_us[p->n_taken] = p->is_apart ? end_us - start_us : end_us;
            p->n_taken++;
        }
    }
}

/* The number in "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\n...". */
static void print_version(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    size_t start;
    int length;

    (void)MPI_Get_library_version(text, &length);
    start = strcspn(text, "0123456789");
    printf("%.*s", (int)strspn(text + start, "0123456789.abcr"), text + start);
}

static void print(const struct peer *p)
{
    int n = (int)p->n_taken;

    if (p->rank == 0) {
        (void)MPI_Reduce(MPI_IN_PLACE, p->start_us, n, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
        (void)MPI_Reduce(MPI_IN_PLACE, p->end_us, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        print_version();
        printf(" %d", n);
        for (int i = 0; i < n; i++) {
            printf(" %.3f", p->end_us[i] - p->start_us[i]);
        }
        printf("\n");
    } else {
        (void)MPI_Reduce(p->start_us, NULL, n, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
        (void)MPI_Reduce(p->end_us, NULL, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    struct peer p = {0};

    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    bench_bind(p.rank, p.ranks);
    p.is_apart = argc == 7 && strcmp(argv[6], "apart") == 0;
    if (argc != 6 + p.is_apart) {
        give_up("usage: mpi_peer BYTES WARM_UP MIN MAX SECONDS [apart]");
    }
    p.n = strtoull(argv[1], NULL, 10) / sizeof(float);
    p.warm_up = strtol(argv[2], NULL, 10);
    p.min = strtol(argv[3], NULL, 10);
    p.max = strtol(argv[4], NULL, 10);
    p.seconds = strtod(argv[5], NULL);
    p.data = aligned_alloc(64, (p.n * sizeof(float) + 63) / 64 * 64);
    p.start_us = calloc((size_t)p.max + 1, sizeof *p.start_us);
    p.end_us = calloc((size_t)p.max + 1, sizeof *p.end_us);
    if (p.n == 0 || p.n > INT32_MAX || !p.data || !p.start_us || !p.end_us) {
        give_up("BYTES or MAX cannot be had");
    }
    measure(&p);
    print(&p);
    free(p.end_us);
    free(p.start_us);
    free(p.data);
    return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}

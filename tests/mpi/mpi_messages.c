/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the messages of tally's all-reduces and barriers (bench/mpi_count.h), prints them, and
 * checks them and the sums. A small exchange takes one message to each other rank, or, among many
 * ranks, O(log W); a medium one of few ranks some, each as long as MPI sends at once; a large one
 * one round of lines, and 2 (W - 1) in each of its windows. Run with TALLY_SHARE=0,
 * so that all ranks send messages. Compiled once per MPI, linked with libtally and mpi_count.
 */
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <tally_extend.h>

#include "bench/mpi_count.h"

#define N_CALLS 11
#define N_WARM_UP 50 /* exchanges that may still choose the size of messages */
#define FEW_RANKS 8

static const size_t small_bytes[] = {0, 4, 1024}; /* 0: a barrier */
static const size_t medium_bytes[] = {4100, 8192, 16384};
#define SHORTEST_PART 4032
static const size_t large_bytes[] = {1u << 20, 4u << 20};

struct counts {
    unsigned long long least; /* messages of a rank, in all calls */
    unsigned long long most;
    unsigned long long sum;
    unsigned long long bytes;  /* of all ranks */
    unsigned long long fewest; /* messages of a rank in one call */
};

static int n_failed;

static void check(bool holds, const char *what, size_t bytes)
{
    if (!holds) {
        (void)fprintf(stderr, "FAILED: %zu bytes: %s\n", bytes, what);
        n_failed++;
    }
}

static void call(tally_group *group, float *data, size_t bytes)
{
    int ranks = tally_group_size(group);
    size_t n = bytes / sizeof *data;
    size_t n_wrong = 0;
    tally_future *future = NULL;
    int rc;

    for (size_t i = 0; i < n; i++) {
        data[i] = (float)(i % 1024 + (size_t)tally_group_rank(group));
    }
    rc = bytes ? tally_all_reduce(group, data, n, TALLY_F32, TALLY_SUM, &future)
               : tally_barrier(group, &future);

    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    check(rc == TALLY_OK, rc == TALLY_OK ? "" : tally_last_error(), bytes);
    for (size_t i = 0; i < n; i++) {
        n_wrong += data[i] != (float)(i % 1024) * (float)ranks + (float)(ranks * (ranks - 1)) / 2;
    }
    check(n_wrong == 0, "the sum is wrong", bytes);
}

static unsigned long long over_ranks(unsigned long long value, MPI_Op op)
{
    (void)MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UNSIGNED_LONG_LONG, op, MPI_COMM_WORLD);
    return value;
}

/* MPI's collectives, which separate the calls from others, are not counted. */
static struct counts count_calls(tally_group *group, float *data, size_t bytes)
{
    struct mpi_count before;
    struct mpi_count after;
    struct counts counts;

    for (int i = 0; i < N_WARM_UP; i++) {
        call(group, data, bytes);
    }
    (void)MPI_Barrier(MPI_COMM_WORLD);
    before = mpi_count_read();
    counts.fewest = ULLONG_MAX;
    for (int i = 0; i < N_CALLS; i++) {
        unsigned long long start = mpi_count_read().messages;
        unsigned long long sent;

        call(group, data, bytes);
        sent = mpi_count_read().messages - start;
        counts.fewest = sent < counts.fewest ? sent : counts.fewest;
    }
    (void)MPI_Barrier(MPI_COMM_WORLD);
    after = mpi_count_read();
    counts.least = over_ranks(after.messages - before.messages, MPI_MIN);
    counts.most = over_ranks(after.messages - before.messages, MPI_MAX);
    counts.sum = over_ranks(after.messages - before.messages, MPI_SUM);
    counts.bytes = over_ranks(after.bytes - before.bytes, MPI_SUM);
    counts.fewest = over_ranks(counts.fewest, MPI_MIN);
    return counts;
}

static void print(const char *memory, size_t bytes, const struct counts *counts)
{
    printf("%s memory, %zu bytes: a rank sends %g to %g messages in a call, all ranks %g bytes\n",
           memory, bytes, (double)counts->least / N_CALLS, (double)counts->most / N_CALLS,
           (double)counts->bytes / N_CALLS);
}

static unsigned log2_up(unsigned n)
{
    unsigned log = 0;

    while ((1u << log) < n) {
        log++;
    }
    return log;
}

static void check_small(const struct counts *counts, unsigned ranks, size_t bytes)
{
    unsigned limit = ranks <= FEW_RANKS ? ranks - 1 : log2_up(ranks);

    check(ranks > FEW_RANKS || counts->most <= (unsigned long long)limit * N_CALLS,
          "too many messages", bytes);
    check(counts->fewest <= limit, "too many messages in each call", bytes);
    check(counts->least > 0, "a rank sends nothing: is memory shared?", bytes);
}

/* Payload that goes with a line to each other rank, if there are few. */
static void check_medium(const struct counts *counts, unsigned ranks, size_t bytes)
{
    size_t n_parts = (bytes + MPI_COUNT_SHORT_BYTES) / SHORTEST_PART + 1;
    unsigned long long payload = (unsigned long long)ranks * (ranks - 1) * bytes * N_CALLS;

    check(counts->least == counts->most, "ranks send different numbers of messages", bytes);
    check(counts->most <= (unsigned long long)(ranks - 1) * n_parts * N_CALLS, "too many messages",
          bytes);
    check(counts->bytes >= payload, "fewer bytes than the payload", bytes);
    check(counts->bytes <= payload + counts->sum * MPI_COUNT_SHORT_BYTES,
          "more bytes than the payload", bytes);
}

/* All ranks together send every shard to its owner and every result to all other ranks. */
static void check_large(const struct counts *counts, unsigned ranks, size_t bytes)
{
    unsigned long long payload = 2ull * (ranks - 1) * bytes * N_CALLS;

    unsigned lines = ranks <= FEW_RANKS ? ranks - 1 : log2_up(ranks);

    /* If lines are spread, a rank that waits for long sends its line to all. */
    check(ranks > FEW_RANKS ||
              (counts->least == counts->most && counts->least == counts->fewest * N_CALLS),
          "ranks send different numbers of messages", bytes);
    check(counts->fewest > lines && (counts->fewest - lines) % (2ull * (ranks - 1)) == 0,
          "not one round of lines and 2 (W - 1) messages in each window", bytes);
    check(counts->bytes >= payload, "fewer bytes than the payload", bytes);
    check(counts->bytes <= payload + counts->sum * MPI_COUNT_SHORT_BYTES,
          "more bytes than the payload", bytes);
}

static void check_memory(tally_group *group, const char *memory, float *data)
{
    unsigned ranks = (unsigned)tally_group_size(group);
    bool speaks = tally_group_rank(group) == 0;

    for (size_t i = 0; i < sizeof small_bytes / sizeof small_bytes[0]; i++) {
        struct counts counts = count_calls(group, data, small_bytes[i]);

        if (speaks) {
            print(memory, small_bytes[i], &counts);
            check_small(&counts, ranks, small_bytes[i]);
        }
    }
    for (size_t i = 0; ranks <= FEW_RANKS && i < sizeof medium_bytes / sizeof medium_bytes[0];
         i++) {
        struct counts counts = count_calls(group, data, medium_bytes[i]);

        if (speaks) {
            print(memory, medium_bytes[i], &counts);
            check_medium(&counts, ranks, medium_bytes[i]);
        }
    }
    for (size_t i = 0; i < sizeof large_bytes / sizeof large_bytes[0]; i++) {
        struct counts counts = count_calls(group, data, large_bytes[i]);

        if (speaks) {
            print(memory, large_bytes[i], &counts);
            check_large(&counts, ranks, large_bytes[i]);
        }
    }
}

int main(void)
{
    size_t most_bytes = large_bytes[sizeof large_bytes / sizeof large_bytes[0] - 1];
    float *heap = calloc(1, most_bytes);
    tally_group *group = NULL;
    void *memory = NULL;
    int threads;
    int rc;

    (void)MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
    rc = tally_group_open(NULL, &group);
    rc = rc == TALLY_OK ? tally_group_alloc(group, most_bytes, &memory) : rc;
    if (rc != TALLY_OK || !heap) {
        (void)fprintf(stderr, "mpi_messages: %s\n", tally_last_error());
        return 1;
    }
    check_memory(group, "group", memory);
    check_memory(group, "ordinary", heap);
    (void)tally_group_free(group, memory);
    (void)tally_group_close(group);
    free(heap);
    (void)MPI_Finalize();
    return n_failed > 0;
}

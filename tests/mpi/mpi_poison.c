/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives that are under way when a group is given up never land in memory that the application
 * has freed. Rank 1 stops itself in the middle of an exchange; rank 0 waits until its deadline has
 * passed, unmaps its arrays, maps poison in their place, and lets rank 1 go on. Now messages
 * arrive, while rank 0 calls MPI. The poison must stay, and some message must have landed
 * elsewhere: otherwise nothing was under way.
 *
 *   mpi_poison all_reduce|all_gather|broadcast
 *
 * Two ranks that share no memory (TALLY_SHARE=0). Each prints a line that ends with "met" if all is
 * well. Compiled once per MPI, with its symbols exported, so that tally calls the functions below.
 */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tally_extend.h>
#include <unistd.h>

#define BYTES ((size_t)8 << 20)
#define STOPS_AT 30 /* transfers of rank 1, of 128 or more */
#define MAX_RECEIVES 4096
#define N_LATE_LOOKS 500
#define N_STAY_LOOKS 10000
#define POISON 0xa5

static struct {
    unsigned char *to;
    size_t bytes;
    unsigned char *before; /* its bytes when the group was given up */
} receives[MAX_RECEIVES];

static int n_receives;
static int n_transfers;
static bool is_watched; /* the exchange has begun */
static int rank;

/* Rank 1 stops before it sends, so that at least this message comes late. */
static void count_transfer(bool is_sending)
{
    static bool has_stopped;

    if (is_watched && rank == 1 && ++n_transfers >= STOPS_AT && is_sending && !has_stopped) {
        has_stopped = true;
        (void)raise(SIGSTOP);
    }
}

/* Lines may come from any rank; the others are transfers. */
int MPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (is_watched && from != MPI_ANY_SOURCE) {
        if (n_receives < MAX_RECEIVES) {
            receives[n_receives].to = to;
            receives[n_receives++].bytes = (size_t)n;
        }
        count_transfer(false);
    }
    return PMPI_Irecv(to, n, type, from, tag, comm, request);
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (tag != 0) {
        count_transfer(true);
    }
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}

static void report(const char *what)
{
    printf("rank %d: %s\n", rank, what);
    (void)fflush(stdout);
}

static _Noreturn void leave(const char *what)
{
    report(what);
    /* MPI_Finalize may wait for a rank that has left: not what is tested here. */
    _exit(0);
}

static void *map(void *at)
{
    void *memory = mmap(at, BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

    if (memory == MAP_FAILED) {
        leave("no memory");
    }
    return memory;
}

/* The application frees the array, and something else takes its place. */
static void poison(unsigned char *array)
{
    (void)munmap(array, BYTES);
    memset(map(array), POISON, BYTES);
}

static bool is_poison(const unsigned char *array)
{
    for (size_t i = 0; i < BYTES; i++) {
        if (array[i] != POISON) {
            return false;
        }
    }
    return true;
}

static void keep_receives(void)
{
    for (int i = 0; i < n_receives; i++) {
        receives[i].before = malloc(receives[i].bytes);
        if (!receives[i].before) {
            leave("no memory");
        }
        memcpy(receives[i].before, receives[i].to, receives[i].bytes);
    }
}

static bool has_one_landed(void)
{
    for (int i = 0; i < n_receives; i++) {
        if (memcmp(receives[i].before, receives[i].to, receives[i].bytes) != 0) {
            return true;
        }
    }
    return false;
}

static int begin(tally_group *group, const char *what, unsigned char *a, unsigned char *b,
                 tally_future **future)
{
    static const size_t bytes[2] = {BYTES / 2, BYTES / 2};

    if (strcmp(what, "all_reduce") == 0) {
        return tally_all_reduce(group, a, BYTES / 4, TALLY_F32, TALLY_SUM, future);
    }
    if (strcmp(what, "all_gather") == 0) {
        return tally_all_gather(group, b, bytes, a, future);
    }
    return tally_broadcast(group, a, BYTES, 1, future);
}

/* Rank 0, after its deadline: rank 1 goes on, and its messages come. */
static const char *wake_and_look(pid_t other, unsigned char *a, unsigned char *b)
{
    bool has_landed = false;

    keep_receives();
    poison(a);
    poison(b);
    (void)kill(other, SIGCONT);
    for (int i = 0; i < N_LATE_LOOKS; i++) {
        int is_there;

        (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
        has_landed = has_landed || has_one_landed();
        (void)usleep(2000);
    }
    if (!is_poison(a) || !is_poison(b)) {
        return "FAILED: a message landed in memory that was freed";
    }
    return has_landed ? "met" : "FAILED: no message was under way";
}

/* Rank 1: the launcher ends rank 0 as soon as this rank has left. */
static _Noreturn void stay(pid_t other)
{
    for (int i = 0; i < N_STAY_LOOKS && kill(other, 0) == 0; i++) {
        int is_there;

        (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
        (void)usleep(2000);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    unsigned char *a = map(NULL);
    unsigned char *b = map(NULL);
    tally_group_config config;
    tally_group *group = NULL;
    tally_future *future = NULL;
    pid_t pids[2];
    pid_t own = getpid();
    int level;
    int rc;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Allgather(&own, sizeof own, MPI_BYTE, pids, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    for (size_t i = 0; i < BYTES / 4; i++) {
        ((float *)(void *)a)[i] = (float)(i * 2 + (size_t)rank);
        ((float *)(void *)b)[i] = (float)(i * 3 + (size_t)rank);
    }
    tally_group_config_init(&config, sizeof config);
    config.timeout_s = 2;
    if (argc != 2 || tally_group_open(&config, &group) != TALLY_OK) {
        leave(argc != 2 ? "usage: mpi_poison all_reduce|all_gather|broadcast" : tally_last_error());
    }
    is_watched = true;
    rc = begin(group, argv[1], a, b, &future);
    rc = rc == TALLY_OK ? tally_future_wait(future) : rc;
    if (rank == 1) {
        report(rc == TALLY_OK ? "FAILED: the exchange succeeded" : "met");
        stay(pids[0]);
    }
    if (rc != TALLY_TIMEOUT) {
        leave(rc == TALLY_OK ? "FAILED: the exchange succeeded" : tally_last_error());
    }
    leave(wake_and_look(pids[1], a, b));
}

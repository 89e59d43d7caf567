/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses MPI itself and tally beside it. One word says what it does; it prints nothing
 * and returns 0 when all is as it should be. Compiled once per MPI, linked with libtally.so.
 */
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
                          tally_last_error());                                                   \
            return 1;                                                                            \
        }                                                                                        \
    } while (0)

static int open_group(const int *comm, int lanes, tally_group **group)
{
    tally_group_config config;

    tally_group_config_init(&config, sizeof config);
    config.backend = comm ? NULL : "mpi";
    config.mpi_comm = comm;
    config.lanes = lanes;
    config.timeout_s = 30;
    return tally_group_open(&config, group);
}

/* The sum of all ranks' numbers plus one. */
static int check_sum(tally_group *group)
{
    int size = tally_group_size(group);
    float data[1000];
    tally_future *future;

    for (int i = 0; i < 1000; i++) {
        data[i] = (float)(tally_group_rank(group) + 1);
    }
    CHECK(tally_all_reduce(group, data, 1000, TALLY_F32, TALLY_SUM, &future) == TALLY_OK);
    CHECK(tally_future_wait(future) == TALLY_OK);
    tally_future_free(future);
    for (int i = 0; i < 1000; i++) {
        CHECK(data[i] == (float)(size * (size + 1) / 2));
    }
    return 0;
}

/* Ranks are the processes of a communicator of the program's; MPI is the program's to finalize. */
static int use_communicator(void)
{
    tally_group *group;
    MPI_Comm half;
    MPI_Fint handle;
    int level;
    int rank;
    int rank_in_half;
    int sum = 0;

    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS);
    CHECK(level == MPI_THREAD_MULTIPLE);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    (void)MPI_Comm_rank(half, &rank_in_half);
    handle = MPI_Comm_c2f(half);
    CHECK(open_group(&handle, 1, &group) == TALLY_OK);
    CHECK(strcmp(tally_group_backend(group), "mpi") == 0);
    CHECK(tally_group_rank(group) == rank_in_half);
    /* Its own messages and ours do not meet. */
    for (int i = 0; i < 20; i++) {
        int one = 1;
        int size;

        CHECK(check_sum(group) == 0);
        (void)MPI_Comm_size(half, &size);
        (void)MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
        CHECK(sum == size);
    }
    CHECK(tally_group_close(group) == TALLY_OK);
    (void)MPI_Comm_free(&half);
    CHECK(open_group(NULL, 2, &group) == TALLY_OK);
    CHECK(check_sum(group) == 0);
    CHECK(tally_group_close(group) == TALLY_OK);
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    CHECK(open_group(NULL, 1, &group) == TALLY_STATE);
    return 0;
}

/* Without a thread level of MPI there are no lane threads. */
static int use_one_thread(void)
{
    tally_group *group;
    int level;

    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS);
    if (level < MPI_THREAD_SERIALIZED) {
        CHECK(open_group(NULL, 1, &group) == TALLY_ARG);
        CHECK(strstr(tally_last_error(), "MPI_THREAD_FUNNELED") != NULL);
        CHECK(strstr(tally_last_error(), "lanes = 0") != NULL);
    }
    CHECK(open_group(NULL, 0, &group) == TALLY_OK);
    CHECK(check_sum(group) == 0);
    CHECK(tally_group_close(group) == TALLY_OK);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return 0;
}

/* tally initializes MPI, and finalizes it at the end, however many groups there were. */
static int let_tally_start(void)
{
    tally_group *group;
    tally_group *other;
    int flag = 0;

    for (int i = 0; i < 3; i++) {
        CHECK(open_group(NULL, 1, &group) == TALLY_OK);
        CHECK(open_group(NULL, 1, &other) == TALLY_OK);
        CHECK(check_sum(group) == 0);
        /* Ranks close groups in different orders, and none waits for another's close. */
        CHECK(tally_group_close(tally_group_rank(group) == 0 ? group : other) == TALLY_OK);
        CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(tally_group_close(tally_group_rank(group) == 0 ? other : group) == TALLY_OK);
    }
    CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && !flag);
    return 0;
}

/* Rank 0 ends without closing its group: the others learn of it at once. */
static int leave_early(void)
{
    tally_group *group;
    tally_future *future;

    CHECK(open_group(NULL, 1, &group) == TALLY_OK);
    if (tally_group_rank(group) == 0) {
        return 0;
    }
    CHECK(tally_barrier(group, &future) == TALLY_OK);
    CHECK(tally_future_wait(future) == TALLY_PEER);
    CHECK(strstr(tally_last_error(), "rank 0 ended without closing its group") != NULL);
    tally_future_free(future);
    CHECK(tally_group_close(group) == TALLY_OK);
    return 0;
}

static bool is_other_version; /* the next words to all ranks begin with another version */

int MPI_Iallgather(const void *own, int n, MPI_Datatype type, void *all, int n_of_each,
                   MPI_Datatype type_of_each, MPI_Comm comm, MPI_Request *request)
{
    static char changed[4096];

    if (is_other_version && (size_t)n <= sizeof changed) {
        is_other_version = false;
        memcpy(changed, own, (size_t)n);
        memcpy(changed, "99.1", 5);
        own = changed;
    }
    return PMPI_Iallgather(own, n, type, all, n_of_each, type_of_each, comm, request);
}

/* Rank 1 has another libtally: all ranks learn it at once. */
static int mix_versions(void)
{
    tally_group *group;
    int provided;
    int rank;

    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
    is_other_version = rank == 1;
    CHECK(open_group(NULL, 1, &group) == TALLY_MISMATCH);
    CHECK(strstr(tally_last_error(), ", rank 1 libtally 99.1") != NULL);
    /* As soon as all have the same one, they can open a group. */
    CHECK(open_group(NULL, 1, &group) == TALLY_OK);
    CHECK(check_sum(group) == 0);
    CHECK(tally_group_close(group) == TALLY_OK);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return 0;
}

static int n_sums;          /* begun by MPI */
static bool refuses_sums;   /* the next one is not begun, but kept */
static int n_long_messages; /* that rank 1 sends before it is killed; 0: it is not */
static struct {
    int n;
    MPI_Comm comm;
} kept_sum = {0, MPI_COMM_NULL};

/* In place of MPI's, which they call: tally's object finds these. */
int MPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    n_sums += type == MPI_FLOAT;
    if (type == MPI_FLOAT && refuses_sums) {
        kept_sum.n = n;
        kept_sum.comm = comm;
        (void)poll(NULL, 0, 300); /* until the others have begun it */
        return MPI_ERR_OTHER;
    }
    return PMPI_Iallreduce(from, to, n, type, op, comm, request);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    return *comm == kept_sum.comm ? MPI_SUCCESS : PMPI_Comm_free(comm);
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (n > 1000 && n_long_messages > 0 && --n_long_messages == 0) {
        (void)raise(SIGKILL);
    }
    return PMPI_Isend(from, n, type, to, tag, comm, request);
}

/*
 * The hook that lets MPI sum: whole numbers, so that any order has the same bits. Views and copies,
 * several lanes; among some of the ranks there is no communicator, and the exchange sums.
 */
static int use_native_sums(const char *hook, bool copies, int lanes, bool is_native)
{
    enum { N_PARAMS = 5, N = 1003 };
    static float data[N_PARAMS][N];
    static float grads[N_PARAMS][N];
    static const char *const names[N_PARAMS] = {"a", "b", "c", "d", "e"};
    static const size_t shape[] = {N};
    tally_param params[N_PARAMS];
    tally_ddp_stats stats = {.size = sizeof stats};
    size_t estimate;
    tally_ddp_config config;
    tally_group *group;
    tally_ddp *ddp;
    int size;

    CHECK(open_group(NULL, lanes, &group) == TALLY_OK);
    size = tally_group_size(group);
    for (int p = 0; p < N_PARAMS; p++) {
        params[p] = (tally_param){.size = sizeof params[p],
                                  .name = names[p],
                                  .n_dims = 1,
                                  .shape = shape,
                                  .dtype = TALLY_F32,
                                  .data = data[p],
                                  .grad = copies ? grads[p] : NULL};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.bucket_cap_bytes = 2 * sizeof grads[0];
    CHECK(tally_ddp_create(group, params, N_PARAMS, &config, &ddp) == TALLY_OK);
    n_sums = 0;
    for (int step = 0; step < 3; step++) {
        for (int p = 0; p < N_PARAMS; p++) {
            float *grad = tally_ddp_grad(ddp, (size_t)p);

            for (int i = 0; i < N; i++) {
                grad[i] = (float)((i * (p + 1) + step) * size * (tally_group_rank(group) + 1));
            }
            CHECK(tally_ddp_grad_ready(ddp, (size_t)p) == TALLY_OK);
        }
        CHECK(tally_ddp_wait(ddp) == TALLY_OK);
        for (int p = 0; p < N_PARAMS; p++) {
            const float *grad = tally_ddp_grad(ddp, (size_t)p);

            for (int i = 0; i < N; i++) {
                CHECK(grad[i] == (float)((i * (p + 1) + step) * (size * (size + 1) / 2)));
            }
        }
    }
    /* MPI does not tell how many bytes it sends: tally.h documents this estimate. Each bucket's is
     * rounded down. */
    CHECK(tally_ddp_get_stats(ddp, &stats) == TALLY_OK);
    estimate = 2 * sizeof data * (size_t)(size - 1) / (size_t)size;
    CHECK(!is_native || (stats.wire_bytes <= estimate && estimate - stats.wire_bytes < N_PARAMS));
    CHECK((n_sums > 0) == (is_native || (size == 1 && strstr(hook, "native"))));
    CHECK(tally_ddp_free(ddp) == TALLY_OK);
    CHECK(tally_group_close(group) == TALLY_OK);
    return 0;
}

static int sum_by_mpi(void)
{
    CHECK(use_native_sums("allreduce:engine=native", false, 1, true) == 0);
    CHECK(use_native_sums("allreduce:engine=native", true, 2, true) == 0);
    CHECK(use_native_sums("allreduce", false, 1, false) == 0);
    return use_native_sums("hosts:size=2(allreduce:engine=native)", false, 1, false);
}

/* On rank 0 MPI refuses a sum that others have begun: they are told. When all have closed the
 * group, rank 0 begins it after all, and so MPI may write to what they have given up. */
static int fail_sum(void)
{
    enum { N = 100003 };
    static float data[N];
    static const size_t shape[] = {N};
    const tally_param param = {.size = sizeof param,
                               .name = "a",
                               .n_dims = 1,
                               .shape = shape,
                               .dtype = TALLY_F32,
                               .data = data};
    tally_ddp_config config;
    tally_group *group;
    tally_ddp *ddp;
    bool is_first;

    CHECK(open_group(NULL, 1, &group) == TALLY_OK);
    is_first = tally_group_rank(group) == 0;
    tally_ddp_config_init(&config, sizeof config);
    config.hook = "allreduce:engine=native";
    CHECK(tally_ddp_create(group, &param, 1, &config, &ddp) == TALLY_OK);
    refuses_sums = is_first;
    CHECK(tally_ddp_grad_ready(ddp, 0) == TALLY_OK);
    CHECK(tally_ddp_wait(ddp) == TALLY_SYSTEM);
    CHECK(strstr(tally_last_error(), "MPI_Iallreduce") != NULL);
    CHECK(tally_ddp_free(ddp) == TALLY_OK);
    CHECK(tally_group_close(group) == TALLY_OK);
    /* Memory of a closed group is freed with the next one, as far as possible. */
    (void)MPI_Barrier(MPI_COMM_WORLD);
    CHECK(open_group(NULL, 1, &group) == TALLY_OK);
    CHECK(tally_group_close(group) == TALLY_OK);
    if (is_first) {
        MPI_Request request;
        int is_done = 0;

        (void)PMPI_Iallreduce(MPI_IN_PLACE, data, kept_sum.n, MPI_FLOAT, MPI_SUM, kept_sum.comm,
                              &request);
        /* The late rank has been refused, and has not begun the operation. */
        for (int i = 0; i < 300 && !is_done; i++) {
            (void)MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
            (void)poll(NULL, 0, 1);
        }
    }
    (void)MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

/* At once: when others end, the launcher may end us before stdout is written at our exit. */
static int say_survived(void)
{
    (void)printf("survived\n");
    (void)fflush(stdout);
    return 0;
}

/* Rank 1 is killed, or sleeps for longer than the others wait. They say who, and end. */
static int lose_rank(bool is_killed)
{
    tally_group_config config;
    tally_group *group;
    tally_future *future;
    char expected[64];
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.timeout_s = is_killed ? 60 : 1;
    CHECK(tally_group_open(&config, &group) == TALLY_OK);
    CHECK(check_sum(group) == 0);
    if (tally_group_rank(group) == 1) {
        /* MPICH's launcher ends when it has something to say to a rank that died. */
        (void)sleep(is_killed ? 1 : 4);
        (void)raise(SIGKILL);
    }
    CHECK(tally_barrier(group, &future) == TALLY_OK);
    rc = tally_future_wait(future);
    (void)snprintf(expected, sizeof expected, "rank 1 %s",
                   is_killed ? "died" : "did not arrive within 1 s");
    CHECK(rc == (is_killed ? TALLY_PEER : TALLY_TIMEOUT));
    CHECK(strstr(tally_last_error(), expected) != NULL);
    tally_future_free(future);
    CHECK(tally_group_close(group) == TALLY_OK);
    return say_survived();
}

static int lose_killed(void)
{
    return lose_rank(true);
}

static int lose_late(void)
{
    return lose_rank(false);
}

/* Rank 1 is killed while it sends and the others send to it, after it has arrived at a round. */
static int lose_sender(void)
{
    enum { N = 4000001 };
    static float data[N];
    tally_group *group;
    tally_future *future;

    CHECK(setenv("TALLY_SHARE", "0", 1) == 0); /* there are messages */
    CHECK(open_group(NULL, 1, &group) == TALLY_OK);
    n_long_messages = tally_group_rank(group) == 1 ? 70 : 0;
    CHECK(tally_all_reduce(group, data, N, TALLY_F32, TALLY_SUM, &future) == TALLY_OK);
    CHECK(tally_future_wait(future) == TALLY_PEER);
    CHECK(strstr(tally_last_error(), "rank 1 died") != NULL);
    tally_future_free(future);
    CHECK(tally_group_close(group) == TALLY_OK);
    return say_survived();
}

/*
 * Rank 1 is killed. Messages of rank 0 to it stay under way, and must not keep rank 0 from working
 * with rank 2.
 */
static int lose_in_sub_group(void)
{
    tally_group *group;
    tally_group *lost;
    tally_group *well;
    tally_future *future;
    int rank;

    CHECK(open_group(NULL, 0, &group) == TALLY_OK);
    rank = tally_group_rank(group);
    CHECK(tally_group_split(group, rank == 2 ? -1 : 0, 0, &lost) == TALLY_OK);
    CHECK(tally_group_split(group, rank == 1 ? -1 : 0, 0, &well) == TALLY_OK);
    if (rank == 1) {
        (void)sleep(2);
        (void)raise(SIGKILL);
    }
    if (lost) {
        (void)sleep(1); /* until rank 1 takes nothing in any more */
        CHECK(tally_barrier(lost, &future) == TALLY_OK);
        CHECK(tally_future_wait(future) == TALLY_PEER);
        tally_future_free(future);
        CHECK(tally_group_close(lost) == TALLY_OK);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(check_sum(well) == 0);
    }
    CHECK(tally_group_close(well) == TALLY_OK);
    CHECK(tally_group_close(group) == TALLY_OK);
    return say_survived();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        int (*run)(void);
    } cases[] = {{"communicator", use_communicator},
                 {"one-thread", use_one_thread},
                 {"tally-starts", let_tally_start},
                 {"early", leave_early},
                 {"versions", mix_versions},
                 {"native", sum_by_mpi},
                 {"native-fails", fail_sum},
                 {"killed", lose_killed},
                 {"late", lose_late},
                 {"killed-sender", lose_sender},
                 {"killed-sub", lose_in_sub_group}};

    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].word) == 0) {
            return cases[i].run();
        }
    }
    (void)fprintf(stderr, "unknown case\n");
    return 2;
}

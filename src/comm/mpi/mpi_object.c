/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All MPI calls, for one MPI: this file becomes libtally-openmpi.so and libtally-mpich.so. It knows
 * nothing about groups and rounds. The caller holds its lock in every function except the two that
 * MPI and the C library call at the end.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/mpi/mpi_api.h"

_Static_assert(sizeof(MPI_Comm) <= sizeof(struct tally__mpi_handle), "a handle has room");
_Static_assert(sizeof(MPI_Request) <= sizeof(struct tally__mpi_handle), "a handle has room");

/* The symbol that libtally loads. */
__attribute__((visibility("default"))) const struct tally__mpi_api *tally_mpi_api(void);

#define CANCEL_LOOKS 1000
#define CANCEL_PAUSE_NS 100000
#define PAUSE_NS 1000000
/* The end waits this long for words on their way: a second, or, if the program finalizes MPI, as
 * long as for ranks that may be lost. */
#define WORDS_NS UINT64_C(1000000000)
#define OWN_WORDS_NS UINT64_C(2000000000)
/* The interval between checks of the other ranks. */
#define N_PAUSES 100

/*
 * MPICH before 4.2 waits in MPI_Finalize, over TCP, until each rank has answered its last message,
 * but answers only until it has its own answers (its pull request 6596). That works if no rank
 * calls MPI any more when the first one gets there: ranks on different machines meet before, and
 * then make no MPI call for this time.
 */
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
#define QUIET_NS 100000000
#else
#define QUIET_NS 0
#endif

static char error_text[MPI_MAX_ERROR_STRING + 64];
static tally__mpi_end_fn *call_at_end;
static pid_t initialized_by;
static bool have_all_come; /* to the end */

static const char *last_error(void)
{
    return error_text;
}

static int fail(const char *what, int code)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    if (code != MPI_SUCCESS) {
        (void)MPI_Error_string(code, words, &n);
    }
    (void)snprintf(error_text, sizeof error_text, "%s%s%s", what, n > 0 ? ": " : "", words);
    return -1;
}

static MPI_Comm comm_of(const struct tally__mpi_handle *handle)
{
    MPI_Comm comm;

    memcpy(&comm, handle, sizeof comm);
    return comm;
}

static MPI_Request request_of(const struct tally__mpi_handle *handle)
{
    MPI_Request request;

    memcpy(&request, handle, sizeof request);
    return request;
}

/* ---- the beginning and the end ---- */

/* MPI_Finalize would wait for ever. By default MPI's error handler ends the job. */
static void report_missing(void)
{
    int class;
    int code;

    if (MPI_Add_error_class(&class) == MPI_SUCCESS &&
        MPI_Add_error_code(class, &code) == MPI_SUCCESS &&
        MPI_Add_error_string(code, "tally: a rank was lost, and MPI_Finalize would wait for it") ==
            MPI_SUCCESS) {
        (void)MPI_Comm_call_errhandler(MPI_COMM_WORLD, code);
    }
}

/* MPI deletes what is attached to its process's own communicator before it ends anything else. */
static int before_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
    struct tally__mpi_outlook outlook;

    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    call_at_end(OWN_WORDS_NS, &outlook);
    if (!have_all_come && outlook.is_missing) {
        report_missing();
    }
    return MPI_SUCCESS;
}

static int watch_for_end(tally__mpi_end_fn *at_end)
{
    int key;
    int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, before_finalize, &key, NULL);

    call_at_end = at_end;
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
        (void)MPI_Comm_free_keyval(&key);
    }
    return code == MPI_SUCCESS ? 0 : fail("MPI_Comm_set_attr", code);
}

/* Whether a request is done before the outlook says that it will not be. */
static bool wait_for_all(MPI_Request *request)
{
    uint64_t begin_ns = tally__now_ns();
    int is_done = 0;

    for (int i = 0; !is_done; i++) {
        struct tally__mpi_outlook outlook;

        if (MPI_Test(request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return false;
        }
        if (!is_done && i % N_PAUSES == 0) {
            call_at_end(0, &outlook);
            if (outlook.most_ns != TALLY__MPI_FOREVER &&
                tally__now_ns() - begin_ns > outlook.most_ns) {
                return false;
            }
        }
        if (!is_done) {
            tally__sleep_ns(PAUSE_NS);
        }
    }
    return true;
}

/*
 * Waits for all ranks, as MPI_Finalize would, and then until no rank calls MPI. False: not all
 * ranks arrive. Two barriers: a rank that has waited for too long has taken part in the first, and
 * takes no part in the second.
 */
static bool leave_together(bool is_spread)
{
    MPI_Request request;

    for (int i = 0; i < 2; i++) {
        if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS || !wait_for_all(&request)) {
            return false;
        }
    }
    if (is_spread) {
        tally__sleep_ns(QUIET_NS);
    }
    return true;
}

static void finalize_ours(void)
{
    struct tally__mpi_outlook outlook;
    int is_finalized = 0;

    /* A forked child has not initialized anything. */
    if (getpid() != initialized_by || MPI_Finalized(&is_finalized) != MPI_SUCCESS || is_finalized) {
        return;
    }
    call_at_end(WORDS_NS, &outlook);
    have_all_come = !outlook.is_half_duplicated && leave_together(outlook.is_spread);
    if (have_all_come) {
        (void)MPI_Finalize();
    }
}

static int initialize(int *level)
{
    int code;

    /* UCX, which MPICH may use, divides messages over TCP into pieces of 8 KiB, and needs one MPI
     * call per piece. */
    (void)setenv("UCX_TCP_TX_SEG_SIZE", "64k", 0);
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, level);

    if (code != MPI_SUCCESS) {
        return fail("MPI_Init_thread", code);
    }
    initialized_by = getpid();
    return atexit(finalize_ours) == 0 ? 0 : fail("atexit", MPI_SUCCESS);
}

static int start(tally__mpi_end_fn *at_end, int *threads, int *n_processes)
{
    int is_initialized = 0;
    int is_finalized = 0;
    int level = MPI_THREAD_SINGLE;
    int code;

    (void)MPI_Initialized(&is_initialized);
    (void)MPI_Finalized(&is_finalized);
    if (is_finalized) {
        return fail("MPI has been finalized, and cannot be started again", MPI_SUCCESS);
    }
    if (!is_initialized) {
        if (initialize(&level) != 0) {
            return -1;
        }
    } else {
        code = MPI_Query_thread(&level);
        if (code != MPI_SUCCESS) {
            return fail("MPI_Query_thread", code);
        }
    }
    if (!call_at_end && watch_for_end(at_end) != 0) {
        return -1;
    }
    *threads = level == MPI_THREAD_MULTIPLE     ? TALLY__MPI_MULTIPLE
               : level == MPI_THREAD_SERIALIZED ? TALLY__MPI_SERIALIZED
               : level == MPI_THREAD_FUNNELED   ? TALLY__MPI_FUNNELED
                                                : TALLY__MPI_SINGLE;
    code = MPI_Comm_size(MPI_COMM_WORLD, n_processes);
    return code == MPI_SUCCESS ? 0 : fail("MPI_Comm_size", code);
}

/* ---- communicators ---- */

static int begin_duplicate(MPI_Comm from, struct tally__mpi_handle *comm,
                           struct tally__mpi_handle *request)
{
    MPI_Request begun;
    /* MPI writes the new handle when the request is done, so it needs the final address now. */
    int code = MPI_Comm_idup(from, (MPI_Comm *)(void *)comm, &begun);

    if (code != MPI_SUCCESS) {
        return fail("MPI_Comm_idup", code);
    }
    memcpy(request, &begun, sizeof begun);
    return 0;
}

static int duplicate(const int *fortran, struct tally__mpi_handle *comm,
                     struct tally__mpi_handle *request)
{
    MPI_Comm from = fortran ? MPI_Comm_f2c((MPI_Fint)*fortran) : MPI_COMM_WORLD;
    int is_inter = 0;
    int code;

    if (from == MPI_COMM_NULL) {
        return fail("the communicator is MPI_COMM_NULL", MPI_SUCCESS);
    }
    code = MPI_Comm_test_inter(from, &is_inter);
    if (code != MPI_SUCCESS || is_inter) {
        return fail("the communicator is an inter-communicator", code);
    }
    return begin_duplicate(from, comm, request);
}

static int duplicate_ours(const struct tally__mpi_handle *from, struct tally__mpi_handle *comm,
                          struct tally__mpi_handle *request)
{
    return begin_duplicate(comm_of(from), comm, request);
}

static int describe(const struct tally__mpi_handle *handle, int *rank, int *size, int *most_tag)
{
    MPI_Comm comm = comm_of(handle);
    /* tally reports errors; MPI must not end the program. */
    int code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int is_set = 0;
    int *most = NULL;

    code = code == MPI_SUCCESS ? MPI_Comm_rank(comm, rank) : code;
    code = code == MPI_SUCCESS ? MPI_Comm_size(comm, size) : code;
    code = code == MPI_SUCCESS ? MPI_Comm_get_attr(comm, MPI_TAG_UB, (void *)&most, &is_set) : code;
    *most_tag = code == MPI_SUCCESS && is_set ? *most : 32767; /* the least that MPI allows */
    return code == MPI_SUCCESS ? 0 : fail("MPI_Comm_rank", code);
}

static int close_comm(struct tally__mpi_handle *handle)
{
    MPI_Comm comm = comm_of(handle);
    int code = MPI_Comm_free(&comm);

    return code == MPI_SUCCESS ? 0 : fail("MPI_Comm_free", code);
}

/* ---- messages ---- */

/* Keeps a request that MPI has begun. */
static int keep(const char *what, int code, const MPI_Request *begun,
                struct tally__mpi_handle *request)
{
    if (code != MPI_SUCCESS) {
        return fail(what, code);
    }
    memcpy(request, begun, sizeof *begun);
    return 0;
}

static int gather(const struct tally__mpi_handle *comm, const void *own, size_t bytes, void *all,
                  struct tally__mpi_handle *request)
{
    MPI_Request begun;
    int code =
        MPI_Iallgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, comm_of(comm), &begun);

    return keep("MPI_Iallgather", code, &begun, request);
}

static int send_bytes(const struct tally__mpi_handle *comm, int to, int tag, const void *bytes,
                      size_t n, struct tally__mpi_handle *request)
{
    MPI_Request begun;

    if (n > INT_MAX) {
        return fail("a message is too long", MPI_SUCCESS);
    }
    return keep("MPI_Isend", MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, comm_of(comm), &begun),
                &begun, request);
}

static int receive_bytes(const struct tally__mpi_handle *comm, int from, int tag, void *bytes,
                         size_t n, struct tally__mpi_handle *request)
{
    MPI_Request begun;

    if (n > INT_MAX) {
        return fail("a message is too long", MPI_SUCCESS);
    }
    return keep("MPI_Irecv",
                MPI_Irecv(bytes, (int)n, MPI_BYTE, from == TALLY__MPI_ANY ? MPI_ANY_SOURCE : from,
                          tag, comm_of(comm), &begun),
                &begun, request);
}

static int sum_floats(const struct tally__mpi_handle *comm, float *data, size_t n,
                      struct tally__mpi_handle *request)
{
    MPI_Request begun;

    if (n > INT_MAX) {
        return fail("a sum is too long", MPI_SUCCESS);
    }
    return keep(
        "MPI_Iallreduce",
        MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, comm_of(comm), &begun),
        &begun, request);
}

static int test(struct tally__mpi_handle *handle, struct tally__mpi_status *status)
{
    MPI_Request request = request_of(handle);
    MPI_Status came;
    int code = MPI_Test(&request, &status->is_done, &came);

    memcpy(handle, &request, sizeof request);
    if (code != MPI_SUCCESS) {
        return fail("MPI_Test", code);
    }
    status->source = -1;
    status->bytes = 0;
    if (status->is_done) {
        status->source = came.MPI_SOURCE;
        (void)MPI_Get_count(&came, MPI_BYTE, &status->bytes);
    }
    return 0;
}

static int test_some(int n, struct tally__mpi_handle *handles, int *n_done, int *done)
{
    MPI_Request requests[TALLY__MPI_MOST_AT_ONCE];
    MPI_Status statuses[TALLY__MPI_MOST_AT_ONCE];
    int code;

    for (int i = 0; i < n; i++) {
        requests[i] = request_of(&handles[i]);
    }
    code = MPI_Testsome(n, requests, n_done, done, statuses);
    if (code != MPI_SUCCESS) {
        return fail("MPI_Testsome", code);
    }
    for (int i = 0; i < n; i++) {
        memcpy(&handles[i], &requests[i], sizeof requests[i]);
    }
    *n_done = *n_done == MPI_UNDEFINED ? 0 : *n_done;
    return 0;
}

static int cancel(struct tally__mpi_handle *handle)
{
    MPI_Request request = request_of(handle);
    int is_done = 0;
    int code = MPI_Cancel(&request);

    /* A receive that was matched before may never end, if its sender has died. */
    for (int i = 0; code == MPI_SUCCESS && !is_done && i < CANCEL_LOOKS; i++) {
        code = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done) {
            tally__sleep_ns(CANCEL_PAUSE_NS);
        }
    }
    return code == MPI_SUCCESS && is_done ? 0 : fail("MPI_Cancel", code);
}

const struct tally__mpi_api *tally_mpi_api(void)
{
    static const struct tally__mpi_api api = {
        .size = sizeof api,
        .version = TALLY__MPI_API_VERSION,
#ifdef OPEN_MPI
        .name = "Open MPI",
#else
        .name = "MPICH",
#endif
        .error = last_error,
        .start = start,
        .duplicate = duplicate,
        .duplicate_ours = duplicate_ours,
        .describe = describe,
        .gather = gather,
        .send = send_bytes,
        .receive = receive_bytes,
        .sum = sum_floats,
        .test = test,
        .test_some = test_some,
        .cancel = cancel,
        .close = close_comm,
    };

    return &api;
}

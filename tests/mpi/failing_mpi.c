/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of tally for MPI (comm/mpi/mpi_api.h) that passes every call on to the real one, the
 * object TALLY_TEST_MPI_REAL, except for one that fails: TALLY_TEST_MPI_FAIL="ENTRY N RANK" is the
 * N-th call of that entry of the table on that rank.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi_api.h"

static const struct tally__mpi_api *real;
static struct tally__mpi_api table;
static char failing[32]; /* the entry; "": none on this rank */
static long left;
static int has_failed; /* the last call did, by our doing */

static int fails(const char *entry)
{
    has_failed = strcmp(failing, entry) == 0 && left > 0 && --left == 0;
    if (has_failed) {
        (void)fprintf(stderr, "failing_mpi: hit\n");
    }
    return has_failed;
}

static const char *error(void)
{
    return has_failed ? "the test lets this call of MPI fail" : real->error();
}

/* An entry: its parameters, and how they are passed on. */
#define PASS(entry, parameters, arguments)                \
    static int entry parameters                           \
    {                                                     \
        return fails(#entry) ? 1 : real->entry arguments; \
    }

typedef struct tally__mpi_handle handle;

PASS(start, (tally__mpi_end_fn * at_end, int *threads, int *n), (at_end, threads, n))
PASS(duplicate, (const int *fortran, handle *comm, handle *request), (fortran, comm, request))
PASS(duplicate_ours, (const handle *from, handle *comm, handle *request), (from, comm, request))
PASS(describe, (const handle *comm, int *rank, int *size, int *most_tag),
     (comm, rank, size, most_tag))
PASS(gather, (const handle *comm, const void *own, size_t n, void *all, handle *request),
     (comm, own, n, all, request))
PASS(send, (const handle *comm, int to, int tag, const void *bytes, size_t n, handle *request),
     (comm, to, tag, bytes, n, request))
PASS(receive, (const handle *comm, int from, int tag, void *bytes, size_t n, handle *request),
     (comm, from, tag, bytes, n, request))
PASS(sum, (const handle *comm, float *data, size_t n, handle *request), (comm, data, n, request))
PASS(test, (handle * request, struct tally__mpi_status *status), (request, status))
PASS(test_some, (int n, handle *requests, int *n_done, int *done), (n, requests, n_done, done))
PASS(cancel, (handle * request), (request))

static int close_comm(handle *comm)
{
    return fails("close") ? 1 : real->close(comm);
}

static void read_environment(void)
{
    const char *said = getenv("TALLY_TEST_MPI_FAIL");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    size_t length = said ? strcspn(said, " ") : 0;
    char *end;

    rank = rank ? rank : getenv("PMI_RANK");
    if (!said || !rank || length >= sizeof failing) {
        return;
    }
    left = strtol(said + length, &end, 10);
    if (strtol(end, NULL, 10) == strtol(rank, NULL, 10)) {
        (void)snprintf(failing, sizeof failing, "%.*s", (int)length, said);
    }
}

const struct tally__mpi_api *tally_mpi_api(void);

__attribute__((visibility("default"))) const struct tally__mpi_api *tally_mpi_api(void)
{
    const char *path = getenv("TALLY_TEST_MPI_REAL");
    void *object = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *symbol = object ? dlsym(object, TALLY__MPI_API_SYMBOL) : NULL;
    tally__mpi_api_fn *function;

    if (!symbol) {
        (void)fprintf(stderr, "failing_mpi: %s\n", path ? dlerror() : "no TALLY_TEST_MPI_REAL");
        abort();
    }
    memcpy(&function, &symbol, sizeof function);
    real = function();
    read_environment();
    table = *real;
    table.error = error;
    table.start = start;
    table.duplicate = duplicate;
    table.duplicate_ours = duplicate_ours;
    table.describe = describe;
    table.gather = gather;
    table.send = send;
    table.receive = receive;
    table.sum = sum;
    table.test = test;
    table.test_some = test_some;
    table.cancel = cancel;
    table.close = close_comm;
    return &table;
}

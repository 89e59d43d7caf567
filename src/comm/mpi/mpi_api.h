/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table between libtally and the shared objects libtally-openmpi.so and libtally-mpich.so. The
 * objects hold all calls of MPI and nothing else, one source compiled once per MPI; libtally loads
 * one of them when a group is opened. An object needs no symbol of libtally, so it goes with the
 * shared and the static one.
 */
#ifndef TALLY_COMM_MPI_API_H
#define TALLY_COMM_MPI_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changes whenever the table does: both sides come from one build. */
#define TALLY__MPI_API_VERSION 4

/* Each object exports a function that returns its table. */
#define TALLY__MPI_API_SYMBOL "tally_mpi_api"

/* Room for an MPI_Comm or an MPI_Request of any MPI. */
struct tally__mpi_handle {
    _Alignas(8) unsigned char bytes[8];
};

enum tally__mpi_threads {
    TALLY__MPI_SINGLE,
    TALLY__MPI_FUNNELED,
    TALLY__MPI_SERIALIZED,
    TALLY__MPI_MULTIPLE
};

struct tally__mpi_status {
    int is_done;
    int source;
    int bytes;
};

/* The state of the other ranks when this process ends. */
struct tally__mpi_outlook {
    uint64_t most_ns; /* to wait for them; TALLY__MPI_FOREVER: all are well */
    bool is_missing;  /* one that may be lost has not come yet */
    /* A communicator was duplicated on some ranks and not on others: another collective would meet
     * theirs in it, for which MPI has no good end. */
    bool is_half_duplicated;
};

#define TALLY__MPI_FOREVER UINT64_MAX

/* Brings last words on their way, the first time, for so long at most, and tells the outlook. */
typedef void tally__mpi_end_fn(uint64_t words_ns, struct tally__mpi_outlook *outlook);

/*
 * Every function returns 0, or not 0 after a failure that error() has the text of. None blocks but
 * start, close and what start arranges. The caller holds one lock around every call.
 */
struct tally__mpi_api {
    uint32_t size;
    uint32_t version;
    const char *name; /* "Open MPI" */
    const char *(*error)(void);
    /*
     * Initializes MPI, unless that has been done; what it has initialized it also finalizes, at the
     * end of the process. Before MPI is finalized, by whomever, at_end is called, without the lock,
     * again and again while others are awaited. MPI that tally has initialized is finalized only if
     * all come; where it is the program's own and a rank is missing, that is an error for MPI's
     * error handler. Says which threads may call MPI, and how many processes there are.
     */
    int (*start)(tally__mpi_end_fn *at_end, int *threads, int *n_processes);
    /* Begins to duplicate a communicator, given as its Fortran handle; NULL: all processes. */
    int (*duplicate)(const int *fortran, struct tally__mpi_handle *comm,
                     struct tally__mpi_handle *request);
    int (*duplicate_ours)(const struct tally__mpi_handle *from, struct tally__mpi_handle *comm,
                          struct tally__mpi_handle *request);
    int (*place)(const struct tally__mpi_handle *comm, int *rank, int *size);
    /* One that is awaited is done only when the other rank has begun to receive it. */
    int (*send)(const struct tally__mpi_handle *comm, int to, const void *bytes, size_t n,
                bool is_awaited, struct tally__mpi_handle *request);
    /* From any rank, at most n bytes. */
    int (*receive)(const struct tally__mpi_handle *comm, void *bytes, size_t n,
                   struct tally__mpi_handle *request);
    /* Sums floats of all ranks, in place. */
    int (*sum)(const struct tally__mpi_handle *comm, float *data, size_t n,
               struct tally__mpi_handle *request);
    int (*test)(struct tally__mpi_handle *request, struct tally__mpi_status *status);
    /* Takes a receive back; on success the buffer is free. Waits for a tenth of a second at most.
     */
    int (*cancel)(struct tally__mpi_handle *request);
    int (*close)(struct tally__mpi_handle *comm);
};

typedef const struct tally__mpi_api *tally__mpi_api_fn(void);

#endif

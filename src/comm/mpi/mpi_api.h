/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table between libtally and the shared objects libtally-openmpi.so and libtally-mpich.so. The
 * objects make all MPI calls and do nothing else: one source, compiled once per MPI. libtally loads
 * one of them when a group is opened. An object needs no symbol of libtally, so it works with the
 * shared and the static library.
 */
#ifndef TALLY_COMM_MPI_API_H
#define TALLY_COMM_MPI_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changes whenever the table does: both sides come from one build. */
#define TALLY__MPI_API_VERSION 5

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
    bool is_missing;  /* a rank that may be lost has not arrived yet */
    bool is_spread;   /* the ranks are on several machines */
    /* A communicator was duplicated on some ranks and not on others: another collective would meet
     * theirs in it, and MPI cannot recover from that. */
    bool is_half_duplicated;
};

#define TALLY__MPI_FOREVER UINT64_MAX

/* Sends last words the first time, waiting for at most words_ns, and describes the outlook. */
typedef void tally__mpi_end_fn(uint64_t words_ns, struct tally__mpi_outlook *outlook);

#define TALLY__MPI_ANY (-1)

/*
 * Every function returns 0, or another number after a failure whose text error() returns. None
 * blocks except start and close. The caller holds one lock around every call.
 */
struct tally__mpi_api {
    uint32_t size;
    uint32_t version;
    const char *name; /* "Open MPI" */
    const char *(*error)(void);
    /*
     * Initializes MPI unless the program has; then it also finalizes MPI at the end of the process.
     * Before MPI is finalized, by the program or by tally, at_end is called without the lock, and
     * repeatedly while other ranks are awaited. tally finalizes MPI only if all ranks arrive; if
     * the program does and a rank is missing, that is an error for MPI's error handler. Returns
     * which threads may call MPI, and the number of processes.
     */
    int (*start)(tally__mpi_end_fn *at_end, int *threads, int *n_processes);
    /* Begins to duplicate a communicator, given as its Fortran handle; NULL: all processes. */
    int (*duplicate)(const int *fortran, struct tally__mpi_handle *comm,
                     struct tally__mpi_handle *request);
    int (*duplicate_ours)(const struct tally__mpi_handle *from, struct tally__mpi_handle *comm,
                          struct tally__mpi_handle *request);
    /* This process's rank, the number of ranks, and the largest tag. */
    int (*describe)(const struct tally__mpi_handle *comm, int *rank, int *size, int *most_tag);
    /* Every rank gives bytes; all receives those of all ranks, in rank order. */
    int (*gather)(const struct tally__mpi_handle *comm, const void *own, size_t bytes, void *all,
                  struct tally__mpi_handle *request);
    int (*send)(const struct tally__mpi_handle *comm, int to, int tag, const void *bytes, size_t n,
                struct tally__mpi_handle *request);
    /* From one rank, or from TALLY__MPI_ANY; at most n bytes. */
    int (*receive)(const struct tally__mpi_handle *comm, int from, int tag, void *bytes, size_t n,
                   struct tally__mpi_handle *request);
    /* Sums floats of all ranks, in place. */
    int (*sum)(const struct tally__mpi_handle *comm, float *data, size_t n,
               struct tally__mpi_handle *request);
    int (*test)(struct tally__mpi_handle *request, struct tally__mpi_status *status);
    /* Writes the indices of the n requests that are done to done, in any order. n is at most
     * TALLY__MPI_MOST_AT_ONCE. */
    int (*test_some)(int n, struct tally__mpi_handle *requests, int *n_done, int *done);
    /* Cancels a receive; on success the buffer is free. Waits for a tenth of a second at most. */
    int (*cancel)(struct tally__mpi_handle *request);
    int (*close)(struct tally__mpi_handle *comm);
};

#define TALLY__MPI_MOST_AT_ONCE 64

typedef const struct tally__mpi_api *tally__mpi_api_fn(void);

#endif

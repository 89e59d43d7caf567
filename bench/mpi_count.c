/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of MPI's functions that send, counts, and calls MPI. Any thread enters. */
#include "bench/mpi_count.h"

#include <mpi.h>
#include <stdatomic.h>

/* Relaxed: a reader that wants all messages of a call reads after the call. */
static atomic_ullong n_messages;
static atomic_ullong n_short;
static atomic_ullong n_bytes;

static void count_message(int count, MPI_Datatype type)
{
    int type_bytes = 0;
    unsigned long long bytes;

    (void)PMPI_Type_size(type, &type_bytes);
    bytes = (unsigned long long)count * (unsigned long long)type_bytes;
    atomic_fetch_add_explicit(&n_messages, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_short, bytes <= MPI_COUNT_SHORT_BYTES, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_bytes, bytes, memory_order_relaxed);
}

struct mpi_count mpi_count_read(void)
{
    struct mpi_count count;

    count.messages = atomic_load_explicit(&n_messages, memory_order_relaxed);
    count.short_messages = atomic_load_explicit(&n_short, memory_order_relaxed);
    count.bytes = atomic_load_explicit(&n_bytes, memory_order_relaxed);
    return count;
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    count_message(count, type);
    return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Ssend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    count_message(count, type);
    return PMPI_Ssend(data, count, type, to, tag, comm);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    count_message(count, type);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Issend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    count_message(count, type);
    return PMPI_Issend(data, count, type, to, tag, comm, request);
}

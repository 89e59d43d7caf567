/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This rank's memory in the MPI domain. Slots lie in the part that the others have mirrors of.
 * Memory for applications does not: no other rank reaches it, so it has a place of its own. It is
 * touched here, piece by piece, so that a lack of memory is an error now and not a signal later.
 * Application and lane threads enter.
 */
#include <errno.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/room.h"
#include "base/status.h"
#include "comm/mpi/mpi_domain.h"
#include "comm/shm/windows.h"

#define PAGE_BYTES UINT64_C(4096)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct tally__mpi_data {
    struct tally__mpi_data *next;
    void *memory;
    size_t bytes;
};

static struct tally__mpi_domain *mpi_of(const struct tally__domain *domain)
{
    return (struct tally__mpi_domain *)(uintptr_t)domain; // NOLINT(performance-no-int-to-ptr)
}

static int populate(void *user, uint64_t offset, uint64_t bytes)
{
    unsigned char *memory = (unsigned char *)user + offset;

    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return errno;
    }
    /* Before Linux 5.14. */
    for (uint64_t i = 0; i < bytes; i += PAGE_BYTES) {
        ((volatile unsigned char *)memory)[i] = 0;
    }
    return 0;
}

static int map_data(const struct tally__mpi_domain *mpi, struct tally__mpi_data *data)
{
    int rc;

    data->memory = mmap(NULL, data->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data->memory == MAP_FAILED) {
        return tally__fail_map(errno, data->bytes, mpi->common.n_ranks);
    }
    rc = tally__take_memory(data->bytes, mpi->n_local > 0 ? mpi->n_local : 1, populate,
                            data->memory, "group memory");
    if (rc != TALLY_OK) {
        (void)munmap(data->memory, data->bytes);
    }
    return rc;
}

static int alloc_data(struct tally__mpi_domain *mpi, size_t bytes, void **memory)
{
    struct tally__mpi_data *data = tally__alloc(sizeof *data, "group memory");
    int rc;

    if (!data) {
        return TALLY_NOMEM;
    }
    data->bytes = bytes;
    rc = map_data(mpi, data);
    if (rc != TALLY_OK) {
        tally__free(data);
        return rc;
    }
    (void)pthread_mutex_lock(&mpi->mutex);
    data->next = mpi->data;
    mpi->data = data;
    (void)pthread_mutex_unlock(&mpi->mutex);
    *memory = data->memory;
    return TALLY_OK;
}

static int alloc_slots(struct tally__mpi_domain *mpi, size_t bytes, void **memory)
{
    uint64_t offset;
    int rc;

    (void)pthread_mutex_lock(&mpi->mutex);
    rc = tally__extents_take(&mpi->extents, bytes, PAGE_BYTES, &offset);
    (void)pthread_mutex_unlock(&mpi->mutex);
    if (rc == TALLY_NOMEM && mpi->extents.limit < tally__map_bytes(mpi->common.n_ranks)) {
        return tally__fail_map(ENOMEM, bytes, mpi->common.n_ranks);
    }
    if (rc == TALLY_OK) {
        *memory = tally__at(&mpi->common, mpi->common.rank, offset);
    }
    return rc;
}

int tally__mpi_memory_alloc(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                            void **memory)
{
    size_t wanted = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;

    if (wanted < bytes) {
        return tally__fail(TALLY_NOMEM, "cannot map %zu bytes of group memory", bytes);
    }
    wanted = wanted ? wanted : PAGE_BYTES;
    return (use == TALLY__FOR_SLOTS ? alloc_slots : alloc_data)(mpi_of(domain), wanted, memory);
}

/* The link of the list that points to data, or the list's end. With the mutex held. */
static struct tally__mpi_data **find_data(struct tally__mpi_domain *mpi, const void *memory)
{
    struct tally__mpi_data **link = &mpi->data;

    while (*link && (*link)->memory != memory) {
        link = &(*link)->next;
    }
    return link;
}

void tally__mpi_memory_free(struct tally__domain *domain, void *memory)
{
    struct tally__mpi_domain *mpi = mpi_of(domain);
    struct tally__mpi_data **link;
    struct tally__mpi_data *data;
    uint64_t bytes = 0;

    (void)pthread_mutex_lock(&mpi->mutex);
    link = find_data(mpi, memory);
    data = *link;
    if (data) {
        *link = data->next;
    } else {
        bytes = tally__extents_give(&mpi->extents, tally__offset_of(domain, memory));
    }
    if (bytes > 0) {
        /* The next owner finds zeros. */
        (void)madvise(memory, bytes, MADV_DONTNEED);
    }
    (void)pthread_mutex_unlock(&mpi->mutex);
    if (data) {
        (void)munmap(data->memory, data->bytes);
        tally__free(data);
    }
}

bool tally__mpi_memory_owns(struct tally__domain *domain, const void *memory)
{
    struct tally__mpi_domain *mpi = mpi_of(domain);
    bool owns;

    (void)pthread_mutex_lock(&mpi->mutex);
    owns = *find_data(mpi, memory) != NULL;
    (void)pthread_mutex_unlock(&mpi->mutex);
    return owns;
}

bool tally__mpi_memory_shares(const struct tally__domain *domain, const void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return domain->n_ranks == 1;
}

void tally__mpi_memory_end(struct tally__mpi_domain *mpi)
{
    while (mpi->data) {
        struct tally__mpi_data *data = mpi->data;

        mpi->data = data->next;
        (void)munmap(data->memory, data->bytes);
        tally__free(data);
    }
}

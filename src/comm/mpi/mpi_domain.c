/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI domain: memory of this rank, and a mirror of every other rank's, which the post fills.
 * Mirrors take address space; pages are touched only where parcels land. One lock for the whole
 * process is held around every call of MPI; nothing waits while it is held.
 *
 * How a domain ends is in mpi_end.c. Application threads enter to open and close; lane threads
 * enter the carrier.
 */
#include "comm/mpi/mpi_domain.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/mpi_end.h"
#include "comm/shm/windows.h"

/* So long that the time for coding a stageful and for agreeing on it vanishes against the time on
 * the line. */
#define STAGE_BYTES ((size_t)4 << 20)
#define PAGE_BYTES ((size_t)4096)

static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;

void tally__mpi_lock(void)
{
    (void)pthread_mutex_lock(&mpi_lock);
}

void tally__mpi_unlock(void)
{
    (void)pthread_mutex_unlock(&mpi_lock);
}

static struct tally__mpi_domain *mpi_of(const struct tally__domain *domain)
{
    return (struct tally__mpi_domain *)(uintptr_t)domain; // NOLINT(performance-no-int-to-ptr)
}

/* Of ranks on other machines MPI does not tell: its launcher ends those who are left, or the
 * deadline does. */
static bool mpi_alive(const struct tally__domain *domain, int rank)
{
    return !tally__process_has_ended(mpi_of(domain)->processes[rank]);
}

/* ---- the carrier ---- */

static int check_not_ended(void)
{
    return tally__mpi_has_ended()
               ? tally__fail(TALLY_SYSTEM, "MPI was finalized while a group was open")
               : TALLY_OK;
}

static int mpi_put(struct tally__domain *domain, int rank, struct tally__put *put)
{
    struct tally__mpi_domain *mpi = mpi_of(domain);
    int rc;

    tally__mpi_lock();
    rc = check_not_ended();
    if (rc == TALLY_OK) {
        rc = tally__post_put(&mpi->post, rank, tally__at(domain, domain->rank, 0), put);
    }
    tally__mpi_unlock();
    return rc;
}

static int mpi_progress(struct tally__domain *domain, size_t *moved)
{
    int rc;

    tally__mpi_lock();
    rc = check_not_ended();
    if (rc == TALLY_OK) {
        rc = tally__post_progress(&mpi_of(domain)->post, moved);
    }
    tally__mpi_unlock();
    return rc;
}

static bool mpi_is_busy(struct tally__domain *domain, int rank)
{
    const struct tally__post *post = &mpi_of(domain)->post;
    bool is_busy;

    tally__mpi_lock();
    is_busy = !tally__mpi_has_ended() &&
              (rank < 0 ? post->n_under_way > 0
                        : post->peers[rank].longs.n + post->peers[rank].shorts.n > 0);
    tally__mpi_unlock();
    return is_busy;
}

static int mpi_sum_begin(struct tally__domain *domain, int lane, float *data, size_t n)
{
    struct tally__mpi_domain *mpi = mpi_of(domain);
    const struct tally__mpi_api *api = mpi->post.api;
    int rc;

    tally__mpi_lock();
    rc = check_not_ended();
    if (rc == TALLY_OK &&
        api->sum(&mpi->lanes[lane].comm, data, n, &mpi->lanes[lane].request) != 0) {
        rc = tally__fail(TALLY_SYSTEM, "%s: %s", api->name, api->error());
    }
    mpi->lanes[lane].is_summing = rc == TALLY_OK;
    tally__mpi_unlock();
    return rc;
}

static int mpi_sum_is_done(struct tally__domain *domain, int lane, bool *is_done)
{
    struct tally__mpi_domain *mpi = mpi_of(domain);
    const struct tally__mpi_api *api = mpi->post.api;
    struct tally__mpi_status status = {0};
    int rc;

    tally__mpi_lock();
    rc = check_not_ended();
    if (rc == TALLY_OK && api->test(&mpi->lanes[lane].request, &status) != 0) {
        rc = tally__fail(TALLY_SYSTEM, "%s: %s", api->name, api->error());
    }
    mpi->lanes[lane].is_summing = !status.is_done;
    tally__mpi_unlock();
    *is_done = status.is_done;
    return rc;
}

static const struct tally__carrier_ops mpi_carrier = {
    .put = mpi_put,
    .progress = mpi_progress,
    .is_busy = mpi_is_busy,
    .sum_begin = mpi_sum_begin,
    .sum_is_done = mpi_sum_is_done,
};

/* ---- the end ---- */

void tally__mpi_free(struct tally__mpi_domain *mpi)
{
    for (int r = 0; mpi->common.base && r < mpi->common.n_ranks; r++) {
        if (mpi->common.base[r]) {
            (void)munmap(tally__at(&mpi->common, r, 0), mpi->map_bytes);
        }
    }
    tally__mpi_memory_end(mpi);
    (void)pthread_mutex_destroy(&mpi->mutex);
    tally__free(mpi->lanes);
    tally__free(mpi->processes);
    tally__free(mpi->extents.used);
    tally__free(mpi->common.base);
    tally__free(mpi->common.first_slot);
    tally__free(mpi);
}

static void mpi_destroy(struct tally__domain *domain)
{
    struct tally__mpi_domain *mpi = mpi_of(domain);

    if (mpi->is_kept) {
        tally__mpi_leave(mpi);
    } else {
        tally__mpi_free(mpi);
    }
}

static const struct tally__domain_ops mpi_ops = {
    .name = "mpi",
    .alloc = tally__mpi_memory_alloc,
    .free = tally__mpi_memory_free,
    .owns = tally__mpi_memory_owns,
    .reach = tally__reach_always,
    .shares = tally__mpi_memory_shares,
    .alive = mpi_alive,
    .destroy = mpi_destroy,
};

/* ---- the beginning ---- */

struct tally__mpi_domain *tally__mpi_make(const struct tally__mpi_api *api)
{
    struct tally__mpi_domain *made = tally__alloc(sizeof *made, "a domain of MPI");

    if (made) {
        (void)pthread_mutex_init(&made->mutex, NULL);
        made->common.ops = &mpi_ops;
        made->common.n_cpus = 1;
        made->common.n_stages = TALLY__N_STAGES_AHEAD;
        made->common.stage_bytes = STAGE_BYTES;
        made->common.carrier = &mpi_carrier;
        made->post.api = api;
    }
    return made;
}

/* Room for the slots of each rank. Where address space is limited (ulimit -v), a quarter of what is
 * left, for all mirrors together: the rest is the application's. */
static size_t mirror_bytes(int n_ranks, size_t slots_bytes)
{
    size_t bytes = tally__map_bytes(n_ranks);
    uint64_t limit;
    uint64_t used;

    if (tally__address_limit(&limit, &used)) {
        uint64_t share = (limit > used ? limit - used : 0) / 4 / (uint64_t)n_ranks;
        size_t least = (slots_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;

        share = share / PAGE_BYTES * PAGE_BYTES;
        bytes = share < bytes ? (size_t)share : bytes;
        bytes = bytes < least ? least : bytes;
    }
    return bytes;
}

/* Address space for everybody's memory. The first allocation on every rank is its slots. */
int tally__mpi_map(struct tally__mpi_domain *mpi, int n_slots)
{
    struct tally__domain *common = &mpi->common;
    size_t n = (size_t)common->n_ranks;
    size_t slots_bytes = (size_t)n_slots * tally__slot_bytes(common);
    void *slots = NULL;

    common->base = tally__alloc_array(n, sizeof *common->base, "peers' memory");
    common->first_slot = tally__alloc_array(n, sizeof(uint64_t), "peers' slots");
    mpi->processes = tally__alloc_array(n, sizeof(struct tally__process *), "peers' processes");
    if (!common->base || !common->first_slot || !mpi->processes) {
        return TALLY_NOMEM;
    }
    mpi->map_bytes = mirror_bytes(common->n_ranks, slots_bytes);
    mpi->extents.limit = mpi->map_bytes;
    for (size_t r = 0; r < n; r++) {
        void *map = mmap(NULL, mpi->map_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (map == MAP_FAILED) {
            return tally__fail_map(errno, mpi->map_bytes, common->n_ranks);
        }
        common->base[r] = (uintptr_t)map;
    }
    TRY(tally__mpi_memory_alloc(common, TALLY__FOR_SLOTS, slots_bytes, &slots));
    mpi->slots = slots;
    for (size_t r = 0; r < n; r++) {
        common->first_slot[r] = tally__offset_of(common, slots);
    }
    return TALLY_OK;
}

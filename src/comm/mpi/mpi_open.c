/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a group over MPI: loads and starts MPI, duplicates the communicator, makes the domain,
 * and waits until all ranks are there. Application threads enter.
 */
#include "comm/mpi/mpi_open.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/owner.h"
#include "base/status.h"
#include "comm/mpi/mpi_end.h"
#include "comm/mpi/mpi_load.h"
#include "comm/parcel.h"
#include "comm/round.h"
#include "comm/threads.h"

static pthread_once_t owner_once = PTHREAD_ONCE_INIT;
/* The process that was the first to open a group over MPI. Read after pthread_once. */
static struct tally__owner owner;

static void take_ownership(void)
{
    owner = tally__owner_here();
}

/* A forked child has its parent's MPI, with the same connections: whatever it does there breaks
 * the parent's. Looks before the lock is taken: a thread that is gone may hold it. */
static int check_is_owner(void)
{
    (void)pthread_once(&owner_once, take_ownership);
    if (tally__is_owner(&owner)) {
        return TALLY_OK;
    }
    return tally__fail(
        TALLY_STATE,
        "process %ld is a forked child and cannot use the MPI of its parent, process "
        "%ld; open the group there, or here with backend self and world 1",
        (long)getpid(), (long)owner.pid);
}

/* Loads and starts MPI. With the lock held. */
static int start(const struct tally__settings *settings, const struct tally__mpi_api **api,
                 bool *may_linger)
{
    static const char *const levels[] = {"SINGLE", "FUNNELED"};
    int threads;
    int n_processes;

    if (tally__mpi_has_ended()) {
        return tally__fail(TALLY_STATE, "MPI has been finalized: no group can be opened any more");
    }
    TRY(tally__mpi_load(api));
    if ((*api)->start(tally__mpi_end, &threads, &n_processes) != 0) {
        return tally__fail(TALLY_SYSTEM, "%s: %s", (*api)->name, (*api)->error());
    }
    if (threads < TALLY__MPI_SERIALIZED && settings->lanes > 0) {
        return tally__fail(TALLY_ARG,
                           "this program has initialized %s with MPI_THREAD_%s: lane threads need "
                           "MPI_THREAD_SERIALIZED at least; ask for it with MPI_Init_thread, or "
                           "open the group with lanes = 0",
                           (*api)->name, levels[threads]);
    }
    *may_linger = threads == TALLY__MPI_MULTIPLE;
    /* A world of one that the config asks for is not a silent one. */
    return settings->world == 1 ? TALLY_OK : tally__check_mpi_world((*api)->name, n_processes);
}

/* Waits until a communicator is duplicated. With the lock held, but not while it waits. */
static int wait_duplicate(const struct tally__mpi_api *api, const struct tally__settings *settings,
                          struct tally__mpi_handle *request)
{
    const struct timespec pause = {0, 100000};
    uint64_t end_ns =
        tally__now_ns() + (uint64_t)(settings->open_timeout_s * (double)TALLY__NS_PER_SECOND);
    struct tally__mpi_status status = {0};

    while (!status.is_done) {
        int rc = api->test(request, &status);

        if (rc != 0) {
            return tally__fail(TALLY_SYSTEM, "%s: %s", api->name, api->error());
        }
        if (!status.is_done) {
            if (tally__now_ns() > end_ns) {
                tally__mpi_note_lost();
                return tally__fail(TALLY_TIMEOUT,
                                   "not all ranks of MPI have opened the group within %g s",
                                   settings->open_timeout_s);
            }
            tally__mpi_unlock();
            (void)nanosleep(&pause, NULL);
            tally__mpi_lock();
        }
    }
    return TALLY_OK;
}

/* A communicator of our own: nobody else's messages are in it. */
static int duplicate(struct tally__mpi_domain *mpi, const struct tally__settings *settings)
{
    const struct tally__mpi_api *api = mpi->post.api;
    struct tally__mpi_handle request;
    int rc = api->duplicate(settings->mpi_comm, &mpi->post.comm, &request);

    if (rc != 0) {
        tally__mpi_note_half_duplicated();
    } else {
        rc = wait_duplicate(api, settings, &request);
        if (rc != TALLY_OK) {
            tally__mpi_note_half_duplicated();
            return rc;
        }
        rc = api->place(&mpi->post.comm, &mpi->common.rank, &mpi->common.n_ranks);
    }
    return rc == 0 ? TALLY_OK : tally__fail(TALLY_SYSTEM, "%s: %s", api->name, api->error());
}

/* Checks rank and world of the config against MPI's. */
static int check_settings(const struct tally__mpi_domain *mpi,
                          const struct tally__settings *settings)
{
    if (mpi->common.n_ranks > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG, "a world of %d ranks is not in 1..%d", mpi->common.n_ranks,
                           TALLY__MAX_WORLD);
    }
    if (settings->world != 0 && settings->world != mpi->common.n_ranks) {
        return tally__fail(TALLY_ARG, "the config asks for a world of %d ranks, MPI has %d",
                           settings->world, mpi->common.n_ranks);
    }
    if (settings->rank >= 0 && settings->rank != mpi->common.rank) {
        return tally__fail(TALLY_ARG, "the config asks for rank %d, which MPI calls rank %d",
                           settings->rank, mpi->common.rank);
    }
    return TALLY_OK;
}

/* With the lock held. On failure the domain is gone. */
static int open_domain(const struct tally__settings *settings, struct tally__mpi_domain **domain)
{
    const struct tally__mpi_api *api = NULL;
    struct tally__mpi_domain *mpi;
    bool may_linger = false;
    int rc;

    TRY(start(settings, &api, &may_linger));
    tally__mpi_reap();
    mpi = tally__mpi_make(api);
    if (!mpi) {
        return TALLY_NOMEM;
    }
    mpi->common.may_linger = may_linger;
    mpi->timeout_ns = (uint64_t)(settings->timeout_s * (double)TALLY__NS_PER_SECOND);
    rc = duplicate(mpi, settings);
    if (rc == TALLY_TIMEOUT) {
        return rc; /* MPI may still write to it */
    }
    if (rc == TALLY_OK) {
        rc = check_settings(mpi, settings);
    }
    if (rc == TALLY_OK) {
        rc = tally__mpi_map(mpi, settings->lanes > 0 ? settings->lanes : 1);
    }
    if (rc == TALLY_OK) {
        mpi->post.n_ranks = mpi->common.n_ranks;
        mpi->post.base = mpi->common.base;
        mpi->post.map_bytes = mpi->map_bytes;
        rc = tally__post_begin(&mpi->post);
        if (rc != TALLY_OK) {
            tally__post_end(&mpi->post);
        }
    }
    if (rc != TALLY_OK) {
        tally__mpi_free(mpi);
        return rc;
    }
    tally__mpi_keep(mpi);
    *domain = mpi;
    return TALLY_OK;
}

/* A rank's announcement. */
struct first_card {
    struct tally__process_card process;
    uint64_t map_bytes; /* of its mirrors: nobody's slots may lie beyond */
};

static bool is_same_machine(const tally_lane *lane, int a, int b)
{
    const struct first_card *one = (const void *)tally__stage_of(lane, a, lane->round.number);
    const struct first_card *other = (const void *)tally__stage_of(lane, b, lane->round.number);

    return memcmp(one->process.machine, other->process.machine, sizeof one->process.machine) == 0;
}

/* Each machine counts with its first rank. */
static int count_machines(const tally_lane *lane)
{
    int n = 0;

    for (int r = 0; r < lane->group->size; r++) {
        int first = 0;

        while (!is_same_machine(lane, first, r)) {
            first++;
        }
        n += first == r;
    }
    return n;
}

/* All ranks are there, and have opened the same; each knows who runs on its machine. */
static int first_job(tally_lane *lane, void *user)
{
    struct tally__mpi_domain *mpi = user;
    const struct tally__call call = {.kind = TALLY__KIND_OPEN,
                                     .count = (uint64_t)lane->group->n_lanes,
                                     .detail = tally__slot_bytes(lane->group->domain)};
    struct first_card *card = (void *)tally__next_stage(lane);

    tally__process_describe(&card->process);
    card->map_bytes = mpi->map_bytes;
    TRY(tally__parcel_to_all(lane, lane->round.number + 1, 0, sizeof *card));
    TRY(tally__round(lane, &call));
    for (int r = 0; r < lane->group->size; r++) {
        card = (void *)tally__stage_of(lane, r, lane->round.number);
        mpi->n_local += is_same_machine(lane, r, lane->group->rank);
        mpi->processes[r] = tally__process_watch(&card->process);
        if (card->map_bytes < mpi->extents.limit) {
            mpi->extents.limit = card->map_bytes;
        }
    }
    mpi->common.n_machines = count_machines(lane);
    mpi->common.medium = mpi->post.api->name;
    return TALLY_OK;
}

/* And one for each lane; all ranks have as many. With the lock held. */
static int open_lanes(struct tally__mpi_domain *mpi, const struct tally__settings *settings, int n)
{
    const struct tally__mpi_api *api = mpi->post.api;

    mpi->lanes = tally__alloc_array((size_t)n, sizeof *mpi->lanes, "MPI's lanes");
    if (!mpi->lanes) {
        return TALLY_NOMEM;
    }
    for (int i = 0; i < n; i++) {
        struct tally__mpi_lane *lane = &mpi->lanes[i];
        int rc;

        if (api->duplicate_ours(&mpi->post.comm, &lane->comm, &lane->request) != 0) {
            return tally__fail(TALLY_SYSTEM, "%s: %s", api->name, api->error());
        }
        rc = wait_duplicate(api, settings, &lane->request);
        if (rc != TALLY_OK) {
            /* MPI may still write to it. */
            mpi->lanes = NULL;
            mpi->n_lanes = 0;
            return rc;
        }
        mpi->n_lanes++;
    }
    return TALLY_OK;
}

int tally__open_mpi(const struct tally__settings *settings, tally_group **group)
{
    struct tally__mpi_domain *mpi;
    tally_group *made;
    int rc;

    TRY(check_is_owner());
    tally__mpi_lock();
    rc = open_domain(settings, &mpi);
    tally__mpi_unlock();
    TRY(rc);
    TRY(tally__group_open_domain(&mpi->common, mpi->slots, settings->lanes,
                                 settings->open_timeout_s, &made));
    rc = tally__submit_and_wait(&made->lanes[0], first_job, mpi);
    if (rc == TALLY_OK) {
        tally__mpi_lock();
        rc = open_lanes(mpi, settings, made->n_lanes);
        tally__mpi_unlock();
    }
    if (rc != TALLY_OK) {
        (void)tally_group_close(made);
        return rc;
    }
    made->timeout_ns = mpi->timeout_ns;
    *group = made;
    return TALLY_OK;
}

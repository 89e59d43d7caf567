/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a group over MPI: loads and starts MPI, duplicates the communicator, makes the domain
 * (mpi_cards.c), and waits until all ranks have done so. Application threads enter.
 */
#include "comm/mpi/mpi_open.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/creator.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/ending.h"
#include "comm/mpi/mpi_cards.h"
#include "comm/mpi/mpi_end.h"
#include "comm/mpi/mpi_load.h"
#include "comm/round.h"
#include "comm/shm/shm_domain.h"
#include "comm/threads.h"

static pthread_once_t creator_once = PTHREAD_ONCE_INIT;
/* The first process that opened a group over MPI. Read after pthread_once. */
static struct tally__creator creator;

static void note_creator(void)
{
    creator = tally__creator_here();
}

/* A forked child has its parent's MPI, with the same connections: whatever it does there breaks
 * the parent's. Checks before the lock is taken: a thread that the child does not have may hold it.
 */
static int check_creator(void)
{
    (void)pthread_once(&creator_once, note_creator);
    if (tally__is_creator(&creator)) {
        return TALLY_OK;
    }
    return tally__fail(
        TALLY_STATE,
        "process %ld is a forked child and cannot use the MPI of its parent, process "
        "%ld; open the group there, or here with backend self and world 1",
        (long)getpid(), (long)creator.pid);
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
        return tally__fail_mpi(*api);
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

/* A communicator of our own: no other messages are in it. */
static int duplicate(struct tally__mpi_opening *opening)
{
    struct tally__messenger *messenger = opening->messenger;
    const struct tally__mpi_api *api = messenger->api;
    struct tally__mpi_handle request;
    int rc;

    if (api->duplicate(opening->settings->mpi_comm, &messenger->comm, &request) != 0) {
        tally__mpi_note_half_duplicated();
        return tally__fail_mpi(api);
    }
    rc = tally__mpi_wait_request(api, opening->settings, &request);
    if (rc != TALLY_OK) {
        tally__mpi_note_half_duplicated();
        return rc;
    }
    return api->describe(&messenger->comm, &opening->rank, &opening->n_ranks, &opening->most_tag) ==
                   0
               ? TALLY_OK
               : tally__fail_mpi(api);
}

/* Checks rank and world of the config against MPI's. */
static int check_settings(const struct tally__mpi_opening *opening)
{
    const struct tally__settings *settings = opening->settings;

    if (opening->n_ranks > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG, "a world of %d ranks is not in 1..%d", opening->n_ranks,
                           TALLY__MAX_WORLD);
    }
    if (settings->world != 0 && settings->world != opening->n_ranks) {
        return tally__fail(TALLY_ARG, "the config asks for a world of %d ranks, MPI has %d",
                           settings->world, opening->n_ranks);
    }
    if (settings->rank >= 0 && settings->rank != opening->rank) {
        return tally__fail(TALLY_ARG, "the config asks for rank %d, which MPI calls rank %d",
                           settings->rank, opening->rank);
    }
    return TALLY_OK;
}

/* With the lock held. On failure the domain is gone. */
static int open_domain(struct tally__mpi_opening *opening)
{
    struct tally__messenger *messenger = opening->messenger;
    int rc = duplicate(opening);

    TRY(rc == TALLY_OK ? check_settings(opening) : rc);
    TRY(tally__mpi_make_domain(opening));
    opening->domain->messenger = messenger;
    tally__mpi_keep(messenger);
    return TALLY_OK;
}

/* Memory that MPI may still write to is not freed: then the request of a collective is under way.
 */
static void free_opening(struct tally__mpi_opening *opening, int rc)
{
    if (rc != TALLY_TIMEOUT) {
        tally__free(opening->hellos);
        tally__free(opening->cards);
        tally__free(opening->outcomes);
        tally__free(opening->near);
    }
    if (rc != TALLY_OK && rc != TALLY_TIMEOUT) {
        if (opening->domain) {
            opening->domain->ops->destroy(opening->domain);
        }
        tally__messenger_end(opening->messenger);
        tally__messenger_free(opening->messenger);
    }
    if (rc != TALLY_TIMEOUT) {
        tally__free(opening);
    }
}

/* ---- the group ---- */

struct first_card {
    uint64_t is_limited;
};

/* All ranks are there, and each knows whether one has limited address space. */
static int first_job(tally_lane *lane, void *user)
{
    const struct tally__call call = {.kind = TALLY__KIND_OPEN,
                                     .count = (uint64_t)lane->group->n_lanes,
                                     .detail = TALLY__SLOT_BYTES};
    struct tally__domain *domain = lane->group->domain;
    struct first_card *card = (void *)tally__next_stage(lane);

    (void)user;
    card->is_limited = tally__shm_is_limited(domain);
    TRY(tally__round_with(lane, &call, sizeof *card));
    for (int r = 0; r < lane->group->size; r++) {
        card = (void *)tally__stage_of(lane, r, lane->round.number);
        domain->is_tight = domain->is_tight || card->is_limited;
    }
    return TALLY_OK;
}

/* A communicator for each lane; all ranks have as many. With the lock held. */
static int open_lanes(struct tally__messenger *messenger, const struct tally__settings *settings,
                      int n)
{
    const struct tally__mpi_api *api = messenger->api;

    messenger->lanes = tally__alloc_array((size_t)n, sizeof *messenger->lanes, "MPI's lanes");
    if (!messenger->lanes) {
        return TALLY_NOMEM;
    }
    for (int i = 0; i < n; i++) {
        struct tally__mpi_lane *lane = &messenger->lanes[i];
        int rc;

        if (api->duplicate_ours(&messenger->comm, &lane->comm, &lane->request) != 0) {
            return tally__fail_mpi(api);
        }
        rc = tally__mpi_wait_request(api, settings, &lane->request);
        if (rc != TALLY_OK) {
            /* MPI may still write to it. */
            messenger->lanes = NULL;
            messenger->n_lanes = 0;
            return rc;
        }
        messenger->n_lanes++;
    }
    return TALLY_OK;
}

/* With the lock held. */
static int begin(const struct tally__settings *settings, struct tally__domain **domain,
                 struct tally__slot **slots)
{
    struct tally__mpi_opening *opening = tally__alloc(sizeof *opening, "a domain of MPI");
    struct tally__messenger *messenger = tally__alloc(sizeof *messenger, "a domain of MPI");
    int rc = opening && messenger ? TALLY_OK : TALLY_NOMEM;

    rc = rc == TALLY_OK ? start(settings, &messenger->api, &messenger->may_linger) : rc;
    if (rc != TALLY_OK) {
        tally__free(opening);
        tally__free(messenger);
        return rc;
    }
    tally__mpi_reap();
    opening->messenger = messenger;
    opening->settings = settings;
    messenger->timeout_ns = (uint64_t)(settings->timeout_s * (double)TALLY__NS_PER_SECOND);
    rc = open_domain(opening);
    *domain = opening->domain;
    *slots = opening->slots;
    free_opening(opening, rc);
    return rc;
}

int tally__open_mpi(const struct tally__settings *settings, tally_group **group)
{
    struct tally__domain *domain = NULL;
    struct tally__slot *slots = NULL;
    tally_group *made;
    int rc;

    TRY(check_creator());
    tally__mpi_lock();
    rc = begin(settings, &domain, &slots);
    tally__mpi_unlock();
    TRY(rc);
    TRY(tally__group_open_domain(domain, slots, settings->lanes, settings->open_timeout_s, &made));
    rc = tally__submit_and_wait(&made->lanes[0], first_job, NULL);
    if (rc == TALLY_OK) {
        tally__mpi_lock();
        rc = open_lanes(domain->messenger, settings, made->n_lanes);
        tally__mpi_unlock();
    }
    if (rc != TALLY_OK) {
        (void)tally_group_close(made);
        return rc;
    }
    tally__ending_watch(made);
    made->timeout_ns = domain->messenger->timeout_ns;
    *group = made;
    return TALLY_OK;
}

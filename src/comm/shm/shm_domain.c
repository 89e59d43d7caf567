/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm domain: every rank's memory is an unnamed file (memfd), and near ranks map each other's
 * files, so an address in another rank's memory is its base plus an offset. Mapping reserves
 * address space only, and where that is limited (windows.h), not all at once. Pages are reserved
 * when memory is allocated, so that a lack of memory is an error and not a signal. Each rank also
 * sends a sign of life (life.h).
 */
#include "comm/shm/shm_domain.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/room.h"
#include "base/status.h"
#include "comm/ending.h"
#include "comm/round.h"
#include "comm/shm/extents.h"
#include "comm/shm/life.h"
#include "comm/shm/rendezvous.h"
#include "comm/shm/windows.h"
#include "comm/threads.h"

struct shm_domain {
    struct tally__domain common;
    int *fd;               /* per rank: of its file */
    int n_near;            /* ranks that share this machine's memory */
    int *life;             /* per rank: of its sign of life */
    void *life_page;       /* this rank's own sign */
    pthread_mutex_t mutex; /* guards windows and extents */
    struct tally__windows windows;
    struct tally__extents extents;
};

static struct shm_domain *shm_of(const struct tally__domain *domain)
{
    return (struct shm_domain *)(uintptr_t)domain;
}

struct range {
    int fd;
    uint64_t offset;
};

/* Reserves pages: a signal may come in between two pieces, but must not undo one. */
static int reserve_pages(void *user, uint64_t offset, uint64_t bytes)
{
    const struct range *range = user;
    sigset_t all;
    sigset_t saved;
    int error;

    (void)sigfillset(&all);
    do {
        (void)pthread_sigmask(SIG_BLOCK, &all, &saved);
        error =
            fallocate(range->fd, 0, (off_t)(range->offset + offset), (off_t)bytes) == 0 ? 0 : errno;
        (void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
    } while (error == EINTR); /* a debugger may still interrupt */
    return error;
}

/* Beyond this limit the kernel would not only refuse, but end the process with a signal. */
static int check_file_limit(uint64_t end)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        end > limit.rlim_cur) {
        return tally__fail(TALLY_NOMEM,
                           "group memory would be %llu bytes, more than the %llu bytes that files "
                           "of this process may have (ulimit -f)",
                           (unsigned long long)end, (unsigned long long)limit.rlim_cur);
    }
    return TALLY_OK;
}

/* Pages for a range of this rank's file: all of them, or none. */
static int reserve(const struct shm_domain *shm, uint64_t offset, uint64_t bytes)
{
    struct range range = {shm->fd[shm->common.rank], offset};
    int rc;

    TRY(check_file_limit(offset + bytes));
    rc = tally__take_memory(bytes, shm->n_near, reserve_pages, &range, "group memory");
    if (rc != TALLY_OK) {
        (void)fallocate(range.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                        (off_t)bytes);
    }
    return rc;
}

static int shm_alloc(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                     void **memory)
{
    struct shm_domain *shm = shm_of(domain);
    uint64_t wanted =
        ((uint64_t)bytes + TALLY__PAGE_BYTES - 1) / TALLY__PAGE_BYTES * TALLY__PAGE_BYTES;
    uint64_t align = wanted >= TALLY__HUGE_PAGE_BYTES ? TALLY__HUGE_PAGE_BYTES : TALLY__PAGE_BYTES;
    uint64_t offset;
    int rc;

    if (bytes > shm->windows.bytes) {
        return tally__fail(TALLY_NOMEM, "%zu bytes of group memory are more than this machine has",
                           bytes);
    }
    wanted = wanted ? wanted : TALLY__PAGE_BYTES;
    (void)pthread_mutex_lock(&shm->mutex);
    rc = tally__extents_take(&shm->extents, wanted, align, &offset);
    if (rc == TALLY_OK) {
        rc = tally__window_reach(&shm->windows, domain->rank, shm->fd[domain->rank],
                                 offset + wanted, domain->base);
        rc = rc == TALLY_OK ? reserve(shm, offset, wanted) : rc;
        if (rc != TALLY_OK) {
            (void)tally__extents_give(&shm->extents, offset);
        } else if (use == TALLY__FOR_ALL) {
            tally__extents_mark(&shm->extents, offset);
        }
    }
    (void)pthread_mutex_unlock(&shm->mutex);
    if (rc == TALLY_OK) {
        *memory = tally__at(domain, domain->rank, offset);
        (void)madvise(*memory, wanted, MADV_HUGEPAGE);
    }
    return rc;
}

static void shm_free(struct tally__domain *domain, void *memory)
{
    struct shm_domain *shm = shm_of(domain);
    uint64_t offset = tally__offset_of(domain, memory);
    uint64_t bytes;

    (void)pthread_mutex_lock(&shm->mutex);
    bytes = tally__extents_give(&shm->extents, offset);
    if (bytes > 0) {
        (void)fallocate(shm->fd[domain->rank], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)offset, (off_t)bytes);
    }
    (void)pthread_mutex_unlock(&shm->mutex);
}

static bool shm_has_allocated(struct tally__domain *domain, const void *memory)
{
    struct shm_domain *shm = shm_of(domain);
    bool has;

    (void)pthread_mutex_lock(&shm->mutex);
    has = tally__extents_has(&shm->extents, tally__offset_of(domain, memory));
    (void)pthread_mutex_unlock(&shm->mutex);
    return has;
}

static int shm_reach(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes)
{
    struct shm_domain *shm = shm_of(domain);
    int rc;

    (void)pthread_mutex_lock(&shm->mutex);
    rc = tally__window_reach(&shm->windows, rank, shm->fd[rank], offset + bytes, domain->base);
    (void)pthread_mutex_unlock(&shm->mutex);
    return rc;
}

static bool shm_shares(const struct tally__domain *domain, const void *memory, size_t bytes)
{
    struct shm_domain *shm = shm_of(domain);
    uint64_t offset = tally__offset_of(domain, memory);
    bool is_shared;

    /* An address below the base wraps around to a huge offset. */
    is_shared = offset < shm->windows.bytes && bytes <= shm->windows.bytes - offset;
    if (is_shared && domain->is_tight) {
        /* Ranks outside a sub-group have not mapped its allocations. */
        (void)pthread_mutex_lock(&shm->mutex);
        is_shared = tally__extents_is_marked(&shm->extents, offset, bytes);
        (void)pthread_mutex_unlock(&shm->mutex);
    }
    return is_shared;
}

static bool shm_alive(const struct tally__domain *domain, int rank)
{
    return rank == domain->rank || !tally__life_has_ended(shm_of(domain)->life[rank]);
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; fds && i < n; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

static void shm_destroy(struct tally__domain *domain)
{
    struct shm_domain *shm = shm_of(domain);

    tally__windows_end(&shm->windows, domain->base);
    close_all(shm->fd, domain->n_ranks);
    close_all(shm->life, domain->n_ranks);
    tally__life_end(shm->life_page);
    (void)pthread_mutex_destroy(&shm->mutex);
    tally__free(shm->extents.used);
    tally__free(shm->common.base);
    tally__free(shm->common.first_slot);
    tally__free(shm->common.first_near);
    tally__free(shm->fd);
    tally__free(shm->life);
    tally__free(shm);
}

static const struct tally__domain_ops shm_ops = {
    .alloc = shm_alloc,
    .free = shm_free,
    .has_allocated = shm_has_allocated,
    .reach = shm_reach,
    .shares = shm_shares,
    .alive = shm_alive,
    .destroy = shm_destroy,
};

static int make_domain(int n_ranks, int rank, struct shm_domain **domain)
{
    size_t n = (size_t)n_ranks;
    struct shm_domain *made = tally__alloc(sizeof *made, "a domain of processes");

    if (!made) {
        return TALLY_NOMEM;
    }
    (void)pthread_mutex_init(&made->mutex, NULL);
    made->common.ops = &shm_ops;
    made->common.name = "shm";
    made->common.n_ranks = n_ranks;
    made->common.rank = rank;
    made->common.n_machines = 1;
    made->n_near = n_ranks;
    made->common.base = tally__alloc_array(n, sizeof *made->common.base, "peers' memory");
    made->common.first_slot = tally__alloc_array(n, sizeof(uint64_t), "peers' slots");
    made->fd = tally__alloc_array(n, sizeof *made->fd, "peers' files");
    made->life = tally__alloc_array(n, sizeof *made->life, "peers' signs of life");
    for (size_t r = 0; made->fd && made->life && r < n; r++) {
        made->fd[r] = -1;
        made->life[r] = -1;
    }
    if (!made->common.base || !made->common.first_slot || !made->fd || !made->life ||
        tally__windows_begin(&made->windows, n_ranks) != TALLY_OK) {
        shm_destroy(&made->common);
        return TALLY_NOMEM;
    }
    made->extents.limit = made->windows.bytes;
    *domain = made;
    return TALLY_OK;
}

/* This rank's file. */
static int make_own_file(struct shm_domain *shm)
{
    int fd = memfd_create("tally", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot make shared memory (memfd_create)");
    }
    shm->fd[shm->common.rank] = fd;
    /* Other ranks map it: it must never shrink. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot seal shared memory");
    }
    return TALLY_OK;
}

/* Checks the descriptors of another process before they are used. */
static int check_file(const struct shm_domain *shm, int rank, size_t n_slots)
{
    uint64_t first = shm->common.first_slot[rank];
    uint64_t bytes = n_slots * TALLY__SLOT_BYTES;
    struct stat info;
    int seals = fcntl(shm->fd[rank], F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(shm->fd[rank], &info) != 0 ||
        first % TALLY__CACHE_LINE != 0 || (uint64_t)info.st_size < bytes ||
        first > (uint64_t)info.st_size - bytes || first > shm->windows.bytes - bytes) {
        return tally__fail(TALLY_MISMATCH, "rank %d sent a descriptor that is not its group memory",
                           rank);
    }
    if (!tally__is_life(shm->life[rank])) {
        return tally__fail(TALLY_MISMATCH, "rank %d sent a descriptor that is not its sign of life",
                           rank);
    }
    return TALLY_OK;
}

static int map_peer(struct shm_domain *shm, int rank, size_t n_slots)
{
    TRY(check_file(shm, rank, n_slots));
    TRY(shm_reach(&shm->common, rank, shm->common.first_slot[rank], n_slots * TALLY__SLOT_BYTES));
    /* A file that is mapped whole is not mapped again. */
    if (!shm->windows.is_limited) {
        (void)close(shm->fd[rank]);
        shm->fd[rank] = -1;
    }
    return TALLY_OK;
}

/* Passes descriptors with the ranks of this machine; near[i] is the domain's rank of the i-th. */
static int meet_near(struct shm_domain *shm, const struct tally__settings *settings,
                     const int *near)
{
    size_t n = (size_t)settings->world;
    size_t n_slots = settings->lanes > 0 ? (size_t)settings->lanes : 1;
    struct tally__arrival *arrivals = tally__alloc_array(n, sizeof *arrivals, "arrivals");
    int rc;

    if (!arrivals) {
        return TALLY_NOMEM;
    }
    rc = tally__life_begin(&shm->life[shm->common.rank], &shm->life_page);
    for (size_t i = 0; i < n; i++) {
        arrivals[i] = (struct tally__arrival){{shm->fd[near[i]], shm->life[near[i]]},
                                              shm->common.first_slot[near[i]]};
    }
    rc = rc == TALLY_OK ? tally__meet(settings, arrivals) : rc;
    for (size_t i = 0; rc == TALLY_OK && i < n; i++) {
        shm->fd[near[i]] = arrivals[i].fds[TALLY__MEMORY_FD];
        shm->life[near[i]] = arrivals[i].fds[TALLY__LIFE_FD];
        shm->common.first_slot[near[i]] = arrivals[i].first_slot;
    }
    tally__free(arrivals);
    for (size_t i = 0; rc == TALLY_OK && i < n; i++) {
        if (near[i] != shm->common.rank) {
            rc = map_peer(shm, near[i], n_slots);
        }
    }
    return rc;
}

/* A rank's announcement in its first round. */
struct first_card {
    struct tally__cpus cpus;
    bool is_limited;
};

/* Collects the CPUs of all ranks: each may have been bound to a different one. The domain is tight
 * if one rank is. No rank leaves before all have mapped every rank's memory. */
static int first_job(tally_lane *lane, void *user)
{
    const struct tally__call call = {.kind = TALLY__KIND_BARRIER};
    tally_group *group = lane->group;
    struct tally__cpus all = {0};
    struct first_card *card;

    (void)user;
    card = (void *)tally__next_stage(lane);
    tally__own_cpus(&card->cpus);
    card->is_limited = shm_of(group->domain)->windows.is_limited;
    TRY(tally__round(lane, &call));
    for (int r = 0; r < group->size; r++) {
        card = (void *)tally__stage_of(lane, r, lane->round.number);
        tally__add_cpus(&all, &card->cpus);
        group->domain->is_tight = group->domain->is_tight || card->is_limited;
    }
    group->domain->spins = tally__count_cpus(&all) >= group->size;
    group->spins = group->domain->spins;
    return TALLY_OK;
}

/* Publishes the reason to ranks that have our memory already and wait for us in their first job. */
static void leave_reason(struct tally__slot *slot, int rank, int status)
{
    slot->given_up_status = status;
    (void)snprintf(slot->given_up_text, sizeof slot->given_up_text, "rank %d: %.*s", rank,
                   TALLY__TEXT_BYTES - 32, tally_last_error());
    /* Partner: the load in tally__has_left, wait.c. */
    atomic_store_explicit(&slot->given_up, 1, memory_order_release);
}

int tally__shm_make(int n_ranks, int rank, int n_slots, struct tally__domain **domain,
                    struct tally__slot **slots)
{
    struct shm_domain *shm;
    void *memory = NULL;
    int rc;

    TRY(make_domain(n_ranks, rank, &shm));
    rc = make_own_file(shm);
    if (rc == TALLY_OK) {
        rc =
            shm_alloc(&shm->common, TALLY__FOR_SLOTS, (size_t)n_slots * TALLY__SLOT_BYTES, &memory);
    }
    if (rc != TALLY_OK) {
        shm_destroy(&shm->common);
        return rc;
    }
    shm->common.first_slot[rank] = tally__offset_of(&shm->common, memory);
    *domain = &shm->common;
    *slots = memory;
    return TALLY_OK;
}

int tally__shm_meet(struct tally__domain *domain, const struct tally__settings *settings,
                    const int *near)
{
    int rc = settings->world > 1 ? meet_near(shm_of(domain), settings, near) : TALLY_OK;

    shm_of(domain)->n_near = settings->world;
    if (rc != TALLY_OK) {
        leave_reason(tally__at(domain, domain->rank, domain->first_slot[domain->rank]),
                     domain->rank, rc);
    }
    return rc;
}

bool tally__shm_is_limited(const struct tally__domain *domain)
{
    return shm_of(domain)->windows.is_limited;
}

/* The ranks of the domain are those of the machine. */
static int meet_all(struct tally__domain *domain, const struct tally__settings *settings)
{
    int *near = tally__alloc_array((size_t)domain->n_ranks, sizeof *near, "ranks");
    int rc = near ? TALLY_OK : TALLY_NOMEM;

    for (int r = 0; near && r < domain->n_ranks; r++) {
        near[r] = r;
    }
    rc = rc == TALLY_OK ? tally__shm_meet(domain, settings, near) : rc;
    tally__free(near);
    return rc;
}

int tally__open_shm(const struct tally__settings *settings, tally_group **group)
{
    struct tally__domain *domain;
    struct tally__slot *slots;
    tally_group *made;
    int rc;

    TRY(tally__shm_make(settings->world, settings->rank, settings->lanes > 0 ? settings->lanes : 1,
                        &domain, &slots));
    rc = meet_all(domain, settings);
    if (rc != TALLY_OK) {
        shm_destroy(domain);
        return rc;
    }
    TRY(tally__group_open_domain(domain, slots, settings->lanes, settings->open_timeout_s, &made));
    rc = tally__submit_and_wait(&made->lanes[0], first_job, NULL);
    if (rc != TALLY_OK) {
        (void)tally_group_close(made);
        return rc;
    }
    tally__ending_watch(made);
    made->timeout_ns = (uint64_t)(settings->timeout_s * (double)TALLY__NS_PER_SECOND);
    *group = made;
    return TALLY_OK;
}

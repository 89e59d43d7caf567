/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread domain: every rank's memory is the heap of one process, and an offset is a pointer.
 * Allocations that ranks do not free stay until the last rank has left, because a slower rank may
 * still read them. The world of one ("self") is this domain with one rank.
 */
#include "comm/thread/thread_domain.h"

#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"

/* A piece of group memory; the memory itself follows on the next cache line. */
struct piece {
    _Alignas(TALLY__CACHE_LINE) struct piece *next;
    struct piece *previous;
    size_t bytes;
};

/* State that all ranks share. The last rank to leave frees it. */
struct thread_world {
    pthread_mutex_t mutex;
    int n_present;
    struct piece *pieces;
    uintptr_t *base;      /* all 0 */
    uint64_t *first_slot; /* per rank */
};

struct thread_domain {
    struct tally__domain common;
    struct thread_world *world;
};

static struct thread_world *world_of(const struct tally__domain *domain)
{
    return ((const struct thread_domain *)domain)->world;
}

static int thread_alloc(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                        void **memory)
{
    struct thread_world *world = world_of(domain);
    struct piece *piece;

    (void)use;
    if (bytes > SIZE_MAX - sizeof *piece) {
        return tally__fail(TALLY_NOMEM, "cannot allocate %zu bytes of group memory", bytes);
    }
    piece = tally__alloc(sizeof *piece + bytes, "group memory");
    if (!piece) {
        return TALLY_NOMEM;
    }
    piece->bytes = bytes;
    (void)pthread_mutex_lock(&world->mutex);
    piece->next = world->pieces;
    if (piece->next) {
        piece->next->previous = piece;
    }
    world->pieces = piece;
    (void)pthread_mutex_unlock(&world->mutex);
    *memory = piece + 1;
    return TALLY_OK;
}

static void thread_free(struct tally__domain *domain, void *memory)
{
    struct thread_world *world = world_of(domain);
    struct piece *piece = (struct piece *)memory - 1;

    (void)pthread_mutex_lock(&world->mutex);
    if (piece->next) {
        piece->next->previous = piece->previous;
    }
    if (piece->previous) {
        piece->previous->next = piece->next;
    } else {
        world->pieces = piece->next;
    }
    (void)pthread_mutex_unlock(&world->mutex);
    tally__free(piece);
}

static bool thread_has_allocated(struct tally__domain *domain, const void *memory)
{
    struct thread_world *world = world_of(domain);
    const struct piece *piece;

    (void)pthread_mutex_lock(&world->mutex);
    for (piece = world->pieces; piece && (const void *)(piece + 1) != memory; piece = piece->next) {
    }
    (void)pthread_mutex_unlock(&world->mutex);
    return piece != NULL;
}

/* Other ranks could reach all memory of the process, but a rank whose call has failed may free its
 * arrays while a slower rank still reads them. Group memory stays. */
static bool thread_shares(const struct tally__domain *domain, const void *memory, size_t bytes)
{
    struct thread_world *world = world_of(domain);
    uintptr_t first = (uintptr_t)memory;
    const struct piece *piece;

    if (domain->n_ranks == 1) {
        return true;
    }
    (void)pthread_mutex_lock(&world->mutex);
    for (piece = world->pieces; piece; piece = piece->next) {
        uintptr_t start = (uintptr_t)(piece + 1);

        if (first >= start && first - start <= piece->bytes &&
            bytes <= piece->bytes - (first - start)) {
            break;
        }
    }
    (void)pthread_mutex_unlock(&world->mutex);
    return piece != NULL;
}

/* A thread cannot die without its process; a thread that stops is detected by the deadline. */
static bool thread_alive(const struct tally__domain *domain, int rank)
{
    (void)domain;
    (void)rank;
    return true;
}

static void free_world(struct thread_world *world)
{
    while (world->pieces) {
        struct piece *piece = world->pieces;

        world->pieces = piece->next;
        tally__free(piece);
    }
    (void)pthread_mutex_destroy(&world->mutex);
    tally__free(world->base);
    tally__free(world->first_slot);
    tally__free(world);
}

static void leave_world(struct thread_world *world)
{
    bool last;

    (void)pthread_mutex_lock(&world->mutex);
    world->n_present--;
    last = world->n_present == 0;
    (void)pthread_mutex_unlock(&world->mutex);
    if (last) {
        free_world(world);
    }
}

static void thread_destroy(struct tally__domain *domain)
{
    leave_world(world_of(domain));
    tally__free(domain);
}

static const struct tally__domain_ops thread_ops = {
    .alloc = thread_alloc,
    .free = thread_free,
    .has_allocated = thread_has_allocated,
    .reach = tally__reach_always,
    .shares = thread_shares,
    .alive = thread_alive,
    .destroy = thread_destroy,
};

static struct thread_world *make_world(int n)
{
    struct thread_world *world = tally__alloc(sizeof *world, "a world of threads");

    if (!world) {
        return NULL;
    }
    (void)pthread_mutex_init(&world->mutex, NULL);
    world->base = tally__alloc_array((size_t)n, sizeof *world->base, "a world of threads");
    world->first_slot =
        tally__alloc_array((size_t)n, sizeof *world->first_slot, "a world of threads");
    if (!world->base || !world->first_slot) {
        free_world(world);
        return NULL;
    }
    /* The creating thread's reference, until all ranks are made. */
    world->n_present = 1;
    return world;
}

static int count_own_cpus(void)
{
    struct tally__cpus own;

    tally__own_cpus(&own);
    return tally__count_cpus(&own);
}

static struct tally__domain *make_domain(struct thread_world *world, int n, int rank)
{
    struct thread_domain *made = tally__alloc(sizeof *made, "a rank's domain");

    if (!made) {
        return NULL;
    }
    made->common = (struct tally__domain){
        .ops = &thread_ops,
        .name = n == 1 ? "self" : "thread",
        .n_ranks = n,
        .rank = rank,
        .base = world->base,
        .first_slot = world->first_slot,
        .spins = count_own_cpus() >= n,
        .n_machines = 1,
    };
    made->world = world;
    world->n_present++;
    return &made->common;
}

/* Makes the domains and slots of all ranks first: a group reads every rank's slots when it is made.
 */
static int make_domains(struct thread_world *world, int n, int n_slots,
                        struct tally__domain **domains, struct tally__slot **slots)
{
    for (int r = 0; r < n; r++) {
        void *memory = NULL;

        domains[r] = make_domain(world, n, r);
        if (!domains[r]) {
            return TALLY_NOMEM;
        }
        TRY(thread_alloc(domains[r], TALLY__FOR_SLOTS, (size_t)n_slots * TALLY__SLOT_BYTES,
                         &memory));
        slots[r] = memory;
        world->first_slot[r] = tally__offset_of(domains[r], memory);
    }
    return TALLY_OK;
}

static int open_groups(int n, int lanes, double timeout_s, struct tally__domain **domains,
                       struct tally__slot **slots, tally_group **groups)
{
    for (int r = 0; r < n; r++) {
        struct tally__domain *domain = domains[r];

        domains[r] = NULL;
        TRY(tally__group_open_domain(domain, slots[r], lanes, timeout_s, &groups[r]));
    }
    return TALLY_OK;
}

int tally__open_threads(int n, int lanes, double timeout_s, tally_group **groups)
{
    struct thread_world *world = make_world(n);
    struct tally__domain **domains =
        tally__alloc_array((size_t)n, sizeof(struct tally__domain *), "ranks as threads");
    struct tally__slot **slots =
        tally__alloc_array((size_t)n, sizeof(struct tally__slot *), "ranks as threads");
    tally_group **made = tally__alloc_array((size_t)n, sizeof(tally_group *), "ranks as threads");
    int rc = TALLY_NOMEM;

    if (world && domains && slots && made) {
        rc = make_domains(world, n, lanes > 0 ? lanes : 1, domains, slots);
        if (rc == TALLY_OK) {
            rc = open_groups(n, lanes, timeout_s, domains, slots, made);
        }
        for (int r = 0; r < n; r++) {
            if (rc == TALLY_OK) {
                groups[r] = made[r];
            } else if (made[r]) {
                (void)tally_group_close(made[r]);
            } else if (domains[r]) {
                domains[r]->ops->destroy(domains[r]);
            }
        }
    }
    if (world) {
        leave_world(world);
    }
    tally__free(domains);
    tally__free(slots);
    tally__free(made);
    return rc;
}

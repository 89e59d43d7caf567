/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A domain is the memory under a group: every rank has memory of its own that the other ranks can
 * reach. An address in it is said to others as an offset from the owner's base. In the thread
 * domain all bases are 0 and an offset is a plain pointer; in the shm domain every rank has a file
 * without a name, and every rank maps all of them. Where ranks cannot reach each other's memory,
 * each keeps mirrors of the others' at the bases, and a carrier brings the bytes. One protocol
 * works on all.
 */
#ifndef TALLY_COMM_DOMAIN_H
#define TALLY_COMM_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shared_layout.h"

struct tally__domain;

/* Who has to reach memory: carriers and ranks, as slots of a group; some ranks; all ranks. */
enum tally__memory_use { TALLY__FOR_SLOTS, TALLY__FOR_SOME, TALLY__FOR_ALL };

struct tally__domain_ops {
    const char *name;
    /* Zeroed memory of this rank that is really there: nobody is killed for touching it.
     * Page-aligned in shm and mpi. Errors: NOMEM. Any thread. */
    int (*alloc)(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                 void **memory);
    void (*free)(struct tally__domain *domain, void *memory);
    /* Whether alloc gave exactly this, and free has not had it back. */
    bool (*owns)(struct tally__domain *domain, const void *memory);
    /*
     * Makes sure that this rank reaches memory of another: where the domain is tight, ranks say to
     * each other what they have allocated before they use it. Errors: NOMEM. Any thread.
     */
    int (*reach)(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes);
    /* Whether the other ranks can reach these bytes. */
    bool (*shares)(const struct tally__domain *domain, const void *memory, size_t bytes);
    /* False once the rank is known to have died. A system call: not for hot paths. */
    bool (*alive)(const struct tally__domain *domain, int rank);
    void (*destroy)(struct tally__domain *domain);
};

/* Bytes of this rank's memory that another rank's mirror of it shall have, and then a word. */
struct tally__put {
    uint64_t offset;
    size_t bytes;
    uint64_t flag_offset; /* of a 32-bit word that is stored last, or TALLY__NO_FLAG */
    uint32_t flag;
    bool is_awaited; /* it counts as under way until the other rank has taken it in */
};

#define TALLY__NO_FLAG UINT64_MAX

/*
 * Brings bytes to the mirrors. What one rank puts to another arrives in the order in which it was
 * put. Any thread; never blocks.
 */
struct tally__carrier_ops {
    /* Carries as much of put as there is room for and counts it off from put: done when put->bytes
     * is 0. Words (a flag, or few bytes) always find room. Errors: NOMEM, SYSTEM. */
    int (*put)(struct tally__domain *domain, int rank, struct tally__put *put);
    /* Takes what has come, and goes on with what was put; adds to *moved how many bytes came or are
     * gone, those of messages around them included. Errors: SYSTEM. */
    int (*progress)(struct tally__domain *domain, size_t *moved);
    /* Whether anything that was put is still under way: to rank, or, where that is -1, to any. */
    bool (*is_busy)(struct tally__domain *domain, int rank);
    /*
     * A sum of all ranks of the domain by the carrier, in place, one at a time on each lane; NULL:
     * it has none. All ranks begin it. n is at most 2^30. Errors: SYSTEM.
     */
    int (*sum_begin)(struct tally__domain *domain, int lane, float *data, size_t n);
    int (*sum_is_done)(struct tally__domain *domain, int lane, bool *is_done);
};

/* The part all domains have in common; each kind appends its own. */
struct tally__domain {
    const struct tally__domain_ops *ops;
    int n_ranks;
    int rank;
    uintptr_t *base;      /* per rank: where its memory starts for us */
    uint64_t *first_slot; /* per rank: offset of the slots of the group that spans all */
    int n_cpus;           /* CPUs that all ranks together may run on */
    int n_machines;       /* for the log */
    const char *medium;   /* for the log: which MPI; NULL: the name says it */
    unsigned n_stages;
    size_t stage_bytes;
    const struct tally__carrier_ops *carrier; /* NULL: ranks reach each other's memory */
    bool may_linger;                          /* the carrier may be asked while no job runs */
    bool is_tight; /* some rank has little address space; the same on all ranks */
    /* Failures of its groups, sub-groups included. Stored by tally__give_up. */
    atomic_bool has_lost;   /* a rank has died, left, or not come in time */
    atomic_bool has_failed; /* a group was given up for another reason */
    /* The lane threads that may use the carrier's sums, which know no groups: all ranks must begin
     * them in one order. 0: none. Relaxed: split.c and its rounds see to the order. */
    _Atomic uintptr_t sums_of;
};

static inline size_t tally__slot_bytes(const struct tally__domain *domain)
{
    return sizeof(struct tally__slot) + domain->n_stages * domain->stage_bytes;
}

static inline uint64_t tally__offset_of(const struct tally__domain *domain, const void *memory)
{
    return (uint64_t)((uintptr_t)memory - domain->base[domain->rank]);
}

static inline void *tally__at(const struct tally__domain *domain, int rank, uint64_t offset)
{
    return (void *)(domain->base[rank] + (uintptr_t)offset);
}

/* The reach of domains in which a rank reaches everything at any time. */
int tally__reach_always(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes);

/* A set of CPUs, a bit each. */
struct tally__cpus {
    uint64_t bits[16];
};

/* Those the calling process may run on. */
void tally__own_cpus(struct tally__cpus *cpus);

int tally__count_cpus(const struct tally__cpus *cpus);

#endif

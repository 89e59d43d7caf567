/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A domain is the memory under a group: every rank owns memory that the other ranks can reach.
 * Ranks tell each other an address in it as an offset from the owner's base. In the thread domain
 * all bases are 0 and an offset is a pointer; in the shm domain every rank has an unnamed file, and
 * every rank maps all files. Where ranks cannot reach each other's memory, each keeps mirrors of
 * the others' memory at the bases, and a carrier copies the bytes. One protocol works on all.
 */
#ifndef TALLY_COMM_DOMAIN_H
#define TALLY_COMM_DOMAIN_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shared_layout.h"

struct tally__domain;

/* Which ranks must reach the memory: slots of a group (carriers and ranks); some ranks; all. */
enum tally__memory_use { TALLY__FOR_SLOTS, TALLY__FOR_SOME, TALLY__FOR_ALL };

struct tally__domain_ops {
    const char *name;
    /* Allocates zeroed, committed memory of this rank: touching it cannot kill the process.
     * Page-aligned in shm and mpi. Errors: NOMEM. Any thread. */
    int (*alloc)(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                 void **memory);
    void (*free)(struct tally__domain *domain, void *memory);
    /* Whether memory is the start of an allocation that was not freed. */
    bool (*owns)(struct tally__domain *domain, const void *memory);
    /*
     * Makes memory of another rank reachable. Needed where the domain is tight: there ranks
     * announce an allocation before they use it. Errors: NOMEM. Any thread.
     */
    int (*reach)(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes);
    /* Whether the other ranks can reach these bytes. */
    bool (*shares)(const struct tally__domain *domain, const void *memory, size_t bytes);
    /* False once the rank is known to have died. Makes a system call: not for hot paths. */
    bool (*alive)(const struct tally__domain *domain, int rank);
    void (*destroy)(struct tally__domain *domain);
};

/* Bytes of this rank's memory to copy to another rank's mirror, followed by a word. */
struct tally__put {
    uint64_t offset;
    size_t bytes;
    uint64_t flag_offset; /* of a 32-bit word that is stored last, or TALLY__NO_FLAG */
    uint32_t flag;
    bool is_awaited; /* counts as under way until the other rank has received it */
};

#define TALLY__NO_FLAG UINT64_MAX

/*
 * Copies bytes to mirrors. Puts from one rank to another arrive in order. Any thread; never blocks.
 */
struct tally__carrier_ops {
    /* Sends as much of put as there is room for and advances put; done when put->bytes is 0. There
     * is always room for words (a flag, or few bytes). Errors: NOMEM, SYSTEM. */
    int (*put)(struct tally__domain *domain, int rank, struct tally__put *put);
    /* Receives what has arrived and continues pending puts; adds the bytes received and sent,
     * headers included, to *moved. Errors: SYSTEM. */
    int (*progress)(struct tally__domain *domain, size_t *moved);
    /* Whether a put is still under way: to rank, or to any rank if rank is -1. */
    bool (*is_busy)(struct tally__domain *domain, int rank);
    /*
     * A sum of all ranks of the domain by the carrier, in place, one at a time on each lane; NULL:
     * not available. All ranks begin it. n is at most 2^30. Errors: SYSTEM.
     */
    int (*sum_begin)(struct tally__domain *domain, int lane, float *data, size_t n);
    int (*sum_is_done)(struct tally__domain *domain, int lane, bool *is_done);
};

/* The common part of all domains; each kind appends its own fields. */
struct tally__domain {
    const struct tally__domain_ops *ops;
    int n_ranks;
    int rank;
    uintptr_t *base;      /* per rank: address of its memory in this process */
    uint64_t *first_slot; /* per rank: offset of its slots in the group that spans the domain */
    int n_cpus;           /* CPUs that all ranks together may run on */
    int n_machines;       /* for the log */
    const char *medium;   /* for the log: which MPI; NULL: the name says it */
    unsigned n_stages;
    size_t stage_bytes;
    const struct tally__carrier_ops *carrier; /* NULL: ranks reach each other's memory */
    bool may_linger;                          /* the carrier may make progress while no job runs */
    bool is_tight; /* some rank has limited address space; the same on all ranks */
    /* Failures of its groups and their sub-groups. Stored by tally__give_up. */
    atomic_bool has_lost;   /* a rank died, left, or was late */
    atomic_bool has_failed; /* a group was given up for another reason */
    /* The lane threads that may use the carrier's sums. The sums know no groups: all ranks must
     * begin them in one order. 0: none. Relaxed: split.c and its rounds order it. */
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
    assert(rank >= 0 && rank < domain->n_ranks);
    return (void *)(domain->base[rank] + (uintptr_t)offset);
}

/* tally__domain_ops.reach for domains in which every rank always reaches all memory. */
int tally__reach_always(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes);

/* A set of CPUs, a bit each. */
struct tally__cpus {
    uint64_t bits[16];
};

/* The CPUs that the calling process may run on. */
void tally__own_cpus(struct tally__cpus *cpus);

int tally__count_cpus(const struct tally__cpus *cpus);

#endif

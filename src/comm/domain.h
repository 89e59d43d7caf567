/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A domain is the memory under a group: every rank has memory, which the ranks near it reach. Near
 * ranks tell each other an address in it as an offset from the base of that rank's memory. In the
 * thread domain all bases are 0 and an offset is a pointer; in the shm domain every rank has an
 * unnamed file, and near ranks map each other's files. Under MPI, ranks on other machines are far:
 * a messenger takes messages to them.
 */
#ifndef TALLY_COMM_DOMAIN_H
#define TALLY_COMM_DOMAIN_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shared_layout.h"

struct tally__domain;
struct tally__messenger;

/* The ranks that must reach the memory: those of a group, for its slots; some ranks; all. */
enum tally__memory_use { TALLY__FOR_SLOTS, TALLY__FOR_SOME, TALLY__FOR_ALL };

struct tally__domain_ops {
    /* Allocates zeroed, committed memory of this rank: touching it cannot kill the process.
     * Page-aligned in shm. Errors: NOMEM. Any thread. */
    int (*alloc)(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                 void **memory);
    void (*free)(struct tally__domain *domain, void *memory);
    /* Whether memory is the start of an allocation that was not freed. */
    bool (*has_allocated)(struct tally__domain *domain, const void *memory);
    /*
     * Makes memory of another rank reachable. Needed where the domain is tight: there ranks
     * announce an allocation before they use it. Errors: NOMEM. Any thread.
     */
    int (*reach)(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes);
    /* Whether near ranks can reach these bytes. */
    bool (*shares)(const struct tally__domain *domain, const void *memory, size_t bytes);
    /* Of a near rank: false once it is known to have died. Makes a system call: not for hot paths.
     */
    bool (*alive)(const struct tally__domain *domain, int rank);
    void (*destroy)(struct tally__domain *domain);
};

/* The common part of all domains; each kind appends its own fields. */
struct tally__domain {
    const struct tally__domain_ops *ops;
    const char *name; /* the backend */
    int n_ranks;
    int rank;
    uintptr_t *base; /* per near rank: address of its memory in this process */
    uint64_t
        *first_slot;    /* per near rank: offset of its slots in the group that spans the domain */
    bool spins;         /* every rank of this machine has a CPU: waiting may spin */
    int n_machines;     /* for the log */
    const char *medium; /* for the log: which MPI; NULL: the name says it */
    /* Per rank: the first of the ranks that reach each other's memory, it among them. The same on
     * all ranks. NULL: all ranks do. */
    int *first_near;
    struct tally__messenger *messenger; /* NULL: none */
    bool is_tight; /* some rank has limited address space; the same on all ranks */
    /* Failures of its groups and their sub-groups. Stored by tally__give_up. */
    atomic_bool has_lost;   /* a rank died, left, or was late */
    atomic_bool has_failed; /* a group was given up for another reason */
    /* The lane threads that may use MPI's sums. The sums know no groups: all ranks must begin them
     * in one order. 0: none. Relaxed: split.c and its rounds order it. */
    _Atomic uintptr_t sums_of;
};

static inline bool tally__is_far(const struct tally__domain *domain, int rank)
{
    return domain->first_near && domain->first_near[rank] != domain->first_near[domain->rank];
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

#endif

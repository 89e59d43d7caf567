/* SPDX-License-Identifier: Apache-2.0 */
/* The group object and its lanes, as the files of comm and the engines above see them. */
#ifndef TALLY_COMM_GROUP_H
#define TALLY_COMM_GROUP_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/creator.h"
#include "comm/domain.h"
#include "comm/shared_layout.h"
#include "tally_extend.h"

struct tally__arrivals;
struct tally__far;
struct tally__threads;
struct tally__tracer;

/* Number of per-rank lists that an exchange uses at once: too large for a small stack. One more
 * list holds the addresses of the wide stages. */
#define TALLY__N_LISTS 8

/* The job that runs on a lane. */
struct tally__lane_job {
    uint64_t number; /* counts the jobs of this lane; ranks compare it */
    uint64_t serial; /* counts the jobs of the lane's thread, which several groups may share */
    int status;      /* not TALLY_OK: all ranks know that this job failed, and why */
    char text[TALLY__TEXT_BYTES];
    struct tally__doing doing; /* the call of the application that the job is part of */
    uint64_t bytes_sent;       /* payload sent to other ranks */
    uint64_t host_bytes;       /* the same within a host (is_host below), not in bytes_sent */
    struct tally__arrivals *arrivals; /* notes the arrivals at its rounds (arrivals.h), or NULL */
    tally_lane *borrowed;             /* list of the lanes that this job has borrowed: loan.next */
};

/* The round that a lane has arrived at last. */
struct tally__lane_round {
    uint64_t number;             /* the line of the round has its lower 32 bits */
    struct tally__waited waited; /* time spent waiting in this round, for all ranks together */
    uint64_t said_serial[2];     /* per line: the job whose doing is written there */
    uint64_t waited_ns;          /* arrivals: waited for other ranks up to the last round */
    bool is_fresh;               /* lines of far ranks came while this rank looked for them */
};

/* Set while a job of another lane of the same thread uses this lane (tally_lane_for). */
struct tally__lane_loan {
    tally_lane *borrower; /* the lane that the job runs on; NULL: not borrowed */
    uint64_t serial;      /* of that job */
    tally_lane *next;     /* the next lane that the same job has borrowed */
};

/* Memory for collectives, allocated with the group. */
struct tally__lane_scratch {
    uint64_t *starts; /* two per rank: all-to-all */
    void **lists;     /* TALLY__N_LISTS per rank: the exchange */
};

/* Measures the messenger: bytes that moved while this rank waited only for them, and how long. */
struct tally__lane_rate {
    size_t bytes;
    uint64_t ns;
};

/* Wide stages: larger ones than those of the slots, for ranks that do not all run at the same time,
 * and for CPUs that are slow to write what the other one has just read. They are allocated when
 * they are needed for the first time. */
struct tally__lane_wide {
    void **of;    /* per rank: its wide stages, one after the other; in the last list of the lane */
    size_t bytes; /* of one of them; 0: not allocated */
    int slowness; /* grows with each round that was late, and falls with the others */
    int n_uses;   /* exchanges that still ask for them from their first round on */
    int n_last; /* of the last time the usual ones were slow; 0: an exchange has gone well since */
    int n_slow; /* slow exchanges with the usual ones since wide ones were last measured */
    double ns_per_byte; /* CPU time of the last exchange with wide ones; 0: not measured */
    bool is_refused;    /* a rank had no memory for them */
};

/* One lane of one group. Only the job that runs on it touches it. */
struct tally_lane {
    tally_group *group;
    int index;
    struct tally__slot **slots; /* one per rank of the group; slots[group->rank] is this rank's */
    struct tally__lane_job job;
    struct tally__lane_round round;
    struct tally__lane_loan loan;
    struct tally__lane_scratch scratch;
    struct tally__lane_rate rate;
    struct tally__lane_wide wide;
};

struct tally_group {
    struct tally__domain *domain;
    struct tally__threads *threads; /* sub-groups share the parent's, or have their own */
    bool owns_threads;
    struct tally__tracer *tracer; /* of this rank; belongs to the group that spans the domain */
    tally_group *parent;          /* NULL for the group that spans the domain */
    atomic_int n_children;
    struct tally__creator creator; /* the process that is this rank */
    int rank;
    int size;
    int *domain_rank;       /* per rank of the group */
    struct tally__far *far; /* its messages (messages.h); NULL: all ranks are near */
    int n_lanes;            /* at least 1: with lanes = 0 the waiting thread runs one lane */
    tally_lane *lanes;
    struct tally__slot **slot_table; /* n_lanes times size; lanes[i].slots point into it */
    uint64_t *starts_table;          /* lanes[i].scratch.starts point into it */
    void **lists_table;              /* lanes[i].scratch.lists point into it */
    struct tally__slot *own_slots;   /* n_lanes, in the domain's memory */
    uint64_t timeout_ns;
    bool is_host; /* its ranks are on one host: bytes sent in it count as host_bytes */
    bool spins;   /* every rank has a CPU: waiting may spin */
    /* reason says why the group was given up; written once, before given_up (release / acquire). */
    pthread_mutex_t give_up_mutex;
    atomic_int given_up;
    char reason[TALLY__TEXT_BYTES];
    _Atomic uint64_t bytes_sent; /* relaxed: a statistic */
    char farewell[128]; /* a text for ranks that still wait for this one when it has closed the
                           group: its last act */
    /* Guards closed and memory. */
    pthread_mutex_t closed_mutex;
    struct tally__piece *memory; /* allocations of tally_group_alloc that were not freed */
    /* Closed sub-groups. Their slots and memory are kept until the next split or the end of this
     * group. */
    tally_group *closed;
    tally_group *next_closed; /* in the parent's list */
    tally_group *next_open;   /* ending.c's list */
    bool reusable;            /* all ranks have closed it in good order */
};

/*
 * Makes a group of size ranks. own_slots are this rank's slots; those of near rank r begin at
 * offset first_slot[r] of domain rank domain_rank[r]. On failure the caller keeps everything it
 * passed. Errors: NOMEM, SYSTEM.
 */
struct tally__group_parts {
    struct tally__domain *domain;
    tally_group *parent;
    int rank;
    int size;
    const int *domain_rank;
    const uint64_t *first_slot;
    struct tally__slot *own_slots;
    uint32_t channel; /* of its messages */
    int n_lanes;
    uint64_t timeout_ns;
};

/* The threads that run a sub-group's jobs: its parent's, or its own. A group inside a group with
 * its own threads always shares them. */
enum tally__split_threads { TALLY__THREADS_SHARED, TALLY__THREADS_OWN };

int tally__group_make(const struct tally__group_parts *parts, tally_group **group);

/* Frees the group object; neither its slots nor its domain. */
void tally__group_unmake(tally_group *group);

/* Marks the closed sub-groups that all ranks have closed. On the parent's lane 0, between a round
 * that shows which groups are closed, and one after which slots are reused. */
void tally__mark_reusable(tally_group *parent);

/* The slots of a reusable closed sub-group, or NULL. After those rounds. */
struct tally__slot *tally__take_closed_slots(tally_group *parent);

/* Frees the memory of closed sub-groups that all ranks have closed. Not collective. */
void tally__release_closed(tally_group *parent);

/* group_memory.c: returns all memory of a group to its domain; forgets it without returning it. */
void tally__memory_release(tally_group *group);
void tally__memory_forget(tally_group *group);

/* group_memory.c: allocates group memory inside a job, on all ranks of a group of near ranks or on
 * none; memory[r] is that of rank r. Collective; *got says whether there was memory on all ranks.
 * Errors: those of a round. */
int tally__memory_in_job(tally_lane *lane, size_t bytes, void **memory, bool *got);

/* Ends the group's use of MPI's sums. */
void tally__leave_sums(tally_group *group);

/* tally_group_split. With its own threads, jobs of the new group never queue behind those of the
 * parent: ranks may run the two in different orders. */
int tally__group_split(tally_group *parent, int color, int key, enum tally__split_threads threads,
                       tally_group **group);

/* Opens the group that spans a domain; takes the domain over, also on failure. */
int tally__group_open_domain(struct tally__domain *domain, struct tally__slot *own_slots, int lanes,
                             double timeout_s, tally_group **group);

/* The launcher's number of a rank. */
static inline int tally__number_of(const tally_group *group, int rank)
{
    assert(rank >= 0 && rank < group->size);
    return group->domain_rank[rank];
}

/*
 * Gives the group up with a status and a text, on this rank and for all others to see. The first
 * reason stands. Returns status.
 */
int tally__give_up(tally_group *group, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether this rank has other open sub-groups of the same parent. Any thread. */
bool tally__has_siblings(const tally_group *group);

/* Whether neither the group nor any of its ancestors was given up. */
bool tally__is_alive(const tally_group *group);

/* TALLY_OK; ABORTED with the reason when the group or an ancestor was given up; STATE in a forked
 * child. */
int tally__check_alive(tally_group *group);

/* The status and the text with which the group or an ancestor was given up, for the job in which
 * that happened. */
int tally__fail_given_up(const tally_group *group);

#endif

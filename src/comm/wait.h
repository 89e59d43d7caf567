/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for another rank, for its line or for a transfer: one loop, and one function that finds
 * the reason why something cannot come any more.
 */
#ifndef TALLY_COMM_WAIT_H
#define TALLY_COMM_WAIT_H

#include <assert.h>

#include "comm/arrivals.h"
#include "comm/group.h"

/* The reason why a wait ended without the rank. */
struct tally__late {
    enum {
        TALLY__LATE_DIED,
        TALLY__LATE_CLOSED,
        TALLY__LATE_TIMEOUT,
        TALLY__LATE_GIVEN_UP,
        TALLY__LATE_HOST_FAILED,
        TALLY__LATE_BROKEN /* the messenger failed; the thread's error text says how */
    } why;
    int who;                        /* the rank that died or closed */
    const struct tally__slot *said; /* GIVEN_UP: the slot with the reason */
};

/* Something that comes from another rank. */
struct tally__awaited {
    int rank;                    /* -1: transfers of several ranks */
    const atomic_int *transfers; /* until it is 0; NULL: the rank's line of the current round */
    enum tally__waited_for reason;
};

/* Whether rank has arrived at the lane's current round. */
static inline bool tally__has_arrived(const tally_lane *lane, int rank)
{
    assert(rank >= 0 && rank < lane->group->size);
    /* Partner: the store in arrive(), round.c. Everything the rank wrote before is visible now. */
    uint32_t round = atomic_load_explicit(&lane->slots[rank]->line[lane->round.number % 2].round,
                                          memory_order_acquire);

    return (int32_t)(round - (uint32_t)lane->round.number) >= 0;
}

/* Whether rank has closed the group or given it up. */
bool tally__has_left(const tally_group *group, int rank);

/* False once rank is known to have died: asks the operating system. */
bool tally__is_rank_alive(const tally_group *group, int rank);

/* Whether some rank has given up the group or an ancestor, as late then says: then so do we, even
 * if that rank has arrived here. */
bool tally__is_given_up(const tally_lane *lane, struct tally__late *late);

/* Waits until it has come; any other outcome is described in late and is not TALLY_OK. */
int tally__wait_until(tally_lane *lane, const struct tally__awaited *what,
                      struct tally__late *late);

/* The same; if it does not come, gives the group up. The trace and the arrivals of the bucket get
 * the time. */
int tally__await(tally_lane *lane, const struct tally__awaited *what);

/* Receives the messages after the lines of this round: far ranks may have given up since. */
void tally__look_behind(const tally_lane *lane);

/* The length of the next pause of a thread that has found nothing to do for waited_ns. */
uint64_t tally__pause_ns(uint64_t waited_ns);

/* Wakes the ranks that sleep on our line. */
void tally__wake_sleepers(const tally_lane *lane, struct tally__line *line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for another rank: spin, yield, sleep; and detecting that it will not arrive. */
#ifndef TALLY_COMM_WAIT_H
#define TALLY_COMM_WAIT_H

#include <assert.h>

#include "comm/group.h"

/* Why a wait ended without the rank. */
struct tally__late {
    enum {
        TALLY__LATE_DIED,
        TALLY__LATE_CLOSED,
        TALLY__LATE_TIMEOUT,
        TALLY__LATE_GIVEN_UP,
        TALLY__LATE_HOST_FAILED,
        TALLY__LATE_BROKEN /* the carrier failed; the thread's error text says how */
    } why;
    int who;                        /* the rank that died or closed */
    const struct tally__slot *said; /* GIVEN_UP: the slot with the reason */
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

/* Interval between checks that the other processes are alive. */
#define TALLY__ALIVE_NS 100000000u

/* Whether rank has closed the group or given it up. */
bool tally__has_left(const tally_group *group, int rank);

/* Looks for a reason why the lane's round cannot complete. Checks at *next_alive_ns which ranks are
 * alive, and sets the time of the next check. */
bool tally__find_reason(const tally_lane *lane, struct tally__late *late, uint64_t *next_alive_ns);

/* Whether some rank has given up the group or an ancestor, as late then says: then so do we, even
 * if that rank has arrived here. */
bool tally__is_given_up(const tally_lane *lane, struct tally__late *late);

/* Waits until rank has arrived; any other outcome is described in late and is not TALLY_OK. */
int tally__wait_for(tally_lane *lane, int rank, struct tally__late *late);

/* Gives the group up for the reason in late; place describes what this rank waits in. */
int tally__give_up_late(tally_lane *lane, int rank, const struct tally__late *late,
                        const char *place);

/* Wakes the ranks that sleep on our line. */
void tally__wake_sleepers(const tally_lane *lane, struct tally__line *line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting where memory is mirrored (domain.h): nothing comes by itself, so waiting is asking the
 * carrier, with pauses that leave the CPU to those who compute. Only the thread that runs a lane's
 * jobs enters with that lane.
 */
#ifndef TALLY_COMM_ASK_H
#define TALLY_COMM_ASK_H

#include "comm/wait.h"

/* A wait by asking the carrier, and the clock readings it goes by. All zero: it begins now. */
struct tally__asking {
    struct tally__waited waited;
    uint64_t moved_ns; /* 0: not begun */
    uint64_t next_look_ns;
    uint64_t next_alive_ns;
    uint64_t next_taker_ns; /* when to ask whether the rank that has no room is alive */
    size_t moved_bytes;
    int n_empty; /* looks at which nothing had moved, since something had or we paused */
};

/* Waits until rank has arrived at the lane's round, as tally__wait_for. */
int tally__ask_for(tally_lane *lane, int rank, struct tally__late *late);

/*
 * Asks the carrier once, and pauses if nothing has moved. Other lanes ask as well: there may be
 * room for what goes to rank although nothing has moved here.
 */
int tally__ask_for_room(tally_lane *lane, int rank, struct tally__asking *asking,
                        struct tally__late *late);

/* Takes what came behind the lines of this round, such as words of leaving. */
void tally__look_again(tally_lane *lane);

/*
 * Waits until all ranks of the lane's group have what this one sent. Somebody has to see to that:
 * where no thread may do so while no job runs, a job may not end before. Ranks outside the group
 * may be lost.
 */
void tally__ask_until_idle(tally_lane *lane);

/* The length of the next pause after nothing has moved for waited_ns. */
uint64_t tally__pause_ns(uint64_t waited_ns);

#endif

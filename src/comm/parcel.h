/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank brings to the others where they cannot reach its memory. All of it is nothing, and
 * costs nothing, where they can.
 */
#ifndef TALLY_COMM_PARCEL_H
#define TALLY_COMM_PARCEL_H

#include "comm/round.h"

/* Whether parcels travel at all: who need not say one need not find out how large it is. */
static inline bool tally__carries(const tally_lane *lane)
{
    return lane->group->domain->carrier != NULL;
}

/*
 * Says, before the round after which they will read it, that a rank, or all others, will read bytes
 * of this rank's stage of a round, from offset on; they are on their way from here on. Ranks that
 * send to several begin with the one after their own. Errors: those of tally__round, after which
 * the group is given up.
 */
int tally__parcel(tally_lane *lane, int rank, uint64_t round, size_t offset, size_t bytes);
int tally__parcel_to_all(tally_lane *lane, uint64_t round, size_t offset, size_t bytes);

/* Where parcels travel: brings this rank's line of the current round to all, after its parcels.
 * Errors: those of tally__parcel. */
int tally__carry_line(tally_lane *lane, const struct tally__line *line);

/* Tells all that this rank has left the group. */
void tally__carry_leaving(tally_group *group);

#endif

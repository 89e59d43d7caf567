/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreements among the ranks of a group, inside a job: on a status, on sameness, on whether any
 * rank says yes. An agreement costs one round at most and carries no payload.
 */
#ifndef TALLY_COMM_AGREE_H
#define TALLY_COMM_AGREE_H

#include <stdint.h>

#include "base/status.h"
#include "tally.h"

/*
 * Tells the other ranks of a failure on this rank: their jobs then fail with its status and text.
 * Costs no round: a rank that failed says so in place of the round that the others wait in next, at
 * the latest the one that ends the job. OK means only that this rank did not fail; another rank's
 * failure appears in this rank's next round.
 */
int tally__agree_status(tally_lane *lane, const struct tally__outcome *outcome);

/* Whether all ranks have the same digest: *other is the lowest rank whose digest is not rank 0's,
 * or -1. All ranks learn the same. One round. */
int tally__agree_same(tally_lane *lane, uint64_t digest, int *other);

/* *any has the bits that at least one rank gives. One round. */
int tally__agree_any(tally_lane *lane, uint64_t bits, uint64_t *any);

#endif

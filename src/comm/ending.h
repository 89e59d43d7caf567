/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that ends by itself (return from main, exit) with its group open leaves a mark. The
 * other ranks then report that it ended without closing its group, and not that it died.
 */
#ifndef TALLY_COMM_ENDING_H
#define TALLY_COMM_ENDING_H

#include "comm/group.h"

/* The text for such a rank. */
#define TALLY__ENDED_OPEN "ended without closing its group"

/* Until tally__ending_forget, the end of the process leaves the mark. The group spans a domain in
 * which other processes can read its slots. Application threads enter. */
void tally__ending_watch(tally_group *group);

/* Before the group is freed. Also for groups that are not watched. */
void tally__ending_forget(tally_group *group);

/* Describes how a dead rank of the group ended. Any thread. */
const char *tally__ending_text(const tally_group *group, int rank);

#endif

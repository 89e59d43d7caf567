/* SPDX-License-Identifier: Apache-2.0 */
/* Records of steps. */
#ifndef TALLY_DDP_STATS_H
#define TALLY_DDP_STATS_H

#include "ddp/ddp.h"

/* Records the step that ends now; its wait was called at called_ns. With the mutex held. */
void tally__stats_take(tally_ddp *ddp, uint64_t called_ns);

/* Counts bytes that were not sent for a bucket. */
void tally__stats_other(tally_ddp *ddp, uint64_t bytes);

/* Records the status and the thread's error text of a call that failed. Returns the status. */
int tally__stats_note(tally_ddp *ddp, int status);

#endif

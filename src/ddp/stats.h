/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered about steps. */
#ifndef TALLY_DDP_STATS_H
#define TALLY_DDP_STATS_H

#include "ddp/ddp.h"

/* Takes down the step that ends now and whose wait was called at called_ns. With the mutex held. */
void tally__stats_take(tally_ddp *ddp, uint64_t called_ns);

/* Counts what was sent beside the buckets of a step. */
void tally__stats_other(tally_ddp *ddp, uint64_t bytes);

/* Remembers the status and the thread's text of a call that failed, and returns the status. */
int tally__stats_note(tally_ddp *ddp, int status);

#endif

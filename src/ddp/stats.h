/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered about steps. */
#ifndef TALLY_DDP_STATS_H
#define TALLY_DDP_STATS_H

#include "ddp/ddp.h"

/* Takes down the step that ends now and whose wait was called at called_ns. With the mutex held. */
void tally__stats_take(tally_ddp *ddp, uint64_t called_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What happens in wait once every bucket has its mean. */
#ifndef TALLY_DDP_STEP_END_H
#define TALLY_DDP_STEP_END_H

#include "ddp/ddp.h"

/* Collective. Errors: those of any exchange. */
int tally__step_end(tally_ddp *ddp);

/* The mean of a gradient that no rank had is dropped; what hooks sent with it of former steps is
 * not: every rank takes the mean of that, which lies in the bucket, back. */
void tally__residual_take_back(tally_ddp *ddp, const struct tally__param *param);

/* Whether buckets are still to be arranged by ready order: not while the observer pins them, nor
 * under a hook whose bits depend on the layout. */
bool tally__may_arrange(const tally_ddp *ddp);

/* Arranges the buckets by agreed_order. A failure costs speed, not the step. Between steps.
 * Collective. */
void tally__step_arrange(tally_ddp *ddp);

/* Returns buckets that were arranged by ready order to the layout of the plan, unless the observer
 * pins them. A later step arranges them again, once tally__may_arrange allows it. Between steps.
 * Collective. Errors: NOMEM, on all ranks, and the layout stays. */
int tally__step_restore_plan(tally_ddp *ddp);

/* After it: arranges the buckets anew, if it is time. Collective. */
void tally__step_rebuild(tally_ddp *ddp);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The last part of wait, after every bucket has its mean. */
#ifndef TALLY_DDP_STEP_END_H
#define TALLY_DDP_STEP_END_H

#include "ddp/ddp.h"

/* In wait, once all jobs of the step were collected, with their status: ends the step, unless that
 * was launched before, and counts it. Returns the status. Collective. Errors: those of any
 * exchange, and the observer's. */
int tally__step_end(tally_ddp *ddp, int collected);

/* If no rank had a gradient, its mean is dropped. The hook may have sent residuals of former steps
 * with it: their mean lies in the bucket, and every rank takes it back as its residual. */
void tally__residual_take_back(tally_ddp *ddp, const struct tally__param *param);

/* Whether buckets are still to be arranged by ready order: not while the observer pins them, nor
 * under a hook whose bits depend on the layout. */
bool tally__may_arrange(const tally_ddp *ddp);

/* Arranges the buckets by ready.agreed. A failure costs speed, not the step. Between steps.
 * Collective. */
void tally__step_arrange(tally_ddp *ddp);

/* Returns buckets that were arranged by ready order to the layout of the plan, unless the observer
 * pins them. A later step arranges them again, once tally__may_arrange allows it. Between steps.
 * Collective. Errors: NOMEM, on all ranks, and the layout stays. */
int tally__step_restore_plan(tally_ddp *ddp);

/* After a step: arranges the buckets if that is due. Collective. */
void tally__step_rebuild(tally_ddp *ddp);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check mode: what a wrong program does is found and named. Off, ddp->checks is NULL, and a step
 * pays one test of that pointer per gradient. On:
 *
 *   announcing a gradient     takes its checksum; no bucket is launched
 *   tally_ddp_wait            compares the checksums, launches all buckets; a gradient that was
 *                             written to since makes every bucket fail, on all ranks alike
 *   the first bucket's job    every so many steps, compares the parameters of all ranks
 *   after the first steps     warns of gradients that stay zeros, and of parameters that stay
 */
#ifndef TALLY_DDP_CHECK_H
#define TALLY_DDP_CHECK_H

#include "ddp/ddp.h"

/* Makes ddp->checks if config.check or TALLY_CHECK says so. Errors: ARG, NOMEM. */
int tally__checks_make(tally_ddp *ddp);
void tally__checks_free(tally_ddp *ddp);

/* How many steps lie between two comparisons of parameters; 0: check mode is off. */
int tally__checks_every(const tally_ddp *ddp);

/* With the mutex held. */
/* A gradient was announced. */
void tally__checks_note(tally_ddp *ddp, const struct tally__param *param);
/* All gradients of a step were announced: looks at them, and lets buckets go. */
void tally__checks_look(tally_ddp *ddp);
/* Whether buckets may be launched yet. */
bool tally__checks_hold(const tally_ddp *ddp);
/* The step has ended. */
void tally__checks_reset(tally_ddp *ddp);

/* In a bucket's job, before its hook. Errors: STATE for a gradient that was written to, MISMATCH
 * for parameters that differ: on all ranks. */
int tally__checks_bucket(tally_lane *lane, struct tally__bucket *bucket);

/* After a step: warns once, in any mode, of a hook that lets ranks drift apart without an averager.
 */
void tally__checks_local(tally_ddp *ddp);

#endif

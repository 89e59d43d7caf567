/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check mode: finds mistakes of the program and names them. If it is off, ddp->checks is NULL, and
 * a step tests that pointer once per gradient. If it is on:
 *
 *   announcing a gradient     takes its checksum; no bucket is launched
 *   tally_ddp_wait            compares the checksums and launches all buckets; if a gradient was
 *                             written to in between, every bucket fails, on all ranks
 *   the first bucket's job    compares the parameters of all ranks, every config.check steps
 *   after the first steps     warns of gradients that stay zeros, and of constant parameters
 */
#ifndef TALLY_DDP_CHECK_H
#define TALLY_DDP_CHECK_H

#include "ddp/ddp.h"

/* Makes ddp->checks if config.check or TALLY_CHECK says so. Errors: ARG, NOMEM. */
int tally__checks_make(tally_ddp *ddp);
void tally__checks_free(tally_ddp *ddp);

/* Steps between two comparisons of parameters; 0: check mode is off. */
int tally__checks_every(const tally_ddp *ddp);

/* With the mutex held. */
/* A gradient was announced. */
void tally__checks_note(tally_ddp *ddp, const struct tally__param *param);
/* All gradients of a step were announced: checks them, and allows launches. */
void tally__checks_look(tally_ddp *ddp);
/* Whether buckets may be launched yet. */
bool tally__checks_hold(const tally_ddp *ddp);
/* The step has ended. */
void tally__checks_reset(tally_ddp *ddp);

/* In a bucket's job, before its hook. Errors: STATE for a gradient that was written to, MISMATCH
 * for parameters that differ: on all ranks. */
int tally__checks_bucket(tally_lane *lane, struct tally__bucket *bucket);

/* After a step: warns once, in any mode, if the hook lets parameters differ between ranks and no
 * averager exists. */
void tally__checks_local(tally_ddp *ddp);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A saved ddp, and the entries that saved optimizers and averagers have in common with it. Behind
 * the head (state/blob.h), a ddp's blob has
 *
 *   hook       its name; flags; the name of the hook inside that has the state
 *   order      the parameters in the order of the buckets, if they were arranged by ready order
 *   parameter  for each one its identity and its residual
 *   state      what the hook itself saved
 *
 * An identity is name, shape, elements, dtype and strides. A residual is sent, all elements or
 * none; then the number of owned runs and, for larger and larger groups, each run's ranks, first
 * element and elements.
 */
#ifndef TALLY_DDP_DDP_STATE_H
#define TALLY_DDP_DDP_STATE_H

#include "ddp/ddp.h"
#include "state/save_load.h"

/* The state of an object that runs its jobs on the ddp's lanes. */
struct tally__state tally__state_of(const struct tally__state_kind *kind, void *object,
                                    tally_ddp *ddp, size_t n_params, uint64_t n_steps);
struct tally__state tally__ddp_state(tally_ddp *ddp);

/* ---- param_state.c: entries of one parameter ---- */

void tally__put_identity(struct tally__blob_writer *writer, const struct tally__param *param);
/* Reads an identity of blob r. Errors: ARG naming the blob, the parameter and the difference. */
int tally__check_identity(struct tally__blob_reader *reader, const struct tally__param *param,
                          size_t r);

/* The arrays lie in the blob. */
struct tally__saved_residual {
    const float *sent; /* NULL: none */
    uint64_t n_owned;
    struct tally__blob_reader owned; /* stands before the first run */
};

struct tally__saved_run {
    uint64_t n_ranks;
    uint64_t first;
    const float *values;
    size_t n;
};

void tally__put_residual(struct tally__blob_writer *writer, const struct tally__residual *residual);
/* The residual of the parameter in a run of world ranks: bad unless it fits. */
void tally__take_residual(struct tally__blob_reader *reader, const struct tally__param *param,
                          size_t world, struct tally__saved_residual *residual);
void tally__take_run(struct tally__blob_reader *reader, struct tally__saved_run *run);

#endif

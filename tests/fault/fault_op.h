/* SPDX-License-Identifier: Apache-2.0 */
/* One collective of the stream: its arguments, its input, and whether its result is right. */
#ifndef TALLY_FAULT_OP_H
#define TALLY_FAULT_OP_H

#include "fault/fault_support.h"

#define FAULT_MAX_ELEMENTS ((size_t)1 << 18)

enum fault_op_kind {
    FAULT_ALL_REDUCE,
    FAULT_REDUCE_SCATTER,
    FAULT_ALL_GATHER,
    FAULT_ALL_TO_ALL,
    FAULT_BROADCAST,
    FAULT_BARRIER,
    FAULT_N_OP_KINDS
};

struct fault_op {
    int kind;
    int32_t tag; /* makes the values of this collective its own */
    size_t count;
    int32_t *data;     /* FAULT_MAX_ELEMENTS, group memory or not */
    int32_t *received; /* the same */
    size_t bytes[FAULT_MAX_RANKS];
};

/* Writes this rank's input. */
void fault_op_prepare(struct fault_op *op, const tally_group *group);

/* Runs it inside a job, or as a separate job. */
int fault_op_on_lane(struct fault_op *op, tally_lane *lane);
int fault_op_submit(struct fault_op *op, tally_group *group, tally_future **future);

/* Whether the result is what it must be. */
bool fault_op_is_right(const struct fault_op *op, const tally_group *group);

#endif

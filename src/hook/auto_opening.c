/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opening of the hook auto (auto.h): the choice for the steps that are measured. Over a slow
 * line a step by allreduce may take as long as 30 of the best hook; so only the first step is by
 * allreduce. It codes its buckets twice with every candidate, and the line is measured after it. On
 * the thread that attaches, and in step_end, a job on lane 0.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "comm/agree.h"
#include "comm/domain.h"
#include "comm/group.h"
#include "hook/auto.h"

/* Whether there is a line to measure; tests pretend that there is one. */
static bool has_line(const struct tally__auto *self)
{
    return tally_ddp_group(self->ddp)->domain->n_machines > 1 || self->seam.profile;
}

void tally__auto_begin_opening(struct tally__auto *self)
{
    self->is_opening = has_line(self);
    if (!self->is_opening) {
        return;
    }
    tally__auto_clear_probes(self);
    if (tally__auto_begin_probes(self) != TALLY_OK) {
        /* The end of the step tells the other ranks. */
        atomic_store_explicit(&self->lacks_memory, true, memory_order_relaxed);
    }
}

/* The choice for the steps that are measured: the best one for communication alone, by the codings
 * of the first step. Backward is not known yet. */
int tally__auto_end_opening(struct tally__auto *self, tally_lane *lane)
{
    uint64_t is_spoiled = atomic_load_explicit(&self->saw_infinite, memory_order_relaxed);
    struct tally__offer offer;

    self->n_probed = TALLY__AUTO_OPENING_PROBES;
    self->is_opening = false;
    tally__auto_end_probes(self);
    TRY(tally__agree_any(lane, is_spoiled, &is_spoiled));
    if (is_spoiled) {
        tally__auto_clear_probes(self);
        return TALLY_OK; /* by the exact hook, then */
    }
    TRY(tally__auto_count_hosts(self, lane));
    if (self->hosts > 1) {
        TRY(tally__auto_measure_line(self, lane, &self->profile));
        self->has_line = true;
    }
    self->has_errors = true;
    TRY(tally__auto_gather(self, lane));
    if (self->profile.hosts > 1) {
        TRY(tally__auto_propose(self, lane, &offer));
        if (offer.gain > self->margin) {
            memcpy(self->settled, self->proposal, self->n_params);
            self->is_unproved = true;
        }
    }
    tally__auto_clear_probes(self);
    self->has_profile = false;
    return TALLY_OK;
}

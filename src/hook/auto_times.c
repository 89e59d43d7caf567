/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The times of steps, of backward and of buckets, as the hook auto notes them. On the thread that
 * waits, after each step; step_end, a job, reads them in the next one.
 */
#include "base/clock.h"
#include "base/status.h"
#include "hook/auto.h"

void tally__auto_forget_times(struct tally__auto *self)
{
    self->forward_s = 0;
    self->backward_s = 0;
    self->compute_squares = 0;
    self->n_times = 0;
    for (size_t b = 0; b < self->n_params; b++) {
        struct tally__auto_slot *slot = &self->slots[b];

        slot->cpu_s = 0;
        slot->ready_s = 0;
        slot->n_cpu = 0;
        slot->n_ready = 0;
    }
}

/* The times of the buckets and of backward. */
static void note_times(struct tally__auto *self, const tally_ddp_stats *stats)
{
    double compute_s = stats->forward_s + stats->backward_s;

    self->compute_squares += compute_s * compute_s;
    self->forward_s += stats->forward_s;
    self->backward_s += stats->backward_s;
    self->n_times++;
    for (size_t b = 0; b < self->n_buckets; b++) {
        tally_bucket_stats of = {.size = sizeof of};

        if (b < stats->n_buckets && tally_ddp_get_bucket_stats(self->ddp, b, &of) == TALLY_OK &&
            of.measured) {
            self->slots[b].ready_s += of.ready_s;
            self->slots[b].n_ready++;
        }
    }
}

static void note_probe(struct tally__auto *self, const tally_ddp_stats *stats)
{
    double coding_s = 0;

    for (size_t h = 0; h < self->n; h++) {
        for (size_t b = 0; b < self->n_buckets; b++) {
            coding_s += self->probes[h * self->n_params + b].code_s;
        }
    }
    self->probe_backward_s += stats->backward_s;
    self->probe_cpu_s += coding_s;
    self->n_probe_times++;
}

void tally__auto_step_over(void *state, bool has_input)
{
    struct tally__auto *self = state;
    tally_ddp_stats stats = {.size = sizeof stats};
    uint64_t now_ns = tally__now_ns();

    self->step_s[self->tick % (2 * TALLY__AUTO_WINDOW)] =
        self->last_over_ns > 0 ? (double)(now_ns - self->last_over_ns) * 1e-9 : 0;
    self->last_over_ns = now_ns;
    if (self->phase == TALLY__AUTO_REFEREE && self->in_phase > 0 && self->was_proposals) {
        self->proposal_s = tally__auto_time_of(self, self->tick, true);
    }
    if (!has_input || self->n_ranks == 1 || tally_ddp_get_stats(self->ddp, &stats) != TALLY_OK) {
        return;
    }
    /* The phase may have changed at the end of the step: its times are of the phase before. */
    if (self->phase == TALLY__AUTO_PLAIN && self->in_phase > 0) {
        note_times(self, &stats);
    } else if (self->phase == TALLY__AUTO_PROBE && self->in_phase > 0) {
        note_probe(self, &stats);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the hook auto for the parameters of its ddp. On the thread that attaches. */
#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"

#define WHAT "the hook auto"

void tally__auto_free_arrays(struct tally__auto *self)
{
    tally__free(self->settled);
    tally__free(self->proposal);
    tally__free(self->used);
    tally__free(self->holds);
    tally__free(self->home);
    tally__free(self->is_delayed);
    tally__free(self->laid_classes);
    tally__free(self->slots);
    tally__free(self->probes);
    tally__free(self->squares);
    tally__free(self->sums);
    tally__free(self->losses);
    tally__free(self->of_buckets);
    tally__free(self->rows);
    tally__free(self->probe_sums);
    tally__free(self->live_sums);
    tally__free(self->live_start);
    tally__free(self->live_end);
    tally__samples_free(&self->samples);
    tally__profile_free(&self->profile);
    self->settled = NULL;
    self->proposal = NULL;
    self->used = NULL;
    self->holds = NULL;
    self->home = NULL;
    self->is_delayed = NULL;
    self->laid_classes = NULL;
    self->laid_cap = 0;
    self->slots = NULL;
    self->probes = NULL;
    self->squares = NULL;
    self->sums = NULL;
    self->losses = NULL;
    self->of_buckets = NULL;
    self->rows = NULL;
    self->probe_sums = NULL;
    self->live_sums = NULL;
    self->live_start = NULL;
    self->live_end = NULL;
    self->active = NULL;
    self->has_profile = false;
    self->n_rows = 0;
}

/* Buckets of delayed parameters come after the others. */
static void find_delayed(struct tally__auto *self, tally_ddp *ddp, int *params)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    size_t n = 0;

    if (tally_ddp_get_stats(ddp, &stats) != TALLY_OK) {
        return;
    }
    for (size_t b = stats.n_buckets;
         (n = tally_ddp_bucket_params(ddp, b, params, self->n_params)) > 0; b++) {
        for (size_t k = 0; k < n; k++) {
            self->is_delayed[params[k]] = true;
        }
    }
}

int tally__auto_make_arrays(struct tally__auto *self, tally_ddp *ddp)
{
    size_t n = tally_ddp_n_params(ddp);

    TRY(tally__samples_make(ddp, n, &self->samples));
    self->n_params = n;
    self->settled = tally__alloc_array(n, 1, WHAT);
    self->proposal = tally__alloc_array(n, 1, WHAT);
    self->used = tally__alloc_array(n, 1, WHAT);
    self->holds = tally__alloc_array(n, 1, WHAT);
    self->home = tally__alloc_array(n, sizeof *self->home, WHAT);
    self->is_delayed = tally__alloc_array(n, sizeof *self->is_delayed, WHAT);
    self->laid_classes = tally__alloc_array(n, 1, WHAT);
    self->slots = tally__alloc_array(n, sizeof *self->slots, WHAT);
    self->probes = tally__alloc_array(n * self->n, sizeof *self->probes, WHAT);
    self->squares = tally__alloc_array(n, sizeof *self->squares, WHAT);
    self->sums = tally__alloc_array(n, sizeof *self->sums, WHAT);
    self->losses = tally__alloc_array(n * self->n, sizeof *self->losses, WHAT);
    self->of_buckets = tally__alloc_array(n, 1, WHAT);
    self->rows = tally__alloc_array(n, sizeof *self->rows, WHAT);
    self->probe_sums = tally__alloc_array(self->samples.n, sizeof *self->probe_sums, WHAT);
    self->live_sums = tally__alloc_array(self->samples.n, sizeof *self->live_sums, WHAT);
    self->live_start = tally__alloc_array(self->samples.n, sizeof *self->live_start, WHAT);
    self->live_end = tally__alloc_array(self->samples.n, sizeof *self->live_end, WHAT);
    self->active = self->settled;
    if (self->home && self->is_delayed) {
        find_delayed(self, ddp, self->home);
    }
    for (size_t i = 0; self->home && i < n; i++) {
        self->home[i] = -1;
    }
    return self->settled && self->proposal && self->used && self->holds && self->home &&
                   self->is_delayed && self->laid_classes && self->slots && self->probes &&
                   self->squares && self->sums && self->losses && self->of_buckets && self->rows &&
                   self->probe_sums && self->live_sums && self->live_start && self->live_end
               ? TALLY_OK
               : TALLY_NOMEM;
}

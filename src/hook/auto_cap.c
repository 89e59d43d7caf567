/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket cap that the hook auto would choose: packs the parameters into buckets of other sizes
 * and replays the step (tune/cap.h). It is reported, not set: whether buckets may move is for the
 * ddp and the application to say. In step_end, on lane 0, when a choice is settled.
 */
#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"
#include "tune/cap.h"

#define WHAT "the bucket cap of the hook auto"

/* The parameters of bucket b, in their order there. Returns their number. */
static size_t list_bucket(const struct tally__auto *self, size_t b, int *params,
                          struct tally__cap_part *parts)
{
    size_t n = tally_ddp_bucket_params(self->ddp, b, params, self->n_params);
    double elements = 0;

    n = n < self->n_params ? n : self->n_params;
    for (size_t k = 0; k < n; k++) {
        elements += (double)tally_ddp_param_count(self->ddp, params[k]);
    }
    for (size_t k = 0; k < n; k++) {
        double own = (double)tally_ddp_param_count(self->ddp, params[k]);

        parts[k].bytes = elements > 0 ? self->profile.buckets[b].bytes * own / elements : 0;
        parts[k].bucket = b;
    }
    return n;
}

static size_t list_parts(const struct tally__auto *self, int *params, struct tally__cap_part *parts)
{
    size_t n = 0;

    for (size_t b = 0; b < self->n_buckets; b++) {
        n += list_bucket(self, b, params, parts + n);
    }
    return n;
}

/* A lack of memory is no failure: then no cap is reported. */
void tally__auto_find_cap(struct tally__auto *self)
{
    int *params = tally__alloc_array(self->n_params, sizeof *params, WHAT);
    struct tally__cap_part *parts = tally__alloc_array(self->n_params, sizeof *parts, WHAT);
    struct tally__cap_question question = {.profile = &self->profile, .parts = parts};
    struct tally__cap_answer answer;

    self->cap_bytes = 0;
    self->cap_gain = 0;
    if (params && parts && self->has_profile && self->profile.hosts > 1) {
        question.choice = tally__auto_by_bucket(self, self->settled);
        question.n = list_parts(self, params, parts);
        if (question.n > 0 && tally__cap_choose(&question, &answer) == TALLY_OK &&
            answer.step_s < answer.now_s * (1 - self->margin)) {
            self->cap_bytes = answer.cap_bytes;
            self->cap_gain = (answer.now_s - answer.step_s) / answer.now_s;
        }
    }
    tally__free(parts);
    tally__free(params);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the tests of saved states. Keeps no state: every rank has its own run. */
#include "support/hook_states.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "state/blob.h"

const struct ddp_spec state_specs[STATE_N_PARAMS] = {
    {"embedding", TALLY_F32, 0, 2, {40, 60}}, {"bias", TALLY_F32, 0, 1, {60}},
    {"fc.weight", TALLY_F32, 0, 2, {33, 47}}, {"half", TALLY_F16, 0, 2, {9, 9}},
    {"scale", TALLY_F32, 0, 0, {0}},          {"conv", TALLY_F32, 0, 3, {5, 7, 11}},
    {"empty", TALLY_F32, 0, 2, {0, 3}},       {"frozen", TALLY_F32, TALLY_PARAM_FROZEN, 1, {5}},
};

/* ---- runs ---- */

int state_run_start(tally_group *group, const struct state_setup *setup, struct state_run *run)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = setup->hook;
    config.bucket_cap_bytes = setup->cap_bytes ? setup->cap_bytes : 4000;
    CHECK(group, ddp_model_make(&run->model, state_specs, STATE_N_PARAMS, setup->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, run->model.params, run->model.n, &config, &run->ddp));
    return 0;
}

int state_run_end(tally_group *group, struct state_run *run)
{
    CHECK_OK(group, tally_ddp_free(run->ddp));
    ddp_model_free(&run->model);
    return 0;
}

int state_step(const tally_group *group, struct state_run *run, unsigned seed)
{
    for (size_t k = 0; k < STATE_N_PARAMS; k++) {
        /* From the first to the last, except one. */
        size_t i = k < 2 ? 1 - k : k;
        int rc = TALLY_OK;

        if (ddp_has_gradient(&run->model, i)) {
            ddp_fill_grad(&run->model, run->ddp, i, seed, tally_group_rank(group));
            rc = tally_ddp_grad_ready(run->ddp, (int)i);
        }
        if (rc != TALLY_OK) {
            return rc;
        }
    }
    return tally_ddp_wait(run->ddp);
}

int state_steps(tally_group *group, struct state_run *run, unsigned first, unsigned n,
                uint64_t *hash)
{
    *hash = 0;
    for (unsigned s = first; s < first + n; s++) {
        uint64_t of_step;

        CHECK_OK(group, state_step(group, run, s));
        of_step = ddp_hash_grads(&run->model, run->ddp);
        *hash = ranks_hash(*hash, &of_step, sizeof of_step);
    }
    return 0;
}

/* ---- totals ---- */

static void count_param(const struct state_run *run, size_t i, unsigned seed, int world,
                        double *delivered, double *expected)
{
    const float *grad = tally_ddp_grad(run->ddp, (int)i);

    for (size_t e = 0; e < run->model.count[i]; e++) {
        delivered[e] += (double)grad[e];
        for (int r = 0; r < world; r++) {
            expected[e] += ddp_value(TALLY_F32, seed, r, i, e) / world;
        }
    }
}

int state_count_steps(tally_group *group, struct state_run *run, unsigned first, unsigned n,
                      struct state_totals *totals)
{
    for (unsigned s = first; s < first + n; s++) {
        size_t at = 0;

        CHECK_OK(group, state_step(group, run, s));
        for (size_t i = 0; i < run->model.n; i++) {
            if (ddp_has_gradient(&run->model, i) && run->model.spec[i].dtype == TALLY_F32) {
                CHECK(group, at + run->model.count[i] <= STATE_N_ELEMENTS);
                count_param(run, i, s, tally_group_size(group), totals->delivered + at,
                            totals->expected + at);
                at += run->model.count[i];
            }
        }
    }
    return 0;
}

double state_owed(const struct state_totals *totals)
{
    double most = 0;

    for (size_t e = 0; e < STATE_N_ELEMENTS; e++) {
        most = fmax(most, fabs(totals->delivered[e] - totals->expected[e]));
    }
    return most;
}

/* ---- states ---- */

/* A blob on the heap; NULL for any failure. */
static void *save(tally_ddp *ddp, size_t *bytes)
{
    void *blob = NULL;

    *bytes = 0;
    if (tally_ddp_save(ddp, NULL, bytes) == TALLY_OK) {
        blob = malloc(*bytes);
    }
    if (blob && tally_ddp_save(ddp, blob, bytes) != TALLY_OK) {
        free(blob);
        blob = NULL;
    }
    return blob;
}

int hook_states_take(tally_group *group, tally_ddp *ddp, struct hook_states *states)
{
    size_t rank = (size_t)tally_group_rank(group);
    tally_future *future;

    *states = (struct hook_states){.n = (size_t)tally_group_size(group)};
    states->blob[rank] = save(ddp, &states->bytes[rank]);
    CHECK(group, states->blob[rank]);
    for (size_t r = 0; r < states->n; r++) {
        CHECK_OK(group, tally_broadcast(group, &states->bytes[r], sizeof states->bytes[r], (int)r,
                                        &future));
        CHECK_OK(group, ranks_finish(future));
        if (r != rank) {
            states->blob[r] = malloc(states->bytes[r]);
        }
        CHECK(group, states->blob[r]);
        CHECK_OK(group, tally_broadcast(group, states->blob[r], states->bytes[r], (int)r, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    return 0;
}

void hook_states_free(struct hook_states *states)
{
    for (size_t r = 0; r < states->n; r++) {
        free(states->blob[r]);
    }
    states->n = 0;
}

int hook_states_load(tally_ddp *ddp, const struct hook_states *states)
{
    return tally_ddp_load(ddp, (const void *const *)states->blob, states->bytes, states->n);
}

bool hook_states_unchanged(tally_group *group, tally_ddp *ddp, const struct hook_states *states)
{
    size_t rank = (size_t)tally_group_rank(group);
    size_t bytes;
    void *blob = save(ddp, &bytes);
    bool same =
        blob && bytes == states->bytes[rank] && memcmp(blob, states->blob[rank], bytes) == 0;

    free(blob);
    return same;
}

void hook_states_seal(void *blob, size_t bytes)
{
    struct tally__blob_head head;

    if (bytes < sizeof head) {
        return;
    }
    memcpy(&head, blob, sizeof head);
    head.bytes = bytes;
    memcpy(blob, &head, sizeof head);
    head.checksum = tally__blob_checksum(blob, bytes);
    memcpy(blob, &head, sizeof head);
}

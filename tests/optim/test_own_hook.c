/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries elementwise and scatter of the application's hooks: an elementwise hook is given
 * large gradients where they lie, with the same means as without; a hook with a scatter, under an
 * optimizer that is sharded, gives the same parameters as without. The wrapper bf16 passes parts
 * on. Ranks whose tables differ in them are told so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tally_extend.h>

#include "support/opt_model.h"

#define N_STEPS 3

/* The record of the hook below; one per rank, so one thread at a time. */
struct seen {
    int n_reduces;
    int n_scatters;
    size_t n_in_place; /* calls that were given the application's own array */
    const void *array; /* the largest gradient of the application's */
};

static struct seen *seen_of(void *state)
{
    return state;
}

static int mean(tally_lane *lane, const tally_bucket *bucket)
{
    float *data = bucket->data;
    int rc = tally_lane_all_reduce(lane, data, bucket->n, bucket->dtype, TALLY_SUM);

    for (size_t e = 0; e < bucket->n; e++) {
        data[e] /= (float)bucket->divisor;
    }
    return rc;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct seen *seen = seen_of(state);
    size_t n = 0;

    seen->n_reduces++;
    for (int k = 0; k < bucket->n_params; k++) {
        if (bucket->params[k].gradient != (float *)bucket->data + n) {
            return tally_job_fail(lane, TALLY_ARG, "gradients do not follow one another");
        }
        n += bucket->params[k].n;
    }
    if (n != bucket->n) {
        return tally_job_fail(lane, TALLY_ARG, "n is not the sum of the parameters");
    }
    seen->n_in_place += bucket->data == seen->array;
    return mean(lane, bucket);
}

/* Every rank gets its shard of all others; the sum in rank order is this test's own. */
static int scatter(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts)
{
    int size = tally_group_size(tally_lane_group(lane));
    int rank = tally_group_rank(tally_lane_group(lane));
    size_t n = shard_starts[rank + 1] - shard_starts[rank];
    size_t *bytes = malloc(2 * (size_t)size * sizeof *bytes);
    float *all = malloc(((size_t)size * n + 1) * sizeof *all);
    float *data = bucket->data;
    int rc = TALLY_NOMEM;

    seen_of(state)->n_scatters++;
    if (bytes && all) {
        for (int r = 0; r < size; r++) {
            bytes[r] = (shard_starts[r + 1] - shard_starts[r]) * sizeof *data;
            bytes[size + r] = n * sizeof *data;
        }
        rc = tally_lane_all_to_all(lane, data, bytes, all, bytes + size);
    }
    /* Only the shard may be looked at afterwards. */
    for (size_t e = 0; e < bucket->n; e++) {
        data[e] = -1e30f;
    }
    for (size_t e = 0; rc == TALLY_OK && e < n; e++) {
        float sum = all[e];

        for (int r = 1; r < size; r++) {
            sum += all[(size_t)r * n + e];
        }
        data[shard_starts[rank] + e] = sum / (float)bucket->divisor;
    }
    free(bytes);
    free(all);
    return rc;
}

static int make(struct seen *seen, bool elementwise, bool scatters, const char *wrapper,
                tally_hook **hook)
{
    const tally_hook_table table = {.size = sizeof table,
                                    .name = "mine",
                                    .reduce = reduce,
                                    .elementwise = elementwise,
                                    .scatter = scatters ? scatter : NULL};
    tally_hook *inner;
    int rc = tally_hook_create(&table, seen, &inner);

    if (rc != TALLY_OK || !wrapper) {
        *hook = inner;
        return rc;
    }
    rc = tally_hook_wrap(wrapper, inner, hook);
    tally_hook_free(inner);
    return rc;
}

/* ---- elementwise ---- */

static int train(tally_group *group, struct seen *seen, bool elementwise, const char *wrapper,
                 struct opt_run *run)
{
    tally_ddp_config config;
    const struct opt_setup setup = {.copies = true, .text = "sgd:lr=0.1", .ddp = &config};
    tally_hook *hook;

    tally_ddp_config_init(&config, sizeof config); /* all parameters in one bucket */
    CHECK_OK(group, opt_start(group, &setup, run));
    CHECK_OK(group, make(seen, elementwise, false, wrapper, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(run->ddp, hook));
    tally_hook_free(hook);
    seen->array = run->model.params[5].grad; /* fc2.weight: 19 KB */
    for (int step = 0; step < N_STEPS; step++) {
        CHECK_OK(group, opt_step(run, (unsigned)step, 0));
        CHECK_OK(group, tally_optimizer_step(run->optimizer));
    }
    return 0;
}

static int elementwise_body(tally_group *group, void *user)
{
    const char *wrapper = user;
    struct seen whole = {0};
    struct seen parts = {0};
    struct opt_run runs[2];

    CHECK_OK(group, train(group, &whole, false, wrapper, &runs[0]));
    CHECK_OK(group, train(group, &parts, true, wrapper, &runs[1]));
    CHECK(group, whole.n_in_place == 0 && parts.n_in_place == N_STEPS);
    CHECK(group, parts.n_reduces > whole.n_reduces);
    CHECK(group, opt_differ(&runs[0], &runs[1]) == 0);
    ranks_note(group, opt_hash(&runs[1]), 0);
    CHECK_OK(group, opt_end(&runs[0]));
    CHECK_OK(group, opt_end(&runs[1]));
    return 0;
}

/* ---- scatter ---- */

static int train_sharded(tally_group *group, struct seen *seen, bool scatters, const char *wrapper,
                         struct opt_run *run)
{
    tally_optimizer_config config;
    struct opt_setup setup = {.text = "adamw:lr=0.01", .config = &config};
    tally_hook *hook;

    tally_optimizer_config_init(&config, sizeof config);
    config.shard = 1;
    config.overlap = 1;
    CHECK_OK(group, opt_start(group, &setup, run));
    CHECK_OK(group, make(seen, false, scatters, wrapper, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(run->ddp, hook));
    tally_hook_free(hook);
    for (int step = 0; step < N_STEPS; step++) {
        CHECK_OK(group, opt_step(run, (unsigned)step, 0));
    }
    return 0;
}

static int scatter_body(tally_group *group, void *user)
{
    struct seen whole = {0};
    struct seen shards = {0};
    struct opt_run runs[2];

    CHECK_OK(group, train_sharded(group, &whole, false, user, &runs[0]));
    CHECK_OK(group, train_sharded(group, &shards, true, user, &runs[1]));
    CHECK(group, whole.n_scatters == 0 && whole.n_reduces > 0);
    if (tally_group_size(group) > 1) {
        CHECK(group, shards.n_reduces == 0 && shards.n_scatters == whole.n_reduces);
    }
    CHECK(group, opt_differ(&runs[0], &runs[1]) == 0);
    ranks_note(group, opt_hash(&runs[1]), 0);
    CHECK_OK(group, opt_end(&runs[0]));
    CHECK_OK(group, opt_end(&runs[1]));
    return 0;
}

/* ---- ranks that disagree; tables of before ---- */

static int disagree_body(tally_group *group, void *user)
{
    const struct opt_setup setup = {.copies = true};
    bool first = tally_group_rank(group) == 0;
    struct seen seen = {0};
    struct opt_run run;
    tally_hook *hook;

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_OK(group, make(&seen, first, false, NULL, &hook));
    CHECK_STATUS(group, tally_ddp_attach_hook(run.ddp, hook), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "elementwise is 1 on rank 0 and 0 on rank 1");
    tally_hook_free(hook);
    CHECK_OK(group, make(&seen, false, first, NULL, &hook));
    CHECK_STATUS(group, tally_ddp_attach_hook(run.ddp, hook), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "scatter is set on rank 0 and NULL on rank 1");
    tally_hook_free(hook);
    CHECK_OK(group, opt_end(&run));
    return 0;
}

/* A program built before the two fields has a smaller table, with unknown bytes behind it. */
static int old_table_body(tally_group *group, void *user)
{
    const struct opt_setup setup = {.copies = true};
    struct seen seen = {0};
    struct opt_run run;
    tally_hook_table table;
    tally_hook *hook;

    (void)user;
    memset(&table, 0xff, sizeof table);
    memset(&table, 0, offsetof(tally_hook_table, elementwise));
    table.size = offsetof(tally_hook_table, elementwise);
    table.name = "old";
    table.reduce = reduce;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_OK(group, tally_hook_create(&table, &seen, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, hook));
    tally_hook_free(hook);
    seen.array = run.model.params[5].grad;
    CHECK_OK(group, opt_step(&run, 1, 0));
    CHECK(group, seen.n_reduces > 0 && seen.n_in_place == 0);
    CHECK_OK(group, opt_end(&run));
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 4, 0};
    static const int several[] = {3, 0};
    int n_failures = 0;

    n_failures += opt_worlds("elementwise", elementwise_body, NULL, 1, worlds);
    n_failures += opt_worlds("elementwise in bf16", elementwise_body, "bf16", 1, several);
    n_failures += opt_worlds("scatter", scatter_body, NULL, 1, worlds);
    n_failures += opt_worlds("scatter without lane threads", scatter_body, NULL, 0, several);
    n_failures += opt_worlds("ranks disagree", disagree_body, NULL, 1, several);
    n_failures += opt_worlds("old table", old_table_body, NULL, 1, several);
    return n_failures != 0;
}

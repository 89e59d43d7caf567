/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD in steps that fail: on one rank there is no memory for the state, or a hook around it
 * fails, while the others are in the middle of it. Afterwards the step is as if it had not
 * happened: repeated, it gives the result that it gives without the failure.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "hook/hook.h"
#include "hook/power.h"
#include "support/counting_memory.h"
#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

/* Announces everything and waits. */
static int try_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned s)
{
    int rank = tally_group_rank(group);

    for (size_t i = model->n; i-- > 0;) {
        float *grad = tally_ddp_grad(ddp, (int)i);

        if (model->spec[i].dtype != TALLY_F32) {
            ddp_fill_grad(model, ddp, i, s, rank);
        }
        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            grad[e] = (float)power_value(s, rank, i, e);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
    }
    return tally_ddp_wait(ddp);
}

/* Two ddps with the hook, of which the first one's step will fail. Everything is in one bucket. */
struct pair {
    struct ddp_model models[2];
    tally_ddp *ddps[2];
};

static int make_pair(tally_group *group, const char *text, struct pair *pair)
{
    for (int k = 0; k < 2; k++) {
        CHECK(group, ddp_model_make(&pair->models[k], power_specs, POWER_N_PARAMS, false) == 0);
        CHECK_OK(group, power_create(group, &pair->models[k], 1 << 20, "noop", &pair->ddps[k]));
        /* Futures are made once and kept. */
        CHECK_OK(group, power_run_step(group, pair->ddps[k], &pair->models[k], power_value, 0));
        CHECK_OK(group, tally_ddp_set_hook(pair->ddps[k], text));
    }
    return 0;
}

static int step_both(tally_group *group, const struct pair *pair, unsigned s)
{
    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, power_run_step(group, pair->ddps[k], &pair->models[k], power_value, s));
    }
    return 0;
}

static int end_pair(tally_group *group, struct pair *pair)
{
    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, tally_ddp_free(pair->ddps[k]));
        ddp_model_free(&pair->models[k]);
    }
    return 0;
}

/* ---- no memory in the first step ---- */

/* The n-th allocation of the last rank fails. *met says, on all ranks, whether there was one. */
static int first_step(tally_group *group, const char *text, size_t n, bool *met)
{
    bool fails = tally_group_rank(group) == tally_group_size(group) - 1;
    struct pair pair;
    size_t before;
    int rc;

    CHECK_OK(group, make_pair(group, text, &pair));
    before = counting_memory_calls();
    counting_memory_fail_nth(fails ? n : 0);
    rc = try_step(group, pair.ddps[0], &pair.models[0], 1);
    counting_memory_fail_nth(0);
    if (fails) {
        atomic_store(&ranks_words()[0], counting_memory_calls() - before >= n);
    }
    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_TEXT(group, tally_last_error(), "cannot allocate");
    } else {
        CHECK_OK(group, power_run_step(group, pair.ddps[1], &pair.models[1], power_value, 1));
    }
    for (unsigned s = 2; s < 5; s++) {
        CHECK_OK(group, step_both(group, &pair, s));
        CHECK(group, ddp_hash_grads(&pair.models[0], pair.ddps[0]) ==
                         ddp_hash_grads(&pair.models[1], pair.ddps[1]));
    }
    *met = atomic_load(&ranks_words()[0]) != 0;
    return end_pair(group, &pair);
}

static int memory_body(tally_group *group, void *user)
{
    static const char *const texts[] = {"powersgd:start=0", "batched_powersgd:rank=2,start=0",
                                        "powersgd:start=0,feedback=0"};

    (void)user;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        bool met = true;
        size_t n = 0;

        while (met) {
            CHECK_OK(group, first_step(group, texts[k], ++n, &met));
        }
        CHECK(group, n > 5);
    }
    return 0;
}

/* ---- a hook around it that gives up ---- */

#define BAD_STEP 5

struct fragile {
    tally_hook *inner;
    bool fails; /* on this rank, once */
};

static int fragile_attach(void *state, tally_ddp *ddp)
{
    return tally__hook_attach(((struct fragile *)state)->inner, ddp);
}

static void fragile_detach(void *state, tally_ddp *ddp)
{
    const tally_hook *inner = ((struct fragile *)state)->inner;

    inner->table.detach(inner->state, ddp);
}

static int fragile_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct fragile *fragile = state;

    if (bucket->step == BAD_STEP && fragile->fails && bucket->dtype == TALLY_F32) {
        fragile->fails = false;
        return tally_job_fail(lane, TALLY_NUMERIC, "not today");
    }
    return fragile->inner->table.reduce(fragile->inner->state, lane, bucket);
}

/* Distance between the two. */
static double distance(const struct pair *pair)
{
    const struct ddp_model *model = &pair->models[0];
    double off = 0;
    double whole = 0;

    for (size_t i = 0; i < model->n; i++) {
        const float *x = tally_ddp_grad(pair->ddps[0], (int)i);
        const float *y = tally_ddp_grad(pair->ddps[1], (int)i);

        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            off += (double)(x[e] - y[e]) * (double)(x[e] - y[e]);
            whole += (double)y[e] * (double)y[e];
        }
    }
    return sqrt(off / whole);
}

static int check_fragile(tally_group *group, const char *text)
{
    struct fragile fragile = {.fails = tally_group_rank(group) == tally_group_size(group) - 1};
    const tally_hook_table table = {.size = sizeof table,
                                    .name = "fragile",
                                    .feedback = 1,
                                    .attach = fragile_attach,
                                    .reduce = fragile_reduce,
                                    .detach = fragile_detach};
    struct pair pair;
    tally_hook *hook;

    CHECK_OK(group, make_pair(group, text, &pair));
    CHECK_OK(group, tally_hook_parse(text, &fragile.inner));
    CHECK_OK(group, tally_hook_create(&table, &fragile, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(pair.ddps[0], hook));
    for (unsigned s = 1; s < BAD_STEP + 4; s++) {
        if (s == BAD_STEP) {
            CHECK_STATUS(group, try_step(group, pair.ddps[0], &pair.models[0], s), TALLY_NUMERIC);
        }
        CHECK_OK(group, step_both(group, &pair, s));
        CHECK(group, distance(&pair) <= (s < BAD_STEP ? 0 : 1e-4));
    }
    CHECK_OK(group, end_pair(group, &pair));
    tally_hook_free(hook);
    tally_hook_free(fragile.inner);
    return 0;
}

static int fragile_body(tally_group *group, void *user)
{
    (void)user;
    CHECK_OK(group, check_fragile(group, "powersgd:start=0"));
    CHECK_OK(group, check_fragile(group, "powersgd:rank=2,start=0,warm_start=0"));
    CHECK_OK(group, check_fragile(group, "batched_powersgd:rank=2,start=0"));
    return 0;
}

/* ---- no memory to pass residuals on ---- */

/* The n-th allocation of the last rank fails while the hook is replaced: all ranks are told, and
 * the old hook continues with all its state. */
static int replace_once(tally_group *group, const char *const *texts, size_t n, bool *met)
{
    bool fails = tally_group_rank(group) == tally_group_size(group) - 1;
    struct pair pair;
    size_t before;
    int rc;

    CHECK_OK(group, make_pair(group, texts[0], &pair));
    CHECK_OK(group, step_both(group, &pair, 1));
    CHECK_OK(group, step_both(group, &pair, 2));
    before = counting_memory_calls();
    counting_memory_fail_nth(fails ? n : 0);
    rc = tally_ddp_set_hook(pair.ddps[0], texts[1]);
    counting_memory_fail_nth(0);
    if (fails) {
        atomic_store(&ranks_words()[0], counting_memory_calls() - before >= n);
    }
    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_TEXT(group, tally_last_error(), "cannot allocate");
        CHECK_OK(group, step_both(group, &pair, 3));
        CHECK(group, ddp_hash_grads(&pair.models[0], pair.ddps[0]) ==
                         ddp_hash_grads(&pair.models[1], pair.ddps[1]));
        CHECK_OK(group, tally_ddp_set_hook(pair.ddps[0], texts[1]));
    }
    CHECK_OK(group, tally_ddp_set_hook(pair.ddps[1], texts[1]));
    for (unsigned s = 4; s < 6; s++) {
        CHECK_OK(group, step_both(group, &pair, s));
        CHECK(group, ddp_hash_grads(&pair.models[0], pair.ddps[0]) ==
                         ddp_hash_grads(&pair.models[1], pair.ddps[1]));
    }
    *met = atomic_load(&ranks_words()[0]) != 0;
    return end_pair(group, &pair);
}

static int replace_body(tally_group *group, void *user)
{
    static const char *const texts[][2] = {
        {"batched_powersgd:rank=2,start=0", "allreduce"},
        {"batched_powersgd:rank=2,start=0", "powersgd:start=0"},
        {"powersgd:start=0", "int8"},
        {"int8", "batched_powersgd:start=0"},
        {"hosts:size=2(powersgd:start=0)", "powersgd:rank=2,start=0"}};

    (void)user;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        bool met = true;
        size_t n = 0;

        while (met) {
            CHECK_OK(group, replace_once(group, texts[k], ++n, &met));
        }
        CHECK(group, n > 3);
    }
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (int world = 1; world < 4; world++) {
        const struct ranks ranks = {.kind = RANKS_PROCESSES, .world = world, .lanes = 1};

        /* As threads, ranks share the door to the heap. */
        n_failures += ranks_have_processes() ? ranks_run(&ranks, memory_body, NULL) : 0;
        n_failures += ranks_have_processes() ? ranks_run(&ranks, replace_body, NULL) : 0;
        n_failures += hook_run("fragile", fragile_body, NULL, world);
    }
    return n_failures != 0;
}

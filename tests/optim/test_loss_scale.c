/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic loss scaling: one gradient of one rank that is not finite, or that overflows on its way,
 * makes all ranks skip exactly that step. Afterwards a run is, to the bit, what a run is that never
 * had it: parameters, low copies, state, residuals; only the scale is another. With hooks, views
 * and copies, overlap, shards, clipping, accumulation, and through a checkpoint.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddp/ddp.h"
#include "support/mixed_model.h"
#include "support/opt_states.h"
#include "support/oracle.h"

#define WEIGHT 1
#define EMBEDDING 3
#define SCALE 1024
#define INTERVAL 3

struct setup {
    struct mixed_case of;
    const char *hook;
    int overlap;
    int shard;
    double max_norm;
    int release;
    int n_passes; /* micro-steps per step */
    int bad;      /* the parameter that has it */
    double value; /* of all its elements */
    bool follows; /* the hook has nothing but residuals that a skipped step could change */
};

struct run {
    tally_group *group;
    const struct setup *setup;
    struct ddp_model model;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
};

static int make(tally_group *group, const struct setup *setup, int joins, struct run *run)
{
    tally_ddp_config config;
    tally_optimizer_config optimizer;

    *run = (struct run){.group = group, .setup = setup};
    CHECK(group, mixed_make(&run->model, &setup->of, tally_group_rank(group), &config) == 0);
    config.bucket_cap_bytes = 100;
    config.hook = setup->hook;
    config.join = joins;
    CHECK_OK(group, tally_ddp_create(group, run->model.params, run->model.n, &config, &run->ddp));
    tally_optimizer_config_init(&optimizer, sizeof optimizer);
    optimizer.overlap = setup->overlap;
    optimizer.shard = setup->shard;
    optimizer.max_norm = setup->max_norm;
    optimizer.release_gradients = setup->release;
    optimizer.loss_scale = SCALE;
    optimizer.loss_scale_interval = INTERVAL;
    CHECK_OK(group, tally_optimizer_create(run->ddp, "adamw:lr=0.01", &optimizer, &run->optimizer));
    return 0;
}

static int start(tally_group *group, const struct setup *setup, struct run *run)
{
    return make(group, setup, 0, run);
}

static int end(struct run *run)
{
    CHECK_OK(run->group, tally_optimizer_free(run->optimizer));
    CHECK_OK(run->group, tally_ddp_free(run->ddp));
    ddp_model_free(&run->model);
    return 0;
}

/* The gradient of the scaled loss, added up over the passes. */
static void fill(const struct run *run, size_t i, unsigned seed)
{
    int dtype = run->setup->of.param_dtype;
    void *grad = tally_ddp_grad(run->ddp, (int)i);
    double scale = tally_optimizer_loss_scale(run->optimizer);

    for (size_t e = 0; e < run->model.count[i]; e++) {
        double sum = run->setup->release ? mixed_get(dtype, grad, e) : 0;

        for (int p = 0; p < run->setup->n_passes; p++) {
            double value =
                ddp_value(dtype, seed + 100 * (unsigned)p, tally_group_rank(run->group), i, e);

            mixed_put(dtype, grad, e, sum + scale * value);
            sum = mixed_get(dtype, grad, e);
        }
    }
}

static int step(struct run *run, unsigned seed, bool is_bad)
{
    const struct setup *setup = run->setup;
    int last = tally_group_size(run->group) - 1;

    for (size_t i = run->model.n; i-- > 0;) {
        if (!ddp_has_gradient(&run->model, i)) {
            continue;
        }
        fill(run, i, seed);
        if (is_bad && (int)i == setup->bad && tally_group_rank(run->group) == last) {
            mixed_put(setup->of.param_dtype, tally_ddp_grad(run->ddp, (int)i),
                      run->model.count[i] / 2, setup->value);
        }
        CHECK_OK(run->group, tally_ddp_grad_ready(run->ddp, (int)i));
    }
    CHECK_OK(run->group, tally_ddp_wait(run->ddp));
    CHECK_OK(run->group,
             setup->overlap || setup->shard ? TALLY_OK : tally_optimizer_step(run->optimizer));
    CHECK(run->group, mixed_wrong_lows(&run->model, run->ddp, setup->of.param_dtype) == 0 ||
                          setup->of.param_dtype == TALLY_F32);
    return 0;
}

static uint64_t hash_masters(const struct run *run)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < 5; i++) {
        hash = ranks_hash(hash, run->model.params[i].data, run->model.count[i] * sizeof(float));
    }
    return hash;
}

/* A hash of the residuals. Saving makes those that a hook holds plain. */
static int hash_residuals(const struct run *run, uint64_t *hash)
{
    size_t bytes;

    CHECK_OK(run->group, tally_ddp_save(run->ddp, NULL, &bytes));
    *hash = 0;
    for (size_t i = 0; i < run->model.n; i++) {
        const struct tally__residual *residual = &run->ddp->residuals->params[i];

        *hash = ranks_hash(*hash, residual->sent, residual->sent ? residual->n * 4 : 0);
        for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
            *hash = ranks_hash(*hash, owned->values, owned->n * 4);
        }
    }
    return 0;
}

static int check_stats(const struct run *run, unsigned long long n_steps,
                       unsigned long long n_skipped, double scale)
{
    tally_optimizer_stats stats = {.size = sizeof stats};

    CHECK_OK(run->group, tally_optimizer_get_stats(run->optimizer, &stats));
    CHECK(run->group, stats.step == n_steps && stats.skipped == n_skipped);
    CHECK(run->group,
          stats.loss_scale == scale && tally_optimizer_loss_scale(run->optimizer) == scale);
    return 0;
}

/* The step that is skipped, and all that it leaves as it was. */
static int skip(struct run *run)
{
    uint64_t masters = hash_masters(run);
    uint64_t residuals;
    uint64_t after;
    double norm = -1;

    CHECK_OK(run->group, hash_residuals(run, &residuals));
    CHECK_OK(run->group, step(run, 77, true));
    CHECK(run->group, hash_masters(run) == masters);
    CHECK_OK(run->group, hash_residuals(run, &after));
    CHECK(run->group, after == residuals);
    if (!run->setup->shard) {
        CHECK_OK(run->group, tally_ddp_clip_grad_norm(run->ddp, 1, &norm));
        CHECK(run->group, norm == 0);
    }
    return 0;
}

static int skip_body(tally_group *group, void *user)
{
    struct setup *setup = user;
    struct run run;
    struct run other;

    CHECK_OK(group, start(group, setup, &run));
    CHECK_OK(group, start(group, setup, &other));
    for (unsigned s = 0; s < INTERVAL; s++) {
        CHECK_OK(group, check_stats(&run, s, 0, SCALE));
        CHECK_OK(group, step(&run, s, false));
        CHECK_OK(group, step(&other, s, false));
    }
    CHECK_OK(group, check_stats(&run, INTERVAL, 0, 2 * SCALE));
    CHECK_OK(group, skip(&run));
    CHECK_OK(group, check_stats(&run, INTERVAL, 1, SCALE));
    for (unsigned s = 0; s < INTERVAL; s++) {
        uint64_t before = hash_masters(&run);

        CHECK_OK(group, step(&run, 10 + s, false));
        CHECK_OK(group, step(&other, 10 + s, false));
        CHECK(group, hash_masters(&run) != before);
        CHECK(group, !setup->follows || hash_masters(&run) == hash_masters(&other));
    }
    CHECK_OK(group, check_stats(&run, 2 * INTERVAL, 1, 2 * SCALE));
    CHECK_OK(group, check_stats(&other, 2 * INTERVAL, 0, 4 * SCALE));
    ranks_note(group, 0, hash_masters(&run));
    CHECK_OK(group, end(&run));
    CHECK_OK(group, end(&other));
    return 0;
}

static int run_skips(void)
{
    static const struct mixed_case plain = {TALLY_F32, TALLY_F32, false};
    static const struct mixed_case copies = {TALLY_F32, TALLY_F32, true};
    const struct setup setups[] = {
        {mixed_cases[0], "allreduce", 1, 0, 0, 0, 1, WEIGHT, (double)INFINITY, true},
        {mixed_cases[1], "allreduce", 0, 0, 0.5, 0, 2, EMBEDDING, (double)NAN, true},
        {mixed_cases[7], "allreduce", 1, 0, 0.5, 1, 1, WEIGHT, (double)INFINITY, true},
        {mixed_cases[6], "allreduce", 1, 0, 0, 0, 1, EMBEDDING, 1e30, true},
        {plain, "int8", 1, 0, 0.5, 0, 1, WEIGHT, (double)INFINITY, true},
        {copies, "bf16", 0, 0, 0, 0, 1, EMBEDDING, (double)-INFINITY, true},
        {mixed_cases[0], "int8", 1, 0, 0, 1, 2, EMBEDDING, (double)NAN, true},
        {mixed_cases[5], "fp16(int8)", 0, 0, 0, 0, 1, WEIGHT, (double)NAN, true},
        {mixed_cases[0], "powersgd:rank=1,start=1", 1, 0, 0, 0, 1, WEIGHT, (double)NAN, false},
        {plain, "batched_powersgd:rank=1,start=1", 0, 0, 0, 0, 1, WEIGHT, (double)NAN, false},
        {mixed_cases[0], "allreduce", 1, 1, 0.5, 0, 1, EMBEDDING, (double)INFINITY, true},
        {mixed_cases[1], "allreduce", 1, 1, 0, 1, 1, WEIGHT, (double)NAN, true},
        {mixed_cases[6], "allreduce", 1, 1, 0.5, 0, 1, WEIGHT, 1e30, true},
        {mixed_cases[5], "int8", 1, 1, 0, 0, 1, WEIGHT, (double)INFINITY, true},
    };
    int n_failures = 0;

    for (size_t k = 0; k < sizeof setups / sizeof setups[0]; k++) {
        struct setup setup = setups[k];

        for (int kind = 0; kind < 2; kind++) {
            const struct ranks ranks = {.kind = kind ? RANKS_PROCESSES : RANKS_THREADS,
                                        .world = 2 + (int)(k + (size_t)kind) % 3,
                                        .lanes = 1 + (int)k % 2};

            if (ranks_run(&ranks, skip_body, &setup)) {
                (void)fprintf(stderr, "setup %zu, world %d: failed\n", k, ranks.world);
                n_failures++;
            }
        }
    }
    return n_failures;
}

/* ---- checkpoints, uneven inputs, what is refused ---- */

static int checkpoint_body(tally_group *group, void *user)
{
    static const struct setup setup = {
        {TALLY_BF16, TALLY_BF16, false}, "allreduce", 1, 0, 0, 0, 1, WEIGHT, (double)NAN, true};
    struct opt_states states;
    struct run run;
    struct run other;

    (void)user;
    CHECK_OK(group, start(group, &setup, &run));
    CHECK_OK(group, start(group, &setup, &other));
    CHECK_OK(group, step(&run, 0, false));
    CHECK_OK(group, step(&run, 1, true));
    CHECK_OK(group, step(&run, 2, false));
    CHECK_OK(group, step(&run, 3, false));
    CHECK_OK(group, check_stats(&run, 3, 1, SCALE / 2.0));
    CHECK_OK(group,
             opt_states_take(group, run.optimizer, (size_t)tally_group_size(group), &states));
    CHECK_OK(group, opt_states_load(other.optimizer, &states));
    opt_states_free(&states);
    CHECK_OK(group, check_stats(&other, 3, 1, SCALE / 2.0));
    /* Two good steps are behind it: the next makes it grow. */
    CHECK_OK(group, step(&other, 4, false));
    CHECK_OK(group, check_stats(&other, 4, 1, SCALE));
    CHECK_OK(group, end(&run));
    CHECK_OK(group, end(&other));
    return 0;
}

/* Rank r has r + 2 steps; in the second one, the last rank's gradient is bad: those who have run
 * out skip it too. */
static int join_body(tally_group *group, void *user)
{
    static const struct setup setup = {
        {TALLY_BF16, TALLY_F32, false}, "int8", 1, 0, 0, 0, 1, WEIGHT, (double)NAN, true};
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    struct run run;
    uint64_t masters;

    (void)user;
    CHECK_OK(group, make(group, &setup, 1, &run));
    for (int s = 0; s < rank + 2 - (rank == 0); s++) {
        CHECK_OK(group, step(&run, (unsigned)s, s == 1));
    }
    masters = hash_masters(&run);
    CHECK_OK(group, tally_ddp_join(run.ddp));
    CHECK_OK(group,
             check_stats(&run, (unsigned long long)world, 1, world > 3 ? SCALE : SCALE / 2.0));
    CHECK(group, rank < world - 1 || hash_masters(&run) == masters);
    ranks_note(group, 0, hash_masters(&run));
    CHECK_OK(group, end(&run));
    return 0;
}

static int refused_body(tally_group *group, void *user)
{
    static const struct {
        double scale, growth, backoff;
        int interval;
        const char *text;
    } list[] = {
        {-1, 0, 0, 0, "loss_scale takes 0 or 1.17549e-38..3.40282e+38, not -1"},
        {(double)INFINITY, 0, 0, 0, "loss_scale takes 0 or 1.17549e-38..3.40282e+38, not inf"},
        {1e-39, 0, 0, 0, "loss_scale takes 0 or 1.17549e-38..3.40282e+38, not 1e-39"},
        {1, 0.5, 0, 0, "loss_scale_growth takes 0, or 1 or more, not 0.5"},
        {1, 0, 1, 0, "loss_scale_backoff takes 0 or more, below 1, not 1"},
        {1, 0, 0, -2, "loss_scale_interval takes 0 or more, not -2"},
    };
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, mixed_make(&model, &mixed_cases[0], 0, &config) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    for (size_t k = 0; k <= sizeof list / sizeof list[0]; k++) {
        bool differs = k == sizeof list / sizeof list[0];
        tally_optimizer_config with;
        tally_optimizer *optimizer = NULL;

        tally_optimizer_config_init(&with, sizeof with);
        with.loss_scale = differs ? 2 + tally_group_rank(group) : list[k].scale;
        with.loss_scale_growth = differs ? 0 : list[k].growth;
        with.loss_scale_backoff = differs ? 0 : list[k].backoff;
        with.loss_scale_interval = differs ? 0 : list[k].interval;
        CHECK_STATUS(group, tally_optimizer_create(ddp, "sgd:lr=1", &with, &optimizer),
                     differs ? TALLY_MISMATCH : TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(),
                   differs ? "loss_scale is 2 on rank 0 and 3" : list[k].text);
    }
    CHECK(group, tally_optimizer_loss_scale(NULL) == 1);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    static const int worlds[] = {2, 4, 0};
    int n_failures;

    oracle_start();
    n_failures = run_skips();
    n_failures += opt_worlds("checkpoint", checkpoint_body, NULL, 1, worlds);
    n_failures += opt_worlds("join", join_body, NULL, 1, worlds);
    n_failures += opt_worlds("refused", refused_body, NULL, 1, worlds);
    return n_failures != 0;
}

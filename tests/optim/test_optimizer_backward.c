/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters that a step updates: optimizers in backward with gradients that are released;
 * parameters used by no rank or by some, delayed, frozen and ignored ones; steps that only
 * accumulate; ranks that have run out of input. The plain loop, with the same bits, is the
 * reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/opt_states.h"

#define N_STEPS 8

static tally_optimizer_config in_backward(void)
{
    tally_optimizer_config config;

    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.release_gradients = 1;
    return config;
}

static bool all_zero(const float *x, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        if (x[e] != 0) {
            return false;
        }
    }
    return true;
}

/* ---- released ---- */

/* Gradients add up from zero in each step: without release the loop must zero them. */
static int released(tally_group *group, const char *text, bool copies, double max_norm)
{
    tally_optimizer_config config = in_backward();
    struct opt_setup setup = {.copies = copies, .text = text};
    struct opt_run plain;
    struct opt_run run;

    config.max_norm = max_norm;
    CHECK_OK(group, opt_start(group, &setup, &plain));
    setup.config = &config;
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned s = 0; s < N_STEPS; s++) {
        struct opt_run *runs[] = {&plain, &run};

        for (int r = 0; r < 2; r++) {
            for (size_t i = OPT_N_PARAMS; i-- > 0;) {
                opt_gradient(runs[r], i, s, true);
                CHECK_OK(group, tally_ddp_grad_ready(runs[r]->ddp, (int)i));
            }
            CHECK_OK(group, tally_ddp_wait(runs[r]->ddp));
        }
        if (max_norm > 0) {
            CHECK_OK(group, tally_ddp_clip_grad_norm(plain.ddp, max_norm, NULL));
        }
        CHECK_OK(group, tally_optimizer_step(plain.optimizer));
        CHECK_OK(group, tally_ddp_zero_grad(plain.ddp));
        CHECK(group, opt_differ(&plain, &run) == 0);
        for (int i = 0; i < OPT_N_PARAMS; i++) {
            CHECK(group, all_zero(tally_ddp_grad(run.ddp, i), run.model.count[i]));
        }
    }
    CHECK_OK(group, opt_end(&plain));
    CHECK_OK(group, opt_end(&run));
    return 0;
}

static int released_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        CHECK_OK(group, released(group, "sgd:lr=0.03", copies, 0));
        CHECK_OK(group, released(group, "adam:lr=0.03", copies, 0));
        CHECK_OK(group, released(group, "adamw:lr=0.03", copies, 0.5));
    }
    return 0;
}

/* ---- frozen, ignored, a chosen set ---- */

/* The ignored one goes its own way on each rank; the frozen one, and what no group has, stay. */
static int chosen_body(tally_group *group, void *user)
{
    static const int named[] = {0, 1, 5, 6};
    struct ddp_spec specs[OPT_N_PARAMS];
    struct ddp_model start;
    const tally_optimizer_group own = {
        .size = sizeof own, .text = "sgd:lr=0.5", .params = named, .n_params = 4};
    tally_optimizer_config config = in_backward();
    struct opt_setup setup = {.specs = specs, .n_specs = OPT_N_PARAMS, .config = &config};
    struct opt_run run;

    (void)user;
    memcpy(specs, opt_specs, sizeof specs);
    specs[1].flags = TALLY_PARAM_FROZEN;
    specs[6].flags = TALLY_PARAM_IGNORED;
    config.groups = &own;
    config.n_groups = 1;
    config.max_norm = *(const double *)user;
    CHECK(group, ddp_model_make(&start, specs, OPT_N_PARAMS, false) == 0);
    for (size_t i = 0; i < OPT_N_PARAMS; i++) {
        ddp_fill_data(&start, i, 77, 0);
    }
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned s = 0; s < 2; s++) {
        float *expected = start.params[6].data;

        for (size_t e = 0; e < start.count[6]; e++) {
            double noise = ddp_value(TALLY_F32, s, tally_group_rank(group), 6, e);

            expected[e] = expected[e] - 0.5f * (0.25f * expected[e] + (float)noise);
        }
        CHECK_OK(group, opt_step(&run, s, 0));
    }
    for (size_t i = 0; i < OPT_N_PARAMS; i++) {
        bool same = memcmp(run.model.params[i].data, start.params[i].data,
                           start.count[i] * sizeof(float)) == 0;

        CHECK(group, same == (i != 0 && i != 5));
    }
    CHECK(group, all_zero(run.model.params[6].grad, run.model.count[6]));
    CHECK(group, !all_zero(tally_ddp_grad(run.ddp, 4), run.model.count[4]));
    ranks_note(group, 0, opt_hash(&run));
    ddp_model_free(&start);
    return opt_end(&run);
}

/* ---- unused, delayed ---- */

static int step_delayed(struct opt_run *run, unsigned seed, unsigned absent, bool delayed)
{
    if (delayed) {
        opt_gradient(run, 2, seed, false);
        CHECK_OK(run->group, tally_ddp_reduce_delayed(run->ddp));
    }
    return opt_step(run, seed, absent);
}

/* No rank uses parameter 0 in odd steps, some use 5, and 2 is delayed. */
static int unused(tally_group *group, bool copies, bool skips, double max_norm)
{
    struct ddp_spec specs[OPT_N_PARAMS];
    tally_ddp_config ddp;
    tally_optimizer_config config = in_backward();
    struct opt_setup setup = {.specs = specs,
                              .n_specs = OPT_N_PARAMS,
                              .copies = copies,
                              .text = "adam:lr=0.03",
                              .ddp = &ddp};
    struct opt_run plain;
    struct opt_run run;

    memcpy(specs, opt_specs, sizeof specs);
    specs[2].flags = TALLY_PARAM_DELAYED;
    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.bucket_cap_bytes = 100;
    ddp.find_unused = 1;
    ddp.skip_unused = skips;
    config.release_gradients = 0;
    CHECK_OK(group, opt_start(group, &setup, &plain));
    setup.config = &config;
    config.max_norm = max_norm;
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned s = 0; s < N_STEPS; s++) {
        int turn = (int)s + tally_group_rank(group);
        unsigned absent = (s % 2 ? 1u : 0) | (turn % 2 ? 1u << 5 : 0);
        float before = *(float *)run.model.params[0].data;
        float delayed_before = *(float *)run.model.params[2].data;

        CHECK_OK(group, step_delayed(&plain, s, absent, s % 3 == 0));
        if (max_norm > 0) {
            CHECK_OK(group, tally_ddp_clip_grad_norm(plain.ddp, max_norm, NULL));
        }
        CHECK_OK(group, tally_optimizer_step(plain.optimizer));
        CHECK_OK(group, step_delayed(&run, s, absent, s % 3 == 0));
        CHECK(group, opt_differ(&plain, &run) == 0);
        CHECK(group, (*(float *)run.model.params[0].data == before) == (s % 2 == 1));
        CHECK(group, (*(float *)run.model.params[2].data == delayed_before) == (s % 3 != 0));
        ranks_note(group, 0, opt_hash(&run));
    }
    CHECK_OK(group, opt_end(&plain));
    CHECK_OK(group, opt_end(&run));
    return 0;
}

static int unused_body(tally_group *group, void *user)
{
    (void)user;
    for (int o = 0; o < 8; o++) {
        CHECK_OK(group, unused(group, o & 1, o & 2, o & 4 ? 1.5 : 0));
    }
    return 0;
}

/* ---- accumulating ---- */

/* Under no_sync nothing is updated, by wait or by step. */
static int no_sync_body(tally_group *group, void *user)
{
    tally_optimizer_config config = in_backward();
    struct opt_setup setup = {.text = "adam:lr=0.03"};
    struct opt_run runs[2];

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &runs[0]));
    setup.config = &config;
    CHECK_OK(group, opt_start(group, &setup, &runs[1]));
    for (unsigned s = 0; s < 4; s++) {
        for (int r = 0; r < 2; r++) {
            uint64_t before = opt_hash(&runs[r]);

            CHECK_OK(group, tally_ddp_no_sync_begin(runs[r].ddp));
            CHECK_OK(group, opt_step(&runs[r], s, 0));
            CHECK_OK(group, r == 0 ? tally_optimizer_step(runs[r].optimizer) : TALLY_OK);
            CHECK_OK(group, tally_ddp_no_sync_end(runs[r].ddp));
            CHECK(group, opt_hash(&runs[r]) == before);
            for (size_t i = OPT_N_PARAMS; i-- > 0;) {
                opt_gradient(&runs[r], i, s + 100, true);
                CHECK_OK(group, tally_ddp_grad_ready(runs[r].ddp, (int)i));
            }
            CHECK_OK(group, tally_ddp_wait(runs[r].ddp));
            CHECK_OK(group, r == 0 ? tally_optimizer_step(runs[r].optimizer) : TALLY_OK);
            CHECK(group, opt_hash(&runs[r]) != before);
        }
        CHECK(group, opt_differ(&runs[0], &runs[1]) == 0);
    }
    CHECK_OK(group, opt_end(&runs[0]));
    CHECK_OK(group, opt_end(&runs[1]));
    return 0;
}

/* ---- join ---- */

/*
 * The parameters that all ranks must have: every rank computes the gradients of all ranks with
 * input.
 */
struct reference {
    float data[67 * 71];
    float buffer[67 * 71];
};

static void reference_step(struct reference *reference, int world, int n_done, unsigned seed,
                           float lr)
{
    for (size_t e = 0; e < 67 * 71; e++) {
        float sum = 0;

        for (int r = n_done; r < world; r++) {
            float noise = (float)ddp_value(TALLY_F32, seed, r, 5, e);

            sum += 0.25f * reference->data[e] + noise;
        }
        sum /= (float)world;
        reference->buffer[e] = seed == 0 ? sum : 0.9f * reference->buffer[e] + sum;
        reference->data[e] -= lr * reference->buffer[e];
    }
}

/* All ranks have the same moments: those of every rank, as one blob, are rank 0's. */
static int same_state(tally_group *group, tally_optimizer *optimizer)
{
    struct opt_states whole;
    struct opt_states own = {.n = 1};
    bool same;

    CHECK_OK(group, opt_states_consolidate(group, optimizer, &whole));
    own.bytes[0] = whole.bytes[0];
    own.blob[0] = malloc(own.bytes[0] + 1);
    CHECK(group, own.blob[0]);
    for (int root = 0; root < tally_group_size(group); root++) {
        CHECK_OK(group, tally_optimizer_consolidate(optimizer, root, own.blob[0], &own.bytes[0]));
    }
    same = own.bytes[0] == whole.bytes[0] && memcmp(own.blob[0], whole.blob[0], own.bytes[0]) == 0;
    opt_states_free(&own);
    opt_states_free(&whole);
    CHECK(group, same);
    return 0;
}

/* Rank r has 2 + r steps in each of two epochs; the rate falls with each step. */
static int join_body(tally_group *group, void *user)
{
    tally_ddp_config ddp;
    tally_optimizer_config config = in_backward();
    const struct opt_setup setup = {.copies = *(const int *)user & 1,
                                    .text = "sgd:lr=0.1,momentum=0.9",
                                    .config = &config,
                                    .ddp = &ddp};
    static _Thread_local struct reference memory;
    struct reference *reference = &memory;
    int world = tally_group_size(group);
    unsigned seed = 0;
    struct opt_run run;

    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.bucket_cap_bytes = 4000;
    ddp.join = 1;
    config.max_norm = *(const int *)user & 2 ? 1e9 : 0;
    CHECK_OK(group, opt_start(group, &setup, &run));
    memcpy(reference->data, run.model.params[5].data, sizeof reference->data);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int s = 0; s < 1 + world; s++, seed++) {
            int n_done = s < 2 ? 0 : s - 1;
            double lr = 0.1 / (1 + seed);

            if (s < 2 + tally_group_rank(group)) {
                CHECK_OK(group, tally_optimizer_set_lr(run.optimizer, -1, lr));
                CHECK_OK(group, opt_step(&run, seed, 0));
            }
            reference_step(reference, world, n_done, seed, (float)lr);
        }
        CHECK_OK(group, tally_ddp_join(run.ddp));
        CHECK(group, ranks_hash(0, reference->data, sizeof reference->data) ==
                         ranks_hash(0, run.model.params[5].data, sizeof reference->data));
        CHECK_OK(group, same_state(group, run.optimizer));
    }
    return opt_end(&run);
}

int main(void)
{
    static const int two_three[] = {2, 3, 0};
    static const int three[] = {3, 0};
    static const int four[] = {4, 0};
    int n_failures = opt_worlds("released", released_body, NULL, 1, two_three);

    for (int clips = 0; clips < 2; clips++) {
        double max_norm = clips ? 0.5 : 0;

        n_failures += opt_worlds("chosen", chosen_body, &max_norm, 2, four);
    }
    n_failures += opt_worlds("unused", unused_body, NULL, 2, two_three);
    n_failures += opt_worlds("no_sync", no_sync_body, NULL, 1, three);
    for (int o = 0; o < 4; o++) {
        n_failures += opt_worlds("join", join_body, &o, 1, three);
    }
    return n_failures != 0;
}

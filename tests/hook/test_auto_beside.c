/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook auto beside everything else that a ddp can do: drawn combinations of layouts, optimizers
 * (sharded, clipping, with a loss scale), averagers, join, steps without sync, absent, zero and
 * infinite gradients, and ranks that measure wildly different things. Whatever auto measures and
 * chooses, no step fails and all ranks end with the same parameters.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/auto_pretence.h"
#include "support/hook_rules.h"

#define N_STEPS 130 /* two rounds of measuring, with review=80 */
#define N_F32 6     /* of hook_specs, the first ones */
#define N_DRAWS RANKS_REPEATS(12, 2)

/* One combination. */
struct draw {
    uint64_t seed; /* of the next number */
    unsigned number;
    bool has_optimizer;
    bool has_update; /* it updates after the step */
    bool has_join;
    bool has_absent;
    bool has_no_sync;
    bool has_infinite;
    bool has_averager;
    struct ddp_model model;
    tally_ddp *ddp;
    tally_hook *hook;
    tally_averager *averager;
    tally_optimizer *optimizer;
    unsigned n_profiles; /* figures given so far, on this rank */
    int rank;
};

/* Below n. */
static unsigned next(uint64_t *seed, unsigned n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33) % n;
}

/* Figures of this rank alone: another link in every decision. */
static void pretend(void *user, struct tally__profile *profile)
{
    struct draw *draw = user;
    uint64_t seed = draw->number * 1000003u + draw->n_profiles++ * 7919u + (unsigned)draw->rank;

    (void)next(&seed, 2);
    auto_pretend(profile, (struct tally__link){pow(10, -(double)next(&seed, 7)), 1e-6,
                                               pow(10, 2 - (double)next(&seed, 7))});
    profile->backward_s = next(&seed, 2) ? 0 : 0.01;
}

static double step_time(void *user, bool is_proposal)
{
    struct draw *draw = user;
    uint64_t seed = draw->number * 31u + draw->n_profiles++ * 17u + (unsigned)draw->rank;

    (void)next(&seed, 2);
    return (is_proposal ? 0.5 : 1) * (1 + (double)next(&seed, 100) / 100);
}

static const char *text_of(struct draw *draw)
{
    static const char *const texts[] = {
        "auto:error=0.3,review=80,candidates=allreduce+int8",
        "auto:error=1,review=80",
        "auto:error=1,review=80,candidates=allreduce+bf16+powersgd:rank=2",
        "auto:error=1,review=80,candidates=allreduce+bf16(powersgd)+fp16:saturate=1",
        "auto:error=1,review=80,candidates=allreduce+batched_powersgd+quantize_per_channel",
        "auto:error=0.001,review=80,margin=0",
    };

    return texts[draw->has_infinite ? 2 : next(&draw->seed, 6)];
}

static int create(tally_group *group, struct draw *draw)
{
    const struct tally__auto_seam seam = {pretend, step_time, draw};
    static const size_t caps[] = {100, 2000, (size_t)1 << 20};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = caps[next(&draw->seed, 3)];
    draw->has_join = next(&draw->seed, 3) == 0;
    draw->has_absent = next(&draw->seed, 3) == 0;
    draw->has_no_sync = next(&draw->seed, 3) == 0;
    draw->has_infinite = next(&draw->seed, 4) == 0;
    config.join = draw->has_join;
    config.join_divides_by_active = (int)next(&draw->seed, 2);
    config.find_unused = draw->has_absent;
    config.skip_unused = draw->has_absent && next(&draw->seed, 2);
    CHECK(group, ddp_model_make(&draw->model, hook_specs, N_F32, next(&draw->seed, 2) != 0) == 0);
    CHECK_OK(group, tally_ddp_create(group, draw->model.params, N_F32, &config, &draw->ddp));
    CHECK_OK(group, tally_hook_parse(text_of(draw), &draw->hook));
    tally__auto_set_seam(draw->hook, &seam);
    CHECK_OK(group, tally_ddp_attach_hook(draw->ddp, draw->hook));
    return 0;
}

static int add_optimizer(tally_group *group, struct draw *draw)
{
    const tally_averager_level levels[] = {{3, 0}};
    tally_averager_config averages;
    tally_optimizer_config config;

    draw->has_optimizer = draw->has_infinite || next(&draw->seed, 3) > 0;
    if (!draw->has_optimizer) {
        return 0;
    }
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = draw->has_join || next(&draw->seed, 2);
    draw->has_update = !config.overlap;
    config.shard = config.overlap && next(&draw->seed, 2);
    config.release_gradients = (int)next(&draw->seed, 2);
    config.max_norm = next(&draw->seed, 2) ? 1 : 0;
    config.loss_scale = draw->has_infinite || next(&draw->seed, 3) == 0 ? 4 : 0;
    draw->has_averager = !draw->has_join && !config.shard && next(&draw->seed, 3) == 0;
    if (draw->has_averager) {
        tally_averager_config_init(&averages, sizeof averages);
        averages.levels = levels;
        averages.n_levels = 1;
        CHECK_OK(group, tally_averager_create(draw->ddp, &averages, &draw->averager));
        config.averager = draw->averager;
    }
    CHECK_OK(group, tally_optimizer_create(draw->ddp, "sgd:lr=0.001", &config, &draw->optimizer));
    return 0;
}

/* Gradients of a step: some are zero, absent or infinite. */
static int announce(tally_group *group, struct draw *draw, unsigned s)
{
    bool is_zero = s % 11 == 7;

    for (size_t i = N_F32; i-- > 0;) {
        float *grad = tally_ddp_grad(draw->ddp, (int)i);

        if (draw->has_absent && (s + i) % 5 == 0) {
            continue;
        }
        for (size_t e = 0; e < draw->model.count[i]; e++) {
            grad[e] = is_zero ? 0 : hook_value(s, draw->rank, i, e);
        }
        if (draw->has_infinite && s % 9 == 4 && i == 1 && draw->rank == 0) {
            grad[3] = s % 2 ? INFINITY : NAN;
        }
        CHECK_OK(group, tally_ddp_grad_ready(draw->ddp, (int)i));
    }
    return 0;
}

static int step(tally_group *group, struct draw *draw, unsigned s)
{
    if (draw->has_no_sync && s % 4 == 1 && !draw->has_join) {
        CHECK_OK(group, tally_ddp_no_sync_begin(draw->ddp));
        CHECK(group, announce(group, draw, s + N_STEPS) == 0);
        CHECK_OK(group, tally_ddp_no_sync_end(draw->ddp));
    }
    CHECK(group, announce(group, draw, s) == 0);
    CHECK_OK(group, tally_ddp_wait(draw->ddp));
    if (draw->has_update) {
        CHECK_OK(group, tally_optimizer_step(draw->optimizer));
    }
    return 0;
}

static int run_draw(tally_group *group, unsigned number)
{
    struct draw draw = {.seed = number + 1, .number = number, .rank = tally_group_rank(group)};
    unsigned n_steps;

    (void)next(&draw.seed, 2);
    CHECK(group, create(group, &draw) == 0);
    CHECK(group, add_optimizer(group, &draw) == 0);
    n_steps = draw.has_join ? N_STEPS - 3 * (unsigned)draw.rank : N_STEPS;
    for (unsigned s = 0; s < n_steps; s++) {
        CHECK(group, step(group, &draw, s) == 0);
    }
    CHECK_OK(group, draw.has_join ? tally_ddp_join(draw.ddp) : TALLY_OK);
    CHECK_OK(group, draw.has_averager ? TALLY_OK : tally_ddp_check(draw.ddp));
    CHECK_OK(group, tally_optimizer_free(draw.optimizer));
    CHECK_OK(group, tally_averager_free(draw.averager));
    CHECK_OK(group, tally_ddp_free(draw.ddp));
    tally_hook_free(draw.hook);
    ddp_model_free(&draw.model);
    return 0;
}

static int draws_body(tally_group *group, void *user)
{
    const unsigned *first = user;

    for (unsigned k = 0; k < N_DRAWS; k++) {
        if (run_draw(group, *first + k) != 0) {
            (void)fprintf(stderr, "draw %u\n", *first + k);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const int worlds[] = {2, 3, 7};
    unsigned first = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    int failures = 0;

    for (int k = 0; k < 3; k++) {
        failures += ddp_run_world("drawn combinations", draws_body, &first, k, worlds[k]);
        first += N_DRAWS;
    }
    return failures > 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An optimizer that overlaps gives the bits of the plain loop, wait, clip, step, after every step:
 * for every optimizer, for hooks of every kind, views and copies, several lanes, with clipping,
 * accumulation and a schedule. So does one whose updates are written by hand.
 */
#include <math.h>
#include <stdio.h>

#include "support/opt_model.h"

#define N_STEPS 6

struct variant {
    const char *optimizer;
    const char *hook; /* NULL: one's own */
    bool copies;
    double max_norm;
    int n_passes;
    bool schedule;
};

static const struct variant variants[] = {
    {"sgd:lr=0.1,momentum=0.9,weight_decay=0.01", "allreduce", false, 0, 1, false},
    {"sgd:lr=0.1", "allreduce", true, 0, 1, false},
    {"adam:lr=0.01,amsgrad=1", "allreduce", true, 0, 1, false},
    {"adamw:lr=0.01", "allreduce", false, 1.5, 4, true},
    {"adamw:lr=0.01", "allreduce", true, 1.5, 4, true},
    {"adagrad:lr=0.05,initial=0.1", "allreduce", false, 0, 4, false},
    {"rmsprop:lr=0.01,centered=1,momentum=0.5", "allreduce", true, 0, 1, true},
    {"adadelta", "allreduce", false, 0, 1, true},
    {"adamax", "allreduce", true, 2, 1, false},
    {"rprop:lr=0.01", "allreduce", false, 0, 1, false},
    {"adamw:lr=0.01", "bf16", true, 0, 4, true},
    {"adamw:lr=0.01", "int8", false, 0, 1, true},
    {"adamw:lr=0.01", "int8", true, 1.5, 1, true},
    {"adamw:lr=0.01", "powersgd:rank=2,start=2", false, 0, 1, true},
    {"adamw:lr=0.01", "powersgd:rank=1,start=2", true, 1.5, 4, true},
    {"adamw:lr=0.01", "quantize_per_channel", true, 0, 1, true},
    {"adamw:lr=0.01", "noop", false, 1.5, 1, true},
    {"adamw:lr=0.01", NULL, false, 0, 1, true},
    {"adamw:lr=0.01", NULL, true, 1.5, 4, true},
};

static const tally_hook_table own_hook = {
    .size = sizeof own_hook, .name = "doubled", .concurrent = 1, .reduce = ddp_doubled_reduce};

static double cosine(int step)
{
    return 0.005 * (1 + cos(3.14159265358979 * step / N_STEPS));
}

/* The plain loop's share of a step, after wait. */
static int finish_plain(struct opt_run *run, double max_norm)
{
    if (max_norm > 0) {
        CHECK_OK(run->group, tally_ddp_clip_grad_norm(run->ddp, max_norm, NULL));
    }
    CHECK_OK(run->group, tally_optimizer_step(run->optimizer));
    return 0;
}

static int set_rates(struct opt_run *run, const struct variant *variant, int step)
{
    if (variant->schedule) {
        CHECK_OK(run->group, tally_optimizer_set_lr(run->optimizer, -1, cosine(step)));
        CHECK(run->group, tally_optimizer_lr(run->optimizer, 0) == cosine(step));
    }
    return 0;
}

/* One loop says clip and step, the second lets the optimizer clip, the third overlaps. */
static int compare(tally_group *group, const struct variant *variant)
{
    struct opt_run runs[3];
    tally_optimizer_stats stats = {.size = sizeof stats};

    for (int r = 0; r < 3; r++) {
        tally_optimizer_config config;
        struct opt_setup setup = {.copies = variant->copies,
                                  .hook = variant->hook,
                                  .own_hook = variant->hook ? NULL : &own_hook,
                                  .text = variant->optimizer,
                                  .config = &config};

        tally_optimizer_config_init(&config, sizeof config);
        config.overlap = r == 2;
        config.max_norm = r > 0 ? variant->max_norm : 0;
        CHECK_OK(group, opt_start(group, &setup, &runs[r]));
    }
    for (int step = 0; step < N_STEPS; step++) {
        for (int r = 0; r < 3; r++) {
            CHECK_OK(group, set_rates(&runs[r], variant, step));
            CHECK_OK(group, opt_accumulated_step(&runs[r], (unsigned)step, variant->n_passes));
        }
        CHECK_OK(group, finish_plain(&runs[0], variant->max_norm));
        CHECK_OK(group, finish_plain(&runs[1], 0));
        CHECK(group, opt_differ(&runs[0], &runs[1]) == 0);
        CHECK(group, opt_differ(&runs[0], &runs[2]) == 0);
        CHECK(group, ddp_hash_grads(&runs[0].model, runs[0].ddp) ==
                         ddp_hash_grads(&runs[2].model, runs[2].ddp));
    }
    CHECK_OK(group, tally_optimizer_get_stats(runs[2].optimizer, &stats));
    CHECK(group, stats.step == N_STEPS && stats.skipped == 0);
    CHECK(group, (stats.norm > variant->max_norm) == (variant->max_norm > 0));
    for (int r = 0; r < 3; r++) {
        CHECK_OK(group, opt_end(&runs[r]));
    }
    return 0;
}

static int variants_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        if (compare(group, &variants[v]) != 0) {
            (void)fprintf(stderr, "with %s, hook %s, %s\n", variants[v].optimizer,
                          variants[v].hook ? variants[v].hook : "of one's own",
                          variants[v].copies ? "copies" : "views");
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* ---- by hand ---- */

/* SGD with momentum, written out. */
static void update_by_hand(struct opt_run *run, float *const *buffer, bool is_first)
{
    for (size_t i = 0; i < run->model.n; i++) {
        const float *grad = tally_ddp_grad(run->ddp, (int)i);
        float *data = run->model.params[i].data;

        for (size_t e = 0; e < run->model.count[i]; e++) {
            buffer[i][e] = is_first ? grad[e] : 0.9f * buffer[i][e] + grad[e];
            data[e] = data[e] - 0.1f * buffer[i][e];
        }
    }
}

static int by_hand_body(tally_group *group, void *user)
{
    tally_optimizer_config config;
    const struct opt_setup plain = {.copies = true};
    const struct opt_setup overlapped = {.text = "sgd:lr=0.1,momentum=0.9", .config = &config};
    struct opt_run runs[2];
    static _Thread_local float memory[OPT_N_PARAMS][67 * 71];
    float *buffer[OPT_N_PARAMS];

    (void)user;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    CHECK_OK(group, opt_start(group, &plain, &runs[0]));
    CHECK_OK(group, opt_start(group, &overlapped, &runs[1]));
    for (int i = 0; i < OPT_N_PARAMS; i++) {
        buffer[i] = memory[i];
    }
    for (unsigned step = 0; step < N_STEPS; step++) {
        CHECK_OK(group, opt_step(&runs[0], step, 0));
        update_by_hand(&runs[0], buffer, step == 0);
        CHECK_OK(group, opt_step(&runs[1], step, 0));
        CHECK(group, opt_differ(&runs[0], &runs[1]) == 0);
        ranks_note(group, 0, opt_hash(&runs[1]));
    }
    CHECK_OK(group, opt_end(&runs[0]));
    CHECK_OK(group, opt_end(&runs[1]));
    return 0;
}

int main(void)
{
    static const int two_three[] = {2, 3, 0};
    static const int two_four[] = {2, 4, 0};
    static const int four[] = {4, 0};
    int n_failures = opt_worlds("by hand", by_hand_body, NULL, 1, four);

    n_failures += opt_worlds("variants", variants_body, NULL, 1, two_three);
    n_failures += opt_worlds("variants", variants_body, NULL, 3, two_four);
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharded optimizer when ranks have different amounts of input: ranks without input still update
 * their share, with the learning rates of those with input. Two epochs, rank i with 3 + i inputs,
 * Adam: after every step the parameters equal those of an optimizer that is not sharded. Ignored
 * parameters stay as this rank's last input left them. And a larger network, as in PyTorch's tests.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/opt_model.h"

#define N_EPOCHS 2
#define MOST_STEPS 64

/* The hashes of all parameters: after each step of this rank, and after each epoch. */
struct history {
    size_t n;
    uint64_t hash[MOST_STEPS];
};

static int epoch(struct opt_run *run, unsigned number, struct history *history)
{
    unsigned n_inputs = 3 + (unsigned)tally_group_rank(run->group);

    for (unsigned s = 0; s < n_inputs; s++) {
        CHECK_OK(run->group,
                 tally_optimizer_set_lr(run->optimizer, 0, 0.01 / (1 + number + 0.5 * s)));
        CHECK_OK(run->group, opt_step(run, 100 * number + s, 0));
        history->hash[history->n++] = opt_hash(run);
    }
    CHECK_OK(run->group, tally_ddp_join(run->ddp));
    history->hash[history->n++] = opt_hash(run);
    ranks_note(run->group, 0, opt_hash(run));
    return 0;
}

struct variant {
    bool copies;
    bool provided;
    int by_active;
    double max_norm;
    const char *hook;
};

static const struct variant variants[] = {
    {false, false, 0, 0, "allreduce"},  {true, false, 1, 0, "allreduce"},
    {false, true, 0, 0, "bf16"},        {false, false, 1, 0, "int8"},
    {true, false, 0, 1e9, "allreduce"},
};

static int train(tally_group *group, const struct variant *variant, bool shard,
                 struct history *history)
{
    tally_optimizer_config config;
    tally_ddp_config ddp;
    const struct opt_setup setup = {.copies = variant->copies,
                                    .provided = variant->provided,
                                    .hook = variant->hook,
                                    .text = "adam:lr=0.01",
                                    .config = &config,
                                    .ddp = &ddp};
    struct opt_run run;

    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.bucket_cap_bytes = 4000;
    ddp.join = 1;
    ddp.join_divides_by_active = variant->by_active;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = !shard;
    config.shard = shard;
    config.max_norm = variant->max_norm;
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned e = 0; e < N_EPOCHS; e++) {
        CHECK_OK(group, epoch(&run, e, history));
    }
    CHECK_OK(group, opt_end(&run));
    return 0;
}

static int join_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        struct history plain = {0};
        struct history sharded = {0};

        CHECK_OK(group, train(group, &variants[v], false, &plain));
        CHECK_OK(group, train(group, &variants[v], true, &sharded));
        CHECK(group, plain.n == sharded.n);
        for (size_t k = 0; k < plain.n; k++) {
            CHECK(group, plain.hash[k] == sharded.hash[k]);
        }
    }
    return 0;
}

/* ---- ignored ---- */

/* Parameter 6 is ignored, and a group has it. Rank 0 has the fewest inputs; with a loss scale, a
 * NaN in its last one makes all skip that step, and no step of the others. */
static int ignored(tally_group *group, bool shard, double loss_scale)
{
    static const int named[] = {0, 5, 6};
    const tally_optimizer_group own = {
        .size = sizeof own, .text = "sgd:lr=0.5", .params = named, .n_params = 3};
    int n_inputs = 2 + tally_group_rank(group);
    tally_optimizer_stats stats = {.size = sizeof stats};
    struct ddp_spec specs[OPT_N_PARAMS];
    tally_optimizer_config config;
    tally_ddp_config ddp;
    const struct opt_setup setup = {
        .specs = specs, .n_specs = OPT_N_PARAMS, .config = &config, .ddp = &ddp};
    struct opt_run run;
    size_t bytes;
    void *before;
    bool stays;
    int rc;

    memcpy(specs, opt_specs, sizeof specs);
    specs[6].flags = TALLY_PARAM_IGNORED;
    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.join = 1;
    tally_optimizer_config_init(&config, sizeof config);
    config.groups = &own;
    config.n_groups = 1;
    config.overlap = 1;
    config.shard = shard;
    config.loss_scale = loss_scale;
    CHECK_OK(group, opt_start(group, &setup, &run));
    bytes = run.model.count[6] * sizeof(float);
    for (int s = 0; s < n_inputs; s++) {
        if (s == 1 && tally_group_rank(group) == 0 && loss_scale > 0) {
            *(float *)run.model.params[6].data = NAN; /* and so its gradient */
        }
        CHECK_OK(group, opt_step(&run, (unsigned)s, 0));
    }
    before = malloc(bytes);
    CHECK(group, before);
    memcpy(before, run.model.params[6].data, bytes);
    rc = tally_ddp_join(run.ddp);
    stays = memcmp(before, run.model.params[6].data, bytes) == 0;
    free(before);
    CHECK_OK(group, rc);
    CHECK(group, stays);
    CHECK_OK(group, tally_optimizer_get_stats(run.optimizer, &stats));
    CHECK(group, stats.skipped == (loss_scale > 0 ? 1 : 0));
    ranks_note(group, 0, opt_hash(&run));
    return opt_end(&run);
}

static int ignored_body(tally_group *group, void *user)
{
    (void)user;
    for (int shard = 0; shard < 2; shard++) {
        CHECK_OK(group, ignored(group, shard, 0));
        CHECK_OK(group, ignored(group, shard, 4));
    }
    return 0;
}

/* ---- as PyTorch tests it ---- */

/* A tenth as wide in the middle. */
static const struct ddp_spec net[] = {
    {"fc1.weight", TALLY_F32, 0, 2, {200, 1000}},
    {"fc1.bias", TALLY_F32, 0, 1, {200}},
    {"fc2.weight", TALLY_F32, 0, 2, {500, 200}},
    {"fc2.bias", TALLY_F32, 0, 1, {500}},
};

static int net_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        tally_optimizer_config config;
        tally_ddp_config ddp;
        const struct opt_setup setup = {.specs = net,
                                        .n_specs = 4,
                                        .copies = copies,
                                        .text = "sgd:lr=0.01,momentum=0.9,weight_decay=0.001",
                                        .config = &config,
                                        .ddp = &ddp};
        struct opt_run runs[2];
        uint64_t before;

        tally_ddp_config_init(&ddp, sizeof ddp);
        ddp.static_graph = copies;
        tally_optimizer_config_init(&config, sizeof config);
        CHECK_OK(group, opt_start(group, &setup, &runs[0]));
        config.shard = 1;
        CHECK_OK(group, opt_start(group, &setup, &runs[1]));
        before = opt_hash(&runs[1]);
        for (unsigned s = 0; s < 5; s++) {
            CHECK_OK(group, opt_step(&runs[0], s, 0));
            CHECK_OK(group, tally_optimizer_step(runs[0].optimizer));
            CHECK_OK(group, opt_step(&runs[1], s, 0));
            CHECK(group, opt_differ(&runs[0], &runs[1]) == 0);
            CHECK(group, opt_hash(&runs[1]) != before);
        }
        CHECK_OK(group, opt_end(&runs[1]));
        CHECK_OK(group, opt_end(&runs[0]));
    }
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 4, 0};
    static const int few[] = {2, 3, 0};
    const struct ranks two = {.kind = RANKS_THREADS, .world = 2, .lanes = 2};
    int n_failures = opt_worlds("join", join_body, NULL, 1, worlds);

    n_failures += opt_worlds("ignored", ignored_body, NULL, 1, few);
    n_failures += ranks_run(&two, net_body, NULL);
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training a small network on W ranks is training it in one process with all the input: with steps
 * that only accumulate, by not announcing or under no_sync, also beside a static graph, with hooks
 * of several stages, and with weights that are used in several places.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"
#include "support/ddp_net.h"

#define BATCH 6 /* samples per rank and pass */
#define LEARNING_RATE 0.1f
#define N 5

/* The layers are parameters 0, 2 and 4. */
static const struct ddp_spec specs[N] = {
    {"fc1.weight", TALLY_F32, 0, 2, {10, 2}},  {"fc2.bias", TALLY_F32, TALLY_PARAM_FROZEN, 1, {50}},
    {"fc2.weight", TALLY_F32, 0, 2, {50, 10}}, {"fixed", TALLY_F64, TALLY_PARAM_FROZEN, 2, {2, 2}},
    {"fc3.weight", TALLY_F32, 0, 2, {4, 50}},
};

/* The one process that sees everything. */
struct reference {
    float memory[2][DDP_NET_LAYERS][500];
    float *weight[DDP_NET_LAYERS];
    float *grad[DDP_NET_LAYERS];
};

struct training {
    tally_group *group;
    struct ddp_model model;
    struct reference reference;
    tally_ddp *ddp;
    float *weight[DDP_NET_LAYERS];
    float *grad[DDP_NET_LAYERS];
    int n_failed;
};

static void announce(void *user, int layer)
{
    struct training *training = user;

    training->n_failed += tally_ddp_grad_ready(training->ddp, 2 * layer) != TALLY_OK;
}

static int start(tally_group *group, struct training *training, bool copies)
{
    tally_ddp_config config;

    memset(training, 0, sizeof *training);
    training->group = group;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1048;
    CHECK(group, ddp_model_make(&training->model, specs, N, copies) == 0);
    for (int l = 0; l < DDP_NET_LAYERS; l++) {
        training->reference.weight[l] = training->reference.memory[0][l];
        training->reference.grad[l] = training->reference.memory[1][l];
        ddp_net_init(l, training->reference.weight[l]);
        training->weight[l] = training->model.params[2 * l].data;
        /* Only rank 0 knows how to start. */
        if (tally_group_rank(group) == 0) {
            ddp_net_init(l, training->weight[l]);
        }
    }
    CHECK_OK(group, tally_ddp_create(group, training->model.params, N, &config, &training->ddp));
    for (int l = 0; l < DDP_NET_LAYERS; l++) {
        training->grad[l] = tally_ddp_grad(training->ddp, 2 * l);
        CHECK(group, memcmp(training->weight[l], training->reference.weight[l],
                            ddp_net_count(l) * sizeof(float)) == 0);
    }
    return 0;
}

static int end(struct training *training)
{
    CHECK_OK(training->group, tally_ddp_free(training->ddp));
    ddp_model_free(&training->model);
    return 0;
}

/* One pass: the ranks' samples, and the reference over the samples of all. */
static void pass(struct training *training, size_t number, bool announces)
{
    size_t world = (size_t)tally_group_size(training->group);
    size_t rank = (size_t)tally_group_rank(training->group);
    size_t first = number * world * BATCH;

    ddp_net_backward(training->weight, training->grad, first + rank * BATCH, BATCH,
                     announces ? announce : NULL, training);
    ddp_net_backward(training->reference.weight, training->reference.grad, first, world * BATCH,
                     NULL, NULL);
}

static double largest_difference(float *const *a, float *const *b)
{
    double largest = 0;

    for (int l = 0; l < DDP_NET_LAYERS; l++) {
        for (size_t e = 0; e < ddp_net_count(l); e++) {
            double difference = fabs((double)a[l][e] - (double)b[l][e]);

            largest = difference > largest ? difference : largest;
        }
    }
    return largest;
}

static void update(struct training *training)
{
    for (int l = 0; l < DDP_NET_LAYERS; l++) {
        for (size_t e = 0; e < ddp_net_count(l); e++) {
            training->weight[l][e] -= LEARNING_RATE * training->grad[l][e];
            training->reference.weight[l][e] -= LEARNING_RATE * training->reference.grad[l][e];
        }
        memset(training->reference.grad[l], 0, ddp_net_count(l) * sizeof(float));
    }
}

static int finish_step(tally_group *group, struct training *training)
{
    CHECK_OK(group, tally_ddp_wait(training->ddp));
    CHECK(group, training->n_failed == 0);
    CHECK(group, largest_difference(training->grad, training->reference.grad) < 2e-6);
    update(training);
    CHECK_OK(group, tally_ddp_zero_grad(training->ddp));
    CHECK(group, largest_difference(training->weight, training->reference.weight) < 5e-6);
    for (int l = 0; l < DDP_NET_LAYERS; l++) {
        ranks_note(group, 0, ranks_hash(0, training->weight[l], ddp_net_count(l) * sizeof(float)));
    }
    return 0;
}

/* ---- ways to accumulate ---- */

enum way { EVERY_STEP, NOT_ANNOUNCED, NO_SYNC, N_WAYS };

static int check_buckets(tally_group *group, tally_ddp *ddp)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_stats bucket = {.size = sizeof bucket};

    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.n_buckets == 2);
    CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, 0, &bucket));
    CHECK(group, bucket.n_params == 2 && bucket.bytes == 4 * (200 + 500));
    CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, 1, &bucket));
    CHECK(group, bucket.n_params == 1 && bucket.bytes == 4 * 20);
    return 0;
}

static int train(tally_group *group, struct training *training, enum way way)
{
    size_t number = 0;

    /* Begun and ended around nothing: no effect. */
    CHECK_OK(group, tally_ddp_no_sync_begin(training->ddp));
    CHECK_STATUS(group, tally_ddp_no_sync_begin(training->ddp), TALLY_STATE);
    CHECK_OK(group, tally_ddp_no_sync_end(training->ddp));
    for (int step = 0; step < 8; step++) {
        for (int micro = 0; way != EVERY_STEP && micro < step % 3; micro++) {
            if (way == NO_SYNC) {
                CHECK_OK(group, tally_ddp_no_sync_begin(training->ddp));
                pass(training, number++, true);
                CHECK_OK(group, tally_ddp_grad_absent(training->ddp, 0));
                CHECK_OK(group, tally_ddp_wait(training->ddp));
                CHECK_OK(group, tally_ddp_no_sync_end(training->ddp));
            } else {
                pass(training, number++, false);
            }
            /* This rank's samples only. */
            CHECK(group, tally_group_size(group) == 1 ||
                             largest_difference(training->grad, training->reference.grad) > 1e-4);
        }
        pass(training, number++, true);
        CHECK_OK(group, finish_step(group, training));
        CHECK_OK(group, check_buckets(group, training->ddp));
    }
    return 0;
}

static int network_body(tally_group *group, void *user)
{
    const tally_hook_table table = {
        .size = sizeof table, .name = "doubled", .reduce = ddp_doubled_reduce};

    (void)user;
    for (int o = 0; o < 4 * N_WAYS; o++) {
        struct training training;

        CHECK_OK(group, start(group, &training, o & 1));
        if (o & 2) {
            tally_hook *hook;

            CHECK_OK(group, tally_hook_create(&table, NULL, &hook));
            CHECK_OK(group, tally_ddp_attach_hook(training.ddp, hook));
            tally_hook_free(hook);
        }
        CHECK_OK(group, train(group, &training, (enum way)(o / 4)));
        CHECK_OK(group, end(&training));
    }
    return 0;
}

/* ---- sub-networks ---- */

/* Every rank and pass uses a different branch; over two passes some branches are used, some not. */
static int branches_body(tally_group *group, void *user)
{
    static const struct ddp_spec branches[] = {
        {"a", TALLY_F32, 0, 1, {8}}, {"b", TALLY_F32, 0, 1, {8}}, {"c", TALLY_F32, 0, 1, {8}}};
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);

    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.find_unused = 1;
        CHECK(group, ddp_model_make(&model, branches, 3, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 3, &config, &ddp));
        for (int step = 0; step < 4; step++) {
            float sums[3] = {0};
            bool used[3] = {false};

            CHECK_OK(group, tally_ddp_zero_grad(ddp));
            for (int r = 0; r < world; r++) {
                for (int micro = 0; micro < 2; micro++) {
                    sums[(r + micro + step) % 3] += (float)(r + 1);
                }
            }
            for (int micro = 0; micro < 2; micro++) {
                int branch = (rank + micro + step) % 3;

                for (int e = 0; e < 8; e++) {
                    ((float *)tally_ddp_grad(ddp, branch))[e] += (float)(rank + 1);
                }
                used[branch] = true;
            }
            /* Branches of the first pass are announced with the last one. */
            for (int i = 2; i >= 0; i--) {
                CHECK_OK(group, used[i] ? tally_ddp_grad_ready(ddp, i) : TALLY_OK);
            }
            CHECK_OK(group, tally_ddp_wait(ddp));
            for (int i = 0; i < 3; i++) {
                CHECK(group, ((float *)tally_ddp_grad(ddp, i))[7] == sums[i] / (float)world);
            }
            ranks_note(group, 0, ddp_hash_grads(&model, ddp));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- a static graph ---- */

#define N_BRANCH 8

static void add(const tally_ddp *ddp, int i, float value)
{
    for (int e = 0; e < N_BRANCH; e++) {
        ((float *)tally_ddp_grad(ddp, i))[e] += value;
    }
}

/* The graph has parameter 0 alone; with accumulates, rank 0 has had a gradient of 1 in a pass
 * before. */
static int static_step(tally_group *group, tally_ddp *ddp, bool accumulates)
{
    float mean = (float)(tally_group_rank(group) + 1);
    int unused;

    CHECK_OK(group, tally_ddp_zero_grad(ddp));
    if (accumulates) {
        CHECK_OK(group, tally_ddp_no_sync_begin(ddp));
        if (tally_group_rank(group) == 0) {
            add(ddp, 1, 6);
            CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, tally_ddp_no_sync_end(ddp));
    }
    add(ddp, 0, mean);
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, tally_ddp_wait(ddp));
    mean = (float)(tally_group_size(group) + 1) / 2;
    CHECK(group, ((float *)tally_ddp_grad(ddp, 0))[N_BRANCH - 1] == mean);
    mean = accumulates ? 6 / (float)tally_group_size(group) : 0;
    CHECK(group, ((float *)tally_ddp_grad(ddp, 1))[N_BRANCH - 1] == mean);
    CHECK_OK(group, tally_ddp_is_unused(ddp, 1, &unused));
    CHECK(group, unused == !accumulates);
    ranks_note(group, 0, ranks_hash(0, tally_ddp_grad(ddp, 1), N_BRANCH * sizeof(float)));
    return 0;
}

static int static_body(tally_group *group, void *user)
{
    static const struct ddp_spec branches[] = {{"a", TALLY_F32, 0, 1, {N_BRANCH}},
                                               {"b", TALLY_F32, 0, 1, {N_BRANCH}}};

    (void)user;
    for (int o = 0; o < 4; o++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.static_graph = 1;
        CHECK(group, ddp_model_make(&model, branches, 2, o & 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 2, &config, &ddp));
        for (int step = 0; step < 4; step++) {
            CHECK_OK(group, static_step(group, ddp, (step + o / 2) % 2 == 0));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- shared weights ---- */

/* One weight in two places: announced when both have added to it, or, under static_graph, twice. */
static int shared_step(tally_group *group, tally_ddp *ddp, size_t n, int twice)
{
    float *grad = tally_ddp_grad(ddp, 0);

    CHECK_OK(group, tally_ddp_zero_grad(ddp));
    for (int use = 0; use < 2; use++) {
        for (size_t e = 0; e < n; e++) {
            grad[e] += (float)(tally_group_rank(group) + 1);
        }
        if (use == 1 || twice) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    for (size_t e = 0; e < n; e++) {
        CHECK(group, grad[e] == 2 * (float)(tally_group_size(group) + 1) / 2);
    }
    return 0;
}

static int shared_body(tally_group *group, void *user)
{
    static const struct ddp_spec spec = {"shared", TALLY_F32, 0, 2, {512, 513}};

    (void)user;
    for (int o = 0; o < 4; o++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = 1 << 20;
        config.static_graph = o >> 1;
        CHECK(group, ddp_model_make(&model, &spec, 1, o & 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 1, &config, &ddp));
        for (int step = 0; step < 3; step++) {
            CHECK_OK(group, shared_step(group, ddp, model.count[0], config.static_graph));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("network", network_body, NULL, 1);

    n_failures += ddp_run("network", network_body, NULL, 3);
    n_failures += ddp_run("branches", branches_body, NULL, 1);
    n_failures += ddp_run("static graph", static_body, NULL, 1);
    n_failures += ddp_run("shared weights", shared_body, NULL, 1);
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ddps of one group: ranks use them in different orders, from one thread and from several,
 * beside collectives of the group itself, with optimizers that clip or scale the loss, and free
 * them in different orders. If wait itself brings what the step needs, such an order is a
 * TIMEOUT that says so.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N_DDPS 3
#define N_STEPS 8
#define N_ROUNDS 3

/* Some buckets' worth. */
static const struct ddp_spec specs[] = {
    {"w", TALLY_F32, 0, 2, {70, 90}}, {"v", TALLY_F32, 0, 1, {9000}}, {"b", TALLY_F32, 0, 1, {3}}};
#define N_PARAMS (sizeof specs / sizeof specs[0])

struct scene {
    tally_group *group;
    struct ddp_model model[N_DDPS];
    tally_ddp *ddp[N_DDPS];
};

static int start(tally_group *group, struct scene *scene, bool copies)
{
    tally_ddp_config config;

    scene->group = group;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 30000;
    for (int d = 0; d < N_DDPS; d++) {
        CHECK(group, ddp_model_make(&scene->model[d], specs, N_PARAMS, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, scene->model[d].params, N_PARAMS, &config,
                                         &scene->ddp[d]));
    }
    return 0;
}

/* The ddp that comes k-th on this rank in this step. */
static int nth(const tally_group *group, int step, int k)
{
    int rank = tally_group_rank(group);

    return (rank % 2 ? rank + step + k : rank + step + N_DDPS - 1 - k) % N_DDPS;
}

static int end(tally_group *group, struct scene *scene)
{
    for (int k = 0; k < N_DDPS; k++) {
        int d = nth(group, 0, k);

        CHECK_OK(group, tally_ddp_free(scene->ddp[d]));
        ddp_model_free(&scene->model[d]);
    }
    return 0;
}

static unsigned seed_of(int step, int d)
{
    return (unsigned)(step * N_DDPS + d);
}

static int announce(struct scene *scene, int d, int step)
{
    tally_group *group = scene->group;

    ddp_fill_grads(&scene->model[d], scene->ddp[d], seed_of(step, d), tally_group_rank(group));
    for (int i = 0; i < (int)N_PARAMS; i++) {
        CHECK_OK(group, tally_ddp_grad_ready(scene->ddp[d], i));
    }
    return 0;
}

/* All are announced in this rank's order, then waited for in another. A sum of the group's own is
 * under way meanwhile. */
static int orders_body(tally_group *group, void *user)
{
    bool is_early = tally_group_rank(group) % 2 == 1;

    for (int copies = 0; copies < 2; copies++) {
        struct scene scene;

        (void)user;
        CHECK_OK(group, start(group, &scene, copies));
        for (int step = 0; step < N_STEPS; step++) {
            tally_future *future;

            if (is_early) {
                CHECK_OK(group, tally_barrier(group, &future));
            }
            for (int k = 0; k < N_DDPS; k++) {
                CHECK_OK(group, announce(&scene, nth(group, step, k), step));
            }
            for (int k = 0; k < N_DDPS; k++) {
                int d = nth(group, step + 1, k);

                CHECK_OK(group, tally_ddp_wait(scene.ddp[d]));
                CHECK(group, ddp_wrong_means(&scene.model[d], scene.ddp[d], seed_of(step, d),
                                             tally_group_size(group)) == 0);
            }
            if (!is_early) {
                CHECK_OK(group, tally_barrier(group, &future));
            }
            CHECK_OK(group, ranks_finish(future));
        }
        CHECK_OK(group, end(group, &scene));
    }
    return 0;
}

struct trainer {
    struct scene *scene;
    int d;
    int failed;
    pthread_t thread;
};

/* All that one ddp can be asked for, in this ddp's own order. */
static int train(struct trainer *trainer)
{
    static const char *const hooks[] = {"bf16", "hosts:size=2", "allreduce:engine=native",
                                        "postlocal:start=100"};
    struct scene *scene = trainer->scene;
    tally_group *group = scene->group;
    tally_ddp *ddp = scene->ddp[trainer->d];
    tally_averager_level level = {.period = 2};
    tally_averager_config config;
    tally_averager *averager;
    tally_optimizer *optimizer;

    for (int round = 0; round < N_ROUNDS; round++) {
        double value = tally_group_rank(group) + trainer->d;

        CHECK_OK(group, tally_ddp_set_hook(ddp, hooks[(round + trainer->d) % 4]));
        for (int step = 0; step < 2; step++) {
            CHECK_OK(group, announce(scene, trainer->d, step));
            CHECK_OK(group, tally_ddp_wait(ddp));
        }
        CHECK_OK(group, tally_ddp_mean_scalar(ddp, &value));
        CHECK(group, value == (tally_group_size(group) - 1) / 2.0 + trainer->d);
    }
    CHECK_OK(group, tally_ddp_set_hook(ddp, "allreduce"));
    tally_averager_config_init(&config, sizeof config);
    config.levels = &level;
    config.n_levels = 1;
    CHECK_OK(group, tally_averager_create(ddp, &config, &averager));
    CHECK_OK(group, tally_optimizer_create(ddp, "sgd:lr=0.1", NULL, &optimizer));
    for (int step = 0; step < 4; step++) {
        CHECK_OK(group, announce(scene, trainer->d, step));
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, tally_averager_step(averager, NULL));
    }
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, tally_averager_free(averager));
    return 0;
}

static void *train_main(void *argument)
{
    struct trainer *trainer = argument;

    trainer->failed = train(trainer);
    return NULL;
}

/* One thread of the application per ddp: the threads do not agree on any order. */
static int threads_body(tally_group *group, void *user)
{
    struct trainer trainers[N_DDPS];
    struct scene scene;
    int n_failed = 0;

    (void)user;
    CHECK_OK(group, start(group, &scene, false));
    for (int d = 0; d < N_DDPS; d++) {
        trainers[d] = (struct trainer){.scene = &scene, .d = d};
        CHECK(group, pthread_create(&trainers[d].thread, NULL, train_main, &trainers[d]) == 0);
    }
    for (int d = 0; d < N_DDPS; d++) {
        CHECK(group, pthread_join(trainers[d].thread, NULL) == 0);
        n_failed += trainers[d].failed != 0;
    }
    CHECK(group, n_failed == 0);
    return end(group, &scene);
}

/* ---- optimizers whose updates need all buckets ---- */

struct way {
    int overlap;
    int shard;
    double max_norm;
    double loss_scale;
    bool lacks; /* the last rank has no gradient for one parameter */
};

static const struct way ways[] = {
    {.overlap = 1, .max_norm = 0.5},
    {.shard = 1, .max_norm = 0.5},
    {.overlap = 1, .loss_scale = 1024},
    {.loss_scale = 1024},
    {.shard = 1, .loss_scale = 1024, .max_norm = 0.5},
    {.overlap = 1, .lacks = true},
    {.overlap = 1, .max_norm = 0.5, .lacks = true},
};

/* In step 2 a gradient of ddp 1 is infinite on one rank: a loss scale skips that step there. */
static int announce_to(struct scene *scene, const struct way *way, int d, int step)
{
    tally_group *group = scene->group;
    bool is_last = tally_group_rank(group) == tally_group_size(group) - 1;

    ddp_fill_grads(&scene->model[d], scene->ddp[d], seed_of(step, d), tally_group_rank(group));
    if (way->loss_scale > 0 && step == 2 && d == 1 && is_last) {
        ((float *)tally_ddp_grad(scene->ddp[d], 1))[7] = INFINITY;
    }
    for (int i = 0; i < (int)N_PARAMS; i++) {
        CHECK_OK(group, way->lacks && is_last && i == 1 ? tally_ddp_grad_absent(scene->ddp[d], i)
                                                        : tally_ddp_grad_ready(scene->ddp[d], i));
    }
    return 0;
}

/* The parameters after some steps, in any order of waits. */
static int train_ways(tally_group *group, const struct way *way, bool same_order, uint64_t *hash)
{
    tally_optimizer *optimizers[N_DDPS];
    tally_optimizer_config config;
    struct scene scene;

    CHECK_OK(group, start(group, &scene, true));
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = way->overlap;
    config.shard = way->shard;
    config.max_norm = way->max_norm;
    config.loss_scale = way->loss_scale;
    for (int d = 0; d < N_DDPS; d++) {
        CHECK_OK(group,
                 tally_optimizer_create(scene.ddp[d], "adam:lr=0.01", &config, &optimizers[d]));
    }
    for (int step = 0; step < 4; step++) {
        for (int k = 0; k < N_DDPS; k++) {
            CHECK_OK(group, announce_to(&scene, way, same_order ? k : nth(group, step, k), step));
        }
        for (int k = 0; k < N_DDPS; k++) {
            int d = same_order ? k : nth(group, step + 1, k);

            CHECK_OK(group, tally_ddp_wait(scene.ddp[d]));
            CHECK_OK(group, config.overlap || config.shard ? TALLY_OK
                                                           : tally_optimizer_step(optimizers[d]));
        }
    }
    *hash = 0;
    for (int d = 0; d < N_DDPS; d++) {
        tally_optimizer_stats stats = {.size = sizeof stats};

        CHECK_OK(group, tally_optimizer_get_stats(optimizers[d], &stats));
        CHECK(group, stats.skipped == (way->loss_scale > 0 && d == 1));
        CHECK(group, stats.step + stats.skipped == 4);
        for (size_t i = 0; i < N_PARAMS; i++) {
            *hash = ranks_hash(*hash, scene.model[d].params[i].data,
                               scene.model[d].count[i] * sizeof(float));
        }
        CHECK_OK(group, tally_optimizer_free(optimizers[d]));
    }
    return end(group, &scene);
}

static int optimizers_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        uint64_t hash[2];

        CHECK_OK(group, train_ways(group, &ways[w], true, &hash[0]));
        CHECK_OK(group, train_ways(group, &ways[w], false, &hash[1]));
        CHECK(group, hash[0] == hash[1]);
    }
    return 0;
}

/* ---- where the order matters ---- */

/* Each of two ranks waits for the other in another ddp, since buffers are sent inside wait. */
static int crossed_body(tally_group *group, void *user)
{
    static const char *const texts[] = {"the end of step 1 (ddp of 'w', ...)",
                                        "the end of step 1 (ddp of 'b')"};
    int rank = tally_group_rank(group);
    struct ddp_model models[2];
    tally_ddp *ddps[2];
    float numbers[2] = {0};
    tally_future *future;

    (void)user;
    for (int d = 0; d < 2; d++) {
        const tally_buffer buffer = {
            .size = sizeof buffer, .data = &numbers[d], .bytes = sizeof numbers[d], .name = "mean"};
        tally_ddp_config config;

        tally_ddp_config_init(&config, sizeof config);
        config.buffers = &buffer;
        config.n_buffers = 1;
        CHECK(group, ddp_model_make(&models[d], d == 0 ? specs : &specs[2], d == 0 ? N_PARAMS : 1,
                                    false) == 0);
        CHECK_OK(group, tally_ddp_create(group, models[d].params, models[d].n, &config, &ddps[d]));
    }
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < (int)models[d].n; i++) {
            CHECK_OK(group, tally_ddp_grad_ready(ddps[d], i));
        }
    }
    CHECK_STATUS(group, tally_ddp_wait(ddps[rank]), TALLY_TIMEOUT);
    CHECK_TEXT(group, tally_last_error(), texts[rank]);
    CHECK_TEXT(group, tally_last_error(), "ranks wait for their ddps in different orders");
    /* No rank frees its ddps before the other has read its error. */
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    for (int d = 0; d < 2; d++) {
        CHECK_OK(group, tally_ddp_free(ddps[d]));
        ddp_model_free(&models[d]);
    }
    return 0;
}

int main(void)
{
    static const struct ranks crossed[] = {
        {.kind = RANKS_THREADS, .world = 2, .lanes = 1, .timeout_s = 2, .may_leak = true},
        {.kind = RANKS_PROCESSES, .world = 2, .lanes = 1, .timeout_s = 2, .may_leak = true},
    };
    int n_failures = ddp_run("orders", orders_body, NULL, 1);

    n_failures += ddp_run_world("optimizers", optimizers_body, NULL, 1, 2);
    n_failures += ddp_run_world("optimizers", optimizers_body, NULL, 1, 3);
    n_failures += ddp_run_world("optimizers", optimizers_body, NULL, 2, 3);

    n_failures += ddp_run_world("orders", orders_body, NULL, 2, 3);
    n_failures += ddp_run("threads", threads_body, NULL, 1);
    n_failures += ddp_run_world("threads", threads_body, NULL, 2, 3);
    for (size_t w = 0; w < sizeof crossed / sizeof crossed[0]; w++) {
        n_failures += ranks_run(&crossed[w], crossed_body, NULL);
    }
    return n_failures != 0;
}

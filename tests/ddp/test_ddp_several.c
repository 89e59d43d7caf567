/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ddps of one group: ranks use them in different orders, from one thread and from several,
 * beside collectives of the group itself, and free them in different orders.
 */
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

/* One thread of the application per ddp: nobody agrees on anything between them. */
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

int main(void)
{
    int n_failures = ddp_run("orders", orders_body, NULL, 1);

    n_failures += ddp_run_world("orders", orders_body, NULL, 2, 3);
    n_failures += ddp_run("threads", threads_body, NULL, 1);
    n_failures += ddp_run_world("threads", threads_body, NULL, 2, 3);
    return n_failures != 0;
}

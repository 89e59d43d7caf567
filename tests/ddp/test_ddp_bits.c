/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bits do not depend on the buckets, the lanes, the memory, or the order in which gradients
 * arrive: five caps, views and copies, random orders that differ between ranks, and four threads
 * that announce at once. Every result is compared with one oracle that knows none of these.
 */
#include <pthread.h>
#include <stdio.h>

#include "support/ddp_model.h"

#define N 12
#define N_THREADS 4
#define N_CAPS 5
#define N_STEPS 3

/* Messages of one phase and of two, and buckets that mix both. */
static const struct ddp_spec specs[N] = {
    {"p0", TALLY_F32, 0, 1, {3}},        {"p1", TALLY_F32, 0, 2, {40, 50}},
    {"p2", TALLY_F32, 0, 1, {1}},        {"p3", TALLY_F32, 0, 2, {100, 101}},
    {"p4", TALLY_F32, 0, 1, {513}},      {"p5", TALLY_F32, 0, 0, {0}},
    {"p6", TALLY_F32, 0, 1, {0}},        {"p7", TALLY_F32, 0, 1, {2047}},
    {"p8", TALLY_F32, 0, 2, {13, 17}},   {"p9", TALLY_F32, 0, 1, {64}},
    {"p10", TALLY_F32, 0, 2, {33, 333}}, {"p11", TALLY_F32, 0, 1, {999}},
};

static const size_t caps[N_CAPS] = {1, 1000, 9000, 50000, 1 << 20};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void shuffle(int *order, int n, uint64_t seed)
{
    for (int k = 0; k < n; k++) {
        order[k] = k;
    }
    for (int k = n - 1; k > 0; k--) {
        int other = (int)(next_random(&seed) % (uint64_t)(k + 1));
        int kept = order[k];

        order[k] = order[other];
        order[other] = kept;
    }
}

/* ---- one thread, any order ---- */

static int any_order(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                     unsigned seed)
{
    int rank = tally_group_rank(group);
    int order[N];

    shuffle(order, N, seed * 31u + (unsigned)rank);
    for (int k = 0; k < N; k++) {
        ddp_fill_grad(model, ddp, (size_t)order[k], seed, rank);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, order[k]));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

/* ---- several threads ---- */

struct worker {
    tally_ddp *ddp;
    const struct ddp_model *model;
    unsigned seed;
    int rank;
    int number;
    int order[N];
    int n_failed;
    pthread_t thread;
};

/* Takes every fourth of the order. */
static void *work(void *argument)
{
    struct worker *worker = argument;

    for (int k = worker->number; k < N; k += N_THREADS) {
        size_t i = (size_t)worker->order[k];

        ddp_fill_grad(worker->model, worker->ddp, i, worker->seed, worker->rank);
        worker->n_failed += tally_ddp_grad_ready(worker->ddp, (int)i) != TALLY_OK;
    }
    return NULL;
}

static int by_threads(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                      unsigned seed)
{
    struct worker workers[N_THREADS];
    int rank = tally_group_rank(group);

    for (int t = 0; t < N_THREADS; t++) {
        workers[t] =
            (struct worker){.ddp = ddp, .model = model, .seed = seed, .rank = rank, .number = t};
        shuffle(workers[t].order, N, seed * 77u + (unsigned)rank);
    }
    for (int t = 0; t < N_THREADS; t++) {
        CHECK(group, pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0);
    }
    for (int t = 0; t < N_THREADS; t++) {
        CHECK(group, pthread_join(workers[t].thread, NULL) == 0);
        CHECK(group, workers[t].n_failed == 0);
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

/* ---- all of it ---- */

typedef int step_fn(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                    unsigned seed);

static int train(tally_group *group, const tally_ddp_config *config, bool copies, step_fn *step)
{
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, specs, N, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, config, &ddp));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, step(group, ddp, &model, s));
        CHECK(group, ddp_wrong_means(&model, ddp, s, tally_group_size(group)) == 0);
        ranks_note(group, 0, ddp_hash_grads(&model, ddp));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int bits_body(tally_group *group, void *user)
{
    (void)user;
    for (int c = 0; c < N_CAPS; c++) {
        for (int variant = 0; variant < 4; variant++) {
            bool copies = variant & 1;
            tally_ddp_config config;

            tally_ddp_config_init(&config, sizeof config);
            config.bucket_cap_bytes = caps[c];
            config.static_graph = variant >> 1 == (c & 1);
            CHECK_OK(group, train(group, &config, copies, variant & 2 ? any_order : by_threads));
        }
    }
    return 0;
}

/* ---- many small gradients ---- */

#define N_SMALL 30

/* More than one piece of small copies, with a large one between them, under hooks that take each
 * element for itself and one that does not. */
static int pieces_body(tally_group *group, void *user)
{
    static const char *const hooks[] = {"allreduce", "fp16(allreduce)", "int8:feedback=0"};
    struct ddp_spec small[N_SMALL];
    char names[N_SMALL][16];

    (void)user;
    for (int i = 0; i < N_SMALL; i++) {
        (void)snprintf(names[i], sizeof names[i], "p%d", i);
        small[i] =
            (struct ddp_spec){names[i], TALLY_F32, 0, 1, {i == 19 ? 9000 : 4000 + (size_t)i}};
    }
    for (size_t h = 0; h < sizeof hooks / sizeof hooks[0]; h++) {
        uint64_t hash[2];

        for (int copies = 0; copies < 2; copies++) {
            struct ddp_model model;
            tally_ddp *ddp;

            CHECK(group, ddp_model_make(&model, small, N_SMALL, copies) == 0);
            CHECK_OK(group, tally_ddp_create(group, model.params, N_SMALL, NULL, &ddp));
            CHECK_OK(group, tally_ddp_set_hook(ddp, hooks[h]));
            for (unsigned s = 0; s < 2; s++) {
                CHECK_OK(group, ddp_step(group, ddp, &model, s));
                CHECK(group,
                      h > 0 || ddp_wrong_means(&model, ddp, s, tally_group_size(group)) == 0);
            }
            hash[copies] = ddp_hash_grads(&model, ddp);
            CHECK_OK(group, tally_ddp_free(ddp));
            ddp_model_free(&model);
        }
        CHECK(group, hash[0] == hash[1]);
    }
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("bits", bits_body, NULL, 1);

    n_failures += ddp_run("bits", bits_body, NULL, 3);
    n_failures += ddp_run("many small ones", pieces_body, NULL, 1);
    return n_failures != 0;
}

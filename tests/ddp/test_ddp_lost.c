/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group that is lost while several threads announce: wait ends the step and gives the reason;
 * after that no thread touches a gradient in the application's arrays, and a late announcement is
 * refused and starts nothing.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 8
#define N_THREADS 4
#define N_ROUNDS 12

/* Some go where they lie, some side by side. */
static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {9}},    {"b", TALLY_F32, 0, 2, {100, 90}},
    {"c", TALLY_F64, 0, 1, {3000}}, {"d", TALLY_F32, 0, 1, {1}},
    {"e", TALLY_F16, 0, 1, {777}},  {"f", TALLY_F32, 0, 2, {64, 128}},
    {"g", TALLY_F32, 0, 1, {50}},   {"h", TALLY_F64, 0, 1, {5}},
};

struct worker {
    tally_ddp *ddp;
    atomic_bool *lost; /* wait has returned */
    int number;
    int n_wrong;
    pthread_t thread;
};

static bool is_fine(int rc)
{
    return rc == TALLY_OK || rc == TALLY_ABORTED || rc == TALLY_STATE;
}

/* Announces its share, and once more when the step has ended. */
static void *work(void *argument)
{
    struct worker *worker = argument;

    for (int i = worker->number; i < N; i += N_THREADS) {
        worker->n_wrong += !is_fine(tally_ddp_grad_ready(worker->ddp, i));
    }
    while (!atomic_load(worker->lost)) {
        ranks_sleep_ms(1);
    }
    for (int i = worker->number; i < N; i += N_THREADS) {
        worker->n_wrong += tally_ddp_grad_ready(worker->ddp, i) != TALLY_ABORTED;
        worker->n_wrong += strstr(tally_last_error(), "on purpose") == NULL;
        worker->n_wrong += tally_ddp_grad_absent(worker->ddp, i) != TALLY_ABORTED;
    }
    return NULL;
}

static int start(tally_group *group, tally_ddp *ddp, atomic_bool *lost, struct worker *workers)
{
    for (int t = 0; t < N_THREADS; t++) {
        workers[t] = (struct worker){.ddp = ddp, .number = t, .lost = lost};
        CHECK(group, pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0);
    }
    return 0;
}

static int lose(tally_group *group, tally_group *own, tally_ddp *ddp, const struct ddp_model *model,
                int round)
{
    bool copies = model->params[0].grad != NULL;
    struct worker workers[N_THREADS];
    atomic_bool lost = false;
    uint64_t hash;
    int rc = TALLY_STATE;

    ddp_fill_grads(model, ddp, (unsigned)round, tally_group_rank(group));
    CHECK_OK(group, start(group, ddp, &lost, workers));
    ranks_sleep_ms(round % 3);
    if (tally_group_rank(group) == tally_group_size(group) - 1) {
        CHECK_OK(group, tally_group_abort(own, "on purpose"));
    }
    /* A gradient that is not announced yet leaves the step open. */
    while (rc == TALLY_STATE || rc == TALLY_OK) {
        rc = tally_ddp_wait(ddp);
        /* All ranks had met before the end: the next step meets with it. */
        for (int i = 0; rc == TALLY_OK && i < N; i++) {
            CHECK(group, is_fine(tally_ddp_grad_ready(ddp, i)));
        }
    }
    CHECK_STATUS(group, rc, TALLY_ABORTED);
    CHECK_TEXT(group, tally_last_error(), "on purpose");
    /* Other ranks may still be at work in views. */
    hash = copies ? ddp_hash_grads(model, ddp) : 0;
    atomic_store(&lost, true);
    for (int t = 0; t < N_THREADS; t++) {
        CHECK(group, pthread_join(workers[t].thread, NULL) == 0);
        CHECK(group, workers[t].n_wrong == 0);
    }
    CHECK(group, !copies || ddp_hash_grads(model, ddp) == hash);
    CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_ABORTED);
    return 0;
}

static int lost_body(tally_group *group, void *user)
{
    (void)user;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_group *own;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = round & 1 ? 1 : 40000;
        CHECK(group, ddp_model_make(&model, specs, N, round >> 1 & 1) == 0);
        CHECK_OK(group, tally_group_split(group, 0, 0, &own));
        CHECK_OK(group, tally_ddp_create(own, model.params, N, &config, &ddp));
        CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
        /* The end of this step must not meet with the end of the group. */
        (void)atomic_fetch_add(&ranks_words()[round], 1);
        CHECK_OK(group, ranks_await(&ranks_words()[round], (uint32_t)tally_group_size(group)));
        CHECK_OK(group, lose(group, own, ddp, &model, round));
        CHECK_OK(group, tally_ddp_free(ddp));
        CHECK_OK(group, tally_group_close(own));
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("lost", lost_body, NULL, 1);

    n_failures += ddp_run("lost", lost_body, NULL, 3);
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hundred thousand parameters: creation, steps, hooks, saving and loading take time in proportion
 * to them. Quadratic code would take minutes, and CTest's time limit (ddp_tests.cmake) would end
 * it. All names, and the means of all gradients, are right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ddp_model.h"

#define N ((size_t)RANKS_REPEATS(100000, 20000))
#define N_EACH 3
#define NAME_BYTES 32

struct many {
    tally_param *params;
    char *names;
    float *data;
    float *grads;
};

static const size_t shape = N_EACH;

static void drop(struct many *many)
{
    free(many->params);
    free(many->names);
    free(many->data);
    free(many->grads);
}

static int make(struct many *many, bool copies)
{
    many->params = calloc(N, sizeof *many->params);
    many->names = calloc(N, NAME_BYTES);
    many->data = calloc(N * N_EACH, sizeof *many->data);
    many->grads = calloc(N * N_EACH, sizeof *many->grads);
    if (!many->params || !many->names || !many->data || !many->grads) {
        drop(many);
        return RANKS_FAILED;
    }
    for (size_t i = 0; i < N; i++) {
        char *name = many->names + i * NAME_BYTES;

        (void)snprintf(name, NAME_BYTES, "blocks.%zu.weight", i);
        many->params[i] = (tally_param){.size = sizeof(tally_param),
                                        .name = name,
                                        .n_dims = 1,
                                        .shape = &shape,
                                        .dtype = i % 5 == 4 ? TALLY_F16 : TALLY_F32,
                                        .data = many->data + i * N_EACH,
                                        .grad = copies ? many->grads + i * N_EACH : NULL};
    }
    return 0;
}

/* Rank r's gradient of parameter i is (r + 1) (i % 7): exact in every dtype. Halves stay zeros. */
static int step(tally_group *group, tally_ddp *ddp, const struct many *many)
{
    int world = tally_group_size(group);

    for (size_t i = N; i-- > 0;) {
        float *grad = tally_ddp_grad(ddp, (int)i);

        for (size_t e = 0; e < N_EACH && many->params[i].dtype == TALLY_F32; e++) {
            grad[e] = (float)(tally_group_rank(group) + 1) * (float)(i % 7);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    for (size_t i = 0; i < N; i++) {
        const float *mean = tally_ddp_mean(ddp, (int)i);

        if (many->params[i].dtype == TALLY_F32) {
            CHECK(group, mean[0] == (float)(world + 1) / 2 * (float)(i % 7));
            CHECK(group, mean[N_EACH - 1] == mean[0]);
        }
    }
    return 0;
}

static int save_and_load(tally_group *group, tally_ddp *ddp)
{
    size_t bytes = 0;
    void *blob;
    const void *blobs[1];
    int rc;

    CHECK_OK(group, tally_ddp_save(ddp, NULL, &bytes));
    blob = malloc(bytes);
    CHECK(group, blob != NULL);
    rc = tally_ddp_save(ddp, blob, &bytes);
    blobs[0] = blob;
    if (rc == TALLY_OK && tally_group_size(group) == 1) {
        rc = tally_ddp_load(ddp, blobs, &bytes, 1);
    }
    free(blob);
    CHECK_OK(group, rc);
    return 0;
}

static int average(tally_group *group, tally_ddp *ddp)
{
    const tally_averager_level level = {.period = 2};
    tally_averager_config config;
    tally_averager *averager;

    tally_averager_config_init(&config, sizeof config);
    config.levels = &level;
    config.n_levels = 1;
    CHECK_OK(group, tally_averager_create(ddp, &config, &averager));
    CHECK_OK(group, tally_averager_step(averager, NULL));
    CHECK_OK(group, tally_averager_free(averager));
    return 0;
}

static int body(tally_group *group, void *user)
{
    bool copies = *(const bool *)user;
    struct many many;
    tally_ddp_config config;
    tally_ddp *ddp;

    CHECK(group, make(&many, copies) == 0);
    tally_ddp_config_init(&config, sizeof config);
    /* Many buckets too. */
    config.bucket_cap_bytes = 1200;
    CHECK_OK(group, tally_ddp_create(group, many.params, N, &config, &ddp));
    CHECK_OK(group, step(group, ddp, &many));
    CHECK_OK(group, step(group, ddp, &many));
    CHECK_OK(group, save_and_load(group, ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, "bf16"));
    CHECK_OK(group, step(group, ddp, &many));
    CHECK_OK(group, average(group, ddp));
    CHECK_OK(group, tally_ddp_free(ddp));
    /* The last name belongs to another parameter. */
    many.params[N - 1].name = many.params[N / 2].name;
    CHECK_STATUS(group, tally_ddp_create(group, many.params, N, &config, &ddp), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), many.params[N / 2].name);
    drop(&many);
    return 0;
}

int main(void)
{
    static const bool views = false;
    static const bool copies = true;
    const struct ranks alone = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};
    const struct ranks three = {.kind = RANKS_THREADS, .world = 3, .lanes = 1};
    int n_failures = ranks_run(&alone, body, (void *)&views);

    n_failures += ranks_run(&three, body, (void *)&copies);
    return n_failures != 0;
}

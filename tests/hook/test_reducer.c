/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reducers: wrong arguments, ranks that disagree, steps that fail and the ones after them, several
 * reducers that ranks use in different orders, a hook that is replaced, a divisor, and freeing in
 * the middle of a step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/framework_model.h"
#include "support/oracle.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const struct ddp_spec specs[] = {{"a", TALLY_F32, 0, 2, {30, 20}},
                                        {"b", TALLY_F32, 0, 1, {5}},
                                        {"c", TALLY_F64, 0, 1, {7}},
                                        {"d", TALLY_F32, 0, 2, {8, 9}}};
static framework_layout layout = {3, 1, -1, 2, -1, 0, -1, -2};

static int check_arguments(tally_group *group, struct framework *framework)
{
    const int twice[] = {0, 0};
    const int mixed[] = {0, 2};
    const int unknown[] = {4};
    const double divisors[] = {-2, INFINITY, NAN};
    const tally_param frozen = {sizeof frozen,     "x", 0, NULL, NULL, TALLY_F32, NULL, NULL,
                                TALLY_PARAM_FROZEN};
    tally_reducer *none = NULL;
    tally_future *future;
    size_t bytes;

    CHECK_STATUS(group, tally_reducer_create(group, &frozen, 1, NULL, &none), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "a reducer accepts none");
    CHECK_STATUS(group, tally_reducer_create(group, framework->model.params, 2, "int9", &none),
                 TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_create(group, framework->model.params, 2, NULL, NULL),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "reducer is NULL");
    CHECK(group, !none);
    CHECK_STATUS(group,
                 tally_reducer_reduce(framework->reducer, twice, 2, framework->room, 1, 0, &future),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "parameter 0 ('a') comes twice");
    CHECK_STATUS(group,
                 tally_reducer_reduce(framework->reducer, mixed, 2, framework->room, 1, 0, &future),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "'a' and 'c' have different dtypes");
    CHECK_STATUS(
        group, tally_reducer_reduce(framework->reducer, unknown, 1, framework->room, 1, 0, &future),
        TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "parameter 4 is not in 0..3");
    CHECK_STATUS(group,
                 tally_reducer_reduce(framework->reducer, twice, 0, framework->room, 1, 0, &future),
                 TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_reduce(framework->reducer, twice, 1, NULL, 1, 0, &future),
                 TALLY_ARG);
    for (size_t i = 0; i < sizeof divisors / sizeof divisors[0]; i++) {
        CHECK_STATUS(group,
                     tally_reducer_reduce(framework->reducer, twice, 1, framework->room, 1,
                                          divisors[i], &future),
                     TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "is not a positive number");
    }
    CHECK_STATUS(group,
                 tally_reducer_reduce(framework->reducer, twice, 1, (char *)framework->room + 2, 1,
                                      0, &future),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "for 'a', is not aligned to 4 bytes");
    CHECK_STATUS(group, tally_reducer_reduce(NULL, twice, 1, framework->room, 1, 0, &future),
                 TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_save(NULL, NULL, &bytes), TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_set_hook(NULL, "int8"), TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_attach_hook(framework->reducer, NULL), TALLY_ARG);
    CHECK_OK(group, tally_reducer_free(NULL));
    return 0;
}

static int check_means(tally_group *group, const struct framework *framework, unsigned seed,
                       double divisor)
{
    int world = tally_group_size(group);

    for (size_t i = 0; i < N_OF(specs); i++) {
        for (size_t e = 0; e < framework->model.count[i] && specs[i].dtype == TALLY_F32; e++) {
            float sum = 0;

            for (int r = 0; r < world; r++) {
                sum += (float)ddp_value(TALLY_F32, seed, r, i, e);
            }
            CHECK(group, ((const float *)framework->mean[i])[e] == sum / (float)divisor);
        }
    }
    return 0;
}

/* Ranks that give different buckets are told so; the next step works, and counts. */
static int check_mismatch(tally_group *group, struct framework *framework)
{
    static const int params[][2] = {{0, 3}, {3, 0}};
    int odd = tally_group_rank(group) == 1;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_future *future;

    if (tally_group_size(group) == 1) {
        return 0;
    }
    CHECK_OK(group, tally_reducer_reduce(framework->reducer, params[odd], 2, framework->room, 1, 0,
                                         &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "rank 0 reduces 2 parameters from 'a' on");
    CHECK_TEXT(group, tally_last_error(), "rank 1 reduces 2 parameters from 'd' on");
    CHECK_OK(group, tally_reducer_reduce(framework->reducer, params[0], 2, framework->room, !odd, 0,
                                         &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "as the last bucket of the step");
    CHECK_OK(group, framework_step(group, framework, layout, 3, 1));
    CHECK_OK(group, tally_reducer_get_stats(framework->reducer, &stats));
    CHECK(group, stats.step == 2 && stats.n_buckets == 3 && stats.error == TALLY_MISMATCH);
    return check_means(group, framework, 3, tally_group_size(group));
}

/* A hook that refuses a NaN fails one bucket; the step does not count, and training goes on. */
static int check_failure(tally_group *group, struct framework *framework)
{
    static const int all[] = {0, 1, 3};
    tally_ddp_stats before = {.size = sizeof before};
    tally_ddp_stats after = {.size = sizeof after};
    float *data = (float *)(void *)framework->room;
    tally_future *futures[2];
    size_t bytes = 0;

    CHECK_OK(group, tally_reducer_set_hook(framework->reducer, "int8:exempt=none"));
    CHECK_OK(group, tally_reducer_get_stats(framework->reducer, &before));
    memset(framework->room, 0, sizeof framework->room);
    data[3] = tally_group_rank(group) == 0 ? NAN : 1;
    CHECK_OK(group, tally_reducer_reduce(framework->reducer, all, 1, data, 0, 0, &futures[0]));
    CHECK_OK(group,
             tally_reducer_reduce(framework->reducer, all + 1, 2, data + 1000, 1, 0, &futures[1]));
    CHECK_STATUS(group, ranks_finish(futures[0]), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "'a'");
    CHECK_OK(group, ranks_finish(futures[1]));
    /* A step that is given up after its first bucket. */
    data[3] = tally_group_rank(group) == 0 ? NAN : 1;
    CHECK_OK(group, tally_reducer_reduce(framework->reducer, all, 1, data, 0, 0, &futures[0]));
    CHECK_STATUS(group, ranks_finish(futures[0]), TALLY_NUMERIC);
    CHECK_OK(group, tally_reducer_save(framework->reducer, NULL, &bytes));
    CHECK_OK(group, tally_reducer_get_stats(framework->reducer, &after));
    CHECK(group, after.step == before.step);
    CHECK_OK(group, framework_step(group, framework, layout, 5, 0));
    CHECK_OK(group, tally_reducer_get_stats(framework->reducer, &after));
    CHECK(group, after.step == before.step + 1);
    CHECK_OK(group, tally_reducer_set_hook(framework->reducer, "allreduce"));
    return 0;
}

/* In the middle of a step nothing can be saved. Its buckets are reduced even if the last one does
 * not come and no thread runs their jobs. */
static int check_open_step(tally_group *group, struct framework *framework)
{
    static const int params[] = {1, 2, 0, 3};
    tally_future *future;
    size_t bytes = 0;

    CHECK_OK(group,
             tally_reducer_reduce(framework->reducer, params, 1, framework->room, 0, 0, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_STATUS(group, tally_reducer_save(framework->reducer, NULL, &bytes), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "tally_reducer_save: a step is under way");
    CHECK_STATUS(group, tally_reducer_set_hook(framework->reducer, "int8"), TALLY_STATE);
    CHECK_OK(group, tally_reducer_reduce(framework->reducer, params + 1, 1, framework->room, 0, 0,
                                         &future));
    CHECK_OK(group, tally_future_wait_for(future, 60));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, tally_reducer_reduce(framework->reducer, params + 2, 2, framework->room, 1, 0,
                                         &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, tally_reducer_save(framework->reducer, NULL, &bytes));
    return 0;
}

/* Half of the ranks use two reducers in one order, half in the other, without waiting. */
static int check_orders(tally_group *group)
{
    static const int params[] = {0};
    struct framework *frameworks = calloc(2, sizeof *frameworks);
    int first = tally_group_rank(group) % 2;

    CHECK(group, frameworks);
    for (int g = 0; g < 2; g++) {
        CHECK_OK(group,
                 framework_make(group, specs, N_OF(specs), g ? "int8" : "fp16", &frameworks[g]));
    }
    for (unsigned step = 0; step < 4; step++) {
        tally_future *futures[2];

        for (int k = 0; k < 2; k++) {
            int g = (first + k) % 2;

            memset(frameworks[g].room, 0, sizeof frameworks[g].room);
            CHECK_OK(group, tally_reducer_reduce(frameworks[g].reducer, params, 1,
                                                 frameworks[g].room, 1, 0, &futures[g]));
            /* With the other one still to come on half of the ranks. */
            if (step % 2 == 0 && k == 1) {
                CHECK_OK(group, ranks_finish(futures[first]));
                CHECK_OK(group, ranks_finish(futures[1 - first]));
            }
        }
        if (step % 2 == 1) {
            CHECK_OK(group, ranks_finish(futures[1 - first]));
            CHECK_OK(group, ranks_finish(futures[first]));
        }
    }
    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, framework_end(group, &frameworks[(first + k) % 2]));
    }
    free(frameworks);
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct framework *framework = calloc(1, sizeof *framework);
    int world = tally_group_size(group);

    (void)user;
    CHECK(group, framework);
    CHECK_OK(group, framework_make(group, specs, N_OF(specs), NULL, framework));
    CHECK_OK(group, check_arguments(group, framework));
    CHECK_OK(group, framework_step(group, framework, layout, 1, 0));
    CHECK_OK(group, check_means(group, framework, 1, world));
    CHECK_OK(group, check_mismatch(group, framework));
    CHECK_OK(group, check_failure(group, framework));
    CHECK_OK(group, check_open_step(group, framework));
    CHECK_OK(group, framework_end(group, framework));
    free(framework);
    return check_orders(group);
}

/* Rank 0 frees its reducer while the others wait for it. */
static int free_early(tally_group *group, void *user)
{
    static const int params[] = {0, 1, 3};
    struct framework *framework = calloc(1, sizeof *framework);
    tally_future *future;
    int status;

    (void)user;
    CHECK(group, framework);
    CHECK_OK(group, framework_make(group, specs, N_OF(specs), "int8", framework));
    CHECK_OK(group,
             tally_reducer_reduce(framework->reducer, params, 1, framework->room, 0, 2, &future));
    CHECK_OK(group, ranks_finish(future));
    /* All ranks are done with the first bucket. */
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    if (tally_group_rank(group) != 0) {
        size_t bytes = 0;

        CHECK_OK(group, tally_reducer_reduce(framework->reducer, params + 1, 2, framework->room, 1,
                                             2, &future));
        status = ranks_finish(future);
        CHECK(group, status == TALLY_ABORTED || status == TALLY_PEER);
        CHECK_TEXT(group, tally_last_error(), "freed its reducer");
        CHECK_STATUS(
            group,
            tally_reducer_reduce(framework->reducer, params, 1, framework->room, 0, 2, &future),
            TALLY_ABORTED);
        /* The state up to now can still be saved. */
        CHECK_OK(group, tally_reducer_save(framework->reducer, NULL, &bytes));
    }
    CHECK_OK(group, framework_end(group, framework));
    free(framework);
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 4, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < N_OF(worlds); w++) {
        n_failures += ddp_run_world("test_reducer", body, NULL, 1, worlds[w]);
    }
    n_failures += ddp_run_world("test_reducer: free early", free_early, NULL, 1, 3);
    /* Without lane threads, jobs run where a future is waited for. */
    n_failures += ddp_run_world("test_reducer: no lanes", body, NULL, 0, 1);
    return n_failures != 0;
}

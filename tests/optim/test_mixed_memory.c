/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of mixed precision and loss scaling, for one rank: every allocation there is may fail,
 * once, without a leak; and good steps, once warm, allocate nothing.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/counting_memory.h"
#include "support/mixed_model.h"
#include "support/oracle.h"

#define TRY_STATUS(call)       \
    do {                       \
        int rc_ = (call);      \
        if (rc_ != TALLY_OK) { \
            return rc_;        \
        }                      \
    } while (0)

struct alone {
    struct mixed_case of;
    const char *hook;
    struct ddp_model model;
    float running[3];
    tally_group *group;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
    size_t n_allocated; /* by good steps once warm */
};

static int step(struct alone *alone, unsigned seed, bool is_bad)
{
    for (size_t i = 0; i < alone->model.n; i++) {
        if (!ddp_has_gradient(&alone->model, i)) {
            continue;
        }
        mixed_fill(&alone->model, alone->ddp, &alone->of, i, seed, 0);
        if (is_bad && i == 1) {
            mixed_put(alone->of.param_dtype, tally_ddp_grad(alone->ddp, 1), 0, (double)NAN);
        }
        TRY_STATUS(tally_ddp_grad_ready(alone->ddp, (int)i));
    }
    return tally_ddp_wait(alone->ddp);
}

static int use(struct alone *alone)
{
    const tally_buffer buffer = {sizeof buffer, "running", alone->running, sizeof alone->running,
                                 TALLY_F32};
    tally_ddp_config config;
    tally_optimizer_config optimizer;
    size_t before;

    tally_ddp_config_init(&config, sizeof config);
    config.param_dtype = alone->of.param_dtype;
    config.reduce_dtype = alone->of.reduce_dtype;
    config.buffer_dtype = TALLY_F16;
    config.buffers = &buffer;
    config.n_buffers = 1;
    config.bucket_cap_bytes = 100;
    config.hook = alone->hook;
    tally_optimizer_config_init(&optimizer, sizeof optimizer);
    optimizer.overlap = 1;
    optimizer.loss_scale = 2;
    TRY_STATUS(tally_group_open(NULL, &alone->group));
    TRY_STATUS(
        tally_ddp_create(alone->group, alone->model.params, alone->model.n, &config, &alone->ddp));
    TRY_STATUS(tally_optimizer_create(alone->ddp, "adamw", &optimizer, &alone->optimizer));
    for (unsigned s = 0; s < 3; s++) {
        TRY_STATUS(step(alone, s, false));
    }
    before = counting_memory_calls();
    TRY_STATUS(step(alone, 3, false));
    alone->n_allocated = counting_memory_calls() - before;
    TRY_STATUS(step(alone, 4, true));
    return step(alone, 5, false);
}

static int scenario(void *user)
{
    struct alone *alone = user;
    int rc = use(alone);

    /* In this order: a step may be under way. */
    (void)tally_ddp_free(alone->ddp);
    (void)tally_optimizer_free(alone->optimizer);
    (void)tally_group_close(alone->group);
    alone->optimizer = NULL;
    alone->ddp = NULL;
    alone->group = NULL;
    return rc;
}

static void exhaust(const struct mixed_case *of, const char *hook, size_t n_per_step)
{
    struct alone alone = {.of = *of, .hook = hook};
    tally_ddp_config config;

    oracle_start();
    assert_int_equal(mixed_make(&alone.model, of, 0, &config), 0);
    assert_true(counting_memory_exhaust(scenario, &alone) > 20);
    assert_int_equal(alone.n_allocated, n_per_step);
    ddp_model_free(&alone.model);
}

/* A job of a bucket and its future are allocated in each step, with and without mixed precision. */
static size_t allocations_of_steps(void)
{
    struct alone alone = {.of = {TALLY_F32, TALLY_F32, true}, .hook = "allreduce"};
    tally_ddp_config config;

    oracle_start();
    assert_int_equal(mixed_make(&alone.model, &alone.of, 0, &config), 0);
    assert_int_equal(scenario(&alone), TALLY_OK);
    ddp_model_free(&alone.model);
    return alone.n_allocated;
}

static void halves(void **state)
{
    (void)state;
    exhaust(&mixed_cases[2], "int8", allocations_of_steps());
}

static void wide(void **state)
{
    (void)state;
    exhaust(&mixed_cases[0], "int8", allocations_of_steps());
}

static void low_rank(void **state)
{
    (void)state;
    exhaust(&mixed_cases[0], "powersgd:rank=1,start=1", allocations_of_steps());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves),
        cmocka_unit_test(wide),
        cmocka_unit_test(low_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

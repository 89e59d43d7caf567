/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that was built with the header of version 0.1.0: it trains with the structs of then and
 * gets the bits that a program of today gets. Each struct lies in memory that ends with it and is
 * full of garbage before it is filled in, padding included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/structs_0_1_0.h"

#define N_PARAMS 3
#define N_VALUES 5
#define N_STEPS 4

/* The fields of then are where they were. */
#define SAME_PLACE(name, field)                                                            \
    _Static_assert(offsetof(struct v010_##name, field) == offsetof(tally_##name, field) && \
                       sizeof(((struct v010_##name *)0)->field) ==                         \
                           sizeof(((tally_##name *)0)->field),                             \
                   #name "." #field " has moved")

SAME_PLACE(group_config, backend);
SAME_PLACE(group_config, lanes);
SAME_PLACE(group_config, mpi_comm);
SAME_PLACE(param, strides);
SAME_PLACE(param, grad);
SAME_PLACE(param, flags);
SAME_PLACE(buffer, bytes);
SAME_PLACE(buffer, dtype);
SAME_PLACE(ddp_config, hook);
SAME_PLACE(ddp_config, buffer_hook_user);
SAME_PLACE(ddp_config, buffer_dtype);
SAME_PLACE(bucket_param, offset);
SAME_PLACE(bucket_param, data);
SAME_PLACE(bucket, divisor);
SAME_PLACE(bucket, n_params);
SAME_PLACE(bucket, keeper);
SAME_PLACE(bucket, n_ranks);
SAME_PLACE(hook_blob, bytes);
SAME_PLACE(hook_table, feedback);
SAME_PLACE(hook_table, reduce);
SAME_PLACE(hook_table, destroy);
SAME_PLACE(hook_info, n_options);
SAME_PLACE(hook_option, help);
SAME_PLACE(env_var, value);
SAME_PLACE(averager_level, group);
SAME_PLACE(averager_config, params);
SAME_PLACE(averager_config, outer);
SAME_PLACE(averager_stats, mean_average_s);
SAME_PLACE(step_param, state);
SAME_PLACE(step_param, lr);
SAME_PLACE(optimizer_table, step_param);
SAME_PLACE(optimizer_table, destroy);
SAME_PLACE(optimizer_info, n_options);
SAME_PLACE(optimizer_group, user);
SAME_PLACE(optimizer_group, n_params);
SAME_PLACE(optimizer_config, max_norm);
SAME_PLACE(optimizer_config, loss_scale_interval);
SAME_PLACE(optimizer_stats, norm);
SAME_PLACE(optimizer_stats, mean_exposed_update_s);
SAME_PLACE(ddp_stats, hook);
SAME_PLACE(ddp_stats, mean_exposed_s);
SAME_PLACE(ddp_stats, error_text);
SAME_PLACE(bucket_stats, wire_bytes);

/* Arrays of these go to callbacks, which know their own sizeof only. */
_Static_assert(sizeof(struct v010_hook_blob) == sizeof(tally_hook_blob), "tally_hook_blob grew");
_Static_assert(sizeof(struct v010_bucket_param) == sizeof(tally_bucket_param),
               "tally_bucket_param grew");
_Static_assert(sizeof(struct v010_averager_level) == sizeof(tally_averager_level),
               "tally_averager_level grew");

/* A field that was added does not lie in the padding of then, which may hold anything. */
#define AFTER_0_1_0(name, field)                                                \
    _Static_assert(offsetof(tally_##name, field) >= sizeof(struct v010_##name), \
                   #name "." #field " is in the padding of 0.1.0")

AFTER_0_1_0(ddp_config, check);
AFTER_0_1_0(hook_table, elementwise);
AFTER_0_1_0(ddp_stats, host_bytes);
AFTER_0_1_0(bucket_stats, host_bytes);
AFTER_0_1_0(averager_stats, host_bytes);

static void *garbage(size_t n, size_t size)
{
    void *bytes = malloc(n * size);

    assert_non_null(bytes);
    memset(bytes, 0xa5, n * size);
    return bytes;
}

/* ---- a hook, an optimizer and a buffer hook of the program's own ---- */

/* One rank: the gradient is its own mean. */
static int reduce(void *state, tally_lane *lane, const struct v010_bucket *bucket)
{
    (void)state;
    (void)lane;
    assert_true(bucket->size >= sizeof *bucket);
    assert_int_equal(bucket->n_ranks, 1);
    for (int k = 0; k < bucket->n_params; k++) {
        const struct v010_bucket_param *param = &bucket->params[k];

        assert_int_equal(param->n, N_VALUES);
        assert_ptr_equal(param->gradient, (float *)bucket->data + param->offset);
    }
    return TALLY_OK;
}

static int step_param(void *user, const struct v010_step_param *param)
{
    (void)user;
    for (size_t i = 0; i < param->n; i++) {
        param->data[i] -= (float)param->lr * param->gradient[i];
    }
    return TALLY_OK;
}

static int n_buffer_calls;

static int align(void *user, tally_lane *lane, const struct v010_buffer *buffers, size_t n)
{
    (void)lane;
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(buffers[i].data, (char *)user + 8 * i);
        assert_int_equal(buffers[i].bytes, 8);
        assert_int_equal(buffers[i].size, sizeof *buffers);
    }
    n_buffer_calls++;
    return TALLY_OK;
}

/* ---- the program ---- */

struct program {
    float values[N_PARAMS][N_VALUES];
    char memory[2][8];
    tally_group *group;
    tally_hook *hook;
    tally_ddp *ddp;
    tally_averager *averager;
    tally_optimizer *optimizer;
};

static const size_t shape = N_VALUES;
static const char *const names[N_PARAMS] = {"first", "second", "third"};

static void begin(struct program *program)
{
    *program = (struct program){.group = NULL};
    for (int i = 0; i < N_PARAMS * N_VALUES; i++) {
        program->values[i / N_VALUES][i % N_VALUES] = (float)i / 3;
    }
}

static void train(struct program *program)
{
    for (int step = 0; step < N_STEPS; step++) {
        for (int i = 0; i < N_PARAMS; i++) {
            float *gradient = tally_ddp_grad(program->ddp, i);

            for (int k = 0; k < N_VALUES; k++) {
                gradient[k] = program->values[i][k] - (float)step;
            }
            assert_int_equal(tally_ddp_grad_ready(program->ddp, i), TALLY_OK);
        }
        assert_int_equal(tally_ddp_wait(program->ddp), TALLY_OK);
        assert_int_equal(tally_optimizer_step(program->optimizer), TALLY_OK);
    }
}

static void end(struct program *program)
{
    assert_int_equal(tally_optimizer_free(program->optimizer), TALLY_OK);
    assert_int_equal(tally_averager_free(program->averager), TALLY_OK);
    assert_int_equal(tally_ddp_free(program->ddp), TALLY_OK);
    tally_hook_free(program->hook);
    assert_int_equal(tally_group_close(program->group), TALLY_OK);
}

static void open_group(struct program *program)
{
    struct v010_group_config *config = garbage(1, sizeof *config);

    tally_group_config_init((tally_group_config *)config, sizeof *config);
    assert_int_equal(config->size, sizeof *config);
    assert_int_equal(config->lanes, -1);
    config->backend = "self";
    config->lanes = 1;
    assert_int_equal(tally_group_open((tally_group_config *)config, &program->group), TALLY_OK);
    free(config);
}

static struct v010_param *old_params(struct program *program)
{
    struct v010_param *params = garbage(N_PARAMS, sizeof *params);

    for (int i = 0; i < N_PARAMS; i++) {
        params[i].size = sizeof *params;
        params[i].name = names[i];
        params[i].n_dims = 1;
        params[i].shape = &shape;
        params[i].strides = NULL;
        params[i].dtype = TALLY_F32;
        params[i].data = program->values[i];
        params[i].grad = NULL;
        params[i].flags = 0;
    }
    return params;
}

static struct v010_buffer *old_buffers(struct program *program)
{
    struct v010_buffer *buffers = garbage(2, sizeof *buffers);

    for (int i = 0; i < 2; i++) {
        buffers[i].size = sizeof *buffers;
        buffers[i].name = NULL;
        buffers[i].data = program->memory[i];
        buffers[i].bytes = sizeof program->memory[i];
        buffers[i].dtype = TALLY_U8;
    }
    return buffers;
}

static void make_ddp(struct program *program)
{
    struct v010_ddp_config *config = garbage(1, sizeof *config);
    struct v010_param *params = old_params(program);
    struct v010_buffer *buffers = old_buffers(program);

    tally_ddp_config_init((tally_ddp_config *)config, sizeof *config);
    assert_int_equal(config->size, sizeof *config);
    /* A change that a compiler may make to padding. */
    memset((char *)&config->buffer_dtype + sizeof config->buffer_dtype, 0xa5,
           sizeof *config - offsetof(struct v010_ddp_config, buffer_dtype) -
               sizeof config->buffer_dtype);
    config->buffers = buffers;
    config->n_buffers = 2;
    config->buffer_hook = align;
    config->buffer_hook_user = program->memory;
    assert_int_equal(tally_ddp_create(program->group, (tally_param *)params, N_PARAMS,
                                      (tally_ddp_config *)config, &program->ddp),
                     TALLY_OK);
    free(config);
    free(params);
    free(buffers);
}

static void attach_hook(struct program *program)
{
    struct v010_hook_table *table = garbage(1, sizeof *table);

    memset(table, 0, sizeof *table);
    table->size = sizeof *table;
    table->name = "own";
    table->reduce = reduce;
    assert_int_equal(tally_hook_create((tally_hook_table *)table, NULL, &program->hook), TALLY_OK);
    assert_int_equal(tally_ddp_attach_hook(program->ddp, program->hook), TALLY_OK);
    free(table);
}

static void make_averager(struct program *program)
{
    const struct v010_averager_level level = {.period = 2};
    struct v010_averager_config *config = garbage(1, sizeof *config);

    tally_averager_config_init((tally_averager_config *)config, sizeof *config);
    config->levels = &level;
    config->n_levels = 1;
    assert_int_equal(
        tally_averager_create(program->ddp, (tally_averager_config *)config, &program->averager),
        TALLY_OK);
    free(config);
}

/* The first parameter by a text, the others by a table. */
static void make_optimizer(struct program *program)
{
    static const int first = 0;
    struct v010_optimizer_table *table = garbage(1, sizeof *table);
    struct v010_optimizer_group *groups = garbage(2, sizeof *groups);
    struct v010_optimizer_config *config = garbage(1, sizeof *config);

    memset(table, 0, sizeof *table);
    table->size = sizeof *table;
    table->name = "own";
    table->elementwise = 1;
    table->step_param = step_param;
    memset(groups, 0, 2 * sizeof *groups);
    groups[0].size = groups[1].size = sizeof *groups;
    groups[0].text = "sgd:lr=0.1,momentum=0.9";
    groups[0].params = &first;
    groups[0].n_params = 1;
    groups[1].table = table;
    groups[1].lr = 0.25;
    tally_optimizer_config_init((tally_optimizer_config *)config, sizeof *config);
    config->groups = groups;
    config->n_groups = 2;
    config->max_norm = 2;
    config->averager = program->averager;
    assert_int_equal(tally_optimizer_create(program->ddp, NULL, (tally_optimizer_config *)config,
                                            &program->optimizer),
                     TALLY_OK);
    free(table);
    free(groups);
    free(config);
}

static void look_at_stats(const struct program *program)
{
    struct v010_ddp_stats *ddp = garbage(1, sizeof *ddp);
    struct v010_bucket_stats *bucket = garbage(1, sizeof *bucket);
    struct v010_optimizer_stats *optimizer = garbage(1, sizeof *optimizer);
    struct v010_averager_stats *averager = garbage(1, sizeof *averager);

    ddp->size = sizeof *ddp;
    bucket->size = sizeof *bucket;
    optimizer->size = sizeof *optimizer;
    averager->size = sizeof *averager;
    assert_int_equal(tally_ddp_get_stats(program->ddp, (tally_ddp_stats *)ddp), TALLY_OK);
    assert_int_equal(ddp->step, N_STEPS);
    assert_string_equal(ddp->hook, "own");
    assert_string_equal(ddp->error_text, "");
    assert_int_equal(tally_ddp_get_bucket_stats(program->ddp, 0, (tally_bucket_stats *)bucket),
                     TALLY_OK);
    assert_int_equal(bucket->n_params, N_PARAMS);
    assert_int_equal(
        tally_optimizer_get_stats(program->optimizer, (tally_optimizer_stats *)optimizer),
        TALLY_OK);
    assert_int_equal(optimizer->step, N_STEPS);
    assert_int_equal(tally_averager_get_stats(program->averager, (tally_averager_stats *)averager),
                     TALLY_OK);
    assert_int_equal(averager->n_averagings, N_STEPS / 2);
    free(ddp);
    free(bucket);
    free(optimizer);
    free(averager);
}

/* ---- the same with the structs of today ---- */

static void train_today(struct program *program)
{
    static const int first = 0;
    static const tally_averager_level level = {.period = 2};
    const tally_optimizer_table table = {.size = sizeof table,
                                         .name = "own",
                                         .elementwise = 1,
                                         .step_param =
                                             (int (*)(void *, const tally_step_param *))step_param};
    const tally_optimizer_group groups[2] = {{.size = sizeof *groups,
                                              .text = "sgd:lr=0.1,momentum=0.9",
                                              .params = &first,
                                              .n_params = 1},
                                             {.size = sizeof *groups, .table = &table, .lr = 0.25}};
    tally_param params[N_PARAMS];
    tally_averager_config averager;
    tally_optimizer_config config;

    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = (tally_param){.size = sizeof *params,
                                  .name = names[i],
                                  .n_dims = 1,
                                  .shape = &shape,
                                  .dtype = TALLY_F32,
                                  .data = program->values[i]};
    }
    assert_int_equal(tally_group_open(NULL, &program->group), TALLY_OK);
    assert_int_equal(tally_ddp_create(program->group, params, N_PARAMS, NULL, &program->ddp),
                     TALLY_OK);
    tally_averager_config_init(&averager, sizeof averager);
    averager.levels = &level;
    averager.n_levels = 1;
    assert_int_equal(tally_averager_create(program->ddp, &averager, &program->averager), TALLY_OK);
    tally_optimizer_config_init(&config, sizeof config);
    config.groups = groups;
    config.n_groups = 2;
    config.max_norm = 2;
    config.averager = program->averager;
    assert_int_equal(tally_optimizer_create(program->ddp, NULL, &config, &program->optimizer),
                     TALLY_OK);
    train(program);
}

static void test_training(void **state)
{
    struct program then;
    struct program today;

    (void)state;
    begin(&then);
    open_group(&then);
    make_ddp(&then);
    attach_hook(&then);
    make_averager(&then);
    make_optimizer(&then);
    train(&then);
    look_at_stats(&then);
    assert_int_equal(n_buffer_calls, N_STEPS);
    begin(&today);
    train_today(&today);
    assert_memory_equal(then.values, today.values, sizeof then.values);
    assert_float_not_equal(then.values[0][0], 0.0F, 0.0F);
    end(&then);
    end(&today);
}

static void test_lists(void **state)
{
    struct v010_env_var *var = garbage(1, sizeof *var);
    struct v010_hook_info *hook = garbage(1, sizeof *hook);
    struct v010_hook_option *option = garbage(1, sizeof *option);
    struct v010_optimizer_info *optimizer = garbage(1, sizeof *optimizer);

    (void)state;
    var->size = sizeof *var;
    hook->size = sizeof *hook;
    option->size = sizeof *option;
    optimizer->size = sizeof *optimizer;
    assert_int_equal(tally_env_get(0, (tally_env_var *)var), TALLY_OK);
    assert_non_null(strstr(var->name, "TALLY_"));
    assert_int_equal(tally_hook_describe(1, (tally_hook_info *)hook), TALLY_OK);
    assert_true(strlen(hook->name) > 0);
    assert_int_equal(tally_hook_describe_option(1, 0, (tally_hook_option *)option), TALLY_OK);
    assert_true(strlen(option->name) > 0);
    assert_int_equal(tally_optimizer_describe(0, (tally_optimizer_info *)optimizer), TALLY_OK);
    assert_string_equal(optimizer->name, "sgd");
    free(var);
    free(hook);
    free(option);
    free(optimizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that begin with their size, of every size: those of older programs end where fields end
 * that later versions have appended, those of newer programs are larger. Each lies in memory that
 * ends with it, so that the address sanitizer sees what is read or written beyond, and full of
 * garbage before it is filled in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tally_extend.h>

#define GARBAGE 0xa5
#define MORE 64 /* bytes of a newer version */

/* A group, a ddp and its optimizer and averager, for what needs one. */
struct things {
    tally_group *group;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
    tally_averager *averager;
};

static struct things things;
static float data[2][3];
static const size_t shape = 3;

static tally_param param_of(int i)
{
    return (tally_param){.size = sizeof(tally_param),
                         .name = i ? "second" : "first",
                         .n_dims = 1,
                         .shape = &shape,
                         .dtype = TALLY_F32,
                         .data = data[i]};
}

static int create_ddp(const tally_param *params, const tally_ddp_config *config, tally_ddp **ddp)
{
    return tally_ddp_create(things.group, params, 2, config, ddp);
}

static int make_ddp(tally_ddp **ddp)
{
    const tally_param params[2] = {param_of(0), param_of(1)};

    return create_ddp(params, NULL, ddp);
}

/* ---- configs: filled in by their init ---- */

static int use_group_config(void *config)
{
    tally_group *group;
    int rc = tally_group_open(config, &group);

    if (rc == TALLY_OK) {
        assert_int_equal(tally_group_close(group), TALLY_OK);
        assert_int_equal(tally_group_open_threads(config, 1, &group), TALLY_OK);
        assert_int_equal(tally_group_close(group), TALLY_OK);
    } else {
        assert_int_equal(tally_group_open_threads(config, 1, &group), rc);
    }
    return rc;
}

static int use_ddp_config(void *config)
{
    const tally_param params[2] = {param_of(0), param_of(1)};
    tally_ddp *ddp;
    int rc = create_ddp(params, config, &ddp);

    return rc == TALLY_OK ? tally_ddp_free(ddp) : rc;
}

static int use_optimizer_config(void *config)
{
    tally_optimizer *optimizer;
    tally_ddp *ddp;
    int rc;

    assert_int_equal(make_ddp(&ddp), TALLY_OK);
    rc = tally_optimizer_create(ddp, "sgd:lr=0.1", config, &optimizer);
    if (rc == TALLY_OK) {
        assert_int_equal(tally_optimizer_free(optimizer), TALLY_OK);
    }
    assert_int_equal(tally_ddp_free(ddp), TALLY_OK);
    return rc;
}

static int use_averager_config(void *config)
{
    static const tally_averager_level level = {.period = 2};
    tally_averager_config *given = config;
    tally_averager *averager;
    tally_ddp *ddp;
    int rc;

    if (given->size >= sizeof *given) {
        given->levels = &level;
        given->n_levels = 1;
    }
    assert_int_equal(make_ddp(&ddp), TALLY_OK);
    rc = tally_averager_create(ddp, given, &averager);
    if (rc == TALLY_OK) {
        assert_int_equal(tally_averager_free(averager), TALLY_OK);
    }
    assert_int_equal(tally_ddp_free(ddp), TALLY_OK);
    return rc;
}

static void init_group(void *config, size_t size)
{
    tally_group_config_init(config, size);
}

static void init_ddp(void *config, size_t size)
{
    tally_ddp_config_init(config, size);
}

static void init_optimizer(void *config, size_t size)
{
    tally_optimizer_config_init(config, size);
}

static void init_averager(void *config, size_t size)
{
    tally_averager_config_init(config, size);
}

#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)NULL)->field))

static const struct config {
    const char *name;
    size_t first; /* the end of the first version's fields */
    size_t whole;
    void (*init)(void *config, size_t size);
    int (*use)(void *config);
} configs[] = {
    {"tally_group_config", END_OF(tally_group_config, lanes), sizeof(tally_group_config),
     init_group, use_group_config},
    {"tally_ddp_config", END_OF(tally_ddp_config, join_divides_by_active), sizeof(tally_ddp_config),
     init_ddp, use_ddp_config},
    {"tally_optimizer_config", END_OF(tally_optimizer_config, max_norm),
     sizeof(tally_optimizer_config), init_optimizer, use_optimizer_config},
    {"tally_averager_config", END_OF(tally_averager_config, outer), sizeof(tally_averager_config),
     init_averager, use_averager_config},
};

static bool fits(size_t first, size_t size)
{
    return size >= first && size % sizeof(size_t) == 0;
}

static unsigned char *garbage(size_t size)
{
    unsigned char *bytes = malloc(size > 0 ? size : 1);

    assert_non_null(bytes);
    memset(bytes, GARBAGE, size > 0 ? size : 1);
    return bytes;
}

static void test_configs(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        for (size_t size = 0; size <= configs[c].whole + MORE; size++) {
            unsigned char *config = garbage(size);
            int expected = fits(configs[c].first, size) ? TALLY_OK : TALLY_ARG;
            int rc = expected;

            configs[c].init(config, size);
            /* Less than a size has no place for one. */
            if (size >= sizeof(size_t)) {
                rc = configs[c].use(config);
            } else {
                assert_true(size == 0 || config[0] == GARBAGE);
            }
            if (rc != expected || (rc != TALLY_OK && size >= sizeof(size_t) &&
                                   !strstr(tally_last_error(), configs[c].name))) {
                fail_msg("%s of %zu bytes: %s: %s", configs[c].name, size, tally_status_name(rc),
                         tally_last_error());
            }
            free(config);
        }
        configs[c].init(NULL, configs[c].whole);
    }
}

/* ---- what is given by hand, alone or as an array ---- */

/* Two entries of this size, one after the other, from those of today. */
static void *array_of(const void *entries, size_t whole, size_t size)
{
    unsigned char *array = garbage(2 * size);

    for (size_t i = 0; i < 2; i++) {
        memcpy(array + i * size, (const unsigned char *)entries + i * whole,
               size < whole ? size : whole);
        memcpy(array + i * size, &size, sizeof size);
    }
    return array;
}

static int use_params(size_t size)
{
    const tally_param params[2] = {param_of(0), param_of(1)};
    void *array = array_of(params, sizeof *params, size);
    tally_ddp *ddp;
    int rc = create_ddp(array, NULL, &ddp);

    free(array);
    if (rc == TALLY_OK) {
        assert_ptr_equal(tally_ddp_data(ddp, 1), data[1]);
        rc = tally_ddp_free(ddp);
    }
    return rc;
}

static int use_buffers(size_t size)
{
    static char memory[2][8];
    const tally_buffer buffers[2] = {{sizeof *buffers, "one", memory[0], 8, TALLY_U8},
                                     {sizeof *buffers, "two", memory[1], 8, TALLY_U8}};
    void *array = array_of(buffers, sizeof *buffers, size);
    tally_ddp_config config;
    int rc;

    tally_ddp_config_init(&config, sizeof config);
    config.buffers = array;
    config.n_buffers = 2;
    rc = use_ddp_config(&config);
    free(array);
    return rc;
}

static int no_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    (void)lane;
    (void)bucket;
    return TALLY_OK;
}

static int use_hook_table(size_t size)
{
    const tally_hook_table tables[2] = {
        {.size = sizeof *tables, .name = "own", .reduce = no_reduce},
        {.size = sizeof *tables, .name = "own", .reduce = no_reduce}};
    void *table = array_of(tables, sizeof *tables, size);
    tally_hook *hook;
    int rc = tally_hook_create(table, NULL, &hook);

    free(table);
    if (rc == TALLY_OK) {
        tally_hook_free(hook);
    }
    return rc;
}

static int no_step(void *user, const tally_step_param *param)
{
    (void)user;
    (void)param;
    return TALLY_OK;
}

/* Two groups: one names the first parameter, the other takes the rest, by a table. */
static int use_groups(size_t group_size, size_t table_size)
{
    static const int first = 0;
    const tally_optimizer_table tables[2] = {
        {.size = sizeof *tables, .name = "own", .step_param = no_step},
        {.size = sizeof *tables, .name = "own", .step_param = no_step}};
    void *table = array_of(tables, sizeof *tables, table_size);
    const tally_optimizer_group groups[2] = {
        {.size = sizeof *groups, .text = "sgd:lr=0.1", .params = &first, .n_params = 1},
        {.size = sizeof *groups, .table = table, .lr = 1}};
    void *array = array_of(groups, sizeof *groups, group_size);
    tally_optimizer_config config;
    tally_optimizer *optimizer;
    tally_ddp *ddp;
    int rc;

    assert_int_equal(make_ddp(&ddp), TALLY_OK);
    tally_optimizer_config_init(&config, sizeof config);
    config.groups = array;
    config.n_groups = 2;
    rc = tally_optimizer_create(ddp, NULL, &config, &optimizer);
    if (rc == TALLY_OK) {
        assert_int_equal(tally_optimizer_free(optimizer), TALLY_OK);
    }
    assert_int_equal(tally_ddp_free(ddp), TALLY_OK);
    free(array);
    free(table);
    return rc;
}

static int use_optimizer_groups(size_t size)
{
    return use_groups(size, sizeof(tally_optimizer_table));
}

static int use_optimizer_table(size_t size)
{
    return use_groups(sizeof(tally_optimizer_group), size);
}

static const struct given {
    const char *name;
    size_t first;
    size_t whole;
    int (*use)(size_t size);
} given[] = {
    {"tally_param", END_OF(tally_param, flags), sizeof(tally_param), use_params},
    {"tally_buffer", END_OF(tally_buffer, bytes), sizeof(tally_buffer), use_buffers},
    {"tally_hook_table", END_OF(tally_hook_table, destroy), sizeof(tally_hook_table),
     use_hook_table},
    {"tally_optimizer_group", END_OF(tally_optimizer_group, n_params),
     sizeof(tally_optimizer_group), use_optimizer_groups},
    {"tally_optimizer_table", END_OF(tally_optimizer_table, destroy), sizeof(tally_optimizer_table),
     use_optimizer_table},
};

static void test_given(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof given / sizeof *given; g++) {
        for (size_t size = sizeof(size_t); size <= given[g].whole + MORE; size++) {
            int rc = given[g].use(size);

            if (rc != (fits(given[g].first, size) ? TALLY_OK : TALLY_ARG)) {
                fail_msg("%s of %zu bytes: %s: %s", given[g].name, size, tally_status_name(rc),
                         tally_last_error());
            }
            if (rc != TALLY_OK) {
                assert_non_null(strstr(tally_last_error(), given[g].name));
            }
        }
    }
}

/* ---- answers ---- */

static int ask_env(void *answer)
{
    return tally_env_get(0, answer);
}

static int ask_hook(void *answer)
{
    return tally_hook_describe(0, answer);
}

static int ask_hook_option(void *answer)
{
    return tally_hook_describe_option(1, 0, answer);
}

static int ask_optimizer(void *answer)
{
    return tally_optimizer_describe(0, answer);
}

static int ask_ddp_stats(void *answer)
{
    return tally_ddp_get_stats(things.ddp, answer);
}

static int ask_bucket_stats(void *answer)
{
    return tally_ddp_get_bucket_stats(things.ddp, 0, answer);
}

static int ask_optimizer_stats(void *answer)
{
    return tally_optimizer_get_stats(things.optimizer, answer);
}

static int ask_averager_stats(void *answer)
{
    return tally_averager_get_stats(things.averager, answer);
}

static const struct answer {
    const char *name;
    size_t first;
    size_t whole;
    int (*ask)(void *answer);
} answers[] = {
    {"tally_env_var", END_OF(tally_env_var, value), sizeof(tally_env_var), ask_env},
    {"tally_hook_info", END_OF(tally_hook_info, n_options), sizeof(tally_hook_info), ask_hook},
    {"tally_hook_option", END_OF(tally_hook_option, help), sizeof(tally_hook_option),
     ask_hook_option},
    {"tally_optimizer_info", END_OF(tally_optimizer_info, n_options), sizeof(tally_optimizer_info),
     ask_optimizer},
    {"tally_ddp_stats", END_OF(tally_ddp_stats, mean_exposed_s), sizeof(tally_ddp_stats),
     ask_ddp_stats},
    {"tally_bucket_stats", END_OF(tally_bucket_stats, wire_bytes), sizeof(tally_bucket_stats),
     ask_bucket_stats},
    {"tally_optimizer_stats", END_OF(tally_optimizer_stats, mean_exposed_update_s),
     sizeof(tally_optimizer_stats), ask_optimizer_stats},
    {"tally_averager_stats", END_OF(tally_averager_stats, mean_average_s),
     sizeof(tally_averager_stats), ask_averager_stats},
};

/* An answer of this size is the beginning of the whole one; refused, nothing is written. */
static void ask_of(const struct answer *answer, size_t size, const unsigned char *whole)
{
    unsigned char *bytes = garbage(size);
    size_t known = size < answer->whole ? size : answer->whole;
    int rc;

    memcpy(bytes, &size, sizeof size);
    rc = answer->ask(bytes);
    if (rc != (fits(answer->first, size) ? TALLY_OK : TALLY_ARG)) {
        fail_msg("%s of %zu bytes: %s: %s", answer->name, size, tally_status_name(rc),
                 tally_last_error());
    }
    assert_memory_equal(bytes, &size, sizeof size);
    for (size_t i = sizeof size; i < size; i++) {
        unsigned char expected = rc == TALLY_OK && i < known ? whole[i] : GARBAGE;

        /* A text that is cut ends there. */
        if (bytes[i] != expected && !(i + 1 == size && bytes[i] == 0)) {
            fail_msg("%s of %zu bytes: byte %zu is %#x, not %#x", answer->name, size, i, bytes[i],
                     expected);
        }
    }
    free(bytes);
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof answers / sizeof *answers; a++) {
        unsigned char *whole = garbage(answers[a].whole);

        memcpy(whole, &answers[a].whole, sizeof answers[a].whole);
        assert_int_equal(answers[a].ask(whole), TALLY_OK);
        for (size_t size = sizeof size; size <= answers[a].whole + MORE; size++) {
            ask_of(&answers[a], size, whole);
        }
        assert_int_equal(answers[a].ask(NULL), TALLY_ARG);
        free(whole);
    }
}

static int make_things(void **state)
{
    static const tally_averager_level level = {.period = 2};
    tally_averager_config config;

    (void)state;
    tally_averager_config_init(&config, sizeof config);
    config.levels = &level;
    config.n_levels = 1;
    if (tally_group_open(NULL, &things.group) != TALLY_OK || make_ddp(&things.ddp) != TALLY_OK ||
        tally_optimizer_create(things.ddp, "sgd", NULL, &things.optimizer) != TALLY_OK ||
        tally_averager_create(things.ddp, &config, &things.averager) != TALLY_OK) {
        return -1;
    }
    /* A text of an error, to be cut. */
    (void)tally_ddp_grad_ready(things.ddp, 7);
    return 0;
}

static int drop_things(void **state)
{
    (void)state;
    (void)tally_averager_free(things.averager);
    (void)tally_optimizer_free(things.optimizer);
    (void)tally_ddp_free(things.ddp);
    return tally_group_close(things.group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_answers),
    };

    return cmocka_run_group_tests(tests, make_things, drop_things);
}

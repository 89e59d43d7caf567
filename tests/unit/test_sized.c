/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that begin with their size, of every size. The structs of older programs end before
 * fields that later versions have appended; those of newer programs are larger, and any field that
 * the library does not know must be unset. Each struct lies in memory that ends with it, so that
 * the address sanitizer sees accesses beyond it, and is full of garbage before it is filled in.
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

static tally_group *group;
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
    return tally_ddp_create(group, params, 2, config, ddp);
}

static int make_ddp(tally_ddp **ddp)
{
    const tally_param params[2] = {param_of(0), param_of(1)};

    return create_ddp(params, NULL, ddp);
}

/* ---- configs: filled in by their init ---- */

static int use_group_config(void *config)
{
    tally_group *opened;
    int rc = tally_group_open(config, &opened);

    if (rc == TALLY_OK) {
        assert_int_equal(tally_group_close(opened), TALLY_OK);
        assert_int_equal(tally_group_open_threads(config, 1, &opened), TALLY_OK);
        assert_int_equal(tally_group_close(opened), TALLY_OK);
    } else {
        assert_int_equal(tally_group_open_threads(config, 1, &opened), rc);
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

/* A byte that array_of sets in the fields of newer programs; SIZE_MAX: none. */
static size_t byte_beyond = SIZE_MAX;

/* Two entries of this size, one after the other, from those of today. */
static void *array_of(const void *entries, size_t whole, size_t size)
{
    unsigned char *array = garbage(2 * size);

    memset(array, 0, 2 * size);
    for (size_t i = 0; i < 2; i++) {
        memcpy(array + i * size, (const unsigned char *)entries + i * whole,
               size < whole ? size : whole);
        memcpy(array + i * size, &size, sizeof size);
        if (byte_beyond < size - whole && size > whole) {
            array[i * size + whole + byte_beyond] = 1;
        }
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

static bool is_refused(const char *name, int rc)
{
    return rc == TALLY_UNSUPPORTED && strstr(tally_last_error(), name) &&
           strstr(tally_last_error(), "older than the tally.h");
}

static void test_newer_given(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof given / sizeof *given; g++) {
        for (byte_beyond = 0; byte_beyond < MORE; byte_beyond++) {
            int rc = given[g].use(given[g].whole + MORE);

            if (!is_refused(given[g].name, rc)) {
                fail_msg("%s with byte %zu beyond set: %s: %s", given[g].name, byte_beyond,
                         tally_status_name(rc), tally_last_error());
            }
        }
    }
    byte_beyond = SIZE_MAX;
}

static void test_newer_configs(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        size_t size = configs[c].whole + MORE;

        for (size_t i = configs[c].whole; i < size; i++) {
            unsigned char *config = garbage(size);
            int rc;

            configs[c].init(config, size);
            config[i] = 0x80;
            rc = configs[c].use(config);
            if (!is_refused(configs[c].name, rc)) {
                fail_msg("%s with byte %zu set: %s: %s", configs[c].name, i, tally_status_name(rc),
                         tally_last_error());
            }
            free(config);
        }
    }
}

/* All entries of an array have the size of the first. */
static void test_mixed_sizes(void **state)
{
    const tally_param params[2] = {param_of(0), param_of(1)};
    size_t larger = sizeof *params + sizeof(size_t);
    unsigned char *array = array_of(params, sizeof *params, sizeof *params);
    tally_ddp *ddp;

    (void)state;
    memcpy(array + sizeof *params, &larger, sizeof larger);
    assert_int_equal(create_ddp((tally_param *)(void *)array, NULL, &ddp), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "parameter 1: size is 80"));
    free(array);
}

struct larger_buffer {
    tally_buffer buffer;
    size_t more[3];
};

static int n_aligned;

static int align(void *user, tally_lane *lane, const tally_buffer *buffers, size_t n)
{
    const struct larger_buffer *larger = (const struct larger_buffer *)buffers;

    (void)lane;
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(larger[i].buffer.size, sizeof *larger);
        assert_ptr_equal(larger[i].buffer.data, (char *)user + 8 * i);
        assert_int_equal(larger[i].more[2], 0);
    }
    n_aligned++;
    return TALLY_OK;
}

/* A newer program's hook for buffers walks the array by its own sizeof. */
static void test_newer_buffers(void **state)
{
    static char memory[2][8];
    struct larger_buffer buffers[2] = {{{sizeof *buffers, "one", memory[0], 8, TALLY_U8}, {0}},
                                       {{sizeof *buffers, "two", memory[1], 8, TALLY_U8}, {0}}};
    const tally_param params[2] = {param_of(0), param_of(1)};
    tally_ddp_config config;
    tally_ddp *ddp;

    (void)state;
    tally_ddp_config_init(&config, sizeof config);
    config.buffers = &buffers[0].buffer;
    config.n_buffers = 2;
    config.buffer_hook = align;
    config.buffer_hook_user = memory;
    assert_int_equal(create_ddp(params, &config, &ddp), TALLY_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tally_ddp_grad_ready(ddp, i), TALLY_OK);
    }
    assert_int_equal(tally_ddp_wait(ddp), TALLY_OK);
    assert_int_equal(n_aligned, 1);
    assert_int_equal(tally_ddp_free(ddp), TALLY_OK);
}

/* A size that the program never set is refused, however much memory it claims. */
static void test_never_set(void **state)
{
    tally_group *opened = NULL;
    tally_group_config config;

    (void)state;
    tally_group_config_init(&config, sizeof config);
    config.size = (size_t)1 << 40;
    assert_int_equal(tally_group_open(&config, &opened), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "expected sizeof(tally_group_config)"));
    assert_null(opened);
}

static int open_group(void **state)
{
    (void)state;
    return tally_group_open(NULL, &group);
}

static int close_group(void **state)
{
    (void)state;
    return tally_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs),     cmocka_unit_test(test_given),
        cmocka_unit_test(test_newer_given), cmocka_unit_test(test_newer_configs),
        cmocka_unit_test(test_mixed_sizes), cmocka_unit_test(test_newer_buffers),
        cmocka_unit_test(test_never_set),
    };

    return cmocka_run_group_tests(tests, open_group, close_group);
}

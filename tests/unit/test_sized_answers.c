/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers in structs that begin with their size, of every size: see test_sized.c. tally writes as
 * much as it knows and as the struct has room for, and sets the fields of newer programs to zero.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tally.h>

#define GARBAGE 0xa5
#define MORE 64 /* bytes of a newer version */
#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)NULL)->field))

/* A group, a ddp and its optimizer and averager, for what needs one. */
struct things {
    tally_group *group;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
    tally_averager *averager;
};

static struct things things;

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

/* An answer of this size is the beginning of the whole one, and beyond that zeros; a call that is
 * refused writes nothing. */
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
        unsigned char answered = i < known ? whole[i] : 0;
        unsigned char expected = rc == TALLY_OK ? answered : GARBAGE;

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
    static const size_t shape = 3;
    static float data[3];
    const tally_param param = {.size = sizeof param,
                               .name = "only",
                               .n_dims = 1,
                               .shape = &shape,
                               .dtype = TALLY_F32,
                               .data = data};
    tally_averager_config config;

    (void)state;
    tally_averager_config_init(&config, sizeof config);
    config.levels = &level;
    config.n_levels = 1;
    if (tally_group_open(NULL, &things.group) != TALLY_OK ||
        tally_ddp_create(things.group, &param, 1, NULL, &things.ddp) != TALLY_OK ||
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
        cmocka_unit_test(test_answers),
    };

    return cmocka_run_group_tests(tests, make_things, drop_things);
}

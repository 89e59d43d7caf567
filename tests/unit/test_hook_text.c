/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks by text: what is read, canonical names, wrapping an object, and memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <locale.h>
#include <tally_extend.h>

#include "hook/hook.h"
#include "support/counting_memory.h"
#include "support/hook_checks.h"

/* ---- what is read ---- */

static void test_names(void **state)
{
    (void)state;
    check_hook_name("noop", "noop");
    check_hook_name("\t noop ", "noop");
    check_hook_name("leaf", "leaf");
    check_hook_name("leaf:count=4,mode=slow,real=0.5,half=0,step=512", "leaf");
    check_hook_name("leaf:mode=fast,count=5", "leaf:count=5,mode=fast");
    check_hook_name("leaf:mode=slower", "leaf:mode=slower");
    check_hook_name("leaf:step=0064", "leaf:step=64");
    check_hook_name("leaf:count=9007199254740992", "leaf:count=9007199254740992");
    check_hook_name(" leaf : count = 7 , half = 1 ", "leaf:count=7,half=1");
}

static void test_reals(void **state)
{
    (void)state;
    check_hook_name("leaf:real=1", "leaf:real=1");
    check_hook_name("leaf:real=1.50e0", "leaf:real=1.5");
    check_hook_name("leaf:real=-0.0", "leaf:real=0");
    check_hook_name("leaf:half=-0", "leaf");
    check_hook_name("leaf:real=5E-1", "leaf");
    check_hook_name("leaf:real=0.1", "leaf:real=0.1");
    check_hook_name("leaf:real=0.30000000000000004", "leaf:real=0.30000000000000004");
    check_hook_name("leaf:real=0.3000000000000000001", "leaf:real=0.3");
    check_hook_name("leaf:real=1e-8", "leaf:real=1e-08");
    check_hook_name("leaf:real=1e+22", "leaf:real=1e+22");
    check_hook_name("leaf:real=-1e300", "leaf:real=-1e+300");
    check_hook_name("leaf:real=4.9e-324", "leaf:real=4.94065645841247e-324");
}

static void test_wrappers(void **state)
{
    (void)state;
    check_hook_name("wrap", "wrap");
    assert_string_equal(hook_record.inner, "allreduce");
    check_hook_name("wrap(allreduce)", "wrap");
    check_hook_name("wrap ( allreduce )", "wrap");
    check_hook_name("wrap:flag=1(allreduce)", "wrap:flag=1");
    check_hook_name("wrap:scale=0.25,flag=1(leaf:count=9)", "wrap:flag=1,scale=0.25(leaf:count=9)");
    assert_string_equal(hook_record.inner, "leaf:count=9");
    check_hook_name("cover(wrap(allreduce))", "cover(wrap)");
    check_hook_name("cover(wrap:flag=0(noop))", "cover(wrap(noop))");
    check_hook_name("wrap(wrap(wrap(wrap(wrap(wrap(wrap(noop)))))))",
                    "wrap(wrap(wrap(wrap(wrap(wrap(wrap(noop)))))))");
    check_hook_name("wrap(wrap(wrap(wrap(wrap(wrap(wrap(wrap)))))))",
                    "wrap(wrap(wrap(wrap(wrap(wrap(wrap(wrap)))))))");
}

static void test_values(void **state)
{
    const double expected[] = {6, 0.125, 1, 128, 2};
    tally_hook *hook;

    (void)state;
    assert_int_equal(hook_parse("leaf:mode=slower,step=128,count=6,real=0.125,half=1", &hook),
                     TALLY_OK);
    assert_memory_equal(hook_record.values, expected, sizeof expected);
    tally_hook_free(hook);
    assert_int_equal(hook_parse("leaf:step=64", &hook), TALLY_OK);
    assert_memory_equal(hook_record.values, ((double[]){4, 0.5, 0, 64, 0}), 5 * sizeof(double));
    tally_hook_free(hook);
}

/* A program may have chosen a locale whose numbers have a comma. */
static void test_locale(void **state)
{
    char text[8];

    (void)state;
    if (!setlocale(LC_NUMERIC, "comma")) {
        skip();
    }
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    check_hook_name("leaf:real=0.25", "leaf:real=0.25");
    check_hook_error("leaf:real=0,25", "hook 'leaf:real=0,25': column 13: no option '25' of leaf; "
                                       "available: count, real, half, step, mode");
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    assert_non_null(setlocale(LC_NUMERIC, "C"));
}

/* ---- memory ---- */

static int parse_deep(void *user)
{
    tally_hook *hook = NULL;
    int rc = hook_parse(user, &hook);

    tally_hook_free(hook);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_int_equal(counting_memory_exhaust(parse_deep, "noop"), 2);
    assert_int_equal(counting_memory_exhaust(parse_deep, "wrap(cover(leaf:count=2))"), 6);
    assert_int_equal(counting_memory_exhaust(parse_deep, "cover(wrap)"), 6);
}

/* ---- wrapping an object ---- */

static int own_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    (void)lane;
    (void)bucket;
    return TALLY_OK;
}

static tally_hook *own_hook(const char *name)
{
    const tally_hook_table table = {.size = sizeof table, .name = name, .reduce = own_reduce};
    tally_hook *hook = NULL;

    assert_int_equal(tally_hook_create(&table, NULL, &hook), TALLY_OK);
    return hook;
}

static int wrap(const char *text, tally_hook *inner, tally_hook **hook)
{
    return tally__hook_wrap_in(&hook_kinds, text, inner, hook);
}

static void test_wrap(void **state)
{
    size_t live = counting_memory_live();
    tally_hook *inner = own_hook("top k");
    tally_hook *hook = NULL;

    (void)state;
    assert_int_equal(wrap(" wrap : flag = 1 ", inner, &hook), TALLY_OK);
    assert_string_equal(hook->table.name, "wrap:flag=1(top k)");
    tally_hook_free(inner);
    assert_string_equal(inner->table.name, "top k"); /* hook holds it */
    tally_hook_free(hook);
    assert_int_equal(counting_memory_live(), live);
}

static void check_wrap_error(const char *text, tally_hook *inner, const char *message)
{
    tally_hook *hook = NULL;

    assert_int_equal(wrap(text, inner, &hook), TALLY_ARG);
    assert_string_equal(tally_last_error(), message);
    assert_null(hook);
}

static int wrap_one(void *user)
{
    tally_hook *hook = NULL;
    int rc = wrap("cover", user, &hook);

    tally_hook_free(hook);
    return rc;
}

static void test_wrap_errors(void **state)
{
    size_t live = counting_memory_live();
    char long_name[300];
    tally_hook *inner = own_hook("mine");
    tally_hook *hook = NULL;

    (void)state;
    check_wrap_error(NULL, inner, "tally_hook_wrap: text is NULL");
    check_wrap_error("wrap", NULL, "tally_hook_wrap: inner is NULL");
    assert_int_equal(wrap("wrap", inner, NULL), TALLY_ARG);
    check_wrap_error(" noop", inner,
                     "hook ' noop': column 2: noop is not a wrapper; wrappers are wrap, cover");
    check_wrap_error("wrap(noop)", inner,
                     "hook 'wrap(noop)': column 5: accepted here: ':', the end");
    check_wrap_error("wrap:flag=2", inner,
                     "hook 'wrap:flag=2': column 11: flag takes 0|1, not '2'");
    check_wrap_error("wrap:flag=1 x", inner,
                     "hook 'wrap:flag=1 x': column 13: accepted here: ',', the end");
    assert_int_equal(counting_memory_exhaust(wrap_one, inner), 2);
    tally_hook_free(inner);

    memset(long_name, 'n', sizeof long_name);
    long_name[193] = '\0';
    inner = own_hook(long_name);
    assert_int_equal(wrap("cover", inner, &hook), TALLY_OK);
    assert_int_equal(strlen(hook->table.name), TALLY__MAX_TEXT);
    tally_hook_free(hook);
    tally_hook_free(inner);
    long_name[193] = 'n';
    long_name[sizeof long_name - 1] = '\0';
    inner = own_hook(long_name);
    check_wrap_error("cover", inner, "hook 'cover(...': has more than 200 characters");
    tally_hook_free(inner);
    assert_int_equal(counting_memory_live(), live);
}

/* ---- any setting ---- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A leaf with random settings, written in a random order with random forms of its numbers. */
static void random_leaf(uint32_t *seed, char *text, size_t bytes)
{
    static const char *const modes[] = {"slow", "fast", "slower"};
    static const char *const real_forms[] = {"%.3f", "%.17g", "%e", "%.1E"};
    char part[5][64];
    unsigned first = next_random(seed) % 5;

    (void)snprintf(part[0], sizeof part[0], "count=%u", next_random(seed) % 6 + 1);
    (void)strcpy(part[1], "real=");
    (void)snprintf(part[1] + 5, sizeof part[1] - 5, real_forms[next_random(seed) % 4],
                   (double)next_random(seed) / 1e4 - 500);
    (void)snprintf(part[2], sizeof part[2], "half=%.2f", next_random(seed) % 3 / 2.0);
    (void)snprintf(part[3], sizeof part[3], "step=%u", (next_random(seed) % 64 + 1) * 64);
    (void)snprintf(part[4], sizeof part[4], "mode=%s", modes[next_random(seed) % 3]);
    (void)snprintf(text, bytes, "leaf:%s,%s , %s,%s,%s", part[first], part[(first + 1) % 5],
                   part[(first + 2) % 5], part[(first + 3) % 5], part[(first + 4) % 5]);
}

/* Equal names mean equal settings, and a name gives its own settings back. */
static void test_settings_survive(void **state)
{
    uint32_t seed = 1;

    (void)state;
    for (int k = 0; k < 2000; k++) {
        char text[TALLY__MAX_TEXT + 1];
        char name[sizeof hook_record.name];
        double values[5];
        tally_hook *hook = NULL;

        random_leaf(&seed, text, sizeof text);
        assert_int_equal(hook_parse(text, &hook), TALLY_OK);
        tally_hook_free(hook);
        memcpy(values, hook_record.values, sizeof values);
        (void)snprintf(name, sizeof name, "%s", hook_record.name);
        assert_int_equal(hook_parse(name, &hook), TALLY_OK);
        tally_hook_free(hook);
        assert_string_equal(hook_record.name, name);
        assert_memory_equal(hook_record.values, values, sizeof values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_wrappers),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_wrap_errors),
        cmocka_unit_test(test_settings_survive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tally's own hooks: how it is described, and that it can be made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tally_extend.h>

#include "hook/hook.h"
#include "hook/kind.h"

static bool is_one_line(const char *text)
{
    return text && text[0] != '\0' && !strpbrk(text, "\n\r\t");
}

static void check_option(const char *hook_name, size_t index, size_t i)
{
    const struct tally__option *row = &tally__hook_kinds.row[index]->options[i];
    tally_hook_option option = {.size = sizeof option};
    char unit[32];
    double value;

    assert_int_equal(tally_hook_describe_option(index, i, &option), TALLY_OK);
    assert_string_equal(option.name, row->name);
    if (!is_one_line(option.accepts) || !is_one_line(option.help) ||
        !tally__option_read(row, option.fallback, &value)) {
        fail_msg("%s:%s is badly described", hook_name, option.name);
    }
    if (row->type != TALLY__OPTION_CHOICE && row->type != TALLY__OPTION_TEXT) {
        char text[TALLY__MAX_OPTION_VALUE];

        assert_true(row->min < row->max);
        tally__option_write(row, row->max, text);
        assert_true(tally__option_read(row, text, &value) && value == row->max);
    }
    (void)snprintf(unit, sizeof unit, "%.0f", row->unit);
    assert_true(row->unit == 0 || strstr(option.accepts, unit));
}

static void test_real_list(void **state)
{
    (void)state;
    assert_true(tally_hook_count() >= 2);
    for (size_t k = 0; k < tally_hook_count(); k++) {
        tally_hook_info info = {.size = sizeof info};
        tally_hook *hook = NULL;

        assert_int_equal(tally_hook_describe(k, &info), TALLY_OK);
        assert_true(is_one_line(info.name) && is_one_line(info.help));
        assert_true(info.n_options <= TALLY__MAX_OPTIONS);
        for (size_t i = 0; i < info.n_options; i++) {
            check_option(info.name, k, i);
        }
        assert_int_equal(tally_hook_parse(info.name, &hook), TALLY_OK);
        assert_string_equal(hook->table.name, info.name);
        tally_hook_free(hook);
    }
}

static void test_describe_errors(void **state)
{
    size_t n = tally_hook_count();
    tally_hook_info info = {.size = sizeof info};
    tally_hook_option option = {.size = sizeof option};

    (void)state;
    assert_int_equal(tally_hook_describe(n, &info), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "is not below"));
    assert_int_equal(tally_hook_describe(0, NULL), TALLY_ARG);
    assert_int_equal(tally_hook_describe_option(0, 0, NULL), TALLY_ARG);
    assert_int_equal(tally_hook_describe_option(n, 0, &option), TALLY_ARG);
    assert_int_equal(tally_hook_describe_option(0, 99, &option), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "option 99 is not below"));
    info.size = 8;
    assert_int_equal(tally_hook_describe(0, &info), TALLY_ARG);
    option.size = 8;
    assert_int_equal(tally_hook_describe_option(0, 0, &option), TALLY_ARG);
}

static void test_public_functions(void **state)
{
    tally_hook *noop = NULL;
    tally_hook *hook = NULL;

    (void)state;
    assert_int_equal(tally_hook_parse("leaf", &hook), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "available: allreduce, "));
    assert_int_equal(tally_hook_parse("noop", &noop), TALLY_OK);
    assert_int_equal(tally_hook_wrap("noop", noop, &hook), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "noop is not a wrapper"));
    tally_hook_free(noop);
}

/* Mistakes in candidates of auto are told with the words and the columns of their texts. */
static void test_candidates(void **state)
{
    static const char *const mistakes[][2] = {
        {"powersgd:rank=0", "hook 'powersgd:rank=0': column 15: rank takes 1..1024"},
        {"powersgd;rank=2", "hook 'powersgd,rank=2': column 9: accepted here"},
        {"bf16(powersgd;rank=2)", "hook 'bf16(powersgd,rank=2)': column 14: accepted here"},
        {"mypowersgd", "hook 'mypowersgd': column 1: no hook 'mypowersgd'"},
        {"powersgd+powersgd:start=0", "candidate 'powersgd:start=0' is given twice"},
    };
    tally_hook *hook = NULL;

    (void)state;
    for (size_t k = 0; k < sizeof mistakes / sizeof mistakes[0]; k++) {
        char text[100];

        (void)snprintf(text, sizeof text, "auto:candidates=allreduce+%s", mistakes[k][0]);
        assert_int_equal(tally_hook_parse(text, &hook), TALLY_ARG);
        if (!strstr(tally_last_error(), mistakes[k][1])) {
            fail_msg("%s: %s", text, tally_last_error());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_list),
        cmocka_unit_test(test_describe_errors),
        cmocka_unit_test(test_public_functions),
        cmocka_unit_test(test_candidates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

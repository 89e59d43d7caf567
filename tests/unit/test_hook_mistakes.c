/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks by text: what each mistake says, and that nothing is made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tally.h>

#include "support/counting_memory.h"
#include "support/hook_checks.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

#define NAMES "allreduce, noop, leaf, wrap, cover, picky"
#define LEAF_OPTIONS "count, real, half, step, mode"

static void test_wrong_names(void **state)
{
    (void)state;
    check_hook_error("", "hook '': column 1: expected the name of a hook; available: " NAMES);
    check_hook_error("  ", "hook '  ': column 3: expected the name of a hook; available: " NAMES);
    check_hook_error("nop", "hook 'nop': column 1: no hook 'nop'; available: " NAMES);
    check_hook_error("noop2", "hook 'noop2': column 1: no hook 'noop2'; available: " NAMES);
    check_hook_error("Noop", "hook 'Noop': column 1: no hook 'Noop'; available: " NAMES);
    check_hook_error("wrap( le-af)",
                     "hook 'wrap( le-af)': column 7: no hook 'le-af'; available: " NAMES);
    check_hook_error("wrap()",
                     "hook 'wrap()': column 6: expected the name of a hook; available: " NAMES);
    check_hook_error("no\nop\x80", "hook 'no?op?': column 1: no hook 'no'; available: " NAMES);
}

static void test_wrong_options(void **state)
{
    (void)state;
    check_hook_error("noop:x=1", "hook 'noop:x=1': column 5: noop has no options");
    check_hook_error(
        "leaf:", "hook 'leaf:': column 6: expected an option of leaf; available: " LEAF_OPTIONS);
    check_hook_error("leaf: cuont=1", "hook 'leaf: cuont=1': column 7: no option 'cuont' of leaf; "
                                      "available: " LEAF_OPTIONS);
    check_hook_error("leaf:count=1,",
                     "hook 'leaf:count=1,': column 14: expected an option of leaf; "
                     "available: " LEAF_OPTIONS);
    check_hook_error("leaf:count=1, count=1",
                     "hook 'leaf:count=1, count=1': column 15: count is given twice");
    check_hook_error("wrap:flag 1", "hook 'wrap:flag 1': column 11: expected '=' and the value of "
                                    "flag: 0|1");
    check_hook_error("wrap:flag=", "hook 'wrap:flag=': column 11: expected the value of flag: 0|1");
}

static void test_wrong_values(void **state)
{
    static const char *const counts[] = {"0",
                                         "-1",
                                         "+1",
                                         "1e3",
                                         "1.0",
                                         "x",
                                         "9007199254740993",
                                         "0x10",
                                         "1e400",
                                         "99999999999999999999999999999"};
    static const char *const reals[] = {"nan",   "inf", "-inf",     "0x1p3", "1e", "1e+",
                                        ".5",    "5.",  "1e301",    "1e999", "-",  "1.5.5",
                                        "1e5e5", "+1",  "infinity", "1-1"};
    char text[64];
    char message[256];

    (void)state;
    for (size_t i = 0; i < N_OF(counts); i++) {
        (void)snprintf(text, sizeof text, "leaf:count=%s", counts[i]);
        (void)snprintf(message, sizeof message,
                       "hook '%s': column 12: count takes 1..9007199254740992, not '%s'", text,
                       counts[i]);
        check_hook_error(text, message);
    }
    for (size_t i = 0; i < N_OF(reals); i++) {
        (void)snprintf(text, sizeof text, "leaf:real=%s", reals[i]);
        (void)snprintf(message, sizeof message,
                       "hook '%s': column 11: real takes -1e300..1e300, not '%s'", text, reals[i]);
        check_hook_error(text, message);
    }
    check_hook_error("leaf:half=1.0000000000000003",
                     "hook 'leaf:half=1.0000000000000003': column 11: half takes 0..1, not "
                     "'1.0000000000000003'");
    check_hook_error("leaf:step=65",
                     "hook 'leaf:step=65': column 11: step takes 64..4096, a multiple "
                     "of 64, not '65'");
    check_hook_error("leaf:step=8192", "hook 'leaf:step=8192': column 11: step takes 64..4096, a "
                                       "multiple of 64, not '8192'");
    check_hook_error("leaf:mode=slo",
                     "hook 'leaf:mode=slo': column 11: mode takes slow|fast|slower, "
                     "not 'slo'");
    check_hook_error("leaf:mode=slowe", "hook 'leaf:mode=slowe': column 11: mode takes "
                                        "slow|fast|slower, not 'slowe'");
}

static void test_wrong_ends(void **state)
{
    (void)state;
    check_hook_error("noop x", "hook 'noop x': column 6: accepted here: the end");
    check_hook_error("noop)", "hook 'noop)': column 5: accepted here: the end");
    check_hook_error("leaf x", "hook 'leaf x': column 6: accepted here: ':', the end");
    check_hook_error("wrap x", "hook 'wrap x': column 6: accepted here: ':', '(', the end");
    check_hook_error("wrap:flag=1;",
                     "hook 'wrap:flag=1;': column 12: accepted here: ',', '(', the end");
    check_hook_error("wrap(noop", "hook 'wrap(noop': column 10: accepted here: ')'");
    check_hook_error("wrap(wrap x)",
                     "hook 'wrap(wrap x)': column 11: accepted here: ':', '(', ')'");
    check_hook_error("wrap(wrap(leaf:count=1) x",
                     "hook 'wrap(wrap(leaf:count=1) x': column 25: accepted here: ')'");
    check_hook_error("wrap(noop))", "hook 'wrap(noop))': column 11: accepted here: the end");
    check_hook_error("wrap(noop):flag=1",
                     "hook 'wrap(noop):flag=1': column 11: accepted here: the end");
    check_hook_error("noop(noop)", "hook 'noop(noop)': column 5: noop takes no hook in brackets; "
                                   "wrappers are wrap, cover");
}

static void test_limits(void **state)
{
    char text[TALLY__MAX_TEXT + 2];

    (void)state;
    check_hook_error(
        "wrap(wrap(wrap(wrap(wrap(wrap(wrap(wrap(noop))))))))",
        "hook 'wrap(wrap(wrap(wrap(wrap(wrap(wrap(wrap(noop))))))))': column 40: more than "
        "8 hooks inside one another");
    memset(text, ' ', sizeof text);
    memcpy(text, "noop", 4);
    text[TALLY__MAX_TEXT] = '\0';
    check_hook_name(text, "noop");
    text[TALLY__MAX_TEXT] = ' ';
    text[TALLY__MAX_TEXT + 1] = '\0';
    check_hook_error(text, "hook 'noop                                    ...': has more than 200 "
                           "characters");
    memset(text, 'x', TALLY__MAX_TEXT);
    text[TALLY__MAX_TEXT] = '\0';
    assert_int_equal(hook_parse(text, &(tally_hook *){NULL}), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "available: " NAMES));
}

/* The name of a number can be longer than its text, and with it the name of the hook. */
static void test_name_outgrows_text(void **state)
{
    const char *part = "wrap:scale=1e-5(";
    const char *leaf = "leaf:count=9007199254740991,half=1e-10,real=1e9,step=1024,mode=slower";
    char text[TALLY__MAX_TEXT + 1];
    size_t live = counting_memory_live();
    tally_hook *hook = NULL;

    (void)state;
    (void)snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s)))))))", part, part, part, part, part, part,
                   part, leaf);
    assert_int_equal(strlen(text), 7 * strlen(part) + strlen(leaf) + 7);
    assert_int_equal(hook_parse(text, &hook), TALLY_ARG);
    assert_string_equal(tally_last_error(),
                        "hook 'wrap:scale=1e-05(...': has more than 200 characters");
    assert_null(hook);
    assert_int_equal(counting_memory_live(), live);
}

static void test_null(void **state)
{
    (void)state;
    check_hook_error(NULL, "tally_hook_parse: text is NULL");
    assert_int_equal(hook_parse("noop", NULL), TALLY_ARG);
    assert_string_equal(tally_last_error(), "tally_hook_parse: hook is NULL");
}

/* An error of a kind starts with the name of the hook, at any depth. */
static void test_kind_refuses(void **state)
{
    (void)state;
    check_hook_error("picky:b=1,a=1", "hook 'picky:a=1,b=1': a and b do not go together");
    check_hook_error("cover(wrap(picky:b=1,a=1))",
                     "hook 'picky:a=1,b=1': a and b do not go together");
}

static void test_bad_fallback(void **state)
{
    const struct tally__option option = {"x", TALLY__OPTION_COUNT, 1, 2, 0, "1..2", "3", "wrong"};
    const struct tally__hook_kind row = {
        .row.name = "bad", .row.n_options = 1, .row.options = &option};
    const struct tally__row *const rows[] = {&row.row};
    const struct tally__rows list = {"hook", "a hook", rows, 1};
    tally_hook *hook;

    (void)state;
    assert_int_equal(tally__hook_parse_in(&list, "bad", &hook), TALLY_INTERNAL);
    assert_string_equal(tally_last_error(), "hook bad: the fallback x=3 is not accepted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_names),  cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_wrong_values), cmocka_unit_test(test_wrong_ends),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_name_outgrows_text),
        cmocka_unit_test(test_null),         cmocka_unit_test(test_kind_refuses),
        cmocka_unit_test(test_bad_fallback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

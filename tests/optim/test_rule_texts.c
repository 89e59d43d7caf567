/* SPDX-License-Identifier: Apache-2.0 */
/* Rules: names, every mistake in a text, options out of range, tables that lack something, the
 * list, memory. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "optim/optimizer_kind.h"
#include "optim/rule.h"
#include "support/counting_memory.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

#define NAMES "sgd, adam, adamw, adagrad, rmsprop, adadelta, adamax, rprop"

static void check_name(const char *text, const char *name)
{
    const char *texts[] = {text, name};
    size_t live = counting_memory_live();

    for (size_t i = 0; i < N_OF(texts); i++) {
        struct tally__rule *rule = NULL;

        if (tally__rule_parse(texts[i], &rule) != TALLY_OK) {
            fail_msg("'%s': %s", texts[i], tally_last_error());
        }
        assert_string_equal(rule->name, name);
        assert_ptr_equal(rule->name, rule->table.name);
        tally__rule_free(rule);
        assert_int_equal(counting_memory_live(), live);
    }
}

static void check_error(const char *text, const char *message)
{
    size_t live = counting_memory_live();
    struct tally__rule *rule = NULL;

    assert_int_equal(tally__rule_parse(text, &rule), TALLY_ARG);
    assert_string_equal(tally_last_error(), message);
    assert_null(rule);
    assert_int_equal(counting_memory_live(), live);
}

static void test_names(void **state)
{
    (void)state;
    check_name("sgd", "sgd");
    check_name(" sgd : momentum = 0.90 , lr = 1e-1 ", "sgd:lr=0.1,momentum=0.9");
    check_name("sgd:lr=0.010,nesterov=0", "sgd");
    check_name("adamw:weight_decay=0.01", "adamw");
    check_name("adamw:weight_decay=0,eps=1e-8", "adamw:weight_decay=0");
    check_name("adam:amsgrad=1,beta2=0.95,lr=3e-4", "adam:lr=0.0003,beta2=0.95,amsgrad=1");
    check_name("sgd:dampening=-0.5,momentum=0.5", "sgd:momentum=0.5,dampening=-0.5");
    check_name("rprop:step_max=50,step_min=50", "rprop:step_min=50");
}

static void test_mistakes(void **state)
{
    (void)state;
    check_error(NULL, "optimizer: text is NULL");
    check_error("", "optimizer '': column 1: expected the name of an optimizer; available: " NAMES);
    check_error("adm", "optimizer 'adm': column 1: no optimizer 'adm'; available: " NAMES);
    check_error("sgd x", "optimizer 'sgd x': column 5: accepted here: ':', the end");
    check_error("sgd(adam)", "optimizer 'sgd(adam)': column 4: accepted here: ':', the end");
    check_error("sgd:lr=1;", "optimizer 'sgd:lr=1;': column 9: accepted here: ',', the end");
    check_error("adamax:amsgrad=1",
                "optimizer 'adamax:amsgrad=1': column 8: no option 'amsgrad' of "
                "adamax; available: lr, beta1, beta2, eps, weight_decay");
    check_error("sgd:lr", "optimizer 'sgd:lr': column 7: expected '=' and the value of lr: "
                          "0..1e38");
    check_error("sgd:lr=", "optimizer 'sgd:lr=': column 8: expected the value of lr: 0..1e38");
    check_error("sgd:lr=1,lr=1", "optimizer 'sgd:lr=1,lr=1': column 10: lr is given twice");
    check_error("adam:lr=nan", "optimizer 'adam:lr=nan': column 9: lr takes 0..1e38, not 'nan'");
    check_error("adam:lr=0.1 0.2",
                "optimizer 'adam:lr=0.1 0.2': column 13: accepted here: ',', the end");
}

/* Options that exclude each other, as in PyTorch. */
static void test_together(void **state)
{
    (void)state;
    check_error("sgd: nesterov=1",
                "optimizer 'sgd:nesterov=1': nesterov=1 needs a momentum above 0 and a dampening "
                "of 0");
    check_error(
        "sgd:nesterov=1,momentum=0.9,dampening=0.1",
        "optimizer 'sgd:momentum=0.9,dampening=0.1,nesterov=1': nesterov=1 needs a momentum "
        "above 0 and a dampening of 0");
    check_name("sgd:nesterov=1,momentum=0.9", "sgd:momentum=0.9,nesterov=1");
    check_error("rprop:step_min=1,step_max=0.5",
                "optimizer 'rprop:step_min=1,step_max=0.5': step_min is larger than step_max");
}

/* Every option takes what is in its range, and names itself and the range for what is not. */
static const struct {
    const char *option;
    const char *accepts;
    const char *good[2];
    const char *bad[2];
} ranges[] = {
    {"sgd:lr", "0..1e38", {"0", "1e38"}, {"-0.001", "1.1e38"}},
    {"sgd:momentum", "0..1e38", {"0", "0.9"}, {"-0.1", "-1e-300"}},
    {"sgd:dampening", "-1e38..1e38", {"-1", "1"}, {"1e39", "-1e39"}},
    {"sgd:weight_decay", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"sgd:nesterov", "0|1", {"0", "0"}, {"2", "yes"}},
    {"sgd:maximize", "0|1", {"0", "1"}, {"-1", "1.0"}},
    {"adam:lr", "0..1e38", {"0", "1"}, {"-1", "x"}},
    {"adam:beta1", "0 or more, below 1", {"0", "0.9999999999999999"}, {"1", "-0.1"}},
    {"adam:beta2", "0 or more, below 1", {"0", "0.999"}, {"1", "1.0000001"}},
    {"adam:eps", "0..1e38", {"0", "1"}, {"-1e-8", "-1"}},
    {"adam:weight_decay", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"adam:amsgrad", "0|1", {"0", "1"}, {"2", ".5"}},
    {"adamw:beta1", "0 or more, below 1", {"0", "0.9"}, {"1", "-0.1"}},
    {"adamw:beta2", "0 or more, below 1", {"0", "0.9"}, {"1", "-0.1"}},
    {"adamw:eps", "0..1e38", {"0", "1"}, {"-1", "-1e-8"}},
    {"adamw:weight_decay", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"adagrad:lr_decay", "0..1e38", {"0", "0.5"}, {"-1", "-1e-9"}},
    {"adagrad:initial", "0..1e38", {"0", "0.1"}, {"-1", "-1e-9"}},
    {"adagrad:eps", "0..1e38", {"0", "1e-10"}, {"-1", "-1e-9"}},
    {"rmsprop:alpha", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"rmsprop:momentum", "0..1e38", {"0", "0.9"}, {"-1", "-1e-9"}},
    {"rmsprop:centered", "0|1", {"0", "1"}, {"2", "true"}},
    {"adadelta:rho", "0..1", {"0", "1"}, {"1.0001", "-0.1"}},
    {"adadelta:eps", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"adamax:beta1", "0 or more, below 1", {"0", "0.9"}, {"1", "-0.1"}},
    {"adamax:beta2", "0 or more, below 1", {"0", "0.9"}, {"1", "-0.1"}},
    {"rprop:lr", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"rprop:eta_minus", "above 0, below 1", {"0.1", "0.999"}, {"0", "1"}},
    {"rprop:eta_plus", "above 1, up to 1e38", {"1.001", "3"}, {"1", "0.5"}},
    {"rprop:step_min", "0..1e38", {"0", "1"}, {"-1", "-1e-9"}},
    {"rprop:step_max", "0..1e38", {"1", "100"}, {"-1", "-1e-9"}},
};

static void test_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(ranges); i++) {
        for (size_t k = 0; k < 2; k++) {
            struct tally__rule *rule = NULL;
            char text[64];
            char message[256];

            (void)snprintf(text, sizeof text, "%s=%s", ranges[i].option, ranges[i].good[k]);
            if (tally__rule_parse(text, &rule) != TALLY_OK) {
                fail_msg("'%s': %s", text, tally_last_error());
            }
            tally__rule_free(rule);
            (void)snprintf(text, sizeof text, "%s=%s", ranges[i].option, ranges[i].bad[k]);
            (void)snprintf(message, sizeof message,
                           "optimizer '%s': column %zu: %s takes %s, not '%s'", text,
                           strlen(ranges[i].option) + 2, strchr(ranges[i].option, ':') + 1,
                           ranges[i].accepts, ranges[i].bad[k]);
            check_error(text, message);
        }
    }
}

/* ---- the list ---- */

static bool is_one_line(const char *text)
{
    return text && text[0] != '\0' && !strpbrk(text, "\n\r\t");
}

static void check_option(size_t index, size_t i)
{
    const struct tally__option *row = &tally__optimizer_kinds.row[index]->options[i];
    tally_optimizer_option option = {.size = sizeof option};
    double value;

    assert_int_equal(tally_optimizer_describe_option(index, i, &option), TALLY_OK);
    assert_string_equal(option.name, row->name);
    assert_true(is_one_line(option.accepts) && is_one_line(option.help));
    assert_true(tally__option_read(row, option.fallback, &value));
    if (row->type != TALLY__OPTION_CHOICE) {
        char text[TALLY__MAX_OPTION_VALUE];
        const double ends[] = {row->min, row->max};

        assert_true(row->min < row->max);
        for (size_t k = 0; k < N_OF(ends); k++) {
            tally__option_write(row, ends[k], text);
            assert_true(tally__option_read(row, text, &value) && value == ends[k]);
        }
    }
}

static void test_list(void **state)
{
    (void)state;
    assert_int_equal(tally_optimizer_count(), 8);
    for (size_t k = 0; k < tally_optimizer_count(); k++) {
        tally_optimizer_info info = {.size = sizeof info};

        assert_int_equal(tally_optimizer_describe(k, &info), TALLY_OK);
        assert_true(is_one_line(info.help));
        assert_true(info.n_options >= 1 && info.n_options <= TALLY__MAX_OPTIONS);
        assert_string_equal(tally__optimizer_kinds.row[k]->options[0].name, "lr");
        for (size_t i = 0; i < info.n_options; i++) {
            check_option(k, i);
        }
        check_name(info.name, info.name);
    }
}

static void test_describe_errors(void **state)
{
    size_t n = tally_optimizer_count();
    tally_optimizer_info info = {.size = sizeof info};
    tally_optimizer_option option = {.size = sizeof option};

    (void)state;
    assert_int_equal(tally_optimizer_describe(n, &info), TALLY_ARG);
    assert_string_equal(tally_last_error(), "tally_optimizer_describe: optimizer 8 is not below 8");
    assert_int_equal(tally_optimizer_describe(0, NULL), TALLY_ARG);
    assert_int_equal(tally_optimizer_describe_option(0, 0, NULL), TALLY_ARG);
    assert_int_equal(tally_optimizer_describe_option(n, 0, &option), TALLY_ARG);
    assert_int_equal(tally_optimizer_describe_option(0, 99, &option), TALLY_ARG);
    assert_string_equal(tally_last_error(),
                        "tally_optimizer_describe_option: option 99 is not below 6");
    info.size = 8;
    assert_int_equal(tally_optimizer_describe(0, &info), TALLY_ARG);
    option.size = 8;
    assert_int_equal(tally_optimizer_describe_option(0, 0, &option), TALLY_ARG);
}

/* ---- tables ---- */

static int do_nothing(void *user, const tally_step_param *param)
{
    (void)user;
    (void)param;
    return TALLY_OK;
}

static void count_destroy(void *user)
{
    ++*(int *)user;
}

static void check_refusal(tally_optimizer_table table, double lr, const char *message)
{
    size_t live = counting_memory_live();
    struct tally__rule *rule = NULL;
    int n_destroyed = 0;

    table.destroy = count_destroy;
    assert_int_equal(tally__rule_make(&table, &n_destroyed, lr, &rule), TALLY_ARG);
    assert_string_equal(tally_last_error(), message);
    assert_null(rule);
    assert_int_equal(n_destroyed, 0);
    assert_int_equal(counting_memory_live(), live);
}

static void test_tables(void **state)
{
    const tally_optimizer_table good = {
        .size = sizeof good, .name = "own", .n_states = 2, .step_param = do_nothing};
    tally_optimizer_table bad = good;
    struct tally__rule *rule = NULL;

    (void)state;
    bad.step_param = NULL;
    check_refusal(bad, 0.1, "optimizer 'own': the table has no step_param");
    bad = good;
    bad.name = NULL;
    check_refusal(bad, 0.1, "an optimizer's table has no name");
    bad = good;
    bad.n_states = TALLY_MAX_STATES + 1;
    check_refusal(bad, 0.1, "optimizer 'own': n_states is 9, not in 0..8");
    bad.n_states = -1;
    check_refusal(bad, 0.1, "optimizer 'own': n_states is -1, not in 0..8");
    bad = good;
    bad.size = 8;
    assert_int_equal(tally__rule_make(&bad, NULL, 0.1, &rule), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "table: size is 8, expected"));
    check_refusal(good, 1e39, "optimizer 'own': lr takes 0..1e38, not 1e+39");
    check_refusal(good, -1, "optimizer 'own': lr takes 0..1e38, not -1");
    assert_int_equal(tally__rule_make(NULL, NULL, 0.1, &rule), TALLY_ARG);
    assert_string_equal(tally_last_error(), "an optimizer's table is NULL");
}

static void test_table_is_owned(void **state)
{
    char name[] = "own";
    int n_destroyed = 0;
    const tally_optimizer_table table = {.size = sizeof table,
                                         .name = name,
                                         .elementwise = 1,
                                         .n_states = 8,
                                         .step_param = do_nothing,
                                         .destroy = count_destroy};
    struct tally__rule *rule = NULL;

    (void)state;
    assert_int_equal(tally__rule_make(&table, &n_destroyed, 0.25, &rule), TALLY_OK);
    name[0] = 'x';
    assert_string_equal(rule->name, "own");
    assert_string_equal(rule->table.name, "own");
    assert_true(rule->lr == 0.25 && rule->table.n_states == 8 && rule->table.elementwise == 1);
    tally__rule_free(rule);
    assert_int_equal(n_destroyed, 1);
    tally__rule_free(NULL);
}

/* ---- memory ---- */

static int parse(void *text)
{
    struct tally__rule *rule = NULL;
    int rc = tally__rule_parse(text, &rule);

    assert_true((rc == TALLY_OK) == (rule != NULL));
    tally__rule_free(rule);
    return rc;
}

static int make(void *user)
{
    int n_destroyed = 0;
    const tally_optimizer_table table = {
        .size = sizeof table, .name = "own", .step_param = do_nothing, .destroy = count_destroy};
    struct tally__rule *rule = NULL;
    int rc = tally__rule_make(&table, &n_destroyed, 0.1, &rule);

    (void)user;
    tally__rule_free(rule);
    assert_int_equal(n_destroyed, rc == TALLY_OK);
    return rc;
}

static void test_no_memory(void **state)
{
    char text[] = "adamw:lr=0.1,amsgrad=1";

    (void)state;
    assert_int_equal(counting_memory_exhaust(parse, text), 3);
    assert_int_equal(counting_memory_exhaust(make, NULL), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_together),  cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_list),      cmocka_unit_test(test_describe_errors),
        cmocka_unit_test(test_tables),    cmocka_unit_test(test_table_is_owned),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

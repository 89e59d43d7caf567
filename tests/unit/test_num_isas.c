/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an instruction set. It is made once per process, so every TALLY_ISA has a separate
 * child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "num/num.h"
#include "tally.h"

/* In a child: the status of tally_isa with TALLY_ISA = word (NULL: not set), 100 when it succeeds
 * and names another instruction set than wanted, which is NULL where no success is expected. */
static int chosen_in_child(const char *word, const char *wanted)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        const char *name = "";
        int rc;

        if (word ? setenv("TALLY_ISA", word, 1) : unsetenv("TALLY_ISA")) {
            _exit(101);
        }
        rc = tally_isa(&name);
        if (rc == TALLY_OK && (!wanted || strcmp(name, wanted) != 0)) {
            _exit(100);
        }
        /* Later calls say the same. */
        _exit(tally__num_start() == rc ? -rc : 102);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void reference_is_first_and_always_usable(void **state)
{
    (void)state;
    assert_true(tally__n_isas >= 1);
    assert_string_equal(tally__isas[0].name, "ref");
    assert_ptr_equal(tally__isas[0].kernels, &tally__kernels_ref);
    assert_true(tally__isas[0].usable());
}

static void names_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < tally__n_isas; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(tally__isas[i].name, tally__isas[k].name);
        }
    }
}

#define HAS(kernel, result, parameters, arguments) assert_non_null(kernels->kernel);

static void no_table_has_a_gap(void **state)
{
    (void)state;
    for (size_t i = 0; i < tally__n_isas; i++) {
        const struct tally__kernels *kernels = tally__isas[i].kernels;

        TALLY__KERNEL_LIST(HAS)
    }
}

static void a_named_isa_is_obeyed_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < tally__n_isas; i++) {
        const char *name = tally__isas[i].name;

        assert_int_equal(chosen_in_child(name, name),
                         tally__isas[i].usable() ? TALLY_OK : -TALLY_ARG);
    }
    assert_int_equal(chosen_in_child("abacus", NULL), -TALLY_ARG);
}

static void auto_takes_the_last_usable(void **state)
{
    const char *best = tally__isas[0].name;

    (void)state;
    for (size_t i = 0; i < tally__n_isas; i++) {
        best = tally__isas[i].usable() ? tally__isas[i].name : best;
    }
    assert_int_equal(chosen_in_child("auto", best), TALLY_OK);
    assert_int_equal(chosen_in_child(NULL, best), TALLY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_first_and_always_usable),
        cmocka_unit_test(names_differ),
        cmocka_unit_test(no_table_has_a_gap),
        cmocka_unit_test(a_named_isa_is_obeyed_or_refused),
        cmocka_unit_test(auto_takes_the_last_usable),
    };

    return cmocka_run_group_tests_name("isas", tests, NULL, NULL);
}

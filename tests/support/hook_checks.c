/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of hook_checks.h. One thread enters. */
#include "support/hook_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "hook/hook.h"
#include "support/counting_memory.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

int hook_parse(const char *text, tally_hook **hook)
{
    return tally__hook_parse_in(&hook_kinds, text, hook);
}

void check_hook_name(const char *text, const char *name)
{
    size_t live = counting_memory_live();
    const char *texts[] = {text, name};

    for (size_t i = 0; i < N_OF(texts); i++) {
        tally_hook *hook = NULL;

        if (hook_parse(texts[i], &hook) != TALLY_OK) {
            fail_msg("'%s': %s", texts[i], tally_last_error());
        }
        assert_string_equal(hook->table.name, name);
        tally_hook_free(hook);
        assert_int_equal(counting_memory_live(), live);
    }
}

void check_hook_error(const char *text, const char *message)
{
    size_t live = counting_memory_live();
    int n_makes = hook_record.n_makes;
    tally_hook *hook = NULL;

    assert_int_equal(hook_parse(text, &hook), TALLY_ARG);
    assert_string_equal(tally_last_error(), message);
    assert_null(hook);
    assert_int_equal(hook_record.n_makes, n_makes);
    assert_int_equal(counting_memory_live(), live);
}

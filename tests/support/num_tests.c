/* SPDX-License-Identifier: Apache-2.0 */
/* The list of kernels as a group of cmocka tests. */
#include "support/num_tests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RUN(name, result, parameters, arguments)        \
    static void run_##name(void **state)                \
    {                                                   \
        test_##name((const struct tally__isa *)*state); \
    }
TALLY__KERNEL_LIST(RUN)

#define ENTRY(name, result, parameters, arguments) \
    {#name, run_##name, NULL, NULL, (void *)(uintptr_t)isa},

int num_test_isa(const struct tally__isa *isa)
{
    const struct CMUnitTest tests[] = {TALLY__KERNEL_LIST(ENTRY)};

    return cmocka_run_group_tests_name(isa->name, tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Every call that allocates, with the N-th allocation failing, for all N: a clean NOMEM, nothing
 * lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <tally.h>

#include "bench/kernel_bench.h"
#include "support/counting_memory.h"

static void ignore_result(const struct kernel_result *result, void *user)
{
    (void)result;
    *(int *)user += 1;
}

static int run_kernel_bench(void *user)
{
    struct kernel_bench bench = {
        .data_bytes = 4096, .kernel = "sum_f32", .report = ignore_result, .user = user};

    return kernel_bench_run(&bench);
}

static void test_kernel_bench(void **state)
{
    int n_results = 0;

    (void)state;
    assert_true(counting_memory_exhaust(run_kernel_bench, &n_results) > 0);
    assert_true(n_results > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_bench),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

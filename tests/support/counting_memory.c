/* SPDX-License-Identifier: Apache-2.0 */
/* The test's door to the heap: any thread enters, the counters are atomic. */
#include "support/counting_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

/* Sequentially consistent throughout: these are tests, not hot paths. */
static atomic_size_t calls;
static atomic_size_t live;
static atomic_size_t fail_at;

void *tally__alloc(size_t bytes, const char *what)
{
    size_t number = atomic_fetch_add(&calls, 1) + 1;
    size_t rounded = (bytes / TALLY__CACHE_LINE + 1) * TALLY__CACHE_LINE;
    void *block = NULL;

    if (number != atomic_load(&fail_at) && rounded > bytes) {
        block = aligned_alloc(TALLY__CACHE_LINE, rounded);
    }
    if (!block) {
        (void)tally__fail(TALLY_NOMEM, "cannot allocate %zu bytes for %s", bytes, what);
        return NULL;
    }
    atomic_fetch_add(&live, 1);
    memset(block, 0, rounded);
    return block;
}

void *tally__alloc_unset(size_t bytes, const char *what)
{
    void *block = tally__alloc(bytes, what);

    if (block) {
        memset(block, 0xa5, bytes);
    }
    return block;
}

void *tally__alloc_array(size_t count, size_t size, const char *what)
{
    return tally__alloc(size != 0 && count > SIZE_MAX / size ? SIZE_MAX : count * size, what);
}

void tally__free(void *block)
{
    if (block) {
        atomic_fetch_sub(&live, 1);
    }
    free(block);
}

size_t counting_memory_calls(void)
{
    return atomic_load(&calls);
}

size_t counting_memory_live(void)
{
    return atomic_load(&live);
}

void counting_memory_fail_nth(size_t n)
{
    atomic_store(&fail_at, n ? atomic_load(&calls) + n : 0);
}

size_t counting_memory_exhaust(int (*scenario)(void *user), void *user)
{
    for (size_t n = 1;; n++) {
        size_t live_before = counting_memory_live();
        size_t calls_before = counting_memory_calls();
        int status;

        counting_memory_fail_nth(n);
        status = scenario(user);
        counting_memory_fail_nth(0);
        assert_int_equal(counting_memory_live(), live_before);
        if (counting_memory_calls() - calls_before < n) {
            assert_int_equal(status, TALLY_OK);
            return n - 1;
        }
        assert_int_equal(status, TALLY_NOMEM);
        assert_true(strlen(tally_last_error()) > 0);
    }
}

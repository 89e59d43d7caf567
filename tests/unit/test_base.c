/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, error texts, logging, environment, heap, clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <tally.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sheet.h"
#include "base/status.h"
#include "support/counting_memory.h"

static void test_version(void **state)
{
    char expected[32];

    (void)state;
    (void)snprintf(expected, sizeof expected, "%d.%d.%d", TALLY_VERSION_MAJOR, TALLY_VERSION_MINOR,
                   TALLY_VERSION_PATCH);
    assert_string_equal(tally_version(), expected);
}

/* The values are part of the ABI: pinned here a second time on purpose. */
static void test_status_values(void **state)
{
    static const struct {
        int value;
        const char *name;
    } pinned[] = {
        {0, "OK"},        {-1, "ARG"},         {-2, "STATE"},    {-3, "NOMEM"},
        {-4, "SYSTEM"},   {-5, "PEER"},        {-6, "TIMEOUT"},  {-7, "ABORTED"},
        {-8, "MISMATCH"}, {-9, "UNSUPPORTED"}, {-10, "NUMERIC"}, {-11, "INTERNAL"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        assert_string_equal(tally_status_name(pinned[i].value), pinned[i].name);
        assert_true(strlen(tally_status_text(pinned[i].value)) > 0);
        assert_string_not_equal(tally_status_text(pinned[i].value), "unknown status");
    }
    assert_string_equal(tally_status_name(1), "UNKNOWN");
    assert_string_equal(tally_status_name(-12), "UNKNOWN");
    assert_string_equal(tally_status_text(-12), "unknown status");
}

static void *other_thread(void *seen)
{
    *(int *)seen = (int)strlen(tally_last_error());
    (void)tally__fail(TALLY_STATE, "the other thread's");
    return NULL;
}

static void test_last_error_is_per_thread(void **state)
{
    pthread_t thread;
    int seen = -1;

    (void)state;
    assert_int_equal(tally__fail(TALLY_ARG, "rank %d of %s", 3, "x"), TALLY_ARG);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen, 0);
    assert_string_equal(tally_last_error(), "rank 3 of x");
}

static void test_last_error_can_quote_itself(void **state)
{
    char long_text[3 * TALLY__ERROR_BYTES];

    (void)state;
    (void)tally__fail(TALLY_ARG, "inner");
    (void)tally__fail(TALLY_ARG, "outer: %s", tally_last_error());
    assert_string_equal(tally_last_error(), "outer: inner");
    (void)tally__fail_errno(TALLY_SYSTEM, ENOENT, "cannot open %s", tally_last_error());
    assert_string_equal(tally_last_error(), "cannot open outer: inner: No such file or directory");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    (void)tally__fail(TALLY_ARG, "%s", long_text);
    assert_int_equal(strlen(tally_last_error()), TALLY__ERROR_BYTES - 1);
    (void)tally__fail_errno(TALLY_SYSTEM, ENOENT, "%s", long_text);
    assert_non_null(strstr(tally_last_error(), "xx: No such file or directory"));
}

struct heard {
    int count;
    int level;
    char text[64];
};

static void hear(void *user, int level, const char *text)
{
    struct heard *heard = user;

    heard->count++;
    heard->level = level;
    (void)snprintf(heard->text, sizeof heard->text, "%s", text);
}

static void test_log(void **state)
{
    struct heard heard = {0};

    (void)state;
    (void)unsetenv("TALLY_LOG");
    tally__log(TALLY_LOG_ERROR, "nobody listens");
    assert_int_equal(tally_log_set(hear, &heard, TALLY_LOG_WARN), TALLY_OK);
    errno = EDOM;
    tally__log(TALLY_LOG_INFO, "too quiet");
    assert_int_equal(heard.count, 0);
    tally__log(TALLY_LOG_WARN, "number %d", 7);
    assert_int_equal(errno, EDOM);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.level, TALLY_LOG_WARN);
    assert_string_equal(heard.text, "number 7");
    assert_int_equal(tally_log_set(hear, &heard, 5), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "5"));
    assert_int_equal(tally_log_set(NULL, NULL, TALLY_LOG_DEBUG), TALLY_OK);
    tally__log(TALLY_LOG_ERROR, "nobody listens");
    assert_int_equal(heard.count, 1);
}

static void test_log_level_from_environment(void **state)
{
    struct heard heard = {0};

    (void)state;
    assert_int_equal(setenv("TALLY_LOG", "debug", 1), 0);
    assert_int_equal(tally_log_set(hear, &heard, TALLY_LOG_NONE), TALLY_OK);
    tally__log(TALLY_LOG_DEBUG, "x");
    assert_int_equal(heard.count, 1);
    assert_int_equal(setenv("TALLY_LOG", "loud", 1), 0);
    assert_int_equal(tally_log_set(hear, &heard, TALLY_LOG_NONE), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "TALLY_LOG=loud"));
    assert_non_null(strstr(tally_last_error(), "none|error|warn|info|debug"));
    assert_int_equal(tally_env_check(), TALLY_ARG);
    (void)unsetenv("TALLY_LOG");
    assert_int_equal(tally_env_check(), TALLY_OK);
    assert_int_equal(tally_log_set(NULL, NULL, TALLY_LOG_NONE), TALLY_OK);
}

/* The output of tally on stderr for one message, with this TALLY_LOG. */
static void log_to_stderr(const char *level, int rank, char *text, size_t bytes)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t n;

    assert_non_null(file);
    (void)fflush(stderr);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    assert_int_equal(setenv("TALLY_LOG", level, 1), 0);
    assert_int_equal(tally_log_set(NULL, NULL, TALLY_LOG_NONE), TALLY_OK);
    tally__log_set_rank(rank);
    tally__log(TALLY_LOG_WARN, "number %d", 7);
    tally__log(TALLY_LOG_INFO, "number %d", 8);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    rewind(file);
    n = fread(text, 1, bytes - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    (void)unsetenv("TALLY_LOG");
    tally__log_set_rank(-1);
    assert_int_equal(tally_log_set(NULL, NULL, TALLY_LOG_NONE), TALLY_OK);
}

static void test_log_to_stderr(void **state)
{
    char text[200];

    (void)state;
    log_to_stderr("warn", -1, text, sizeof text);
    assert_string_equal(text, "tally: warning: number 7\n");
    log_to_stderr("info", 3, text, sizeof text);
    assert_string_equal(text, "[3] tally: warning: number 7\n[3] tally: info: number 8\n");
    log_to_stderr("none", 3, text, sizeof text);
    assert_string_equal(text, "");
}

static void test_env_table(void **state)
{
    tally_env_var var = {.size = sizeof var};

    (void)state;
    assert_int_equal(tally_env_count(), TALLY__ENV_COUNT);
    for (size_t i = 0; i < tally_env_count(); i++) {
        assert_int_equal(tally_env_get(i, &var), TALLY_OK);
        assert_true(strlen(var.name) > 0);
        assert_true(strlen(var.help) > 0 && strlen(var.type) > 0);
        assert_non_null(var.fallback);
    }
    assert_int_equal(tally_env_get(tally_env_count(), &var), TALLY_ARG);
    assert_int_equal(tally_env_get(0, NULL), TALLY_ARG);
    var.size = 1;
    assert_int_equal(tally_env_get(0, &var), TALLY_ARG);
}

static void test_env_choice(void **state)
{
    const char *word;
    int index;

    (void)state;
    (void)unsetenv("TALLY_ISA");
    assert_false(tally__env_is_set(TALLY__ENV_ISA));
    assert_int_equal(tally__env_choice(TALLY__ENV_ISA, &word), TALLY_OK);
    assert_string_equal(word, "auto");
    assert_int_equal(setenv("TALLY_ISA", "avx2", 1), 0);
    assert_true(tally__env_is_set(TALLY__ENV_ISA));
    assert_int_equal(tally__env_choice_index(TALLY__ENV_ISA, &index), TALLY_OK);
    assert_int_equal(index, 2);
    /* A prefix, two words and the separator itself are not accepted. */
    static const char *const bad[] = {"avx", "avx2|avx512", "|", "AVX2", " avx2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(setenv("TALLY_ISA", bad[i], 1), 0);
        assert_int_equal(tally__env_choice_index(TALLY__ENV_ISA, &index), TALLY_ARG);
        assert_non_null(strstr(tally_last_error(), "auto|ref|avx2|avx512|neon"));
    }
    assert_int_equal(setenv("TALLY_ISA", "", 1), 0);
    assert_int_equal(tally__env_choice_index(TALLY__ENV_ISA, &index), TALLY_OK);
    assert_int_equal(index, 0);
    (void)unsetenv("TALLY_ISA");
}

static void test_env_numbers(void **state)
{
    static const char *const bad_seconds[] = {"0", "-1", "0,5", "half", "nan", "1e9", "1s"};
    double seconds;
    int count;

    (void)state;
    assert_int_equal(setenv("TALLY_TRACE_BYTES", "2147483647", 1), 0);
    assert_int_equal(tally__env_count(TALLY__ENV_TRACE_BYTES, &count), TALLY_OK);
    assert_int_equal(count, INT_MAX);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(setenv("TALLY_TRACE_BYTES", i ? "99999999999999999999" : "2147483648", 1),
                         0);
        assert_int_equal(tally__env_count(TALLY__ENV_TRACE_BYTES, &count), TALLY_ARG);
        assert_non_null(strstr(tally_last_error(), "use a whole number up to 2147483647"));
    }
    (void)unsetenv("TALLY_TRACE_BYTES");
    /* A program may have chosen a locale whose numbers have a comma. */
    (void)setlocale(LC_NUMERIC, "comma");
    assert_int_equal(setenv("TALLY_TIMEOUT", "0.5", 1), 0);
    assert_int_equal(tally__env_seconds(TALLY__ENV_TIMEOUT, &seconds), TALLY_OK);
    assert_true(seconds > 0.49 && seconds < 0.51);
    for (size_t i = 0; i < sizeof bad_seconds / sizeof bad_seconds[0]; i++) {
        assert_int_equal(setenv("TALLY_TIMEOUT", bad_seconds[i], 1), 0);
        assert_int_equal(tally__env_seconds(TALLY__ENV_TIMEOUT, &seconds), TALLY_ARG);
        assert_non_null(strstr(tally_last_error(), "use seconds above 0"));
    }
    (void)unsetenv("TALLY_TIMEOUT");
    (void)setlocale(LC_NUMERIC, "C");
}

static void test_isa_arguments(void **state)
{
    const char *name = NULL;

    (void)state;
    assert_int_equal(tally_isa(NULL), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "NULL"));
    assert_int_equal(tally_isa(&name), TALLY_OK);
    assert_non_null(name);
}

static void test_memory(void **state)
{
    size_t live = counting_memory_live();
    unsigned char *block;

    (void)state;
    for (size_t bytes = 0; bytes < 200; bytes += 13) {
        block = tally__alloc(bytes, "a test");
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % TALLY__CACHE_LINE, 0);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(block[i], 0);
        }
        tally__free(block);
    }
    assert_null(tally__alloc(SIZE_MAX, "a giant"));
    assert_non_null(strstr(tally_last_error(), "a giant"));
    assert_null(tally__alloc_array(SIZE_MAX / 2, 3, "a giant"));
    tally__free(NULL);
    assert_int_equal(counting_memory_live(), live);
}

static void test_clock(void **state)
{
    uint64_t before = tally__now_ns();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        uint64_t now = tally__now_ns();

        assert_true(now >= before);
        before = now;
    }
}

/* Saved blobs contain these values. */
static void test_checksum(void **state)
{
    const char text[] = "the quick brown fox";
    uint64_t first = tally__checksum(0, text, 8);

    (void)state;
    assert_int_equal(tally__checksum(0, text, 0), UINT64_C(0x8c3b5ee437b725db));
    assert_int_equal(first, UINT64_C(0x320c23c6fc27ef78));
    assert_int_equal(tally__checksum(0, text, 19), UINT64_C(0x3d4f86262f8989fc));
    /* A list is more than its bytes. */
    assert_int_not_equal(tally__checksum(first, text + 8, 11), tally__checksum(0, text, 19));
    assert_int_not_equal(tally__checksum(first, text, 8), first);
    assert_int_not_equal(tally__checksum(first, text, 0), first);
}

/* The value of a wide checksum does not depend on the pieces in which the bytes come. */
static void test_checksum_pieces(void **state)
{
    unsigned char bytes[200];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 7 + 3);
    }
    assert_int_equal(tally__checksum_wide(bytes, sizeof bytes), UINT64_C(0x05690be81a57e712));
    for (size_t n = 0; n <= sizeof bytes; n++) {
        uint64_t whole = tally__checksum_wide(bytes, n);

        for (size_t piece = 1; piece <= 70; piece++) {
            struct tally__wide_sum sum;

            tally__checksum_begin(&sum);
            for (size_t at = 0; at < n; at += piece) {
                tally__checksum_add(&sum, bytes + at, n - at < piece ? n - at : piece);
            }
            assert_int_equal(tally__checksum_end(&sum), whole);
        }
    }
}

static void test_list(void **state)
{
    char list[20] = "";

    (void)state;
    tally__list_add(list, sizeof list, "%d", 1);
    assert_string_equal(list, "1");
    tally__list_add(list, sizeof list, "'%s'", "two");
    tally__list_add(list, sizeof list, "3333");
    assert_string_equal(list, "1, 'two', 3333");
    for (int i = 0; i < 2; i++) {
        tally__list_add(list, sizeof list, "4");
        assert_string_equal(list, "1, 'two', 3333, ...");
    }
    list[0] = '\0';
    tally__list_add(list, sizeof list, "an entry that does not fit");
    assert_string_equal(list, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_status_values),
        cmocka_unit_test(test_last_error_is_per_thread),
        cmocka_unit_test(test_last_error_can_quote_itself),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_level_from_environment),
        cmocka_unit_test(test_log_to_stderr),
        cmocka_unit_test(test_env_table),
        cmocka_unit_test(test_env_choice),
        cmocka_unit_test(test_env_numbers),
        cmocka_unit_test(test_isa_arguments),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_checksum_pieces),
        cmocka_unit_test(test_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

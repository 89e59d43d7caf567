/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of 06_gpt's checkpoints, with every call that reads or writes them failing in turn: the
 * failure is reported, and the checkpoint that was there before is whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "examples/gpt/gpt_files.h"
#include "support/failing_calls.h"

#define N_VALUES 100
#define N_RANKS 2

static char folder[] = "/tmp/tally-failing-XXXXXX";

/* Both ranks write what they have before a step, then it is announced: stops at the first failure.
 */
static int write_checkpoint(long step)
{
    float values[N_VALUES];
    char blob[50];
    const struct gpt_saved saved = {N_VALUES, {sizeof blob, 20}, values, {blob, blob}};
    int rc = 0;

    for (int r = 0; r < N_RANKS && rc == 0; r++) {
        for (int i = 0; i < N_VALUES; i++) {
            values[i] = (float)(step * 10 + r);
        }
        memset(blob, (int)step, sizeof blob);
        rc = gpt_files_write(folder, step, r, &saved);
    }
    return rc == 0 ? gpt_files_announce(folder, step, N_RANKS) : rc;
}

static void check_latest(long step)
{
    struct gpt_files files;

    assert_int_equal(gpt_files_read(folder, N_VALUES, &files), 0);
    assert_non_null(files.ranks);
    assert_int_equal(files.step, step);
    assert_int_equal(files.n_ranks, N_RANKS);
    for (int r = 0; r < N_RANKS; r++) {
        assert_true(files.ranks[r].values[N_VALUES - 1] == (float)(step * 10 + r));
    }
    gpt_files_free(&files);
}

/* Returns how many calls of the function a checkpoint takes. */
static size_t fail_writes(const char *name, long *step)
{
    for (size_t n = 1;; n++) {
        int rc;
        bool is_hit;

        failing_calls_arm(name, n);
        rc = write_checkpoint(*step + 1);
        is_hit = failing_calls_hit();
        failing_calls_arm(NULL, 0);
        assert_int_equal(rc, is_hit ? -1 : 0);
        *step += !is_hit;
        check_latest(*step);
        if (!is_hit) {
            return n - 1;
        }
    }
}

static void test_writes(void **state)
{
    static const char *const names[] = {"fopen", "fwrite", "fflush", "fsync", "rename"};
    long step = 1;

    (void)state;
    assert_int_equal(write_checkpoint(step), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(fail_writes(names[i], &step) > 0);
    }
}

static void test_reads(void **state)
{
    static const char *const names[] = {"fopen", "fread"};
    struct gpt_files files;

    (void)state;
    assert_int_equal(write_checkpoint(1), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool is_hit = true;

        for (size_t n = 1; is_hit; n++) {
            int rc;

            failing_calls_arm(names[i], n);
            rc = gpt_files_read(folder, N_VALUES, &files);
            is_hit = failing_calls_hit();
            /* A checkpoint that cannot be read is not the same as none. */
            assert_int_equal(rc, is_hit ? -1 : 0);
            failing_calls_arm(NULL, 0);
            gpt_files_free(&files);
        }
    }
}

static int remove_folder(void **state)
{
    char command[100];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command); // NOLINT: the name is ours
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_writes), cmocka_unit_test(test_reads)};

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

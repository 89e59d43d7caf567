/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the bodies of ranks: checks, waiting, hashing. Any rank's thread enters; no state. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/ranks.h"

int ranks_finish(tally_future *future)
{
    int rc = tally_future_wait(future);

    tally_future_free(future);
    return rc;
}

int ranks_job(tally_group *group, int lane, tally_job_fn job, void *user)
{
    tally_future *future;
    int rc = tally_submit(group, lane, job, user, &future);

    return rc == TALLY_OK ? ranks_finish(future) : rc;
}

void ranks_sleep_ms(int milliseconds)
{
    struct timespec pause = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};

    (void)nanosleep(&pause, NULL);
}

uint64_t ranks_hash(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    for (; n >= sizeof hash; n -= sizeof hash, at += sizeof hash) {
        uint64_t word;

        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; n > 0; n--, at++) {
        hash = (hash ^ *at) * UINT64_C(1099511628211);
    }
    return hash;
}

static void say(const tally_group *group, const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: rank %d of %d (%s): %s\n", file, line, tally_group_rank(group),
                  tally_group_size(group), tally_group_backend(group), what);
}

int ranks_fail(const tally_group *group, const char *file, int line, const char *what)
{
    say(group, file, line, what);
    return RANKS_FAILED;
}

int ranks_fail_status(const tally_group *group, const char *file, int line, const char *what,
                      int got, int expected)
{
    char text[1024];

    (void)snprintf(text, sizeof text, "%.300s is %s (%d), not %s; last error: %.500s", what,
                   tally_status_name(got), got, tally_status_name(expected), tally_last_error());
    say(group, file, line, text);
    return RANKS_FAILED;
}

int ranks_fail_text(const tally_group *group, const char *file, int line, const char *text,
                    const char *part)
{
    char words[1500];

    (void)snprintf(words, sizeof words, "no '%.300s' in '%.1000s'", part, text);
    say(group, file, line, words);
    return RANKS_FAILED;
}

int ranks_check_alive(tally_group *group)
{
    double data = tally_group_rank(group) + 1;
    int world = tally_group_size(group);
    tally_future *future;

    CHECK_OK(group, tally_all_reduce(group, &data, 1, TALLY_F64, TALLY_SUM, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK(group, data == (double)(world * (world + 1)) / 2);
    return 0;
}

int ranks_meet(const tally_group *group)
{
    _Atomic uint32_t *word = &ranks_words()[RANKS_N_WORDS - 1];
    uint32_t size = (uint32_t)tally_group_size(group);
    uint32_t n_before = atomic_fetch_add(word, 1);

    return ranks_await(word, (n_before / size + 1) * size);
}

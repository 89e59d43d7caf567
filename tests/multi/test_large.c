/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More bytes, and more elements, than an int can count. In ordinary memory, so that they pass
 * through stages. Needs 6 GB of memory; skipped where there is less.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "support/ranks.h"

#define N ((size_t)INT32_MAX + 12345)
#define SKIPPED 77

/* A prime number of bytes, over and over: a piece in the wrong place shows. */
#define PERIOD ((size_t)65521)

/* The pattern, times factor. */
static void make_pattern(unsigned char *pattern, unsigned factor)
{
    for (unsigned i = 0; i < PERIOD; i++) {
        pattern[i] = (unsigned char)((i * i >> 5) * factor);
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int body(tally_group *group, void *user)
{
    unsigned char pattern[PERIOD];
    unsigned char *data = malloc(N);
    tally_future *future = NULL;
    bool is_right = true;

    (void)user;
    CHECK(group, data != NULL);
    make_pattern(pattern, tally_group_rank(group) == 0 ? 1 : 2);
    for (size_t i = 0; i < N; i += PERIOD) {
        memcpy(data + i, pattern, least(PERIOD, N - i));
    }
    CHECK_OK(group, tally_all_reduce(group, data, N, TALLY_U8, TALLY_SUM, &future));
    CHECK_OK(group, ranks_finish(future));
    make_pattern(pattern, 3);
    for (size_t i = 0; i < N; i += PERIOD) {
        is_right = is_right && memcmp(data + i, pattern, least(PERIOD, N - i)) == 0;
    }
    free(data);
    CHECK(group, is_right);
    return 0;
}

int main(void)
{
    const struct ranks pair = {
        .kind = RANKS_PROCESSES, .memory = RANKS_HEAP, .world = 2, .lanes = 1};
    struct tally__room room;

    tally__find_room("", &room);
    if (room.bytes < 6000000000) {
        (void)printf("skipped: less than 6 GB of free memory\n");
        return SKIPPED;
    }
    return ranks_run(&pair, body, NULL) != 0;
}

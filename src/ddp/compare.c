/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what ranks were given, entry by entry, with rank 0's. Inside jobs. */
#include "ddp/compare.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

uint64_t tally__hash(uint64_t before, const void *bytes, size_t n)
{
    uint64_t h = before ^ UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

void tally__describe_list(struct tally__description *about, size_t used, size_t n,
                          const size_t *list)
{
    const size_t room = sizeof about->words;

    for (size_t i = 0; i < n && used < room; i++) {
        used += (size_t)snprintf(about->words + used, room - used, "%s%zu", i ? "," : "[", list[i]);
    }
    if (used < room) {
        (void)snprintf(about->words + used, room - used, "%s", n ? "]" : "[]");
    }
}

static void describe(const struct tally__compared *compared, size_t i,
                     struct tally__description *about)
{
    memset(about, 0, sizeof *about);
    if (i < compared->n) {
        compared->describe(compared->of, i, about);
    } else {
        (void)snprintf(about->words, sizeof about->words, "nothing");
    }
}

/* Rank 0's description of each entry travels to all; every rank says the first entry at which it
 * differs. */
static int find_difference(tally_lane *lane, const struct tally__compared *compared, int64_t *first)
{
    uint64_t count = compared->n;
    int64_t own = INT64_MAX;

    TRY(tally_lane_broadcast(lane, &count, sizeof count, 0));
    for (size_t i = 0; i < count || i < compared->n; i++) {
        struct tally__description theirs;
        struct tally__description ours;

        describe(compared, i, &ours);
        theirs = ours;
        if (i < count) {
            TRY(tally_lane_broadcast(lane, &theirs, sizeof theirs, 0));
        }
        if ((i >= count || memcmp(&theirs, &ours, sizeof ours) != 0) && own == INT64_MAX) {
            own = (int64_t)i;
        }
    }
    *first = own;
    return tally_lane_all_reduce(lane, first, 1, TALLY_I64, TALLY_MIN);
}

int tally__compare(tally_lane *lane, const struct tally__compared *compared)
{
    int64_t first;
    int64_t who;
    struct tally__description zero;
    struct tally__description other;
    struct tally__description ours;

    TRY(find_difference(lane, compared, &first));
    if (first == INT64_MAX) {
        return TALLY_OK;
    }
    describe(compared, (size_t)first, &ours);
    zero = ours;
    TRY(tally_lane_broadcast(lane, &zero, sizeof zero, 0));
    who = memcmp(&zero, &ours, sizeof ours) != 0 ? tally_group_rank(tally_lane_group(lane))
                                                 : INT64_MAX;
    TRY(tally_lane_all_reduce(lane, &who, 1, TALLY_I64, TALLY_MIN));
    other = ours;
    TRY(tally_lane_broadcast(lane, &other, sizeof other, (int)who));
    return tally__fail(TALLY_MISMATCH, "rank 0 has %s, rank %lld has %s%s", zero.words,
                       (long long)who, other.words,
                       strcmp(zero.words, other.words) == 0 ? ": they differ in what is not shown"
                                                            : "");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-gather, all-to-all, broadcast and barrier: even and uneven sizes, nothing at all, sizes of
 * several stages, in place, blocking and asynchronous; the bytes they count.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

#define MOST_RANKS 8
#define ROOM ((size_t)6 << 20)

/* Byte i of what `from` sends to `to` in one call. */
static unsigned char byte_of(unsigned seed, int from, int to, size_t i)
{
    uint64_t x = i * 2654435761u + (uint64_t)seed * 97 + (uint64_t)from * 31 + (uint64_t)to * 7;

    return (unsigned char)(x ^ x >> 11 ^ x >> 19);
}

static void fill(unsigned char *data, unsigned seed, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        data[i] = byte_of(seed, from, to, i);
    }
}

static bool holds(const unsigned char *data, unsigned seed, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] != byte_of(seed, from, to, i)) {
            return false;
        }
    }
    return true;
}

/* Sizes by call and pair of ranks: nothing, little, odd, and more than one stage. */
static size_t size_of(unsigned seed, int from, int to)
{
    static const size_t sizes[] = {0, 1, 3, 64, 1000, 4097, 0, 70001, 262144, 262145};

    switch (seed) {
    case 0:
        return 0;
    case 1:
        return 128;
    case 2:
        return (size_t)from * 17;
    case 3:
        return to == 0 ? 300001 : 0;
    default:
        return sizes[((unsigned)from * 3 + (unsigned)to * 5 + seed) % 10];
    }
}

#define N_SEEDS 8u

struct pieces {
    tally_group *group;
    int rank;
    int world;
    unsigned char *send;
    unsigned char *received;
    size_t send_bytes[MOST_RANKS];
    size_t received_bytes[MOST_RANKS];
    unsigned seed;
    int root;
    size_t bytes;
    bool in_place;
};

static int check_sent(const struct pieces *p, tally_future *future, uint64_t expected)
{
    CHECK(p->group, tally_future_bytes_sent(future) == expected);
    return 0;
}

/* ---- all-gather ---- */

static int gather_job(tally_lane *lane, void *user)
{
    const struct pieces *p = user;

    return tally_lane_all_gather(lane, p->send, p->send_bytes, p->received);
}

static int gather(struct pieces *p, bool blocking)
{
    unsigned char *room = p->send;
    uint64_t before = tally_group_bytes_sent(p->group);
    tally_future *future;
    size_t at = 0;

    for (int r = 0; r < p->world; r++) {
        p->send_bytes[r] = size_of(p->seed, r, 0);
        if (p->in_place && r == p->rank) {
            p->send = p->received + at;
        }
        at += p->send_bytes[r];
    }
    memset(p->received, 0xee, at + 64);
    fill(p->send, p->seed, p->rank, 0, p->send_bytes[p->rank]);
    if (blocking) {
        CHECK_OK(p->group, tally_submit(p->group, 0, gather_job, p, &future));
    } else {
        CHECK_OK(p->group,
                 tally_all_gather(p->group, p->send, p->send_bytes, p->received, &future));
    }
    CHECK_OK(p->group, tally_future_wait(future));
    CHECK(p->group, check_sent(p, future, p->send_bytes[p->rank] * (uint64_t)(p->world - 1)) == 0);
    CHECK(p->group, tally_group_bytes_sent(p->group) - before == tally_future_bytes_sent(future));
    tally_future_free(future);
    p->send = room;
    at = 0;
    for (int r = 0; r < p->world; r++) {
        CHECK(p->group, holds(p->received + at, p->seed, r, 0, p->send_bytes[r]));
        at += p->send_bytes[r];
    }
    CHECK(p->group, p->received[at] == 0xee && p->received[at + 63] == 0xee);
    ranks_note(p->group, ranks_hash(0, p->received, at), ranks_hash(0, p->received, at));
    return 0;
}

/* ---- all-to-all ---- */

static int to_all_job(tally_lane *lane, void *user)
{
    const struct pieces *p = user;

    return tally_lane_all_to_all(lane, p->send, p->send_bytes, p->received, p->received_bytes);
}

static int to_all(struct pieces *p, bool blocking)
{
    tally_future *future;
    uint64_t sent = 0;
    size_t at = 0;

    for (int r = 0; r < p->world; r++) {
        p->send_bytes[r] = size_of(p->seed, p->rank, r);
        p->received_bytes[r] = size_of(p->seed, r, p->rank);
        fill(p->send + at, p->seed, p->rank, r, p->send_bytes[r]);
        at += p->send_bytes[r];
        sent += r == p->rank ? 0 : p->send_bytes[r];
    }
    memset(p->received, 0xee, ROOM);
    if (blocking) {
        CHECK_OK(p->group, tally_submit(p->group, 0, to_all_job, p, &future));
    } else {
        CHECK_OK(p->group, tally_all_to_all(p->group, p->send, p->send_bytes, p->received,
                                            p->received_bytes, &future));
    }
    CHECK_OK(p->group, tally_future_wait(future));
    CHECK(p->group, check_sent(p, future, sent) == 0);
    tally_future_free(future);
    at = 0;
    for (int r = 0; r < p->world; r++) {
        CHECK(p->group, holds(p->received + at, p->seed, r, p->rank, p->received_bytes[r]));
        at += p->received_bytes[r];
    }
    CHECK(p->group, p->received[at] == 0xee && p->received[at + 63] == 0xee);
    return 0;
}

/* ---- broadcast ---- */

static int broadcast_job(tally_lane *lane, void *user)
{
    const struct pieces *p = user;

    return tally_lane_broadcast(lane, p->received, p->bytes, p->root);
}

static int broadcast(struct pieces *p, bool blocking)
{
    uint64_t others = p->rank == p->root ? (uint64_t)(p->world - 1) : 0;
    tally_future *future;

    memset(p->received, 0xee, p->bytes + 64);
    if (p->rank == p->root) {
        fill(p->received, p->seed, p->root, 0, p->bytes);
    }
    if (blocking) {
        CHECK_OK(p->group, tally_submit(p->group, 0, broadcast_job, p, &future));
    } else {
        CHECK_OK(p->group, tally_broadcast(p->group, p->received, p->bytes, p->root, &future));
    }
    CHECK_OK(p->group, tally_future_wait(future));
    CHECK(p->group, check_sent(p, future, p->bytes * others) == 0);
    tally_future_free(future);
    CHECK(p->group, holds(p->received, p->seed, p->root, 0, p->bytes));
    CHECK(p->group, p->received[p->bytes] == 0xee);
    return 0;
}

static int broadcasts(struct pieces *p)
{
    static const size_t sizes[] = {0, 1, 63, 4097, 262144, 700001};

    for (p->root = 0; p->root < p->world; p->root++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            /* The long ones from one root only. */
            if (sizes[i] > 100000 && p->root != p->world / 2) {
                continue;
            }
            p->bytes = sizes[i];
            p->seed = (unsigned)i;
            CHECK(p->group, broadcast(p, (p->root + (int)i) % 2 == 0) == 0);
        }
    }
    return 0;
}

/* ---- barrier ---- */

/* No rank leaves number i before all ranks have come to it. */
static int barrier_job(tally_lane *lane, void *user)
{
    tally_group *group = tally_lane_group(lane);
    uint32_t world = (uint32_t)tally_group_size(group);
    _Atomic uint32_t *n_came = user;

    for (uint32_t i = 1; i <= 20; i++) {
        uint32_t seen;

        if ((int)i % tally_group_size(group) == tally_group_rank(group)) {
            ranks_sleep_ms(1);
        }
        atomic_fetch_add(n_came, 1);
        CHECK_OK(group, tally_lane_barrier(lane));
        seen = atomic_load(n_came);
        CHECK(group, seen >= i * world && seen < (i + 1) * world);
        CHECK_OK(group, tally_lane_barrier(lane));
    }
    return TALLY_OK;
}

static int body(tally_group *group, void *user)
{
    struct pieces p = {.group = group,
                       .rank = tally_group_rank(group),
                       .world = tally_group_size(group),
                       .send = ranks_buffer(group, ROOM),
                       .received = ranks_buffer(group, ROOM)};

    (void)user;
    CHECK(group, p.send && p.received);
    for (p.seed = 0; p.seed < N_SEEDS; p.seed++) {
        p.in_place = p.seed % 3 == 1;
        CHECK(group, gather(&p, p.seed % 2 == 0) == 0);
        p.in_place = !p.in_place;
        CHECK(group, gather(&p, p.seed % 2 == 1) == 0);
        CHECK(group, to_all(&p, p.seed % 2 == 0) == 0);
    }
    CHECK(group, broadcasts(&p) == 0);
    CHECK_OK(group, ranks_job(group, 0, barrier_job, ranks_words()));
    ranks_buffer_free(group, p.send);
    ranks_buffer_free(group, p.received);
    return 0;
}

int main(void)
{
    return ranks_run_all(body, NULL, 1, true) != 0;
}

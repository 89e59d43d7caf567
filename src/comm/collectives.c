/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives that move bytes and compute nothing: all-gather, all-to-all, barrier (broadcast.c has
 * broadcast). Where all ranks' data lies in group memory, every rank copies directly from it
 * between two rounds. Otherwise the data goes through the stages, one stage per round; in a group
 * with far ranks it goes in streams. Only jobs enter.
 */
#include <assert.h>

#include "base/checksum.h"
#include "base/status.h"
#include "comm/doing.h"
#include "comm/messages.h"
#include "comm/round.h"
#include "comm/threads.h"
#include "num/num.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

int tally_lane_barrier(tally_lane *lane)
{
    const struct tally__call call = {.kind = TALLY__KIND_BARRIER};

    return lane ? tally__round(lane, &call)
                : tally__fail(TALLY_ARG, "tally_lane_barrier: lane is NULL");
}

/* ---- all-gather ---- */

/* The sum of all sizes; SIZE_MAX if it exceeds memory. */
static size_t add_up(const size_t *bytes, int n)
{
    size_t total = 0;

    for (int r = 0; r < n; r++) {
        if (bytes[r] > SIZE_MAX / 2 - total) {
            return SIZE_MAX;
        }
        total += bytes[r];
    }
    return total;
}

static void gather_part(tally_lane *lane, const size_t *bytes, size_t start,
                        unsigned char *received)
{
    for (int r = 0; r < lane->group->size; r++) {
        if (start < bytes[r]) {
            tally__copy(smaller(bytes[r] - start, TALLY__STAGE_BYTES),
                        tally__stage_of(lane, r, lane->round.number), received + start);
        }
        received += bytes[r];
    }
}

static int gather_staged(tally_lane *lane, struct tally__call *call, const unsigned char *send,
                         const size_t *bytes, unsigned char *received)
{
    size_t own = bytes[lane->group->rank];
    size_t most = 0;

    for (int r = 0; r < lane->group->size; r++) {
        most = bytes[r] > most ? bytes[r] : most;
    }
    for (size_t start = 0; start < most; start += TALLY__STAGE_BYTES) {
        if (start < own) {
            tally__copy(smaller(own - start, TALLY__STAGE_BYTES), send + start,
                        tally__next_stage(lane));
        }
        TRY(tally__round(lane, call));
        gather_part(lane, bytes, start, received);
    }
    return TALLY_OK;
}

static int gather_direct(tally_lane *lane, struct tally__call *call, const unsigned char *send,
                         const size_t *bytes, unsigned char *received)
{
    unsigned char *to = received;

    for (int r = 0; r < lane->group->size; r++) {
        const unsigned char *from = r == lane->group->rank ? send : tally__peer_data(lane, r);

        /* In place: our part is there already. */
        if (from != to) {
            tally__copy(bytes[r], from, to);
        }
        to += bytes[r];
    }
    return tally__round(lane, call);
}

/* Near ranks' data is copied from their memory where it lies there. */
static int gather_far(tally_lane *lane, struct tally__call *call, const unsigned char *send,
                      const size_t *bytes, unsigned char *received)
{
    struct tally__stream *streams = tally__streams_of(lane);
    bool is_read = tally__reads(lane, lane->group->rank);

    for (int r = 0; r < lane->group->size; r++) {
        bool reads = tally__reads(lane, r);

        streams[r] = (struct tally__stream){send, 0, received, 0};
        if (r == lane->group->rank) {
            if (send != received) {
                tally__copy(bytes[r], send, received);
            }
        } else {
            streams[r].send_bytes =
                is_read && tally__is_near(lane->group, r) ? 0 : bytes[lane->group->rank];
            streams[r].receive_bytes = reads ? 0 : bytes[r];
            if (reads) {
                tally__copy(bytes[r], tally__peer_data(lane, r), received);
            }
        }
        received += bytes[r];
    }
    TRY(tally__run_streams(lane, streams));
    return tally__round(lane, call);
}

int tally_lane_all_gather(tally_lane *lane, const void *send, const size_t *bytes, void *received)
{
    struct tally__call call = {.kind = TALLY__KIND_ALL_GATHER};
    tally_group *group;

    if (!lane) {
        return tally__fail(TALLY_ARG, "tally_lane_all_gather: lane is NULL");
    }
    group = lane->group;
    call.count = bytes ? add_up(bytes, group->size) : 0;
    if (call.count == SIZE_MAX) {
        (void)tally__fail(TALLY_ARG, "all-gather: the sizes are more than memory can hold");
        return tally__refuse(lane, TALLY__KIND_ALL_GATHER, TALLY_ARG);
    }
    if (!bytes || (call.count > 0 && !received) || (bytes[group->rank] > 0 && !send)) {
        (void)tally__fail(TALLY_ARG, "all-gather: %s is NULL",
                          !bytes ? "bytes" : (!received ? "received" : "send"));
        return tally__refuse(lane, TALLY__KIND_ALL_GATHER, TALLY_ARG);
    }
    /* Ranks with other sizes must not pass; 0 is another collective's. */
    call.detail = tally__checksum(0, bytes, (size_t)group->size * sizeof *bytes) | 1;
    call.offset = tally__offset_for_peers(group, send, bytes[group->rank]);
    TRY(tally__streams_prepare(lane));
    TRY(tally__round(lane, &call));
    tally__count_sent(lane, (uint64_t)bytes[group->rank] * (uint64_t)(group->size - 1));
    call.detail = 0;
    if (group->far) {
        return gather_far(lane, &call, send, bytes, received);
    }
    return (tally__reads_all(lane) ? gather_direct : gather_staged)(lane, &call, send, bytes,
                                                                    received);
}

/* ---- all-to-all ---- */

struct to_all {
    const unsigned char *send;
    const size_t *send_bytes;
    size_t send_total;
    unsigned char *received;
    const size_t *received_bytes;
    uint64_t *start;  /* per rank: start of our part in its send buffer */
    uint64_t *totals; /* per rank: bytes it sends in all */
    uint64_t most;    /* the largest total of any rank */
};

/* Reads n entries of a rank's table, from the entry for rank first on. */
static int read_table(tally_lane *lane, struct to_all *all, int rank, size_t first, size_t n,
                      const uint64_t *table)
{
    tally_group *group = lane->group;
    size_t own = (size_t)group->rank;

    for (size_t to = 0; to < n; to++) {
        if (first + to == own) {
            all->start[rank] = all->totals[rank];
        }
        all->totals[rank] += table[to];
    }
    if (own >= first && own < first + n && table[own - first] != all->received_bytes[rank]) {
        return tally__give_up(
            group, TALLY_MISMATCH, "all-to-all: %s sends %llu bytes to %s, which expects %zu",
            tally__rank_text(group, rank).text, (unsigned long long)table[own - first],
            tally__rank_text(group, group->rank).text, all->received_bytes[rank]);
    }
    return TALLY_OK;
}

/*
 * Exchanges all ranks' tables of sizes, as many entries per round as go with a line, and compares
 * them with ours.
 */
static int exchange_tables(tally_lane *lane, struct tally__call *call, struct to_all *all)
{
    tally_group *group = lane->group;
    size_t size = (size_t)group->size;
    size_t most = tally__payload_bytes(group) / sizeof(uint64_t);

    for (size_t first = 0; first < size; first += most) {
        size_t n = smaller(size - first, most);
        uint64_t *own = (void *)tally__next_stage(lane);

        for (size_t to = 0; to < n; to++) {
            own[to] = all->send_bytes[first + to];
        }
        TRY(tally__round_with(lane, call, n * sizeof *own));
        call->detail = 2;
        for (int r = 0; r < group->size; r++) {
            const uint64_t *table = (const void *)tally__stage_of(lane, r, lane->round.number);

            TRY(read_table(lane, all, r, first, n, table));
        }
    }
    for (int r = 0; r < group->size; r++) {
        all->most = all->totals[r] > all->most ? all->totals[r] : all->most;
    }
    return TALLY_OK;
}

/* The overlap of one stage of a stream, beginning at byte from, with the part [start, start +
 * bytes). */
static struct in_stage {
    uint64_t first;
    size_t bytes;
} part_in_stage(uint64_t from, uint64_t start, uint64_t bytes)
{
    uint64_t first = start > from ? start : from;
    uint64_t end = start + bytes;

    assert(end >= start);
    end = end < from + TALLY__STAGE_BYTES ? end : from + TALLY__STAGE_BYTES;
    return (struct in_stage){first, first < end ? end - first : 0};
}

/* Copies our part of one stage of every rank's stream. */
static void take_ours(tally_lane *lane, const struct to_all *all, uint64_t from)
{
    unsigned char *received = all->received;

    for (int r = 0; r < lane->group->size; r++) {
        struct in_stage part = part_in_stage(from, all->start[r], all->received_bytes[r]);

        if (part.bytes > 0) {
            tally__copy(part.bytes,
                        tally__stage_of(lane, r, lane->round.number) + (part.first - from),
                        received + (part.first - all->start[r]));
        }
        received += all->received_bytes[r];
    }
}

static int to_all_staged(tally_lane *lane, struct tally__call *call, const struct to_all *all)
{
    /* At least one round: a rank that expects bytes which no rank sends must be noticed. */
    for (uint64_t from = 0; from == 0 || from < all->most; from += TALLY__STAGE_BYTES) {
        if (from < all->send_total) {
            tally__copy(smaller(all->send_total - from, TALLY__STAGE_BYTES), all->send + from,
                        tally__next_stage(lane));
        }
        TRY(tally__round(lane, call));
        take_ours(lane, all, from);
    }
    return TALLY_OK;
}

static int to_all_direct(tally_lane *lane, struct tally__call *call, const struct to_all *all)
{
    unsigned char *to = all->received;

    for (int r = 0; r < lane->group->size; r++) {
        tally__copy(all->received_bytes[r], tally__peer_data(lane, r) + all->start[r], to);
        to += all->received_bytes[r];
    }
    return tally__round(lane, call);
}

static int to_all_far(tally_lane *lane, struct tally__call *call, const struct to_all *all)
{
    struct tally__stream *streams = tally__streams_of(lane);
    const unsigned char *send = all->send;
    unsigned char *received = all->received;

    for (int r = 0; r < lane->group->size; r++) {
        streams[r] =
            (struct tally__stream){send, all->send_bytes[r], received, all->received_bytes[r]};
        if (r == lane->group->rank && all->send_bytes[r] > 0) {
            tally__copy(all->send_bytes[r], send, received);
        }
        send += all->send_bytes[r];
        received += all->received_bytes[r];
    }
    TRY(tally__run_streams(lane, streams));
    /* A rank that expects bytes which no rank sends must be noticed. */
    return tally__round(lane, call);
}

int tally_lane_all_to_all(tally_lane *lane, const void *send, const size_t *send_bytes,
                          void *received, const size_t *received_bytes)
{
    struct tally__call call = {.kind = TALLY__KIND_ALL_TO_ALL};
    struct to_all all = {.send = send,
                         .send_bytes = send_bytes,
                         .received = received,
                         .received_bytes = received_bytes};
    size_t received_total;
    tally_group *group;

    if (!lane) {
        return tally__fail(TALLY_ARG, "tally_lane_all_to_all: lane is NULL");
    }
    TRY(tally__check_creator(&lane->group->creator)); /* before the first write to a stage */
    group = lane->group;
    if (!send_bytes || !received_bytes) {
        (void)tally__fail(TALLY_ARG, "all-to-all: %s is NULL",
                          send_bytes ? "received_bytes" : "send_bytes");
        return tally__refuse(lane, TALLY__KIND_ALL_TO_ALL, TALLY_ARG);
    }
    all.send_total = add_up(send_bytes, group->size);
    received_total = add_up(received_bytes, group->size);
    if (all.send_total == SIZE_MAX || received_total == SIZE_MAX) {
        (void)tally__fail(TALLY_ARG, "all-to-all: the sizes are more than memory can hold");
        return tally__refuse(lane, TALLY__KIND_ALL_TO_ALL, TALLY_ARG);
    }
    if ((!send && all.send_total > 0) || (!received && received_total > 0)) {
        (void)tally__fail(TALLY_ARG, "all-to-all: %s is NULL",
                          !send && all.send_total > 0 ? "send" : "received");
        return tally__refuse(lane, TALLY__KIND_ALL_TO_ALL, TALLY_ARG);
    }
    call.offset = tally__offset_for_peers(group, send, all.send_total);
    TRY(tally__streams_prepare(lane));
    all.start = lane->scratch.starts;
    all.totals = all.start + group->size;
    for (int r = 0; r < group->size; r++) {
        all.totals[r] = 0;
    }
    TRY(exchange_tables(lane, &call, &all));
    tally__count_sent(lane, all.send_total - send_bytes[group->rank]);
    call.detail = 1;
    if (group->far) {
        return to_all_far(lane, &call, &all);
    }
    return (tally__reads_all(lane) ? to_all_direct : to_all_staged)(lane, &call, &all);
}

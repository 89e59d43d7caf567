/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of large data to far ranks, and streams made of them. MPI may use the memory of a
 * transfer until it is over, or, after a failure, for ever: so that is memory of the domain. Data
 * of the application passes through scratch memory, in parts that stay in the caches.
 */
#include <assert.h>

#include "base/status.h"
#include "comm/arrivals.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"
#include "comm/wait.h"
#include "num/num.h"

/* Parts of a stream that are under way at once, and the bytes of all parts together. */
#define N_PARTS ((size_t)2)
#define STREAMS_BYTES ((size_t)8 << 20)
#define MOST_PART ((size_t)256 * 1024)

static struct tally__far_lane *far_of(const tally_lane *lane)
{
    return &lane->group->far->lanes[lane->index];
}

/* Each lane has two channels: contributions and results between two ranks have no common order. */
static uint32_t channel_of(const tally_lane *lane, enum tally__flow flow)
{
    bool is_result = flow == TALLY__GIVING || flow == TALLY__TAKING;

    return 2 * (lane->group->far->channel + (uint32_t)lane->index) + is_result;
}

/* The counter of the transfers of a flow with rank. */
static atomic_int *pending_of(const tally_lane *lane, enum tally__flow flow, size_t window,
                              int rank)
{
    const struct tally__far *far = lane->group->far;
    size_t row = (size_t)flow * TALLY__N_WINDOWS + window % TALLY__N_WINDOWS;

    return &far->lanes[lane->index].pending[row * (size_t)lane->group->size + (size_t)rank];
}

static int check(tally_lane *lane, int rc)
{
    return rc == TALLY_OK ? rc : tally__give_up(lane->group, rc, "%s", tally_last_error());
}

int tally__transfer_send(tally_lane *lane, enum tally__flow flow, size_t window, int rank,
                         const void *data, size_t bytes)
{
    return check(lane, tally__messenger_send(lane->group->domain->messenger,
                                             lane->group->domain_rank[rank], channel_of(lane, flow),
                                             data, bytes, pending_of(lane, flow, window, rank)));
}

int tally__transfer_receive(tally_lane *lane, enum tally__flow flow, size_t window, int rank,
                            void *data, size_t bytes)
{
    return check(lane,
                 tally__messenger_receive(lane->group->domain->messenger,
                                          lane->group->domain_rank[rank], channel_of(lane, flow),
                                          data, bytes, pending_of(lane, flow, window, rank)));
}

static int await(tally_lane *lane, int rank, const atomic_int *pending,
                 enum tally__waited_for reason)
{
    const struct tally__awaited what = {.rank = rank, .transfers = pending, .reason = reason};

    return atomic_load_explicit(pending, memory_order_acquire) == 0 ? TALLY_OK
                                                                    : tally__await(lane, &what);
}

int tally__await_counter(tally_lane *lane, int rank, const atomic_int *pending)
{
    return await(lane, rank, pending, TALLY__FOR_SENDING);
}

int tally__transfer_wait(tally_lane *lane, enum tally__flow flow, size_t window, int rank)
{
    bool is_received = flow == TALLY__COMING || flow == TALLY__TAKING;

    return await(lane, rank, pending_of(lane, flow, window, rank),
                 is_received ? TALLY__FOR_TRANSFER : TALLY__FOR_SENDING);
}

int tally__transfer_scratch(tally_lane *lane, size_t bytes, unsigned char **scratch)
{
    struct tally__far_lane *far = far_of(lane);
    struct tally__domain *domain = lane->group->domain;
    void *memory = NULL;

    if (far->scratch_bytes < bytes) {
        TRY(domain->ops->alloc(domain, TALLY__FOR_SOME, bytes, &memory));
        if (far->scratch) {
            domain->ops->free(domain, far->scratch);
        }
        far->scratch = memory;
        far->scratch_bytes = bytes;
    }
    *scratch = far->scratch;
    return TALLY_OK;
}

/* ---- streams ---- */

struct streams {
    tally_lane *lane;
    const struct tally__stream *of;
    unsigned char *scratch;
    size_t part; /* bytes */
};

/* The bytes of part i. */
static size_t part_bytes(const struct streams *streams, size_t total, size_t i)
{
    size_t start = i * streams->part;
    size_t left = start < total ? total - start : 0;

    return left < streams->part ? left : streams->part;
}

static unsigned char *room_for(const struct streams *streams, bool is_received, size_t i, int rank)
{
    size_t size = (size_t)streams->lane->group->size;
    size_t row = (is_received ? N_PARTS : 0) + i % N_PARTS;

    return streams->scratch + (row * size + (size_t)rank) * streams->part;
}

/* Sends part i, and posts the receives of part i. */
static int begin_part(const struct streams *streams, size_t i)
{
    tally_lane *lane = streams->lane;

    for (int k = 1; k < lane->group->size; k++) {
        int r = (lane->group->rank + k) % lane->group->size;
        size_t receive_bytes = part_bytes(streams, streams->of[r].receive_bytes, i);
        size_t send_bytes = part_bytes(streams, streams->of[r].send_bytes, i);
        unsigned char *out = room_for(streams, false, i, r);

        if (send_bytes > 0) {
            TRY(tally__transfer_wait(lane, TALLY__GOING, i % N_PARTS, r));
            tally__copy(send_bytes, streams->of[r].send + i * streams->part, out);
            TRY(tally__transfer_send(lane, TALLY__GOING, i % N_PARTS, r, out, send_bytes));
        }
        if (receive_bytes > 0) {
            TRY(tally__transfer_receive(lane, TALLY__COMING, i % N_PARTS, r,
                                        room_for(streams, true, i, r), receive_bytes));
        }
    }
    return TALLY_OK;
}

static int end_part(const struct streams *streams, size_t i)
{
    tally_lane *lane = streams->lane;

    for (int k = 1; k < lane->group->size; k++) {
        int r = (lane->group->rank + k) % lane->group->size;
        size_t bytes = part_bytes(streams, streams->of[r].receive_bytes, i);

        if (bytes > 0) {
            TRY(tally__transfer_wait(lane, TALLY__COMING, i % N_PARTS, r));
            tally__copy(bytes, room_for(streams, true, i, r),
                        streams->of[r].receive + i * streams->part);
        }
    }
    return TALLY_OK;
}

static size_t count_parts(const struct streams *streams)
{
    size_t most = 0;

    for (int r = 0; r < streams->lane->group->size; r++) {
        if (r != streams->lane->group->rank) {
            const struct tally__stream *of = &streams->of[r];

            most = of->send_bytes > most ? of->send_bytes : most;
            most = of->receive_bytes > most ? of->receive_bytes : most;
        }
    }
    return most / streams->part + (most % streams->part != 0);
}

/* Few enough bytes that the parts of all ranks fit. */
static size_t part_for(int size)
{
    size_t most = STREAMS_BYTES / (2 * N_PARTS * (size_t)size) / 64 * 64;

    return most < MOST_PART ? most : MOST_PART;
}

struct tally__stream *tally__streams_of(const tally_lane *lane)
{
    return far_of(lane)->streams;
}

int tally__streams_prepare(tally_lane *lane)
{
    size_t size = (size_t)lane->group->size;
    unsigned char *scratch;

    return lane->group->far ? tally__transfer_scratch(
                                  lane, 2 * N_PARTS * size * part_for(lane->group->size), &scratch)
                            : TALLY_OK;
}

int tally__run_streams(tally_lane *lane, const struct tally__stream *of)
{
    const struct streams streams = {.lane = lane,
                                    .of = of,
                                    .scratch = far_of(lane)->scratch,
                                    .part = part_for(lane->group->size)};
    size_t n_parts = count_parts(&streams);

    assert(streams.scratch);
    for (size_t i = 0; n_parts > 0 && i <= n_parts; i++) {
        TRY(i < n_parts ? begin_part(&streams, i) : TALLY_OK);
        TRY(i > 0 ? end_part(&streams, i - 1) : TALLY_OK);
    }
    for (int r = 0; n_parts > 0 && r < lane->group->size; r++) {
        for (size_t i = 0; i < N_PARTS; i++) {
            TRY(tally__transfer_wait(lane, TALLY__GOING, i, r));
        }
    }
    return TALLY_OK;
}

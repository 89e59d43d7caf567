/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast, of one array or of many. Where root's array lies in group memory, the others copy it
 * from there, between two rounds. Otherwise the bytes pass through root's stages, one stage per
 * round; in a group with far ranks they go from stage to stage in streams. Only jobs enter.
 */
#include "comm/broadcast.h"

#include "base/status.h"
#include "comm/doing.h"
#include "comm/messages.h"
#include "comm/round.h"
#include "num/num.h"

/* A position in the bytes of a list of arrays. */
struct position {
    size_t array;
    size_t byte; /* in that array */
};

/* Copies the next bytes of the arrays into the stage, or out of it. */
static void copy_part(const struct tally__arrays *arrays, struct position *at, size_t bytes,
                      unsigned char *stage, bool into)
{
    while (bytes > 0) {
        struct tally__array array = arrays->get(arrays->of, at->array);
        size_t left = array.bytes - at->byte;
        size_t part = left < bytes ? left : bytes;

        if (part > 0) {
            unsigned char *data = (unsigned char *)array.data + at->byte;

            tally__copy(part, into ? data : stage, into ? stage : data);
        }
        stage += part;
        bytes -= part;
        at->byte += part;
        if (part == left) {
            *at = (struct position){.array = at->array + 1};
        }
    }
}

/* In a group with far ranks: root's stage to the stages of all. */
static int send_part(tally_lane *lane, int root, size_t bytes, unsigned char *stage)
{
    struct tally__stream *streams = tally__streams_of(lane);
    bool is_root = lane->group->rank == root;
    unsigned char *received = stage;

    for (int r = 0; r < lane->group->size; r++) {
        streams[r] = (struct tally__stream){.send = stage,
                                            .send_bytes = is_root ? bytes : 0,
                                            .receive = received,
                                            .receive_bytes = r == root && !is_root ? bytes : 0};
    }
    return tally__run_streams(lane, streams);
}

static int broadcast_staged(tally_lane *lane, const struct tally__call *call,
                            const struct tally__arrays *arrays)
{
    bool is_root = lane->group->rank == call->root;
    struct position at = {0};

    for (size_t start = 0; start < call->count; start += TALLY__STAGE_BYTES) {
        size_t left = call->count - start;
        size_t part = left < TALLY__STAGE_BYTES ? left : TALLY__STAGE_BYTES;
        unsigned char *own = tally__next_stage(lane);

        if (is_root) {
            copy_part(arrays, &at, part, own, true);
        }
        TRY(tally__round(lane, call));
        if (lane->group->far) {
            TRY(send_part(lane, call->root, part, own));
        }
        if (!is_root) {
            copy_part(arrays, &at, part,
                      lane->group->far ? own
                                       : tally__stage_of(lane, call->root, lane->round.number),
                      false);
        }
    }
    return TALLY_OK;
}

static void count_sent(tally_lane *lane, const struct tally__call *call)
{
    if (lane->group->rank == call->root) {
        tally__count_sent(lane, call->count * (uint64_t)(lane->group->size - 1));
    }
}

int tally__broadcast(tally_lane *lane, const struct tally__arrays *arrays, int root)
{
    struct tally__call call = {.kind = TALLY__KIND_BROADCAST, .root = root, .detail = 1};

    for (size_t i = 0; i < arrays->n; i++) {
        call.count += arrays->get(arrays->of, i).bytes;
    }
    TRY(tally__streams_prepare(lane));
    count_sent(lane, &call);
    return broadcast_staged(lane, &call, arrays);
}

static struct tally__array the_array(const void *of, size_t i)
{
    (void)i;
    return *(const struct tally__array *)of;
}

int tally_lane_broadcast(tally_lane *lane, void *data, size_t bytes, int root)
{
    struct tally__call call = {.kind = TALLY__KIND_BROADCAST, .root = root, .count = bytes};
    const struct tally__array array = {data, bytes};
    const struct tally__arrays arrays = {1, &array, the_array};
    tally_group *group;

    if (!lane) {
        return tally__fail(TALLY_ARG, "tally_lane_broadcast: lane is NULL");
    }
    group = lane->group;
    if (root < 0 || root >= group->size) {
        (void)tally__fail(TALLY_ARG, "broadcast: root %d is not in 0..%d, the ranks of this group",
                          root, group->size - 1);
        return tally__refuse(lane, TALLY__KIND_BROADCAST, TALLY_ARG);
    }
    if (!data && bytes > 0) {
        (void)tally__fail(TALLY_ARG, "broadcast: data is NULL");
        return tally__refuse(lane, TALLY__KIND_BROADCAST, TALLY_ARG);
    }
    call.offset = tally__offset_for_peers(group, data, bytes);
    TRY(tally__streams_prepare(lane));
    TRY(tally__round(lane, &call));
    count_sent(lane, &call);
    call.detail = 1;
    if (group->far || !tally__reads(lane, root)) {
        return broadcast_staged(lane, &call, &arrays);
    }
    if (group->rank != root) {
        tally__copy(bytes, tally__peer_data(lane, root), data);
    }
    return tally__round(lane, &call);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The public reductions: the two-phase exchange with the plain codec. Only jobs enter. */
#include "base/status.h"
#include "comm/threads.h"
#include "exchange/two_phase.h"

size_t tally_dtype_bytes(int dtype)
{
    static const size_t bytes[] = {4, 8, 2, 2, 4, 8, 1};

    return dtype >= TALLY_F32 && dtype <= TALLY_U8 ? bytes[dtype] : 0;
}

static int check(const void *data, size_t count, int dtype, int op)
{
    if (tally_dtype_bytes(dtype) == 0) {
        return tally__fail(TALLY_ARG, "dtype %d is not in %d..%d", dtype, TALLY_F32, TALLY_U8);
    }
    if (op < TALLY_SUM || op > TALLY_MAX) {
        return tally__fail(TALLY_ARG, "op %d is not in %d..%d", op, TALLY_SUM, TALLY_MAX);
    }
    if (!data && count > 0) {
        return tally__fail(TALLY_ARG, "data is NULL, count is %zu", count);
    }
    if (count > SIZE_MAX / 8) {
        return tally__fail(TALLY_ARG, "count %zu is more than memory can hold", count);
    }
    return TALLY_OK;
}

static int reduce(tally_lane *lane, enum tally__kind kind, void *data, size_t count, int dtype,
                  int op)
{
    struct tally__call call = {.kind = (uint16_t)kind};
    struct tally__codec codec;
    int rc = check(data, count, dtype, op);

    if (!lane) {
        return tally__fail(TALLY_ARG, "lane is NULL");
    }
    TRY(tally__check_owner(&lane->group->owner)); /* before the first write to a stage */
    if (rc != TALLY_OK) {
        return tally__refuse(lane, kind, rc);
    }
    call.dtype = (uint8_t)dtype;
    call.op = (uint8_t)op;
    codec = tally__codec_here(dtype, op, lane->group->size);
    codec.scatters = kind == TALLY__KIND_REDUCE_SCATTER;
    return tally__exchange(lane, &codec, call, data, count);
}

int tally_lane_all_reduce(tally_lane *lane, void *data, size_t count, int dtype, int op)
{
    return reduce(lane, TALLY__KIND_ALL_REDUCE, data, count, dtype, op);
}

int tally_lane_reduce_scatter(tally_lane *lane, void *data, size_t count, int dtype, int op)
{
    return reduce(lane, TALLY__KIND_REDUCE_SCATTER, data, count, dtype, op);
}

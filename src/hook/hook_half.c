/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers fp16 and bf16: they set how the fp32 sums of the hook inside travel, and call it.
 * Its result and its state stay fp32. No state but the settings; on lanes, several at once if the
 * hook inside can.
 */
#include "base/memory.h"
#include "base/status.h"
#include "comm/group.h"
#include "hook/kind.h"
#include "hook/wrapper.h"

struct half {
    struct tally__wrapper wrapper;
    struct tally__wire wire;
};

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct half *half = state;
    const tally_hook *inner = half->wrapper.inner;
    struct tally__wire outer = lane->wire;
    int rc;

    lane->wire = half->wire;
    rc = inner->table.reduce(inner->state, lane, bucket);
    lane->wire = outer;
    return rc;
}

static int scatter(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts)
{
    const struct half *half = state;
    const tally_hook *inner = half->wrapper.inner;
    struct tally__wire outer = lane->wire;
    int rc;

    lane->wire = half->wire;
    rc = inner->scatter(inner->state, lane, bucket, shard_starts);
    lane->wire = outer;
    return rc;
}

static int wrap(const char *name, struct tally__wire wire, tally_hook *inner, tally_hook **hook)
{
    struct half *half = tally__alloc(sizeof *half, "a hook");
    int rc;

    if (!half) {
        return TALLY_NOMEM;
    }
    half->wire = wire;
    rc = tally__wrapper_make(name, &half->wrapper, inner, reduce, hook);
    if (rc != TALLY_OK) {
        tally__free(half);
        return rc;
    }
    (*hook)->scatter = inner->scatter ? scatter : NULL;
    return TALLY_OK;
}

enum { ACCUMULATE_F32, ACCUMULATE_WIRE };

#define ACCUMULATE                                                                              \
    {                                                                                           \
        .name = "accumulate", .type = TALLY__OPTION_CHOICE, .accepts = "fp32|wire",             \
        .fallback = "fp32",                                                                     \
        .help = "add in fp32, or as PyTorch does: divide first, and round after each addition", \
    }

static int make_f16(const char *name, const double *values, tally_hook *inner, tally_hook **hook)
{
    const struct tally__wire wire = {
        .dtype = TALLY_F16, .stepwise = values[0] == ACCUMULATE_WIRE, .saturates = values[1] != 0};

    if (wire.stepwise && wire.saturates) {
        return tally__fail(TALLY_ARG, "accumulate=wire and saturate=1 do not go together");
    }
    return wrap(name, wire, inner, hook);
}

static int make_bf16(const char *name, const double *values, tally_hook *inner, tally_hook **hook)
{
    const struct tally__wire wire = {.dtype = TALLY_BF16, .stepwise = values[0] == ACCUMULATE_WIRE};

    return wrap(name, wire, inner, hook);
}

static const struct tally__option f16_options[] = {
    ACCUMULATE,
    {
        .name = "saturate",
        .type = TALLY__OPTION_CHOICE,
        .accepts = "0|1",
        .fallback = "0",
        .help = "1: what is beyond fp16 becomes +-65504 and is counted, instead of infinity",
    },
};

const struct tally__hook_kind tally__hook_kind_fp16 = {
    .row.name = "fp16",
    .row.help = "half the bytes, 11 bits of precision: for gradients between 6e-8 and 65504",
    .wraps = true,
    .row.n_options = 2,
    .row.options = f16_options,
    .make = make_f16,
};

static const struct tally__option bf16_options[] = {ACCUMULATE};

const struct tally__hook_kind tally__hook_kind_bf16 = {
    .row.name = "bf16",
    .row.help =
        "half the bytes, 8 bits of precision, the range of fp32: the safe way to halve traffic",
    .wraps = true,
    .row.n_options = 1,
    .row.options = bf16_options,
    .make = make_bf16,
};

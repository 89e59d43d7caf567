/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers fp16 and bf16: the fp32 sums of the hook inside travel in 16 bits. Its result and
 * its state stay fp32. State: the settings. Lanes enter, several at once if the hook inside is
 * concurrent.
 */
#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "hook/kind.h"
#include "hook/wrapper.h"

struct half {
    struct tally__wrapper wrapper;
    struct tally__wire wire;
};

static int reduce_as_halves(const struct half *half, tally_lane *lane, const tally_bucket *bucket,
                            const size_t *shard_starts)
{
    struct tally__reduction *reduction = tally__reduction_here();
    struct tally__wire outer = reduction->wire;
    int rc;

    reduction->wire = half->wire;
    rc = tally__hook_reduce(half->wrapper.inner, lane, bucket, shard_starts);
    reduction->wire = outer;
    return rc;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    return reduce_as_halves(state, lane, bucket, NULL);
}

static int scatter(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts)
{
    return reduce_as_halves(state, lane, bucket, shard_starts);
}

static int wrap(const char *name, struct tally__wire wire, tally_hook *inner, tally_hook **hook)
{
    struct tally__wrapper_table table = tally__wrapper_table(name, inner);
    struct half *half = tally__alloc(sizeof *half, "a hook");

    if (!half) {
        return TALLY_NOMEM;
    }
    half->wire = wire;
    table.table.reduce = reduce;
    table.table.scatter = inner->table.scatter ? scatter : NULL;
    return tally__wrapper_make(&table, &half->wrapper, inner, hook);
}

enum { ACCUMULATE_F32, ACCUMULATE_WIRE };

#define ACCUMULATE                         \
    TALLY__CHOICE_OPTION(                  \
        "accumulate", "fp32|wire", "fp32", \
        "add in fp32, or as PyTorch does: divide first, and round after each addition")

static int make_f16(const char *name, const struct tally__setting *setting, tally_hook *inner,
                    tally_hook **hook)
{
    const double *values = setting->values;
    const struct tally__wire wire = {
        .dtype = TALLY_F16, .stepwise = values[0] == ACCUMULATE_WIRE, .saturates = values[1] != 0};

    if (wire.stepwise && wire.saturates) {
        return tally__fail(TALLY_ARG, "accumulate=wire and saturate=1 do not go together");
    }
    return wrap(name, wire, inner, hook);
}

static int make_bf16(const char *name, const struct tally__setting *setting, tally_hook *inner,
                     tally_hook **hook)
{
    const double *values = setting->values;
    const struct tally__wire wire = {.dtype = TALLY_BF16, .stepwise = values[0] == ACCUMULATE_WIRE};

    return wrap(name, wire, inner, hook);
}

static const struct tally__option f16_options[] = {
    ACCUMULATE,
    TALLY__CHOICE_OPTION(
        "saturate", "0|1", "0",
        "1: what is beyond fp16 becomes +-65504 and is counted, instead of infinity"),
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

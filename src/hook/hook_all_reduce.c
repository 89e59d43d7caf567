/* SPDX-License-Identifier: Apache-2.0 */
/* The hook allreduce, which sends gradients unchanged: one exchange per bucket, or its first phase
 * alone. Stateless; on lanes. */
#include "base/status.h"
#include "comm/mpi_all_reduce.h"
#include "exchange/two_phase.h"
#include "hook/hook.h"
#include "hook/kind.h"
#include "num/reduce.h"

/* Leaves the mean; if shard_starts is given, of this rank's shard only. */
static int send(tally_lane *lane, const tally_bucket *bucket, const size_t *shard_starts)
{
    const struct tally__call call = {.kind = shard_starts ? TALLY__KIND_REDUCE_SCATTER
                                                          : TALLY__KIND_ALL_REDUCE,
                                     .dtype = (uint8_t)bucket->dtype,
                                     .op = TALLY_MEAN};
    struct tally__codec codec = tally__codec_here(bucket->dtype, TALLY_MEAN, bucket->divisor);

    if (shard_starts) {
        /* Neither codec needs blocks, so a shard may start at any element. */
        codec.block = 1;
        codec.scatters = true;
        codec.shard_starts = shard_starts;
    }
    return tally__exchange(lane, &codec, call, bucket->data, bucket->n);
}

int tally__hook_send_plain(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    return send(lane, bucket, NULL);
}

static int scatter(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts)
{
    (void)state;
    return send(lane, bucket, shard_starts);
}

/* Uses MPI_Iallreduce if the group has it. */
static int reduce_native(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct tally__arrays mean = {1, (const void *const[]){bucket->data}, 1,
                                       (void *const[]){bucket->data}, bucket->divisor};

    (void)state;
    if (bucket->dtype != TALLY_F32 || tally__wire_here().dtype != TALLY_F32 ||
        !tally__has_mpi_all_reduce(lane)) {
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    TRY(tally__mpi_all_reduce(lane, bucket->data, bucket->n));
    tally__reduce(TALLY_F32, TALLY_MEAN, bucket->n, &mean);
    return TALLY_OK;
}

enum { ENGINE_EXCHANGE, ENGINE_NATIVE };

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const double *values = setting->values;
    bool is_native = values[0] == ENGINE_NATIVE;
    const tally_hook_table table = {.size = sizeof table,
                                    .name = name,
                                    .concurrent = 1,
                                    .reduce = is_native ? reduce_native : tally__hook_send_plain,
                                    .elementwise = !is_native, /* MPI prefers long sums */
                                    .scatter = scatter};
    const struct tally__hook_private private = {.is_exact = true};

    (void)inner;
    return tally__hook_make(&table, &private, NULL, hook);
}

static const struct tally__option options[] = {TALLY__CHOICE_OPTION(
    "engine", "exchange|native", "exchange",
    "native: fp32 by MPI_Iallreduce, in an order that is MPI's own; on other backends the same as "
    "exchange")};

const struct tally__hook_kind tally__hook_kind_all_reduce = {
    .row.name = "allreduce",
    .row.n_options = 1,
    .row.options = options,
    .row.help = "gradients as they are: exact, and the fastest on one machine",
    .make = make,
};

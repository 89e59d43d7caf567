/* SPDX-License-Identifier: Apache-2.0 */
/* The hook that sends gradients as they are: one exchange per bucket, or its first phase alone. No
 * state; on lanes. */
#include "base/status.h"
#include "exchange/two_phase.h"
#include "hook/hook.h"
#include "hook/kind.h"

int tally__hook_send_plain(tally_lane *lane, const tally_bucket *bucket)
{
    const struct tally__call call = {
        .kind = TALLY__KIND_ALL_REDUCE, .dtype = (uint8_t)bucket->dtype, .op = TALLY_MEAN};
    struct tally__codec codec =
        tally__codec_of_lane(lane, bucket->dtype, TALLY_MEAN, bucket->divisor);

    return tally__exchange(lane, &codec, call, bucket->data, bucket->n);
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    return tally__hook_send_plain(lane, bucket);
}

static int scatter(void *state, tally_lane *lane, const tally_bucket *bucket, const size_t *cut)
{
    const struct tally__call call = {
        .kind = TALLY__KIND_REDUCE_SCATTER, .dtype = (uint8_t)bucket->dtype, .op = TALLY_MEAN};
    struct tally__codec codec =
        tally__codec_of_lane(lane, bucket->dtype, TALLY_MEAN, bucket->divisor);

    (void)state;
    /* Neither elements as they are nor halves know blocks: any cut will do. */
    codec.block = 1;
    codec.cut = cut;
    return tally__exchange_scatter(lane, &codec, call, bucket->data, bucket->n);
}

static int make(const char *name, const double *values, tally_hook *inner, tally_hook **hook)
{
    const tally_hook_table table = {
        .size = sizeof table, .name = name, .concurrent = 1, .reduce = reduce};

    (void)values;
    (void)inner;
    TRY(tally_hook_create(&table, NULL, hook));
    (*hook)->elementwise = true;
    (*hook)->scatter = scatter;
    return TALLY_OK;
}

const struct tally__hook_kind tally__hook_kind_all_reduce = {
    .row.name = "allreduce",
    .row.help = "gradients as they are: exact, and the fastest on one machine",
    .make = make,
};

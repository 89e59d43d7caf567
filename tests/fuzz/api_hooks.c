/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on hooks: by text, by number, as objects, tally's and the program's own. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/api_rank.h"

static const char *const texts[] = {
    "allreduce",
    "allreduce:engine=native",
    "fp16",
    "fp16:saturate=1",
    "bf16",
    "bf16:accumulate=wire",
    "int8",
    "int8:block=64,exempt=none",
    "int8:feedback=0",
    "int8:nonfinite=pass,exempt=none",
    "quantize_per_tensor",
    "quantize_per_tensor:exchange=gather",
    "quantize_per_channel",
    "quantize_per_channel:scope=bucket",
    "powersgd:rank=2,start=1",
    "powersgd:start=0",
    "powersgd:rank=1,start=2,feedback=0",
    "batched_powersgd:rank=1,start=1",
    "batched_powersgd:rank=2,start=0",
    "noop",
    "hosts",
    "hosts:size=2(int8)",
    "hosts:size=1(bf16)",
    "hosts:size=2(powersgd:start=1)",
    "bf16(hosts)",
    "bf16(powersgd:rank=2,start=1)",
    "fp16(batched_powersgd:start=1)",
    "postlocal:start=2",
    "postlocal:start=1,group=2(int8)",
    "postlocal:start=3(powersgd:start=1)",
    "postlocal:start=2,group=1(bf16)",
    "auto",
    "auto:candidates=allreduce+int8+powersgd:rank=2,review=64",
    "auto:error=0,margin=0",
    "bf16(auto)",
    "auto:candidates=int8",
    "",
    "allreduc",
    "powersgd:rank=0",
    "int8(bf16",
    "noop(noop)",
    "bf16(bf16(fp16(int8)))",
};

const char *api_hook_text(struct api_rank *rank)
{
    return API_PICK_OF(rank, texts);
}

bool api_hook_divides(const char *text)
{
    return strstr(text, "noop") || strstr(text, "postlocal");
}

/* ---- a hook of the program's own ---- */

struct own_hook {
    const struct api_rank *rank;
    uint64_t random; /* says which buckets fail */
    bool uses_residuals;
    bool fails;
};

static int own_attach(void *state, tally_ddp *ddp)
{
    const struct own_hook *own = state;

    if (!ASK(own->rank, tally_ddp_group(ddp))) {
        api_fail(own->rank, "a hook is attached to no ddp");
    }
    return TALLY_OK;
}

static int own_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct own_hook *own = state;
    float *residual = NULL;

    if (own->fails && api_mix(own->random + bucket->step) % 4 == 0) {
        return tally_job_fail(lane, TALLY_NUMERIC, "the fuzzer's hook fails");
    }
    if (own->uses_residuals && bucket->n_params > 0 &&
        CALL_ANY(own->rank, tally_bucket_residual(bucket, 0, &residual)) == TALLY_OK) {
        residual[0] += 0.5f;
    }
    (void)CALL_ANY(own->rank, tally_bucket_residual(bucket, bucket->n_params, &residual));
    return CALL_ANY(
        own->rank, tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN));
}

/* The mean of all is the mean of a shard too. */
static int own_scatter(void *state, tally_lane *lane, const tally_bucket *bucket,
                       const size_t *shard_starts)
{
    const struct own_hook *own = state;
    int rank = tally_group_rank(tally_lane_group(lane));

    if (shard_starts[rank] > shard_starts[rank + 1] || shard_starts[rank + 1] > bucket->n) {
        api_fail(own->rank, "a shard is not in its bucket");
    }
    return own_reduce(state, lane, bucket);
}

static int own_save(void *state, void *blob, size_t *bytes)
{
    const struct own_hook *own = state;

    if (blob && *bytes < sizeof own->random) {
        return tally_job_fail(NULL, TALLY_ARG, "the fuzzer's hook has too little room");
    }
    if (blob) {
        memcpy(blob, &own->random, sizeof own->random);
    }
    *bytes = sizeof own->random;
    return TALLY_OK;
}

static int own_load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct own_hook *own = state;

    if (n_blobs == 0 || blobs[0].bytes != sizeof own->random) {
        return tally_job_fail(NULL, TALLY_ARG, "the fuzzer's hook got something else");
    }
    memcpy(&own->random, blobs[0].data, sizeof own->random);
    return TALLY_OK;
}

static struct own_hook *new_own(struct api_rank *rank)
{
    struct own_hook *own = calloc(1, sizeof *own);

    if (!own) {
        api_fail(rank, "no memory for the fuzzer itself");
    }
    own->rank = rank;
    return own;
}

tally_hook *api_own_hook(struct api_rank *rank)
{
    struct own_hook *own = new_own(rank);
    tally_hook_table table = {.size = sizeof table,
                              .name = "own",
                              .concurrent = api_chance(rank, 2),
                              .feedback = api_chance(rank, 2),
                              .attach = own_attach,
                              .reduce = api_chance(rank, 20) ? NULL : own_reduce,
                              .save = own_save,
                              .load = api_chance(rank, 20) ? NULL : own_load,
                              .destroy = free,
                              .elementwise = api_chance(rank, 2),
                              .scatter = api_chance(rank, 2) ? own_scatter : NULL};
    tally_hook *hook = NULL;

    own->random = api_draw(&rank->random);
    own->uses_residuals = table.feedback;
    own->fails = api_chance(rank, 3);
    if (CALL(rank, tally_hook_create(&table, own, &hook)) != TALLY_OK) {
        free(own);
        return NULL;
    }
    return hook;
}

/* ---- operations ---- */

static void make_hook(struct api_rank *rank)
{
    tally_hook **slot = &rank->hooks[api_pick(rank, API_N_HOOKS)];
    tally_hook *inner = rank->hooks[api_pick(rank, API_N_HOOKS)];
    tally_hook *hook = NULL;

    switch (api_pick(rank, 4)) {
    case 0:
        (void)CALL(rank, tally_hook_parse(api_hook_text(rank), &hook));
        break;
    case 1:
        (void)CALL(rank, tally_hook_wrap(api_hook_text(rank), inner, &hook));
        break;
    case 2:
        (void)CALL(rank, tally_hook_parse(NULL, &hook));
        break;
    default:
        hook = api_own_hook(rank);
    }
    if (hook) {
        ASK(rank, tally_hook_free(*slot));
        *slot = hook;
    }
}

static void change_hook(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    const char *text = api_hook_text(rank);
    tally_hook **hook;
    int status;

    switch (api_pick(rank, 3)) {
    case 0:
        api_note(rank, "  hook %s", text);
        status = CALL(rank, tally_ddp_set_hook(model->ddp, text));
        model->divides = model->divides || api_hook_divides(text);
        break;
    case 1:
        status = CALL(rank, tally_ddp_register_hook(
                                model->ddp, (tally_hook_name)((int)api_pick(rank, 12) - 1)));
        model->divides = true; /* it may be noop */
        break;
    default:
        hook = &rank->hooks[api_pick(rank, API_N_HOOKS)];
        if (!*hook && !api_chance(rank, 8)) {
            *hook = api_own_hook(rank);
        }
        status = CALL(rank, tally_ddp_attach_hook(model->ddp, *hook));
        model->divides = true; /* it may be any */
    }
    if (status == TALLY_PEER || status == TALLY_TIMEOUT || status == TALLY_ABORTED) {
        (void)api_judge(model, status);
    }
}

const struct api_row api_hook_rows[] = {
    {"make a hook", make_hook, 3, false},
    {"change the hook", change_hook, 8, false},
    {NULL, NULL, 0, false},
};

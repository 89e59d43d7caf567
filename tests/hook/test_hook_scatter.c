/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that can leave the mean in this rank's shard alone: the same bits there as the whole hook,
 * and the bytes of the first phase, N - n_r elements as they travel. In group memory, in ordinary
 * memory and through stages; with shards cut evenly and not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "exchange/reduction.h"
#include "hook/hook.h"
#include "support/ddp_model.h"
#include "support/oracle.h"

#define MOST 20001
#define MOST_WORLD 7

static const struct {
    const char *text;
    size_t bytes; /* of an element on the wire; 0: cannot scatter */
} hooks[] = {
    {"allreduce", 4},
    {"fp16", 2},
    {"bf16", 2},
    {"fp16:saturate=1", 2},
    {"bf16(fp16)", 2},
    {"bf16:accumulate=wire", 2},
    {"int8", 0},
    {"bf16(powersgd)", 0},
    {"quantize_per_tensor", 0},
    {"noop", 0},
};

static const size_t lengths[] = {0, 1, 5, 64, 65, 511, 513, 4097, MOST};

struct trial {
    const tally_hook *hook;
    const size_t *cut;
    tally_bucket bucket;
    uint64_t bytes_sent;
};

static int run(const struct trial *trial, tally_lane *lane, const size_t *cut)
{
    struct tally__reduction reduction = {.wire.dtype = TALLY_F32};
    int rc;

    tally__reduction_enter(&reduction);
    rc = tally__hook_reduce(trial->hook, lane, &trial->bucket, cut);
    tally__reduction_enter(NULL);
    return rc;
}

static int reduce_job(tally_lane *lane, void *user)
{
    const struct trial *trial = user;

    return run(trial, lane, NULL);
}

static int scatter_job(tally_lane *lane, void *user)
{
    struct trial *trial = user;
    int rc = run(trial, lane, trial->cut);

    trial->bytes_sent = lane->job.bytes_sent;
    return rc;
}

static void fill(const tally_group *group, float *data, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        data[e] = (float)ddp_value(TALLY_F32, 5, tally_group_rank(group), 1, e);
    }
}

static int check_length(tally_group *group, struct trial *trial, float *whole, float *part,
                        size_t wire_bytes)
{
    int rank = tally_group_rank(group);
    size_t start = trial->cut[rank];
    size_t n = trial->cut[rank + 1] - start;

    fill(group, whole, trial->bucket.n);
    fill(group, part, trial->bucket.n);
    trial->bucket.data = whole;
    CHECK_OK(group, ranks_job(group, 0, reduce_job, trial));
    trial->bucket.data = part;
    CHECK_OK(group, ranks_job(group, 0, scatter_job, trial));
    CHECK(group, memcmp(whole + start, part + start, n * sizeof *part) == 0);
    CHECK(group, trial->bytes_sent == (trial->bucket.n - n) * wire_bytes);
    ranks_note(group, ranks_hash(0, part + start, n * sizeof *part), 0);
    return 0;
}

/* Even parts, or parts of all sizes, some of nothing. */
static void make_cut(size_t n, int world, bool uneven, size_t *cut)
{
    size_t done = 0;

    for (int r = 0; r < world; r++) {
        cut[r] = uneven ? done : n * (size_t)r / (size_t)world;
        done += r % 2 == 0 ? (n - done) / 2 : 0;
    }
    cut[world] = n;
}

static int scatter_body(tally_group *group, void *user)
{
    float *whole = ranks_buffer(group, MOST * sizeof *whole);
    float *part = ranks_buffer(group, MOST * sizeof *part);

    (void)user;
    CHECK(group, whole && part);
    for (size_t k = 0; k < sizeof hooks / sizeof hooks[0]; k++) {
        tally_hook *hook;

        CHECK_OK(group, tally_hook_parse(hooks[k].text, &hook));
        CHECK(group, !hook->table.scatter == (hooks[k].bytes == 0));
        for (size_t i = 0; hook->table.scatter && i < 2 * sizeof lengths / sizeof lengths[0]; i++) {
            size_t cut[MOST_WORLD + 1];
            struct trial trial = {.hook = hook, .cut = cut};

            /* A divisor other than the number of ranks, as with join. */
            trial.bucket = (tally_bucket){.size = sizeof trial.bucket,
                                          .dtype = TALLY_F32,
                                          .n = lengths[i / 2],
                                          .divisor = tally_group_size(group) + (double)(i & 1)};
            make_cut(lengths[i / 2], tally_group_size(group), i & 1, cut);
            CHECK_OK(group, check_length(group, &trial, whole, part, hooks[k].bytes));
        }
        tally_hook_free(hook);
    }
    ranks_buffer_free(group, part);
    ranks_buffer_free(group, whole);
    return 0;
}

int main(void)
{
    static const int worlds[] = {2, 3, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        n_failures += ranks_run_world(scatter_body, NULL, 1, worlds[w], true);
    }
    return n_failures != 0;
}

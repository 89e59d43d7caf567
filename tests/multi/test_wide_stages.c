/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wide stages, which exchanges of ordinary memory use where ranks do not all run at the same time:
 * the bits are those of the usual stages, with every way to encode and in both phases; one rank's
 * wish is enough; a rank wishes them if they were faster; and without memory for them the exchange
 * goes on as before.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"
#include "exchange/codec.h"
#include "exchange/two_phase.h"
#include "support/counting_memory.h"
#include "support/oracle.h"
#include "support/ranks.h"

/* Ten rounds of bytes through the usual stages. */
#define N ((size_t)10 * TALLY__STAGE_BYTES + 77)

#define MOST_TRIES 200

enum way { PLAIN, SCATTERED, HALF, SCALED, N_WAYS };

struct work {
    enum way way;
    float *data;
    float *input;
    uint64_t expected; /* a hash of the result */
    int asks;          /* the rank that asks for wide stages; -1: none */
    bool is_short;     /* this rank has no memory for them */
    bool is_wide;      /* the lane has wide stages after the job */
    bool is_refused;
    double known;    /* ns per byte that wide stages took before the job; 0: not measured */
    double measured; /* the same after it */
    bool all_wish;   /* all ranks ask for wide stages after the job */
};

static struct tally__codec codec_of(enum way way, int world)
{
    struct tally__codec codec;

    switch (way) {
    case HALF:
        return tally__codec_half(&(struct tally__wire){.dtype = TALLY_BF16}, world);
    case SCALED:
        return tally__codec_scaled(100, world);
    default:
        codec = tally__codec_plain(TALLY_F32, TALLY_MEAN);
        codec.scatters = way == SCATTERED;
        return codec;
    }
}

static int job(tally_lane *lane, void *user)
{
    struct work *work = user;
    struct tally__codec codec = codec_of(work->way, lane->group->size);
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE};
    uint64_t others = 0;
    int rc;

    lane->wide.slowness = 0;
    lane->wide.n_uses = lane->group->rank == work->asks;
    lane->wide.ns_per_byte = work->known;
    counting_memory_fail_nth(work->is_short); /* an exchange allocates nothing else */
    rc = tally__exchange(lane, &codec, call, work->data, N);
    counting_memory_fail_nth(0);
    work->is_wide = lane->wide.bytes > 0;
    work->is_refused = lane->wide.is_refused;
    work->measured = lane->wide.ns_per_byte;
    rc = rc == TALLY_OK ? tally__agree_any(lane, lane->wide.n_uses == 0, &others) : rc;
    work->all_wish = others == 0;
    return rc;
}

static int run(tally_group *group, struct work *work, int asks)
{
    tally_future *future;

    work->asks = asks;
    memcpy(work->data, work->input, N * sizeof(float));
    CHECK_OK(group, tally_submit(group, 0, job, work, &future));
    CHECK_OK(group, tally_future_wait(future));
    tally_future_free(future);
    return 0;
}

/* Far ranks and direct exchanges have no use for wide stages, nor has a world of one. */
static bool can_be_wide(const tally_group *group, const struct work *work)
{
    return tally_group_size(group) > 1 && !group->far &&
           !group->domain->ops->shares(group->domain, work->data, N * sizeof(float));
}

static int check_ways(tally_group *group, struct work *work)
{
    int last = tally_group_size(group) - 1;

    for (int way = N_WAYS - 1; way >= 0; way--) { /* PLAIN is the last way */
        work->way = (enum way)way;
        oracle_fill_finite((unsigned)way, tally_group_rank(group), N, work->input);
        CHECK(group, run(group, work, -1) == 0);
        work->expected = ranks_hash(0, work->data, N * sizeof(float));
        for (int asks = 0; asks <= last; asks += last > 0 ? last : 1) {
            CHECK(group, run(group, work, asks) == 0);
            CHECK(group, ranks_hash(0, work->data, N * sizeof(float)) == work->expected);
            CHECK(group, work->is_wide || !can_be_wide(group, work));
        }
    }
    return 0;
}

/* An exchange with wide stages is measured, and one that is slower than they were asks for them. */
static int check_choice(tally_group *group, struct work *work)
{
    bool is_measured;

    CHECK(group, run(group, work, 0) == 0);
    is_measured = work->measured > 0;
    CHECK(group, is_measured || !can_be_wide(group, work));
    work->known = 1e-9;
    work->all_wish = false;
    /* An exchange whose rounds are late by chance changes its stages on the way, and is no measure.
     */
    for (int i = 0; i < MOST_TRIES && is_measured && !work->all_wish; i++) {
        CHECK(group, run(group, work, -1) == 0);
    }
    CHECK(group, work->all_wish == is_measured);
    work->known = 0;
    return 0;
}

/* The last rank cannot allocate wide stages: no rank has them. Ranks that are threads have one heap
 * together. The input and the expected result are those of the last way. */
static int check_refusal(tally_group *group, struct work *work)
{
    tally_group *fresh;

    CHECK_OK(group, tally_group_split(group, 0, 0, &fresh));
    for (int i = 0; i < 2 && strcmp(tally_group_backend(group), "shm") == 0; i++) {
        work->is_short = i == 0 && tally_group_rank(group) == tally_group_size(group) - 1;
        CHECK(group, run(fresh, work, 0) == 0);
        CHECK(group, ranks_hash(0, work->data, N * sizeof(float)) == work->expected);
        CHECK(group, !work->is_wide && (work->is_refused || !can_be_wide(fresh, work)));
    }
    CHECK_OK(group, tally_group_close(fresh));
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct work work = {.data = ranks_buffer(group, N * sizeof(float)),
                        .input = malloc(N * sizeof(float))};
    int rc = RANKS_FAILED;

    (void)user;
    if (work.data && work.input) {
        rc = check_ways(group, &work);
        rc = rc == 0 ? check_choice(group, &work) : rc;
        rc = rc == 0 ? check_refusal(group, &work) : rc;
    }
    if (rc == 0) {
        ranks_buffer_free(group, work.data);
    }
    free(work.input);
    return rc;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        if (ranks_worlds[w] <= RANKS_REPEATS(4, 2)) {
            n_failures += ranks_run_world(body, NULL, 1, ranks_worlds[w], false);
        }
    }
    return n_failures != 0;
}

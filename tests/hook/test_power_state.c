/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of PowerSGD between steps. Its bits depend only on the gradients, the options and the
 * number of ranks; layer by layer not even on the buckets. It counts its plain steps over
 * checkpoints and over a change of options, and refuses a checkpoint that is not PowerSGD's for
 * these parameters.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddp/ddp.h"
#include "hook/power.h"
#include "support/hook_rules.h"
#include "support/hook_states.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static int make(tally_group *group, const char *text, bool copies, size_t cap,
                struct state_run *run)
{
    CHECK(group, ddp_model_make(&run->model, power_specs, POWER_N_PARAMS, copies) == 0);
    return power_create(group, &run->model, cap, text, &run->ddp);
}

static int step(tally_group *group, struct state_run *run, unsigned s, uint64_t *hash)
{
    CHECK_OK(group, power_run_step(group, run->ddp, &run->model, power_value, s));
    *hash = ddp_hash_grads(&run->model, run->ddp);
    return 0;
}

/* ---- the same bits ---- */

#define N_STEPS 10

static const char *const texts[] = {
    "powersgd:start=0",
    "powersgd:rank=4,start=1",
    "powersgd:rank=2,start=0,warm_start=0",
    "bf16(powersgd:rank=2,start=0)",
    "batched_powersgd:start=0",
    "batched_powersgd:rank=2,start=0",
};
#define N_TEXTS N_OF(texts)

/* Rank 0's, of every run in turn; processes write to it too. */
static FILE *results;

static int bits_of(tally_group *group, size_t k, bool copies, size_t cap, uint64_t *all)
{
    struct state_run run;

    CHECK_OK(group, make(group, texts[k], copies, cap, &run));
    *all = 0;
    for (unsigned s = 0; s < N_STEPS; s++) {
        uint64_t hash;

        CHECK_OK(group, step(group, &run, s, &hash));
        ranks_note(group, 0, hash);
        *all = ranks_hash(*all, &hash, sizeof hash);
    }
    return state_run_end(group, &run);
}

static int bits_body(tally_group *group, void *user)
{
    static const size_t caps[] = {1, 700, 1500, 1 << 20};

    (void)user;
    for (size_t k = 0; k < N_TEXTS; k++) {
        uint64_t first;
        uint64_t other;

        CHECK_OK(group, bits_of(group, k, false, 3000, &first));
        for (size_t c = 0; c < N_OF(caps) && texts[k][0] != 'b'; c++) {
            CHECK_OK(group, bits_of(group, k, c % 2 == 0, caps[c], &other));
            CHECK(group, other == first);
        }
        CHECK(group, tally_group_rank(group) != 0 ||
                         pwrite(fileno(results), &first, sizeof first, (off_t)(k * sizeof first)) ==
                             sizeof first);
    }
    return 0;
}

static int check_bits(int world)
{
    static const struct ranks ways[] = {{.kind = RANKS_THREADS, .lanes = 1},
                                        {.kind = RANKS_THREADS, .lanes = 3},
                                        {.kind = RANKS_PROCESSES, .lanes = 1},
                                        {.kind = RANKS_PROCESSES, .lanes = 3}};
    uint64_t first[N_TEXTS];
    uint64_t now[N_TEXTS];
    int n_failures = 0;

    for (size_t k = 0; k < N_OF(ways); k++) {
        struct ranks ranks = ways[k];

        if (ranks.kind == RANKS_PROCESSES && !ranks_have_processes()) {
            continue;
        }
        ranks.world = world;
        n_failures += ranks_run(&ranks, bits_body, NULL);
        if (pread(fileno(results), now, sizeof now, 0) != sizeof now) {
            return 1;
        }
        if (k == 0) {
            memcpy(first, now, sizeof first);
        }
        if (memcmp(first, now, sizeof first) != 0) {
            (void)fprintf(stderr, "world %d: other bits in run %zu\n", world, k);
            n_failures++;
        }
    }
    return n_failures;
}

/* ---- counting ---- */

#define START 5

/* Steps first..end-1 are, or are not, plain ones: the same as all-reduce's. */
static int check_plain(tally_group *group, struct state_run *run, struct state_run *plain,
                       unsigned first, unsigned end)
{
    for (unsigned s = first; s < end; s++) {
        uint64_t ours = 0;
        uint64_t theirs = 0;

        CHECK_OK(group, step(group, run, s, &ours));
        CHECK_OK(group, step(group, plain, s, &theirs));
        CHECK(group, (ours == theirs) == (s < START));
    }
    return 0;
}

static int counting(tally_group *group, const char *kind, bool copies)
{
    struct hook_states states;
    struct state_run plain;
    struct state_run run;
    char text[100];

    (void)snprintf(text, sizeof text, "%s:start=%d", kind, START);
    CHECK_OK(group, make(group, "allreduce", copies, 1500, &plain));
    CHECK_OK(group, make(group, text, copies, 1500, &run));
    CHECK_OK(group, check_plain(group, &run, &plain, 0, 2));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, state_run_end(group, &run));

    /* A new one goes on with the third; other options with the fourth. */
    CHECK_OK(group, make(group, text, copies, 1500, &run));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    hook_states_free(&states);
    CHECK_OK(group, check_plain(group, &run, &plain, 2, 3));
    (void)snprintf(text, sizeof text, "%s:start=%d,rank=2", kind, START);
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, text));
    CHECK_OK(group, check_plain(group, &run, &plain, 3, 4));
    (void)snprintf(text, sizeof text, "bf16(%s:start=%d,rank=2)", kind, START);
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, text));
    (void)snprintf(text, sizeof text, "%s:start=%d,rank=2,seed=1", kind, START);
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, text));
    CHECK_OK(group, check_plain(group, &run, &plain, 4, 8));
    CHECK_OK(group, state_run_end(group, &plain));
    return state_run_end(group, &run);
}

static int counting_body(tally_group *group, void *user)
{
    (void)user;
    CHECK_OK(group, counting(group, "powersgd", false));
    CHECK_OK(group, counting(group, "powersgd", true));
    CHECK_OK(group, counting(group, "batched_powersgd", false));
    return counting(group, "batched_powersgd", true);
}

/* ---- checkpoints that are none ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Changes a few bytes, words or the length. */
static size_t mutate(uint64_t *state, unsigned char *blob, size_t bytes)
{
    static const uint64_t words[] = {0,          1,         2, 7, 12, UINT64_MAX, UINT64_MAX / 4,
                                     1ull << 62, 1ull << 32};

    for (uint64_t n = next_random(state) % 3 + 1; n > 0 && bytes >= 8; n--) {
        switch (next_random(state) % 4) {
        case 0:
            blob[next_random(state) % bytes] ^= (unsigned char)(1u << next_random(state) % 8);
            break;
        case 1:
            bytes = next_random(state) % (bytes + 1);
            break;
        case 2:
            memcpy(blob + next_random(state) % (bytes / 8) * 8,
                   &words[next_random(state) % N_OF(words)], 8);
            break;
        default:
            memmove(blob, blob + bytes % 64, bytes - bytes % 64);
            break;
        }
    }
    return bytes;
}

/* A state that is refused leaves everything as it was; one that is not can be used. */
static int check_load(tally_group *group, struct state_run *run, const tally_hook_blob *blob)
{
    struct tally__power *power = run->ddp->hook->state;
    tally_hook_blob before;
    tally_hook_blob after;
    int rc;

    CHECK_OK(group, tally__residuals_make_plain(run->ddp->residuals));
    CHECK_OK(group, tally__hook_state_take(run->ddp->hook, &before));
    rc = tally__power_load(power, blob, 1);
    CHECK(group, rc == TALLY_OK || rc == TALLY_ARG);
    CHECK_OK(group, tally__hook_state_take(run->ddp->hook, &after));
    if (rc != TALLY_OK) {
        CHECK(group,
              before.bytes == after.bytes && memcmp(before.data, after.data, after.bytes) == 0);
    }
    tally__hook_state_free(&before);
    tally__hook_state_free(&after);
    return 0;
}

/* A Q that is not finite is refused. It follows two words, and five of its matrix. */
static int refuse_nan(tally_group *group, struct state_run *run, const tally_hook_blob *blob)
{
    const float nan = NAN;
    unsigned char *copy = malloc(blob->bytes);
    const tally_hook_blob changed = {sizeof changed, copy, blob->bytes};
    int rc;

    CHECK(group, copy);
    memcpy(copy, blob->data, blob->bytes);
    memcpy(copy + 7 * sizeof(uint64_t), &nan, sizeof nan);
    rc = tally__power_load(run->ddp->hook->state, &changed, 1);
    free(copy);
    CHECK(group, rc == TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "not finite");
    return 0;
}

static int damaged(tally_group *group, const char *text)
{
    uint64_t random = 1;
    unsigned char *copy;
    tally_hook_blob blob;
    struct state_run run;
    uint64_t hash;

    CHECK_OK(group, make(group, text, false, 1500, &run));
    for (unsigned s = 0; s < 3; s++) {
        CHECK_OK(group, step(group, &run, s, &hash));
    }
    CHECK_OK(group, tally__hook_state_take(run.ddp->hook, &blob));
    for (int k = 0; k < RANKS_REPEATS(3000, 1000); k++) {
        tally_hook_blob changed = {.size = sizeof changed};
        int checked;

        copy = malloc(blob.bytes);
        CHECK(group, copy);
        memcpy(copy, blob.data, blob.bytes);
        changed.bytes = mutate(&random, copy, blob.bytes);
        /* So that reading past the end is seen. */
        changed.data = realloc(copy, changed.bytes + (changed.bytes == 0));
        if (!changed.data) {
            free(copy);
            return RANKS_FAILED;
        }
        checked = check_load(group, &run, &changed);
        free((void *)changed.data);
        CHECK(group, checked == 0);
        if (k % 20 == 0) {
            CHECK_OK(group, step(group, &run, (unsigned)k, &hash));
        }
    }
    CHECK_OK(group, refuse_nan(group, &run, &blob));
    /* The state it had lets it go on. */
    CHECK_OK(group, tally__residuals_make_plain(run.ddp->residuals));
    CHECK_OK(group, tally__power_load(run.ddp->hook->state, &blob, 1));
    for (unsigned s = 0; s < 3; s++) {
        CHECK_OK(group, step(group, &run, s, &hash));
    }
    tally__hook_state_free(&blob);
    return state_run_end(group, &run);
}

static int damaged_body(tally_group *group, void *user)
{
    (void)user;
    CHECK_OK(group, damaged(group, "powersgd:rank=2,start=0"));
    return damaged(group, "batched_powersgd:start=0");
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    results = tmpfile();
    if (!results) {
        return 1;
    }
    for (size_t w = 0; w < RANKS_N_WORLDS - 1; w++) {
        /* Compares what several runs have left; test_hook_bits does so under MPI. */
        n_failures += ranks_are_mpi() ? 0 : check_bits(ranks_worlds[w]);
    }
    n_failures += hook_run("counting", counting_body, NULL, 2);
    n_failures += hook_run("counting", counting_body, NULL, 3);
    n_failures += hook_run("damaged", damaged_body, NULL, 1);
    (void)fclose(results);
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved states that are taken up again: by as many ranks, which go on to the bit; in other buckets,
 * or by more or fewer ranks, where nothing that was left out is lost. And the state of a hook of
 * one's own, which travels with the residuals.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/hook_states.h"

#define N_BEFORE 3
#define N_AFTER 4

/*
 * The error of rounding alone in totals of a dozen steps of values below 1; the residual of one
 * step of int8 is a thousand times as large.
 */
#define ROUNDING 4e-6

/* ---- the same world ---- */

static const struct state_setup setups[] = {
    {"int8", false, 0},
    {"int8", true, 0},
    {"int8", false, 100000},
    {"bf16(int8)", false, 0},
    {"bf16(int8)", true, 0},
    {"int8:block=64,exempt=none", true, 0},
    {"fp16:saturate=1(int8:block=128)", false, 0},
    {"powersgd:rank=2,start=1", false, 0},
    {"powersgd:rank=1,start=2", true, 0},
    {"bf16(batched_powersgd:rank=2,start=2)", true, 0},
    {"batched_powersgd:rank=1,start=1", false, 0},
    {"powersgd:rank=2,start=5", false, 0},
    {"allreduce", true, 0},
};

/* A fresh ddp on a fresh group goes on where the other one stood, with the same hook or not. */
static int go_on(tally_group *group, const struct state_setup *setup,
                 const struct hook_states *states, bool is_same, uint64_t *hash)
{
    tally_group *fresh;
    struct state_run run;

    CHECK_OK(group, tally_group_split(group, 0, tally_group_rank(group), &fresh));
    CHECK_OK(group, state_run_start(fresh, setup, &run));
    if (states) {
        CHECK_OK(group, hook_states_load(run.ddp, states));
        CHECK(group, !is_same || hook_states_unchanged(group, run.ddp, states));
    }
    CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, hash));
    CHECK_OK(group, state_run_end(group, &run));
    CHECK_OK(group, tally_group_close(fresh));
    return 0;
}

static int continue_with(tally_group *group, const struct state_setup *setup)
{
    struct hook_states states;
    struct state_run run;
    uint64_t before;
    uint64_t whole;
    uint64_t loaded;
    uint64_t forgetful;

    CHECK_OK(group, state_run_start(group, setup, &run));
    CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &before));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK(group, hook_states_unchanged(group, run.ddp, &states));
    CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &whole));
    CHECK_OK(group, state_run_end(group, &run));

    CHECK_OK(group, go_on(group, setup, &states, true, &loaded));
    CHECK_OK(group, go_on(group, setup, NULL, true, &forgetful));
    CHECK(group, loaded == whole);
    CHECK(group, (forgetful == whole) == (strcmp(setup->hook, "allreduce") == 0));
    ranks_note(group, 0, loaded);
    hook_states_free(&states);
    return 0;
}

static int same_world_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof setups / sizeof setups[0]; k++) {
        if (continue_with(group, &setups[k]) != 0) {
            (void)fprintf(stderr, "with %s%s\n", setups[k].hook,
                          setups[k].copies ? ", copies" : "");
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* Loads from copies that start this number of bytes after an aligned address. */
static int load_shifted(tally_ddp *ddp, const struct hook_states *states, size_t shift)
{
    const void *blobs[STATE_MAX_WORLD];
    unsigned char *room[STATE_MAX_WORLD] = {0};
    int rc = TALLY_NOMEM;
    size_t n = 0;

    for (; n < states->n; n++) {
        room[n] = malloc(states->bytes[n] + shift);
        if (!room[n]) {
            break;
        }
        memcpy(room[n] + shift, states->blob[n], states->bytes[n]);
        blobs[n] = room[n] + shift;
    }
    if (n == states->n) {
        rc = tally_ddp_load(ddp, blobs, states->bytes, n);
    }
    for (size_t r = 0; r < n; r++) {
        free(room[r]);
    }
    return rc;
}

/* A state may be taken up in the middle of a run, any number of times, from unaligned memory. */
static int back_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"int8", false, 0};
    struct hook_states states;
    struct state_run run;
    uint64_t first;
    uint64_t again;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &first));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &first));
    for (size_t shift = 0; shift < 5; shift++) {
        CHECK_OK(group, load_shifted(run.ddp, &states, shift));
        CHECK(group, hook_states_unchanged(group, run.ddp, &states));
        CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &again));
        CHECK(group, again == first);
    }
    CHECK_OK(group, state_run_end(group, &run));
    hook_states_free(&states);
    return 0;
}

/* ---- nothing is lost ---- */

/* A run with these buckets ends, and one with those goes on; at last a plain step pays what is
 * left. */
static int pass_on(tally_group *group, const struct state_setup *old, const struct state_setup *new)
{
    struct state_totals totals = {0};
    struct hook_states states;
    struct state_run run;

    CHECK_OK(group, state_run_start(group, old, &run));
    CHECK_OK(group, state_count_steps(group, &run, 0, N_BEFORE, &totals));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, state_run_end(group, &run));
    CHECK(group, state_owed(&totals) > 100 * ROUNDING);

    CHECK_OK(group, state_run_start(group, new, &run));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK_OK(group, state_count_steps(group, &run, N_BEFORE, N_AFTER, &totals));
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, "allreduce"));
    CHECK_OK(group, state_count_steps(group, &run, 50, 1, &totals));
    CHECK(group, state_owed(&totals) < ROUNDING);
    CHECK_OK(group, state_run_end(group, &run));
    hook_states_free(&states);
    return 0;
}

static int other_buckets_body(tally_group *group, void *user)
{
    static const struct state_setup old[] = {{"int8", false, 0}, {"int8", true, 0}};
    static const struct state_setup new[] = {
        {"int8", false, 0}, {"int8", true, 0}, {"int8", false, 10000}, {"int8", true, 10000}};

    (void)user;
    for (size_t i = 0; i < 8; i++) {
        if (pass_on(group, &old[i % 2], &new[i / 2]) != 0) {
            (void)fprintf(stderr, "from %zu to %zu\n", i % 2, i / 2);
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* Another hook takes the state up: what was left out passes on to it as when it replaces the first
 * one, and to the same bits. */
static int other_hook_body(tally_group *group, void *user)
{
    static const char *const hooks[][2] = {
        {"int8:exempt=none", "bf16(int8:exempt=none)"},
        {"int8:exempt=none", "powersgd:rank=1,start=0"},
        {"powersgd:rank=2,start=1", "int8:block=64"},
        {"powersgd:rank=2,start=1", "powersgd:rank=1,start=1"},
        {"batched_powersgd:rank=1,start=0", "powersgd:start=0"},
        {"hosts:size=2(int8)", "int8"},
        {"hosts:size=2(powersgd:rank=2,start=1)", "powersgd:rank=2,start=1"},
        {"int8", "allreduce"},
        {"allreduce", "bf16"},
    };

    (void)user;
    for (size_t k = 0; k < sizeof hooks / sizeof hooks[0]; k++) {
        const struct state_setup old = {hooks[k][0], k % 2 == 1, 0};
        const struct state_setup new = {hooks[k][1], k % 2 == 1, 0};
        struct hook_states states;
        struct state_run run;
        uint64_t hash[3];

        CHECK_OK(group, strstr(hooks[k][0], "allreduce") || strstr(hooks[k][1], "allreduce")
                            ? 0
                            : pass_on(group, &old, &new));
        CHECK_OK(group, state_run_start(group, &old, &run));
        CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash[0]));
        CHECK_OK(group, hook_states_take(group, run.ddp, &states));
        CHECK_OK(group, tally_ddp_set_hook(run.ddp, hooks[k][1]));
        CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &hash[1]));
        CHECK_OK(group, state_run_end(group, &run));
        CHECK_OK(group, go_on(group, &new, &states, false, &hash[2]));
        CHECK(group, hash[1] == hash[2]);
        hook_states_free(&states);
    }
    return 0;
}

/* ---- other worlds ---- */

/* Data that one world leaves to the next, in a file: processes share no memory. */
struct legacy {
    const char *hook;
    FILE *file;
};

static int leave_body(tally_group *group, void *user)
{
    const struct legacy *legacy = user;
    const struct state_setup setup = {legacy->hook, false, 0};
    struct state_totals totals = {0};
    struct hook_states states;
    struct state_run run;

    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, state_count_steps(group, &run, 0, N_BEFORE, &totals));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, state_run_end(group, &run));
    if (tally_group_rank(group) == 0) {
        rewind(legacy->file);
        CHECK(group, fwrite(&totals, sizeof totals, 1, legacy->file) == 1);
        CHECK(group, fwrite(&states, sizeof states, 1, legacy->file) == 1);
        for (size_t r = 0; r < states.n; r++) {
            CHECK(group, fwrite(states.blob[r], states.bytes[r], 1, legacy->file) == 1);
        }
        CHECK(group, fflush(legacy->file) == 0);
    }
    hook_states_free(&states);
    return 0;
}

/* By position: ranks that are processes share the descriptor. */
static int read_at(tally_group *group, FILE *file, size_t *at, void *to, size_t bytes)
{
    CHECK(group, pread(fileno(file), to, bytes, (off_t)*at) == (ssize_t)bytes);
    *at += bytes;
    return 0;
}

static int inherit_body(tally_group *group, void *user)
{
    const struct legacy *legacy = user;
    const struct state_setup setup = {legacy->hook, false, 0};
    struct state_totals totals = {0};
    struct hook_states states;
    struct state_run run;
    size_t at = 0;

    CHECK_OK(group, read_at(group, legacy->file, &at, &totals, sizeof totals));
    CHECK_OK(group, read_at(group, legacy->file, &at, &states, sizeof states));
    for (size_t r = 0; r < states.n; r++) {
        states.blob[r] = malloc(states.bytes[r]);
        CHECK(group, states.blob[r]);
        CHECK_OK(group, read_at(group, legacy->file, &at, states.blob[r], states.bytes[r]));
    }
    CHECK(group, state_owed(&totals) > 100 * ROUNDING);
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK_OK(group, state_count_steps(group, &run, N_BEFORE, N_AFTER, &totals));
    CHECK(group, state_owed(&totals) > 100 * ROUNDING);
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, "allreduce"));
    CHECK_OK(group, state_count_steps(group, &run, 50, 1, &totals));
    CHECK(group, state_owed(&totals) < ROUNDING);
    CHECK_OK(group, state_run_end(group, &run));
    hook_states_free(&states);
    return 0;
}

static int check_worlds(const char *hook, int from, int to)
{
    /* Under MPI another world's states are not to be had. */
    struct legacy legacy = {hook, ranks_are_mpi() ? NULL : tmpfile()};
    int n_failures = legacy.file == NULL && !ranks_are_mpi();

    for (int kind = 0; kind < 2 && legacy.file; kind++) {
        struct ranks ranks = {.kind = kind ? RANKS_PROCESSES : RANKS_THREADS,
                              .world = from,
                              .lanes = 1,
                              .timeout_s = 60};
        int failed = ranks_run(&ranks, leave_body, &legacy);

        ranks.world = to;
        failed = failed ? failed : ranks_run(&ranks, inherit_body, &legacy);
        if (failed) {
            (void)fprintf(stderr, "%s from %d to %d ranks, %s: failed\n", hook, from, to,
                          kind ? "processes" : "threads");
        }
        n_failures += failed;
    }
    if (legacy.file) {
        (void)fclose(legacy.file);
    }
    return n_failures;
}

/* ---- an application hook ---- */

/* Multiplies gradients by a number that grows with every step, and looks at the step's number. */
struct growing {
    tally_ddp *ddp;
    double factor;
    unsigned long long step; /* of the last bucket */
    size_t n_loaded;         /* blobs that the last load got */
};

static int grow_attach(void *state, tally_ddp *ddp)
{
    ((struct growing *)state)->ddp = ddp;
    return TALLY_OK;
}

static int grow_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct growing *growing = state;
    float *data = bucket->data;
    int rc = tally_lane_all_reduce(lane, data, bucket->n, bucket->dtype, TALLY_MEAN);

    growing->step = bucket->step;
    growing->factor += bucket->is_last ? 1 : 0;
    for (size_t e = 0; e < bucket->n && bucket->dtype == TALLY_F32; e++) {
        data[e] *= (float)(growing->factor + (double)bucket->step);
    }
    return rc;
}

static int grow_save(void *state, void *blob, size_t *bytes)
{
    const struct growing *growing = state;

    if (blob) {
        memcpy(blob, &growing->factor, sizeof growing->factor);
    }
    *bytes = sizeof growing->factor;
    return TALLY_OK;
}

static int grow_load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct growing *growing = state;
    tally_ddp_stats stats = {.size = sizeof stats};
    size_t own = 0;

    if (tally_ddp_get_stats(growing->ddp, &stats) != TALLY_OK) {
        return TALLY_STATE;
    }
    own = n_blobs == (size_t)stats.world ? (size_t)stats.rank : 0;
    if (blobs[own].size != sizeof *blobs || blobs[own].bytes != sizeof growing->factor) {
        return TALLY_ARG;
    }
    memcpy(&growing->factor, blobs[own].data, sizeof growing->factor);
    growing->n_loaded = n_blobs;
    return TALLY_OK;
}

static int use_growing(tally_group *group, tally_ddp *ddp, const char *wrapper,
                       struct growing *growing)
{
    const tally_hook_table table = {.size = sizeof table,
                                    .name = "growing",
                                    .attach = grow_attach,
                                    .reduce = grow_reduce,
                                    .save = grow_save,
                                    .load = grow_load};
    tally_hook *hook;
    tally_hook *wrapped;

    CHECK_OK(group, tally_hook_create(&table, growing, &hook));
    if (wrapper) {
        CHECK_OK(group, tally_hook_wrap(wrapper, hook, &wrapped));
        tally_hook_free(hook);
        hook = wrapped;
    }
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    tally_hook_free(hook);
    return 0;
}

static int own_hook_body(tally_group *group, void *user)
{
    const struct state_setup setup = {"allreduce", true, 0};
    int rank = tally_group_rank(group);

    for (int w = 0; w < 2; w++) {
        const char *wrapper = w ? "bf16" : NULL;
        /* The same on all ranks: the result is theirs. */
        struct growing first = {.factor = 2};
        struct growing second = {.factor = 70 + rank};
        struct hook_states states;
        struct state_run run;
        uint64_t hash;
        uint64_t whole;

        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, use_growing(group, run.ddp, wrapper, &first));
        CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash));
        CHECK_OK(group, hook_states_take(group, run.ddp, &states));
        CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &whole));
        CHECK_OK(group, state_run_end(group, &run));

        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, use_growing(group, run.ddp, wrapper, &second));
        /* Earlier steps of this ddp do not count. */
        CHECK_OK(group, state_steps(group, &run, 0, 1, &hash));
        CHECK_OK(group, hook_states_load(run.ddp, &states));
        CHECK(group, second.n_loaded == states.n && second.factor == 2 + N_BEFORE);
        CHECK_OK(group, state_steps(group, &run, N_BEFORE, N_AFTER, &hash));
        CHECK(group, second.step == N_BEFORE + N_AFTER - 1 && second.step == first.step);
        CHECK(group, hash == whole);
        CHECK_OK(group, state_run_end(group, &run));
        hook_states_free(&states);
    }
    (void)user;
    return 0;
}

int main(void)
{
    static const int worlds[][2] = {{4, 2}, {2, 3}, {3, 1}, {1, 4}, {7, 2}, {2, 7}};
    int n_failures = 0;

    n_failures += ddp_run_seven("the same world", same_world_body, NULL, 1);
    n_failures += ddp_run("the same world, three lanes", same_world_body, NULL, 3);
    n_failures += ddp_run_seven("back to a state", back_body, NULL, 1);
    n_failures += ddp_run_seven("other buckets", other_buckets_body, NULL, 1);
    n_failures += ddp_run("another hook", other_hook_body, NULL, 1);
    n_failures += ddp_run_seven("a hook of one's own", own_hook_body, NULL, 1);
    for (size_t k = 0; k < sizeof worlds / sizeof worlds[0]; k++) {
        n_failures += check_worlds("int8", worlds[k][0], worlds[k][1]);
    }
    n_failures += check_worlds("bf16(int8:exempt=none)", 4, 3);
    n_failures += check_worlds("powersgd:rank=1,start=1", 2, 3);
    n_failures += check_worlds("powersgd:rank=2,start=0", 4, 2);
    n_failures += check_worlds("batched_powersgd:rank=1,start=0", 3, 2);
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharded optimizers in checkpoints: saved by all ranks or as one blob, loaded by an optimizer that
 * is sharded or not, under the same number of ranks or another; training goes on to the bit. The
 * one blob is that of an optimizer that is not sharded.
 */
#include <stdio.h>
#include <string.h>

#include "support/opt_states.h"

#define N_BEFORE 4
#define N_AFTER 3

static const char *const texts[] = {"adamw:lr=0.01", "sgd", "adam:lr=0.01,amsgrad=1"};

/* Parameter 1 has a gradient in every other step: its steps are its own. */
static int train(struct opt_run *run, unsigned first, unsigned n)
{
    for (unsigned s = first; s < first + n; s++) {
        CHECK_OK(run->group, opt_step(run, s, s % 2 ? 2 : 0));
    }
    return 0;
}

static int start(tally_group *group, const char *text, bool shard, bool copies, struct opt_run *run)
{
    tally_ddp_config ddp;
    tally_optimizer_config config;
    const struct opt_setup setup = {.copies = copies, .text = text, .config = &config, .ddp = &ddp};

    tally_ddp_config_init(&ddp, sizeof ddp);
    /* Other buckets, other shares. */
    ddp.bucket_cap_bytes = copies ? 9000 : 4000;
    ddp.find_unused = 1;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.shard = shard;
    return opt_start(group, &setup, run);
}

static void copy_data(const struct opt_run *from, struct opt_run *to)
{
    for (size_t i = 0; i < from->model.n; i++) {
        memcpy(to->model.params[i].data, from->model.params[i].data,
               from->model.count[i] * sizeof(float));
    }
}

/* One that is sharded or not, and has other buckets or not, goes on from what was saved with these
 * parameters, and comes where an uninterrupted run is. */
static int resume(const struct opt_run *saved, const struct opt_run *run,
                  const struct opt_states *states, unsigned variant, const char *text)
{
    tally_group *group = run->group;
    struct opt_run resumed;

    CHECK_OK(group, start(group, text, variant & 1, variant & 2, &resumed));
    copy_data(saved, &resumed);
    CHECK_OK(group, opt_states_load(resumed.optimizer, states));
    CHECK_OK(group, train(&resumed, N_BEFORE, N_AFTER));
    CHECK(group, opt_differ(run, &resumed) == 0);
    CHECK_OK(group, opt_end(&resumed));
    return 0;
}

static int check_text(tally_group *group, const char *text)
{
    size_t world = (size_t)tally_group_size(group);
    size_t rank = (size_t)tally_group_rank(group);
    struct opt_run plain;
    struct opt_run sharded;
    struct opt_states whole;
    struct opt_states of_plain;
    struct opt_states parts;

    CHECK_OK(group, start(group, text, false, false, &plain));
    CHECK_OK(group, start(group, text, true, false, &sharded));
    CHECK_OK(group, train(&plain, 0, N_BEFORE));
    CHECK_OK(group, train(&sharded, 0, N_BEFORE));
    CHECK_OK(group, opt_states_consolidate(group, plain.optimizer, &of_plain));
    CHECK_OK(group, opt_states_consolidate(group, sharded.optimizer, &whole));
    CHECK_OK(group, opt_states_take(group, sharded.optimizer, world, &parts));
    CHECK(group, whole.bytes[0] == of_plain.bytes[0] &&
                     memcmp(whole.blob[0], of_plain.blob[0], whole.bytes[0]) == 0);
    CHECK_OK(group, train(&plain, N_BEFORE, N_AFTER));
    for (unsigned variant = 0; variant < 4; variant++) {
        CHECK_OK(group, resume(&sharded, &plain, &parts, variant, text));
    }
    CHECK_OK(group, resume(&sharded, &plain, &of_plain, 3, text));
    /* A loaded state is saved again with the same bytes. */
    CHECK_OK(group, train(&sharded, 9, 1));
    CHECK_OK(group, opt_states_load(sharded.optimizer, &parts));
    CHECK(group, opt_states_same(sharded.optimizer, &parts, rank));
    opt_states_free(&parts);
    opt_states_free(&whole);
    opt_states_free(&of_plain);
    CHECK_OK(group, opt_end(&sharded));
    CHECK_OK(group, opt_end(&plain));
    return 0;
}

static int texts_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        if (check_text(group, texts[t]) != 0) {
            (void)fprintf(stderr, "with %s\n", texts[t]);
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* ---- another world ---- */

/* From all ranks but the last to all, and back: nothing of the state changes on the way. */
static int other_world_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    bool is_in = tally_group_rank(group) < world - 1;
    struct opt_run small = {0};
    struct opt_run large;
    struct opt_states then;
    struct opt_states now;
    struct opt_states whole;
    tally_group *few;

    (void)user;
    CHECK_OK(group, tally_group_split(group, is_in ? 0 : -1, 0, &few));
    CHECK_OK(group, start(group, texts[0], true, true, &large));
    if (is_in) {
        CHECK_OK(group, start(few, texts[0], true, false, &small));
        CHECK_OK(group, train(&small, 0, N_BEFORE));
    }
    CHECK_OK(group, opt_states_take(group, small.optimizer, (size_t)world - 1, &then));
    CHECK_OK(group, opt_states_load(large.optimizer, &then));
    CHECK_OK(group, opt_states_take(group, large.optimizer, (size_t)world, &now));
    CHECK_OK(group, opt_states_consolidate(group, large.optimizer, &whole));
    for (int k = 0; k < 2 && is_in; k++) {
        CHECK_OK(group, train(&small, N_BEFORE, 1));
        CHECK_OK(group, opt_states_load(small.optimizer, k ? &whole : &now));
        CHECK(group, opt_states_same(small.optimizer, &then, (size_t)tally_group_rank(group)));
    }
    CHECK_OK(group, is_in ? opt_end(&small) : 0);
    CHECK_OK(group, opt_end(&large));
    CHECK_OK(group, tally_group_close(few));
    opt_states_free(&then);
    opt_states_free(&now);
    opt_states_free(&whole);
    return 0;
}

/* ---- what must not be ---- */

static int refused_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    unsigned char few[16];
    size_t bytes = sizeof few;
    struct opt_states parts;
    struct opt_run run;

    (void)user;
    CHECK_OK(group, start(group, texts[0], true, false, &run));
    CHECK_STATUS(group, tally_optimizer_consolidate(run.optimizer, world, NULL, &bytes), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "root");
    /* Only root's room counts, and all are told. */
    CHECK_STATUS(group, tally_optimizer_consolidate(run.optimizer, world - 1, few, &bytes),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "but the state takes");
    /* A part cannot be loaded without the others. */
    CHECK_OK(group, opt_states_take(group, run.optimizer, (size_t)world, &parts));
    parts.n = 1;
    CHECK_STATUS(group, opt_states_load(run.optimizer, &parts), world > 1 ? TALLY_ARG : TALLY_OK);
    parts.n = (size_t)world;
    CHECK_OK(group, train(&run, 0, 1));
    opt_states_free(&parts);
    CHECK_OK(group, opt_end(&run));
    return 0;
}

int main(void)
{
    static const int two_three[] = {2, 3, 0};
    static const int some[] = {1, 3, 0};
    static const int two_four[] = {2, 4, 0};
    int n_failures = opt_worlds("going on", texts_body, NULL, 1, two_three);

    n_failures += opt_worlds("another world", other_world_body, NULL, 1, two_four);
    n_failures += opt_worlds("refused", refused_body, NULL, 1, some);
    return n_failures != 0;
}

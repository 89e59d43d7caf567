/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers in checkpoints: what is loaded goes on to the bit, under the same number of ranks or
 * another, from all blobs or from one; what must not be loaded is refused on all ranks with its
 * reason, and changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/opt_states.h"

#define N_BEFORE 3
#define N_AFTER 3

static const char *const texts[] = {"sgd:lr=0.1,momentum=0.9", "adamw:lr=0.01",
                                    "adam:lr=0.01,amsgrad=1",  "rprop:lr=0.01",
                                    "adagrad:initial=0.5",     "sgd"};

static int train(struct opt_run *run, unsigned first, unsigned n)
{
    for (unsigned s = first; s < first + n; s++) {
        CHECK_OK(run->group, opt_step(run, s, s % 2 ? 2 : 0));
    }
    return 0;
}

static int start(tally_group *group, const char *text, bool copies, struct opt_run *run)
{
    tally_ddp_config ddp;
    tally_optimizer_config config;
    const struct opt_setup setup = {.copies = copies, .text = text, .config = &config, .ddp = &ddp};

    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.bucket_cap_bytes = 4000;
    ddp.find_unused = 1;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    return opt_start(group, &setup, run);
}

static void copy_data(const struct opt_run *from, struct opt_run *to)
{
    for (size_t i = 0; i < from->model.n; i++) {
        memcpy(to->model.params[i].data, from->model.params[i].data,
               from->model.count[i] * sizeof(float));
    }
}

/* ---- going on ---- */

static int goes_on(tally_group *group, const char *text, bool consolidates)
{
    struct opt_run run;
    struct opt_run resumed;
    struct opt_states states;
    tally_optimizer_stats stats = {.size = sizeof stats};
    size_t rank = (size_t)tally_group_rank(group);

    CHECK_OK(group, start(group, text, false, &run));
    CHECK_OK(group, start(group, text, true, &resumed));
    CHECK_OK(group, tally_optimizer_set_lr(run.optimizer, 0, 0.0625));
    CHECK_OK(group, train(&run, 0, N_BEFORE));
    CHECK_OK(group, consolidates ? opt_states_consolidate(group, run.optimizer, &states)
                                 : opt_states_take(group, run.optimizer,
                                                   (size_t)tally_group_size(group), &states));
    copy_data(&run, &resumed);
    CHECK_OK(group, opt_states_load(resumed.optimizer, &states));
    CHECK(group, consolidates || opt_states_same(resumed.optimizer, &states, rank));
    CHECK(group, tally_optimizer_lr(resumed.optimizer, 0) == 0.0625);
    CHECK_OK(group, tally_optimizer_get_stats(resumed.optimizer, &stats));
    CHECK(group, stats.step == N_BEFORE);
    CHECK_OK(group, train(&run, N_BEFORE, N_AFTER));
    CHECK_OK(group, train(&resumed, N_BEFORE, N_AFTER));
    CHECK(group, opt_differ(&run, &resumed) == 0);
    opt_states_free(&states);
    CHECK_OK(group, opt_end(&run));
    CHECK_OK(group, opt_end(&resumed));
    return 0;
}

static int goes_on_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        if (goes_on(group, texts[t], t % 2) != 0) {
            (void)fprintf(stderr, "with %s\n", texts[t]);
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* Fewer ranks then than now, and the other way round: the state is the same. */
static int other_world_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    bool is_in = tally_group_rank(group) < world - 1;
    tally_group *few;
    struct opt_run small = {0};
    struct opt_run large;
    struct opt_states states;
    struct opt_states of_large;
    struct opt_states whole;

    (void)user;
    CHECK_OK(group, tally_group_split(group, is_in ? 0 : -1, 0, &few));
    CHECK_OK(group, start(group, texts[1], false, &large));
    if (is_in) {
        CHECK_OK(group, start(few, texts[1], false, &small));
        CHECK_OK(group, train(&small, 0, N_BEFORE));
    }
    CHECK_OK(group, opt_states_take(group, small.optimizer, (size_t)world - 1, &states));
    CHECK_OK(group, opt_states_load(large.optimizer, &states));
    CHECK_OK(group, opt_states_take(group, large.optimizer, (size_t)world, &of_large));
    CHECK_OK(group, opt_states_consolidate(group, large.optimizer, &whole));
    if (is_in) {
        CHECK_OK(group, train(&small, N_BEFORE, 1));
        CHECK_OK(group, opt_states_load(small.optimizer, &of_large));
        CHECK(group, opt_states_same(small.optimizer, &states, (size_t)tally_group_rank(group)));
        CHECK_OK(group, train(&small, N_BEFORE, 1));
        CHECK_OK(group, opt_states_load(small.optimizer, &whole));
        CHECK(group, opt_states_same(small.optimizer, &states, (size_t)tally_group_rank(group)));
        CHECK_OK(group, opt_end(&small));
    }
    CHECK_OK(group, opt_end(&large));
    CHECK_OK(group, tally_group_close(few));
    opt_states_free(&states);
    opt_states_free(&of_large);
    opt_states_free(&whole);
    return 0;
}

/* ---- refused ---- */

static int refused(struct opt_run *run, const struct opt_states *good,
                   const struct opt_states *states, int status, const char *text)
{
    tally_group *group = run->group;

    CHECK_STATUS(group, opt_states_load(run->optimizer, states), status);
    CHECK_TEXT(group, tally_last_error(), text);
    CHECK(group, opt_states_same(run->optimizer, good, (size_t)tally_group_rank(group)));
    return 0;
}

/* Blob 0 truncated to this number of bytes, or with a bit flipped; on the last rank only. */
static int refused_copy(struct opt_run *run, const struct opt_states *good, size_t bytes,
                        size_t flip)
{
    tally_group *group = run->group;
    struct opt_states changed = *good;
    unsigned char *copy = malloc(bytes ? bytes : 1);
    int rc;

    CHECK(group, copy);
    memcpy(copy, good->blob[0], bytes);
    if (flip < bytes) {
        copy[flip] ^= (unsigned char)(1u << flip % 8);
    }
    if (tally_group_rank(group) == tally_group_size(group) - 1) {
        changed.blob[0] = copy;
        changed.bytes[0] = bytes;
    }
    rc = refused(run, good, &changed, TALLY_ARG, "blob 0");
    free(copy);
    return rc;
}

static int damaged(struct opt_run *run, const struct opt_states *good)
{
    size_t bytes = good->bytes[0];

    for (size_t n = 0; n < bytes; n += 1 + n / 3) {
        CHECK_OK(run->group, refused_copy(run, good, n, bytes));
    }
    CHECK_OK(run->group, refused_copy(run, good, bytes - 1, bytes));
    for (size_t flip = 0; flip < bytes; flip += 1 + flip / 3) {
        CHECK_OK(run->group, refused_copy(run, good, bytes, flip));
    }
    return 0;
}

/* Blobs that are whole, but not of this optimizer. */
static int others(struct opt_run *run, const struct opt_states *good)
{
    tally_group *group = run->group;
    size_t world = (size_t)tally_group_size(group);
    size_t rank = (size_t)tally_group_rank(group);
    struct opt_states states;
    struct opt_states missing = *good;
    struct opt_run other;

    for (int o = 0; o < 3; o++) {
        static const char *const other_texts[] = {"sgd:lr=0.1,momentum=0.9", "adam",
                                                  "adam:amsgrad=1"};
        static const char *const reasons[] = {"'sgd:", "'adam'", "'adam:amsgrad=1'"};

        CHECK_OK(group, start(group, other_texts[o], false, &other));
        CHECK_OK(group, opt_states_take(group, other.optimizer, world, &states));
        CHECK_OK(group, refused(run, good, &states, TALLY_ARG, reasons[o]));
        opt_states_free(&states);
        CHECK_OK(group, opt_end(&other));
    }
    missing.n = world - 1;
    CHECK_OK(group,
             refused(run, good, &missing, TALLY_ARG, world > 1 ? "all its ranks" : "no blobs"));
    /* Saved later. */
    CHECK_OK(group, start(group, texts[1], false, &other));
    CHECK_OK(group, opt_states_take(group, other.optimizer, world, &states));
    missing = *good;
    if (world > 1) {
        missing.blob[1] = states.blob[1];
        missing.bytes[1] = states.bytes[1];
        CHECK_OK(group, refused(run, good, &missing, TALLY_ARG, "saved after"));
        CHECK_OK(group, refused(run, good, rank == 1 ? &states : good, TALLY_MISMATCH,
                                "rank 1 was given other blobs than rank 0"));
    }
    opt_states_free(&states);
    CHECK_OK(group, opt_end(&other));
    return 0;
}

/* The same optimizer for other parameters, or in other groups. */
static int other_models(struct opt_run *run, const struct opt_states *good)
{
    static const int some[] = {0, 2, 4};
    const tally_optimizer_group groups[] = {
        {.size = sizeof groups[0], .text = "adamw", .params = some, .n_params = 3},
        {.size = sizeof groups[0], .text = "adamw"}};
    struct ddp_spec specs[OPT_N_PARAMS];
    tally_group *group = run->group;

    for (int o = 0; o < 3; o++) {
        static const char *const reasons[] = {"has 1 groups", "in group 0, not in -1",
                                              "with another shape"};
        tally_optimizer_config config;
        const struct opt_setup setup = {.specs = specs,
                                        .n_specs = OPT_N_PARAMS,
                                        .text = o == 2 ? "adamw" : NULL,
                                        .config = &config};
        struct opt_run other;

        memcpy(specs, opt_specs, sizeof specs);
        specs[4].shape[1] = o == 2 ? 4 : 5;
        tally_optimizer_config_init(&config, sizeof config);
        config.groups = o == 2 ? NULL : groups;
        config.n_groups = o == 0 ? 2 : 1;
        CHECK_OK(group, opt_start(group, &setup, &other));
        CHECK_STATUS(group, opt_states_load(other.optimizer, good), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), reasons[o]);
        CHECK_OK(group, opt_end(&other));
    }
    return 0;
}

static int arguments(struct opt_run *run)
{
    tally_group *group = run->group;
    unsigned char few[16];
    size_t bytes = sizeof few;
    int world = tally_group_size(group);

    CHECK_STATUS(group, tally_optimizer_save(NULL, NULL, &bytes), TALLY_ARG);
    CHECK_STATUS(group, tally_optimizer_save(run->optimizer, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_optimizer_save(run->optimizer, few, &bytes), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "room for 16 bytes, but the state takes");
    CHECK_STATUS(group, tally_optimizer_load(run->optimizer, NULL, NULL, 2), TALLY_ARG);
    CHECK_STATUS(group, tally_optimizer_consolidate(run->optimizer, world, NULL, &bytes),
                 TALLY_ARG);
    /* Only root has too little room; all are told. */
    CHECK_STATUS(group, tally_optimizer_consolidate(run->optimizer, 0, few, &bytes), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "but the state takes");
    CHECK_OK(group, opt_step(run, 0, 0));
    for (int i = 0; i < OPT_N_PARAMS; i++) {
        CHECK_OK(group, tally_ddp_grad_ready(run->ddp, i));
    }
    CHECK_STATUS(group, tally_optimizer_save(run->optimizer, NULL, &bytes), TALLY_STATE);
    CHECK_OK(group, tally_ddp_wait(run->ddp));
    return 0;
}

static int refused_body(tally_group *group, void *user)
{
    struct opt_run run;
    struct opt_states good;

    (void)user;
    CHECK_OK(group, start(group, texts[1], false, &run));
    CHECK_OK(group, train(&run, 0, N_BEFORE));
    CHECK_OK(group, opt_states_take(group, run.optimizer, (size_t)tally_group_size(group), &good));
    CHECK_OK(group, damaged(&run, &good));
    CHECK_OK(group, others(&run, &good));
    CHECK_OK(group, other_models(&run, &good));
    CHECK_OK(group, arguments(&run));
    opt_states_free(&good);
    return opt_end(&run);
}

int main(void)
{
    static const int two_three[] = {2, 3, 0};
    static const int three[] = {3, 0};
    int n_failures = opt_worlds("going on", goes_on_body, NULL, 1, two_three);

    n_failures += opt_worlds("another world", other_world_body, NULL, 1, two_three);
    n_failures += opt_worlds("refused", refused_body, NULL, 1, three);
    return n_failures != 0;
}

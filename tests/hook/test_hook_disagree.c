/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that ask for different hooks: MISMATCH, naming both; one rank whose text is wrong: ARG on
 * all at once, with its words. The hook that was there stays, and steps go on.
 */
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

#define SEED 21
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static float expected[HOOK_N_PARAMS * HOOK_MOST];

/* The hook of the last rank, and that of all others. */
struct dispute {
    const char *odd;
    const char *others;
    int status;
    const char *words[2]; /* in the text */
};

static const struct dispute disputes[] = {
    {"fp16", "allreduce", TALLY_MISMATCH, {"'fp16", "'allreduce"}},
    {"int8", "int8:block=64", TALLY_MISMATCH, {"'int8'", "'int8:block=64"}},
    {"int8:feedback=0", "int8", TALLY_MISMATCH, {"'int8:feedback=0", "'int8'"}},
    {"bf16(int8)", "fp16(int8)", TALLY_MISMATCH, {"'bf16(int8)", "'fp16(int8)"}},
    {"fp16:saturate=1", "fp16:accumulate=wire", TALLY_MISMATCH, {"saturate=1", "accumulate=wire"}},
    {"powersgd:rank=2",
     "powersgd:rank=3",
     TALLY_MISMATCH,
     {"'powersgd:rank=2", "'powersgd:rank=3"}},
    {"int8:blok=64", "int8", TALLY_ARG, {"int8:blok=64", "column 6"}},
    {"int8", "int8:", TALLY_ARG, {"int8:", "column"}},
    {"no_such_hook", "int8", TALLY_ARG, {"no_such_hook", "column 1"}},
    {NULL, "int8", TALLY_ARG, {"", ""}},
    {"fp16:saturate=1,accumulate=wire", "int8", TALLY_ARG, {"accumulate=wire", "saturate=1"}},
    {"fp16(", "fp16", TALLY_ARG, {"fp16(", "column 6"}},
    /* The same, in other words. */
    {"int8:block=512", " int8 ", TALLY_OK, {"", ""}},
    {"bf16(allreduce)", "bf16", TALLY_OK, {"", ""}},
    {"int8:nonfinite=pass,block=64", "int8:block=64,nonfinite=pass", TALLY_OK, {"", ""}},
};

/* The hook there was, with its means. */
static int still_there(tally_group *group, tally_ddp *ddp, const struct ddp_model *model)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, strcmp(stats.hook, "quantize_per_channel:block=100") == 0);
    CHECK_OK(group, hook_step(group, ddp, model, SEED));
    CHECK(group, hook_wrong(model, ddp, SEED, tally_group_size(group), expected) == 0);
    return 0;
}

static int settle(tally_group *group, tally_ddp *ddp, const struct dispute *dispute)
{
    bool odd = tally_group_rank(group) == tally_group_size(group) - 1;

    CHECK_STATUS(group, tally_ddp_set_hook(ddp, odd ? dispute->odd : dispute->others),
                 dispute->status);
    if (dispute->status != TALLY_OK) {
        CHECK_TEXT(group, tally_last_error(), dispute->words[0]);
        CHECK_TEXT(group, tally_last_error(), dispute->words[1]);
        ranks_note(group, 0, ranks_hash(0, tally_last_error(), strlen(tally_last_error())));
    } else {
        CHECK_OK(group, tally_ddp_set_hook(ddp, "quantize_per_channel:block=100"));
    }
    return 0;
}

/* By number and by object. */
static int otherwise(tally_group *group, tally_ddp *ddp)
{
    bool odd = tally_group_rank(group) == tally_group_size(group) - 1;
    tally_hook *hook = NULL;

    CHECK_STATUS(group,
                 tally_ddp_register_hook(ddp, odd ? TALLY_HOOK_NOOP : TALLY_HOOK_FP16_COMPRESS),
                 TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "'noop");
    CHECK_STATUS(group,
                 tally_ddp_register_hook(ddp, odd ? (tally_hook_name)99 : TALLY_HOOK_FP16_COMPRESS),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "99");
    CHECK_OK(group, tally_hook_parse("int8", &hook));
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, odd ? NULL : hook), TALLY_ARG);
    tally_hook_free(hook);
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, "quantize_per_channel:block=100"));
    for (size_t k = 0; k < COUNT(disputes); k++) {
        if (settle(group, ddp, &disputes[k]) != 0) {
            (void)fprintf(stderr, "with '%s' and '%s'\n",
                          disputes[k].odd ? disputes[k].odd : "NULL", disputes[k].others);
            return RANKS_FAILED;
        }
        CHECK_OK(group, still_there(group, ddp, &model));
    }
    CHECK_OK(group, otherwise(group, ddp));
    CHECK_OK(group, still_there(group, ddp, &model));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    static const int worlds[] = {2, 3, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < COUNT(worlds); w++) {
        hook_expect_all(hook_rule_of("quantize_per_channel:block=100"), SEED, worlds[w], expected);
        n_failures += hook_run("disagreeing", body, NULL, worlds[w]);
    }
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small stacks, as `ulimit -s 200` makes them for the first thread and for all others: every hook,
 * on a lane and, without lane threads, on the thread that waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/ddp_model.h"

#define STACK_KIB RANKS_REPEATS(200, 2048)
#define N 3

static const struct ddp_spec specs[N] = {{"matrix", TALLY_F32, 0, 2, {300, 200}},
                                         {"bias", TALLY_F32, 0, 1, {5000}},
                                         {"square", TALLY_F32, 0, 2, {64, 64}}};

static const char *const hooks[] = {
    "allreduce",
    "fp16:saturate=1",
    "bf16",
    "quantize_per_tensor",
    "quantize_per_tensor:exchange=gather",
    "quantize_per_channel",
    "int8",
    "powersgd:start=1",
    "powersgd:rank=4,start=1",
    "batched_powersgd:start=1",
    "hosts(int8)",
    "bf16(powersgd:start=1)",
};

static int body(tally_group *group, void *user)
{
    (void)user;
    for (size_t h = 0; h < sizeof hooks / sizeof *hooks; h++) {
        for (int copies = 0; copies < 2; copies++) {
            struct ddp_model model;
            tally_ddp_config config;
            tally_ddp *ddp;

            tally_ddp_config_init(&config, sizeof config);
            config.hook = hooks[h];
            CHECK(group, ddp_model_make(&model, specs, N, copies) == 0);
            CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
            for (unsigned s = 0; s < 4; s++) {
                CHECK_OK(group, ddp_step(group, ddp, &model, s));
            }
            CHECK_OK(group, tally_ddp_free(ddp));
            ddp_model_free(&model);
        }
    }
    return 0;
}

/* The limit holds for programs that start afterwards. */
static int begin_again(char **argv)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) != 0) {
        return 1;
    }
    limit.rlim_cur = (rlim_t)STACK_KIB << 10;
    if (setrlimit(RLIMIT_STACK, &limit) != 0 || setenv("TALLY_TEST_SMALL_STACK", "1", 1) != 0) {
        return 1;
    }
    (void)execv("/proc/self/exe", argv);
    perror("cannot start again");
    return 1;
}

int main(int argc, char **argv)
{
    int n_failures = 0;

    (void)argc;
    if (!getenv("TALLY_TEST_SMALL_STACK")) {
        return begin_again(argv);
    }
    for (int lanes = 0; lanes < 2; lanes++) {
        n_failures += ddp_run_world("small stacks", body, NULL, lanes, 1);
        n_failures += ddp_run_world("small stacks", body, NULL, lanes, 3);
    }
    return n_failures != 0;
}

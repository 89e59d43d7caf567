/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that does not come to a step in which ranks wait for each other in several groups: there
 * is one deadline, not one for each group that notices.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/ranks.h"

#define N 1003
#define TIMEOUT_S 2.0
/* Less than twice that, with room for a machine that is busy. */
#define MOST_S 3.6

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int step(tally_ddp *ddp)
{
    int rc = tally_ddp_grad_ready(ddp, 0);

    return rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
}

static int body(tally_group *group, void *user)
{
    const size_t shape = N;
    float data[N] = {0};
    const tally_param param = {.size = sizeof param,
                               .name = "w",
                               .n_dims = 1,
                               .shape = &shape,
                               .dtype = TALLY_F32,
                               .data = data};
    int last = tally_group_size(group) - 1;
    tally_ddp_config config;
    tally_ddp *ddp;
    double began;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = user;
    CHECK_OK(group, tally_ddp_create(group, &param, 1, &config, &ddp));
    CHECK_OK(group, step(ddp));
    began = seconds();
    if (tally_group_rank(group) == last) {
        CHECK_OK(group, ranks_await(&ranks_words()[0], (uint32_t)last));
        CHECK(group, step(ddp) != TALLY_OK);
    } else {
        CHECK_STATUS(group, step(ddp), TALLY_TIMEOUT);
        CHECK(group, seconds() - began < MOST_S);
        CHECK_TEXT(group, tally_last_error(), "did not arrive within 2 s");
        (void)atomic_fetch_add(&ranks_words()[0], 1);
    }
    (void)tally_ddp_free(ddp);
    return 0;
}

int main(void)
{
    static const struct {
        enum ranks_kind kind;
        int world;
        char hook[32];
    } cases[] = {
        {RANKS_THREADS, 4, "hosts:size=2"},
        {RANKS_PROCESSES, 3, "hosts:size=2"},
        {RANKS_PROCESSES, 4, "hosts"},
        {RANKS_THREADS, 7, "hosts:size=3(int8)"},
    };
    int n_failures = 0;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ranks ranks = {.kind = cases[i].kind,
                                    .memory = RANKS_HEAP,
                                    .world = cases[i].world,
                                    .lanes = 1,
                                    .timeout_s = TIMEOUT_S,
                                    .may_leak = true};
        char hook[32];

        (void)snprintf(hook, sizeof hook, "%s", cases[i].hook);
        if (cases[i].kind == RANKS_THREADS || ranks_have_processes()) {
            n_failures += ranks_run(&ranks, body, hook);
        }
    }
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of C in docs/post-local-sgd.md. Groups of two divide these worlds: 2 4 */
#include "fragment_model.h"

static void train(void)
{
    tally_averager_stats stats = {.size = sizeof stats};
    double before = distance();

#include "docs/post-local-sgd.md#two-parts"
    tally_averager_get_stats(averager, &stats);
    EXPECT(stats.step == (unsigned long long)n_steps && stats.n_averagings == 3);
    EXPECT(distance() < before / 10);
    tally_averager_free(averager);
}

static void train_outer(void)
{
    static const tally_averager_level levels[] = {{.period = 8, .group = 0}};
    tally_averager_stats stats = {.size = sizeof stats};
    tally_averager_config config;
    tally_averager *averager;

    tally_averager_config_init(&config, sizeof config);
    config.levels = levels;
    config.n_levels = 1;
    config.warmup = 1000;
#include "docs/post-local-sgd.md#an-outer-optimizer-diloco"
    tally_averager_create(ddp, &config, &averager);
    for (int step = 0; step < n_steps; step++) {
        backward();
        tally_ddp_wait(ddp);
        update();
        tally_averager_step(averager, NULL);
    }
    tally_averager_get_stats(averager, &stats);
    EXPECT(stats.n_averagings == 3);
    tally_averager_free(averager);
}

void run_fragments(void)
{
    n_steps = 1020; /* three averagings behind the warm-up */
    make_ddp(NULL);
    train();
    free_ddp();
    make_ddp(NULL);
    train_outer();
    free_ddp();
}

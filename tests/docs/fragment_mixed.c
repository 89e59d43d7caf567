/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of C in docs/mixed-precision.md. */
#include "fragment_model.h"

static tally_optimizer_config optimizer_config;

static void train(void)
{
    double before = distance();

#include "docs/mixed-precision.md#mixed-precision"
    EXPECT(tally_ddp_low(ddp, 0) && tally_ddp_mean(ddp, 0) != tally_ddp_grad(ddp, 0));
    EXPECT(distance() < before);
    tally_optimizer_free(optimizer);
}

static void train_scaled(void)
{
    tally_optimizer_stats stats = {.size = sizeof stats};
    double before = distance();

#include "docs/mixed-precision.md#loss-scaling"
    EXPECT(distance() < before);
    tally_optimizer_get_stats(optimizer, &stats);
    EXPECT(stats.step == (unsigned long long)n_steps && stats.loss_scale == 65536);
    tally_optimizer_free(optimizer);
    free_ddp();
}

void run_fragments(void)
{
    tally_optimizer_config_init(&optimizer_config, sizeof optimizer_config);
    optimizer_config.overlap = 1;
    train();
    train_scaled();
}

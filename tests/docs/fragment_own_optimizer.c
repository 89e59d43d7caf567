/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer that the reader writes in docs/optimizers.md. */
#include <math.h>

#include "fragment_model.h"

#include "docs/optimizers.md#write-your-own"

void run_fragments(void)
{
    const tally_optimizer_group all = {.size = sizeof all, .table = &normalized, .lr = 0.25};
    tally_optimizer_config config;
    const float *bias;

    tally_optimizer_config_init(&config, sizeof config);
    config.groups = &all;
    config.n_groups = 1;
    make_ddp(NULL);
    tally_optimizer_create(ddp, NULL, &config, &optimizer);
    backward();
    tally_ddp_wait(ddp);
    tally_optimizer_step(optimizer);
    bias = params[5].data;
    EXPECT(fabs(hypot((double)bias[0], (double)bias[1]) - 0.25) < 1e-6);
    tally_optimizer_free(optimizer);
    free_ddp();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The piece of C in docs/porting.md: parameters and gradients in one array each. */
#include "fragment_model.h"

#define N_LAYERS 3

void run_fragments(void)
{
    static float parameters[12], gradients[12];
    const char *const names[N_LAYERS] = {"first", "second", "third"};
    const size_t counts[N_LAYERS] = {3, 4, 5};
    tally_param params[N_LAYERS];
    const int n = N_LAYERS;

#include "docs/porting.md#one-flat-gradient-array"
    EXPECT(at == 12);
    tally_ddp_create(group, params, N_LAYERS, NULL, &ddp);
    for (int i = N_LAYERS - 1; i >= 0; i--) {
        float *gradient = params[i].grad;

        gradient[0] = (float)(tally_group_rank(group) + i);
        tally_ddp_grad_ready(ddp, i);
    }
    tally_ddp_wait(ddp);
    EXPECT(gradients[3] == 1 + (float)(tally_group_size(group) - 1) / 2);
    free_ddp();
}

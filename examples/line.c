/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest training program: fits a line to points; every rank has different points. */
#include <stdio.h>
#include <tally.h>

#define POINTS 10 /* of each rank */

static int fail(void)
{
    fprintf(stderr, "tally: %s\n", tally_last_error());
    return 1;
}

int main(void)
{
    float line[2] = {0, 0}; /* y = line[0] x + line[1] */
    const tally_param param = {.size = sizeof param,
                               .name = "line",
                               .n_dims = 1,
                               .shape = (size_t[]){2},
                               .dtype = TALLY_F32,
                               .data = line};
    tally_group *group;
    tally_ddp *ddp;

    if (tally_group_open(NULL, &group) != TALLY_OK ||
        tally_ddp_create(group, &param, 1, NULL, &ddp) != TALLY_OK) {
        return fail();
    }
    int rank = tally_group_rank(group), size = tally_group_size(group);
    float *grad = tally_ddp_grad(ddp, 0);

    for (int step = 0; step < 100; step++) {
        grad[0] = grad[1] = 0;
        for (int i = 0; i < POINTS; i++) {
            float x = 2 * (float)(i * size + rank) / (float)(POINTS * size) - 1;
            float error = line[0] * x + line[1] - (2 * x + 1);

            grad[0] += error * x / POINTS;
            grad[1] += error / POINTS;
        }
        /* grad is complete; after wait it is the mean over all ranks. */
        if (tally_ddp_grad_ready(ddp, 0) != TALLY_OK || tally_ddp_wait(ddp) != TALLY_OK) {
            return fail();
        }
        line[0] -= grad[0];
        line[1] -= grad[1];
    }
    printf("rank %d of %d: y = %.3f x + %.3f\n", rank, size, (double)line[0], (double)line[1]);
    tally_ddp_free(ddp);
    tally_group_close(group);
    return 0;
}

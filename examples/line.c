/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <tally.h>

static void check(int rc)
{
    if (rc != TALLY_OK) {
        fprintf(stderr, "tally: %s\n", tally_last_error());
        exit(1);
    }
}

int main(void)
{
    float line[2] = {0, 0}, *grad; /* y = line[0] x + line[1] */
    const tally_param param = {.size = sizeof param,
                               .name = "line",
                               .n_dims = 1,
                               .shape = (size_t[]){2},
                               .dtype = TALLY_F32,
                               .data = line};
    tally_group *group;
    tally_ddp *ddp;

    check(tally_group_open(NULL, &group));
    check(tally_ddp_create(group, &param, 1, NULL, &ddp));
    int rank = tally_group_rank(group), size = tally_group_size(group);
    grad = tally_ddp_grad(ddp, 0);

    for (int step = 0; step < 100; step++) {
        grad[0] = grad[1] = 0;
        for (int i = rank; i < 20; i += size) { /* every rank has other points */
            float x = (float)i / 10 - 1, error = line[0] * x + line[1] - (2 * x + 1);

            grad[0] += error * x * (float)size / 20;
            grad[1] += error * (float)size / 20;
        }
        check(tally_ddp_grad_ready(ddp, 0)); /* grad is complete: it may travel */
        check(tally_ddp_wait(ddp));          /* grad is now the mean over all ranks */
        line[0] -= grad[0];
        line[1] -= grad[1];
    }
    printf("rank %d of %d: y = %.3f x + %.3f\n", rank, size, (double)line[0], (double)line[1]);
    tally_ddp_free(ddp);
    return tally_group_close(group);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tally.h>

int main(void)
{
    float line[2] = {0, 0}; /* the model: y = line[0] x + line[1] */
    const tally_param param = {.size = sizeof param,
                               .name = "line",
                               .n_dims = 1,
                               .shape = (size_t[]){2},
                               .dtype = TALLY_F32,
                               .data = line};
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;
    int failed = tally_group_open(NULL, &group) || tally_ddp_create(group, &param, 1, NULL, &ddp);
    int rank = tally_group_rank(group), size = tally_group_size(group);

    for (int step = 0; step < 100 && !failed; step++) {
        float *grad = tally_ddp_grad(ddp, 0);

        grad[0] = grad[1] = 0;
        for (int i = rank; i < 20; i += size) { /* every rank has other points */
            float x = (float)i / 10 - 1, error = line[0] * x + line[1] - (2 * x + 1);

            grad[0] += error * x * (float)size / 20;
            grad[1] += error * (float)size / 20;
        }
        failed = tally_ddp_grad_ready(ddp, 0) || /* the gradient is complete: it may travel */
                 tally_ddp_wait(ddp);            /* now it is the mean over all ranks */
        line[0] -= grad[0];
        line[1] -= grad[1];
    }
    if (failed) {
        fprintf(stderr, "tally: %s\n", tally_last_error());
    } else {
        printf("rank %d of %d: y = %.3f x + %.3f\n", rank, size, (double)line[0], (double)line[1]);
    }
    tally_ddp_free(ddp);
    return tally_group_close(group) || failed;
}

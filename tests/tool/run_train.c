/* SPDX-License-Identifier: Apache-2.0 */
/* run_train [hang]: a rank that trains until it is killed. With hang, rank 1 takes 20 steps and no
 * more, so that the others wait for it. */
#include <stdio.h>
#include <string.h>
#include <tally.h>
#include <time.h>
#include <unistd.h>

#define N_PARAMS 4
#define N 1000
#define HANG_AFTER 20

int main(int argc, char **argv)
{
    static const char *const names[N_PARAMS] = {"a", "b", "c", "d"};
    static const size_t shape = N;
    static float values[N_PARAMS][N];
    static float grads[N_PARAMS][N];
    tally_param params[N_PARAMS] = {{0}};
    tally_ddp_config config;
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;
    int hangs = argc > 1 && strcmp(argv[1], "hang") == 0;
    int rc;

    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = 1,
                                  .shape = &shape,
                                  .dtype = TALLY_F32,
                                  .data = values[i],
                                  .grad = grads[i]};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = N * sizeof(float);
    rc = tally_group_open(NULL, &group);
    rc = rc == TALLY_OK ? tally_ddp_create(group, params, N_PARAMS, &config, &ddp) : rc;
    for (int step = 0; rc == TALLY_OK; step++) {
        const struct timespec forward = {0, 2000000};

        if (step == HANG_AFTER && hangs && tally_group_rank(group) == 1) {
            (void)pause();
        }
        (void)nanosleep(&forward, NULL);
        for (int i = N_PARAMS; i-- > 0 && rc == TALLY_OK;) {
            rc = tally_ddp_grad_ready(ddp, i);
        }
        rc = rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
    }
    (void)fprintf(stderr, "%s\n", tally_last_error());
    (void)tally_ddp_free(ddp);
    (void)tally_group_close(group);
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Uses a group, a sub-group and a ddp, and says how that ended: "STATUS: text". */
#include <stdio.h>
#include <tally_extend.h>
#include <unistd.h>

#define N 5000
#define DEADLINE_S 2

static float data[N];

static int use_ddp(tally_group *group)
{
    const size_t shape[] = {N};
    const tally_param param = {sizeof param, "p", 1, shape, NULL, TALLY_F32, data, NULL, 0};
    tally_ddp_config config;
    tally_ddp *ddp = NULL;
    int rc;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = "allreduce:engine=native";
    rc = tally_ddp_create(group, &param, 1, &config, &ddp);
    for (int step = 0; step < 2 && rc == TALLY_OK; step++) {
        rc = tally_ddp_grad_ready(ddp, 0);
        rc = rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
    }
    (void)tally_ddp_free(ddp);
    return rc;
}

int main(void)
{
    tally_group_config config;
    tally_group *group = NULL;
    tally_group *child = NULL;
    tally_future *future = NULL;
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.timeout_s = DEADLINE_S;
    config.open_timeout_s = DEADLINE_S;
    rc = tally_group_open(&config, &group);
    rc = rc == TALLY_OK ? tally_all_reduce(group, data, N, TALLY_F32, TALLY_SUM, &future) : rc;
    rc = rc == TALLY_OK ? tally_future_wait(future) : rc;
    tally_future_free(future);
    rc = rc == TALLY_OK ? tally_group_split(group, 0, 0, &child) : rc;
    rc = rc == TALLY_OK ? use_ddp(child) : rc;
    (void)fprintf(stderr, "%s: %s\n", tally_status_name(rc),
                  rc == TALLY_OK ? "all went well" : tally_last_error());
    (void)tally_group_close(child);
    (void)tally_group_close(group);
    if (rc != TALLY_OK) {
        (void)sleep(DEADLINE_S +
                    2); /* a launcher ends the others when this one fails: they speak first */
    }
    return rc != TALLY_OK;
}

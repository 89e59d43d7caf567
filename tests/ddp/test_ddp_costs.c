/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of many small parameters, counted in rounds and bytes instead of time: creating a ddp,
 * and a step of it, cost as much as with one parameter of the same size. Only a step in which a
 * rank lacks a gradient costs more: one exchange.
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/group.h"
#include "support/ddp_model.h"

#define N 2000
#define N_EACH 5

static float values[N * N_EACH];

/* Rounds of all lanes, and bytes that this rank has sent, since the ddp was made. */
struct cost {
    uint64_t rounds;
    unsigned long long bytes;
};

static struct cost cost_of(const tally_ddp *ddp)
{
    const tally_group *group = tally_ddp_group(ddp);
    struct cost cost = {.bytes = tally_group_bytes_sent(group)};

    for (int i = 0; i < group->n_lanes; i++) {
        cost.rounds += group->lanes[i].round.number;
    }
    return cost;
}

/* Divides values into n parameters. */
static int create(tally_group *group, size_t n, int find_unused, tally_ddp **ddp)
{
    const size_t shape = sizeof values / sizeof *values / n;
    tally_param *params = calloc(n, sizeof *params);
    char(*names)[16] = calloc(n, sizeof *names);
    tally_ddp_config config;
    int rc = TALLY_NOMEM;

    tally_ddp_config_init(&config, sizeof config);
    config.find_unused = find_unused;
    for (size_t i = 0; params && names && i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "%zu", i);
        params[i] = (tally_param){.size = sizeof *params,
                                  .name = names[i],
                                  .n_dims = 1,
                                  .shape = &shape,
                                  .data = values + i * shape};
    }
    if (params && names) {
        rc = tally_ddp_create(group, params, n, &config, ddp);
    }
    free(params);
    free(names);
    return rc;
}

/* All gradients are announced, except that of parameter absent. */
static int step(tally_group *group, tally_ddp *ddp, int absent, struct cost *cost)
{
    struct cost before = cost_of(ddp);

    for (int i = (int)tally_ddp_n_params(ddp); i-- > 0;) {
        if (i != absent) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        } else {
            CHECK_OK(group, tally_ddp_grad_absent(ddp, i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    *cost = cost_of(ddp);
    cost->rounds -= before.rounds;
    cost->bytes -= before.bytes;
    return 0;
}

/* The last rank lacks a gradient: one exchange of a number per parameter. */
static int check_absent(tally_group *group, tally_ddp *ddp, const struct cost *none_absent)
{
    bool is_last = tally_group_rank(group) == tally_group_size(group) - 1;
    tally_ddp_stats stats = {.size = sizeof stats};
    struct cost cost;
    int unused = 1;

    CHECK_OK(group, step(group, ddp, is_last ? 7 : -1, &cost));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK_OK(group, tally_ddp_is_unused(ddp, 7, &unused));
    CHECK(group, unused == (tally_group_size(group) == 1));
    CHECK(group, cost.bytes == none_absent->bytes + stats.other_wire_bytes);
    CHECK(group, (stats.other_wire_bytes > 0) == (tally_group_size(group) > 1));
    CHECK(group, stats.other_wire_bytes <= 2 * N * sizeof(int32_t));
    CHECK(group, cost.rounds > none_absent->rounds && cost.rounds <= none_absent->rounds + 3);
    return 0;
}

static int body(tally_group *group, void *user)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    struct cost created[2];
    struct cost stepped[2];
    tally_ddp *ddps[2];

    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, create(group, k == 0 ? 1 : N, *(const int *)user, &ddps[k]));
        created[k] = cost_of(ddps[k]);
        CHECK_OK(group, step(group, ddps[k], -1, &stepped[k]));
        CHECK_OK(group, tally_ddp_get_stats(ddps[k], &stats));
        CHECK(group, stats.other_wire_bytes == 0 && stats.total_other_wire_bytes == 0);
        CHECK(group, stepped[k].bytes == stats.wire_bytes);
    }
    CHECK(group, created[1].rounds == created[0].rounds && created[1].bytes == created[0].bytes);
    CHECK(group, stepped[1].rounds == stepped[0].rounds && stepped[1].bytes == stepped[0].bytes);
    CHECK_OK(group, check_absent(group, ddps[1], &stepped[1]));
    CHECK_OK(group, step(group, ddps[1], -1, &stepped[0]));
    CHECK(group, stepped[1].rounds == stepped[0].rounds && stepped[1].bytes == stepped[0].bytes);
    CHECK_OK(group, tally_ddp_free(ddps[0]));
    CHECK_OK(group, tally_ddp_free(ddps[1]));
    return 0;
}

int main(void)
{
    int n_failures = 0;

    for (int find_unused = 0; find_unused < 2; find_unused++) {
        for (int world = 1; world < 5; world++) {
            const struct ranks ranks = {
                .kind = RANKS_PROCESSES, .world = world, .lanes = world == 4 ? 2 : 1};

            n_failures += ranks_run(&ranks, body, &find_unused);
        }
    }
    return n_failures != 0;
}

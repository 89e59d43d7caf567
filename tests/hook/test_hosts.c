/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts: the ranks of a host add up in rank order, one of them exchanges with the other hosts. Held
 * to that order, to the bit, against sums written out; to the bytes that leave a host, which do not
 * grow with its ranks; and a failure inside is everybody's.
 */
#include <stdio.h>
#include <string.h>

#include "support/ranks.h"

#define N 1003
#define N_STEPS 2

struct sizes {
    int host_size;
};

/* Any rank's gradient, computed by all. */
static float gradient_of(int rank, int step, size_t k)
{
    return (float)((k * 7 + (size_t)rank * 31 + (size_t)step * 13) % 101) / 7.0f - 5.0f;
}

/* Within hosts in rank order, then over hosts, divided once. */
static float mean_of(int world, int host_size, int step, size_t k)
{
    float sum = 0;

    for (int first = 0; first < world; first += host_size) {
        float of_host = gradient_of(first, step, k);

        for (int r = first + 1; r < first + host_size && r < world; r++) {
            of_host += gradient_of(r, step, k);
        }
        sum = first == 0 ? of_host : sum + of_host;
    }
    return sum / (float)world;
}

static int step(tally_group *group, tally_ddp *ddp, int number)
{
    float *gradient = tally_ddp_grad(ddp, 0);

    for (size_t k = 0; k < N; k++) {
        gradient[k] = gradient_of(tally_group_rank(group), number, k);
    }
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    return tally_ddp_wait(ddp);
}

static int make(tally_group *group, const char *hook, tally_ddp **ddp)
{
    static float data[N];
    const size_t shape = N;
    const tally_param param = {.size = sizeof param,
                               .name = "w",
                               .n_dims = 1,
                               .shape = &shape,
                               .dtype = TALLY_F32,
                               .data = data};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.keep_parameters = 1;
    return tally_ddp_create(group, &param, 1, &config, ddp);
}

static size_t shard_of(int size, int rank)
{
    size_t offset;
    size_t n;

    tally_shard(N, size, rank, &offset, &n);
    return n;
}

/* Bytes that this rank sends within its host in a step: the sum, and the result. */
static unsigned long long host_bytes_of(int world, int host_size, int rank)
{
    int first = rank / host_size * host_size;
    int local = first + host_size < world ? host_size : world - first;
    unsigned long long bytes = 0;

    if (local > 1) {
        bytes +=
            sizeof(float) * (N + (unsigned long long)(local - 2) * shard_of(local, rank - first));
    }
    if (rank == first) {
        bytes += (unsigned long long)(local - 1) * N * sizeof(float);
    }
    return bytes;
}

/* And over the network: the leaders' exchange. */
static unsigned long long wire_bytes_of(int world, int host_size, int rank)
{
    int n_hosts = (world + host_size - 1) / host_size;

    return rank % host_size == 0 && n_hosts > 1
               ? sizeof(float) *
                     (N + (unsigned long long)(n_hosts - 2) * shard_of(n_hosts, rank / host_size))
               : 0;
}

static int order_body(tally_group *group, void *user)
{
    const struct sizes *sizes = user;
    int world = tally_group_size(group);
    tally_bucket_stats bucket = {.size = sizeof bucket};
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp *ddp;
    char hook[32];

    (void)snprintf(hook, sizeof hook, "hosts:size=%d", sizes->host_size);
    CHECK_OK(group, make(group, hook, &ddp));
    for (int s = 0; s < N_STEPS; s++) {
        const float *gradient = tally_ddp_grad(ddp, 0);

        CHECK_OK(group, step(group, ddp, s));
        for (size_t k = 0; k < N; k++) {
            CHECK(group, gradient[k] == mean_of(world, sizes->host_size, s, k));
        }
    }
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.wire_bytes == wire_bytes_of(world, sizes->host_size, stats.rank));
    CHECK(group, stats.total_wire_bytes == N_STEPS * stats.wire_bytes);
    CHECK(group, stats.host_bytes == host_bytes_of(world, sizes->host_size, stats.rank));
    CHECK(group, stats.total_host_bytes == N_STEPS * stats.host_bytes);
    CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, 0, &bucket));
    CHECK(group, bucket.wire_bytes == stats.wire_bytes && bucket.host_bytes == stats.host_bytes);
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* Among the leaders the hook inside fails once, on one of them: all ranks hear of it, and go on. */
static int fail_once(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    int *calls = state;

    if (++*calls == 2 && tally_group_rank(tally_lane_group(lane)) == 1) {
        return tally_job_fail(lane, TALLY_NUMERIC, "the second one is no good");
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int failure_body(tally_group *group, void *user)
{
    int calls = 0;
    const tally_hook_table table = {.size = sizeof table, .name = "once", .reduce = fail_once};
    tally_hook *inner;
    tally_hook *hook;
    tally_ddp *ddp;

    (void)user;
    CHECK_OK(group, tally_hook_create(&table, &calls, &inner));
    CHECK_OK(group, tally_hook_wrap("hosts:size=2", inner, &hook));
    CHECK_OK(group, make(group, "allreduce", &ddp));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    CHECK_OK(group, step(group, ddp, 0));
    CHECK_STATUS(group, step(group, ddp, 1), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "the second one is no good");
    CHECK_OK(group, step(group, ddp, 2));
    CHECK_OK(group, tally_ddp_set_hook(ddp, "hosts"));
    CHECK_OK(group, step(group, ddp, 3));
    CHECK_OK(group, tally_ddp_free(ddp));
    tally_hook_free(hook);
    tally_hook_free(inner);
    return 0;
}

static int mistakes_body(tally_group *group, void *user)
{
    tally_ddp *ddp;

    (void)user;
    CHECK_OK(group, make(group, "allreduce", &ddp));
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, "hosts(postlocal)"), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "divides the ranks into groups");
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, "postlocal(hosts)"), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, "hosts:size=-1"), TALLY_ARG);
    CHECK_OK(group, step(group, ddp, 0));
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

int main(void)
{
    int n_failures = 0;

    for (int k = 0; k < 2; k++) {
        struct ranks ranks = {.kind = k ? RANKS_PROCESSES : RANKS_THREADS, .lanes = 2};
        const int worlds[] = {1, 3, 4, 7};

        for (int w = 0; w < 4; w++) {
            struct sizes sizes = {.host_size = 2 + w % 2};

            ranks.world = worlds[w];
            n_failures += ranks_run(&ranks, order_body, &sizes);
        }
        ranks.world = 5;
        n_failures += ranks_run(&ranks, failure_body, NULL);
        n_failures += ranks_run(&ranks, mistakes_body, NULL);
    }
    return n_failures != 0;
}

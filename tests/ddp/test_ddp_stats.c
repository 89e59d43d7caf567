/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: counts, bytes on the wire against the formula, orders and times, in every step; and a
 * thread that reads them all the time while others announce, wait, and rearrange the buckets.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 6

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {10}},       {"b", TALLY_F32, 0, 2, {300, 51}},
    {"c", TALLY_F64, 0, 2, {100, 101}}, {"still", TALLY_F32, TALLY_PARAM_FROZEN, 1, {9}},
    {"d", TALLY_F16, 0, 1, {9001}},     {"e", TALLY_F32, 0, 1, {4000}},
};

static size_t bytes_of(size_t i)
{
    size_t n = specs[i].shape[0] * (specs[i].n_dims > 1 ? specs[i].shape[1] : 1);

    return n * tally_dtype_bytes(specs[i].dtype);
}

/*
 * Bytes that this rank sends for a bucket: N + (W - 2) n_r elements, or all to every rank if it is
 * small.
 */
static unsigned long long wire_bytes(size_t bytes, int dtype, int world, int rank)
{
    size_t element = tally_dtype_bytes(dtype);
    size_t offset;
    size_t n;

    if (bytes <= ranks_one_phase_bytes()) {
        return (unsigned long long)(world - 1) * bytes;
    }
    tally_shard(bytes / element, world, rank, &offset, &n);
    return bytes - n * element + (unsigned long long)(world - 1) * n * element;
}

/* ---- one step after the other ---- */

static int check_times(tally_group *group, const tally_bucket_stats *bucket,
                       const tally_ddp_stats *stats)
{
    CHECK(group, bucket->ready_s >= 0);
    CHECK(group, bucket->ready_s <= bucket->launch_s);
    CHECK(group, bucket->launch_s <= bucket->start_s);
    CHECK(group, bucket->start_s <= bucket->done_s);
    CHECK(group, bucket->done_s <= stats->backward_s + stats->exposed_s);
    return 0;
}

/* The fields that do not change from step to step. */
static int check_config(tally_group *group, const tally_ddp_stats *stats)
{
    CHECK(group, stats->rank == tally_group_rank(group));
    CHECK(group, stats->world == tally_group_size(group));
    CHECK(group, strcmp(stats->backend, tally_group_backend(group)) == 0);
    CHECK(group, stats->dtypes == (1u << TALLY_F32 | 1u << TALLY_F64 | 1u << TALLY_F16));
    CHECK(group, stats->first_bucket_bytes == 1 && stats->bucket_cap_bytes == 1);
    CHECK(group, !stats->find_unused && !stats->static_graph && !stats->join);
    CHECK(group, stats->buffer_bytes == 0 && stats->n_delayed_buckets == 0);
    CHECK(group, stats->error == TALLY_OK && stats->error_text[0] == '\0');
    return 0;
}

/* Ranks also exchange, once, rank 0's order. */
static unsigned long long other_bytes(unsigned long long step, bool copies, int world, int rank)
{
    unsigned long long word = (unsigned long long)(world - 1) * sizeof(int32_t);

    return copies && step == 1 && rank == 0 ? N * word : 0;
}

static int check_step(tally_group *group, const tally_ddp_stats *stats, unsigned long long step,
                      bool copies)
{
    CHECK_OK(group, check_config(group, stats));
    CHECK(group, stats->other_wire_bytes == other_bytes(step, copies, stats->world, stats->rank));
    CHECK(group, (stats->forward_s > 0) == (step > 1));
    CHECK(group, (stats->mean_forward_s > 0) == (step > 1));
    CHECK(group, stats->step == step);
    CHECK(group, stats->n_params == N - 1);
    CHECK(group, stats->gradient_bytes ==
                     bytes_of(0) + bytes_of(1) + bytes_of(2) + bytes_of(4) + bytes_of(5));
    CHECK(group, stats->n_buckets == N - 1);
    CHECK(group, stats->n_reduced == (step ? N - 1 : 0));
    CHECK(group, stats->unused_bytes == 0);
    CHECK(group, stats->views == !copies);
    CHECK(group, stats->rebuilt == (copies && step > 0));
    CHECK(group, strcmp(stats->hook, "allreduce") == 0);
    CHECK(group, stats->backward_s >= 0 && stats->comm_s >= 0 && stats->exposed_s >= 0);
    CHECK(group, (stats->comm_s > 0 && stats->exposed_s > 0) == (step > 0));
    CHECK(group, stats->overlap >= 0 && stats->overlap <= 1);
    CHECK(group, stats->mean_backward_s >= 0 && stats->mean_comm_s >= 0);
    CHECK(group, step != 1 || (stats->mean_comm_s == stats->comm_s &&
                               stats->mean_exposed_s == stats->exposed_s &&
                               stats->mean_backward_s == stats->backward_s));
    return 0;
}

/* Buckets that no step has used say so; their parameters are known all the same. */
static int check_unused_buckets(tally_group *group, tally_ddp *ddp, const int *order)
{
    for (size_t b = 0; b < N - 1; b++) {
        tally_bucket_stats bucket = {.size = sizeof bucket};
        int params[2] = {-1, -1};

        CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, b, &bucket));
        CHECK(group, !bucket.measured && bucket.wire_bytes == 0 && bucket.done_s == 0);
        CHECK(group, bucket.bytes == bytes_of((size_t)order[b]));
        CHECK(group, tally_ddp_bucket_params(ddp, b, params, 2) == 1);
        CHECK(group, params[0] == order[b] && params[1] == -1);
    }
    CHECK(group, tally_ddp_bucket_params(ddp, N - 1, NULL, 0) == 0);
    return 0;
}

/* One bucket per parameter: cap 1. */
static int check_buckets(tally_group *group, tally_ddp *ddp, const tally_ddp_stats *stats,
                         const int *order)
{
    double comm_s = 0;
    double last_start_s = 0;
    unsigned long long sum = 0;

    for (size_t b = 0; b < stats->n_buckets; b++) {
        tally_bucket_stats bucket = {.size = sizeof bucket};
        size_t i = (size_t)order[b];

        CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, b, &bucket));
        CHECK(group, bucket.measured && bucket.n_params == 1);
        CHECK(group, bucket.bytes == bytes_of(i));
        CHECK(group, tally_ddp_bucket_params(ddp, b, NULL, 0) == 1);
        CHECK_OK(group, check_times(group, &bucket, stats));
        CHECK(group, bucket.start_s >= last_start_s || ranks_now()->lanes > 1);
        CHECK(group, bucket.wire_bytes ==
                         wire_bytes(bytes_of(i), specs[i].dtype, stats->world, stats->rank));
        last_start_s = bucket.start_s;
        comm_s += bucket.done_s - bucket.start_s;
        sum += bucket.wire_bytes;
    }
    CHECK(group, sum == stats->wire_bytes);
    /* Lanes that are busy at the same time count once. */
    CHECK(group, stats->comm_s - comm_s < 1e-6);
    CHECK(group, comm_s - stats->comm_s < 1e-6 || ranks_now()->lanes > 1);
    return 0;
}

static int check_order(tally_group *group, tally_ddp *ddp, const int *order)
{
    int found[N] = {-1, -1, -1, -1, -1, -1};

    CHECK(group, tally_ddp_ready_order(ddp, NULL, 0) == N - 1);
    CHECK(group, tally_ddp_ready_order(ddp, found, 2) == N - 1);
    CHECK(group, found[0] == order[0] && found[1] == order[1] && found[2] == -1);
    CHECK(group, tally_ddp_ready_order(ddp, found, N) == N - 1);
    CHECK(group, memcmp(found, order, (N - 1) * sizeof *order) == 0);
    return 0;
}

static int announce_in(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                       const int *order, unsigned seed)
{
    for (int k = 0; k < N - 1; k++) {
        ddp_fill_grad(model, ddp, (size_t)order[k], seed, tally_group_rank(group));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, order[k]));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

static int check_refused(tally_group *group, tally_ddp *ddp)
{
    tally_ddp_stats stats = {.size = sizeof stats - 1};
    tally_bucket_stats bucket = {.size = sizeof bucket - 1};

    CHECK_STATUS(group, tally_ddp_get_stats(ddp, &stats), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_stats(ddp, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_stats(NULL, &stats), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_bucket_stats(ddp, 0, &bucket), TALLY_ARG);
    bucket.size++;
    CHECK_STATUS(group, tally_ddp_get_bucket_stats(ddp, N - 1, &bucket), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "0..4");
    CHECK_STATUS(group, tally_ddp_get_bucket_stats(NULL, 0, &bucket), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_bucket_stats(ddp, 0, NULL), TALLY_ARG);
    CHECK(group, tally_ddp_ready_order(NULL, NULL, 0) == 0);
    CHECK(group, tally_ddp_ready_order(ddp, NULL, 3) == 0);
    CHECK(group, tally_ddp_bucket_params(NULL, 0, NULL, 0) == 0);
    CHECK(group, tally_ddp_bucket_params(ddp, 0, NULL, 3) == 0);
    return 0;
}

static int figures_body(tally_group *group, void *user)
{
    /* Rank 0's and the others'; buckets are in declared order first, then in rank 0's. */
    static const int orders[2][N - 1] = {{2, 0, 5, 1, 4}, {4, 5, 1, 0, 2}};
    static const int declared[N - 1] = {5, 4, 2, 1, 0};
    bool copies = *(const int *)user;
    const int *own = orders[tally_group_rank(group) > 0];
    unsigned long long total = 0;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1;
    CHECK(group, ddp_model_make(&model, specs, N, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK_OK(group, check_step(group, &stats, 0, copies));
    CHECK_OK(group, check_unused_buckets(group, ddp, declared));
    for (unsigned s = 1; s < 6; s++) {
        CHECK_OK(group, announce_in(group, ddp, &model, own, s));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK_OK(group, check_step(group, &stats, s, copies));
        CHECK_OK(group, check_order(group, ddp, own));
        /* After the first step, copies are rearranged. */
        if (copies && s == 1) {
            CHECK_OK(group, check_unused_buckets(group, ddp, orders[0]));
        } else {
            CHECK_OK(group, check_buckets(group, ddp, &stats, copies ? orders[0] : declared));
        }
        total += stats.wire_bytes;
        CHECK(group, stats.total_wire_bytes == total);
        CHECK(group, total == s * stats.wire_bytes && (total > 0) == (stats.world > 1));
    }
    CHECK_OK(group, check_refused(group, ddp));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- beside the buckets, and errors ---- */

#define LATE 3000
#define BUFFER 500

/* Buffers, a delayed gradient, a scalar: each is counted, and none of them as a bucket's. */
static int beside_body(tally_group *group, void *user)
{
    static const struct ddp_spec late[] = {{"a", TALLY_F32, 0, 1, {10}},
                                           {"late", TALLY_F32, TALLY_PARAM_DELAYED, 1, {LATE}}};
    unsigned long long others = (unsigned long long)tally_group_size(group) - 1;
    int rank = tally_group_rank(group);
    unsigned char bytes[BUFFER] = {0};
    tally_buffer buffer = {sizeof buffer, "buffer", bytes, sizeof bytes, TALLY_U8};
    unsigned long long total = 0;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.buffers = &buffer;
    config.n_buffers = 1;
    config.static_graph = 1;
    CHECK(group, ddp_model_make(&model, late, 2, *(const int *)user) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 2, &config, &ddp));
    for (unsigned s = 0; s < 6; s++) {
        /* The buffer, from rank 0. */
        unsigned long long expected = (rank == 0) * others * BUFFER;
        int params[1] = {-1};

        if (*(const int *)user && s < 2) {
            /* Rank 0's order. */
            expected += (rank == 0) * others * 2 * sizeof(int32_t);
        }
        if (s % 2 == 1) {
            CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
            expected += wire_bytes(4 * LATE, TALLY_F32, tally_group_size(group), rank);
        }
        if (s % 3 == 1) {
            double value = 1;

            CHECK(group, s % 2 == 0 || tally_ddp_mean_scalar(ddp, &value) == TALLY_STATE);
            CHECK(group, s % 2 == 1 || tally_ddp_mean_scalar(ddp, &value) == TALLY_OK);
            expected += s % 2 == 1 ? 0 : others * sizeof(double);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        total += expected;
        CHECK(group, stats.wire_bytes == others * 10 * sizeof(float));
        CHECK(group, stats.other_wire_bytes == expected);
        CHECK(group, stats.total_other_wire_bytes == total);
        CHECK(group, stats.n_buckets == 1 && stats.n_delayed_buckets == 1 && stats.static_graph);
        CHECK(group, stats.buffer_bytes == BUFFER);
        CHECK(group, tally_ddp_bucket_params(ddp, 1, params, 1) == 1 && params[0] == 1);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int expect_error(tally_group *group, tally_ddp *ddp, int status, unsigned long long step,
                        const char *part)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK_STATUS(group, stats.error, status);
    CHECK(group, stats.error_step == step);
    CHECK_TEXT(group, stats.error_text, part);
    return 0;
}

/* The last error stays until the next one, also after calls that succeed. */
static int errors_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, specs, N, *(const int *)user) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, NULL, &ddp));
    CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_STATE);
    CHECK_OK(group, expect_error(group, ddp, TALLY_STATE, 0, "no gradient"));
    for (unsigned s = 0; s < 3; s++) {
        CHECK_STATUS(group, tally_ddp_grad_ready(ddp, 77), TALLY_ARG);
        CHECK_OK(group, expect_error(group, ddp, TALLY_ARG, s, "77"));
        CHECK_OK(group, ddp_right_step(group, ddp, &model, s));
        CHECK_OK(group, expect_error(group, ddp, TALLY_ARG, s, "77"));
        CHECK_STATUS(group, tally_ddp_grad_absent(ddp, 3), TALLY_ARG);
        CHECK_OK(group, expect_error(group, ddp, TALLY_ARG, s + 1, "'still'"));
    }
    CHECK_STATUS(group, tally_ddp_mean_scalar(ddp, NULL), TALLY_ARG);
    CHECK_OK(group, expect_error(group, ddp, TALLY_ARG, 3, ": value is NULL"));
    CHECK_STATUS(group, tally_ddp_mean_scalars(ddp, NULL, 2), TALLY_ARG);
    CHECK_OK(group, expect_error(group, ddp, TALLY_ARG, 3, ": values is NULL"));
    CHECK_STATUS(group, tally_ddp_join(ddp), TALLY_STATE);
    CHECK_OK(group, expect_error(group, ddp, TALLY_STATE, 3, "config.join"));
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, "no such hook"), TALLY_ARG);
    CHECK_OK(group, expect_error(group, ddp, TALLY_ARG, 3, "no such hook"));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- asking all the time ---- */

struct watcher {
    tally_ddp *ddp;
    atomic_bool stop;
    int n_wrong;
    int n_asked;
    pthread_t thread;
};

static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_stats bucket = {.size = sizeof bucket};
    unsigned long long step = 0;

    do {
        int order[N];

        watcher->n_wrong += tally_ddp_get_stats(watcher->ddp, &stats) != TALLY_OK;
        watcher->n_wrong += stats.step < step || stats.overlap < 0 || stats.overlap > 1;
        step = stats.step;
        watcher->n_wrong += tally_ddp_get_bucket_stats(watcher->ddp, 0, &bucket) != TALLY_OK;
        watcher->n_wrong += bucket.ready_s > bucket.launch_s || bucket.start_s > bucket.done_s;
        watcher->n_wrong += tally_ddp_ready_order(watcher->ddp, order, N) > N;
        watcher->n_wrong += tally_ddp_bucket_params(watcher->ddp, 0, order, N) == 0;
        watcher->n_wrong += tally_ddp_grad(watcher->ddp, 0) == NULL;
        watcher->n_asked++;
        (void)sched_yield();
    } while (!atomic_load(&watcher->stop));
    return NULL;
}

static int watched_body(tally_group *group, void *user)
{
    struct ddp_model model;
    struct watcher watcher = {0};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1000;
    config.skip_unused = 1;
    CHECK(group, ddp_model_make(&model, specs, N, *(const int *)user) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &watcher.ddp));
    CHECK(group, pthread_create(&watcher.thread, NULL, watch, &watcher) == 0);
    for (unsigned s = 0; s < 8; s++) {
        if (ddp_right_step(group, watcher.ddp, &model, s) != 0) {
            watcher.n_wrong++;
            break;
        }
    }
    atomic_store(&watcher.stop, true);
    CHECK(group, pthread_join(watcher.thread, NULL) == 0);
    CHECK(group, watcher.n_wrong == 0 && watcher.n_asked > 0);
    CHECK_OK(group, tally_ddp_free(watcher.ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = 0;

    for (int copies = 0; copies < 2; copies++) {
        n_failures += ddp_run_seven("figures", figures_body, &copies, 1);
        n_failures += ddp_run("figures", figures_body, &copies, 3);
        n_failures += ddp_run("beside the buckets", beside_body, &copies, 1);
        n_failures += ddp_run("errors", errors_body, &copies, 1);
        n_failures += ddp_run("watched", watched_body, &copies, 1);
    }
    return n_failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket that a hook gets. A recording hook reads every field of every bucket, in every step,
 * while it reduces; the test checks the record: the order of launches, the last bucket, the step,
 * and the rearrangement of buckets.
 */
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 6
#define MAX_BUCKETS 8

static const struct ddp_spec specs[N] = {
    {"conv.weight", TALLY_F32, 0, 4, {4, 3, 2, 2}},
    {"conv.bias", TALLY_F32, 0, 1, {4}},
    {"scale", TALLY_F32, 0, 0, {0}},
    {"fc.weight", TALLY_F32, 0, 2, {50, 10}},
    {"fc.bias", TALLY_F32, 0, 1, {50}},
    {"last", TALLY_F32, 0, 2, {3, 7}},
};

/* The order in which rank 0's gradients are ready; the other ranks have rotated ones. */
static const int ready[N] = {4, 1, 5, 0, 3, 2};

/* One bucket as the hook saw it. */
struct entry {
    int index;
    int count;
    int is_last;
    unsigned long long step;
    unsigned generation;
    const void *data;
    int n_params;
    int params[N];
};

struct record {
    tally_group *group;
    const struct ddp_model *model;
    unsigned seed; /* of the step under way */
    int failures;
    int n_entries;
    struct entry entries[MAX_BUCKETS];
    bool attached; /* by the last call of the two */
    int n_attached;
    int n_detached;
    int n_destroyed;
};

/* ---- the hook ---- */

static int look_at_param(const struct record *record, const tally_bucket *bucket, int k,
                         size_t offset)
{
    const tally_bucket_param *param = &bucket->params[k];
    const struct ddp_spec *spec;
    tally_group *group = record->group;

    CHECK(group, param->index >= 0 && param->index < N);
    spec = &specs[param->index];
    CHECK(group, strcmp(param->name, spec->name) == 0);
    CHECK(group, param->n_dims == spec->n_dims);
    CHECK(group, spec->n_dims == 0 ||
                     memcmp(param->shape, spec->shape, (size_t)spec->n_dims * sizeof(size_t)) == 0);
    CHECK(group, param->offset == offset);
    CHECK(group, param->n == record->model->count[param->index]);
    CHECK(group, param->gradient == (float *)bucket->data + offset);
    CHECK(group, param->data == record->model->params[param->index].data);
    /* The sum has not been taken, nor divided. */
    CHECK(group, ddp_not_of(record->model, (size_t)param->index, param->gradient, record->seed,
                            tally_group_rank(group)) == 0);
    return 0;
}

static int look_at(const struct record *record, const tally_bucket *bucket)
{
    tally_group *group = record->group;
    size_t offset = 0;

    CHECK(group, bucket->size == sizeof *bucket);
    CHECK(group, bucket->dtype == TALLY_F32);
    CHECK(group, bucket->divisor == tally_group_size(group));
    CHECK(group, bucket->n_params > 0);
    for (int k = 0; k < bucket->n_params; k++) {
        CHECK_OK(group, look_at_param(record, bucket, k, offset));
        offset += bucket->params[k].n;
    }
    CHECK(group, bucket->n == offset);
    return 0;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct record *record = state;
    struct entry *entry = &record->entries[record->n_entries % MAX_BUCKETS];

    record->failures += look_at(record, bucket) != 0;
    *entry = (struct entry){.index = bucket->index,
                            .count = bucket->count,
                            .is_last = bucket->is_last,
                            .step = bucket->step,
                            .generation = bucket->generation,
                            .data = bucket->data,
                            .n_params = bucket->n_params};
    for (int k = 0; k < bucket->n_params; k++) {
        entry->params[k] = bucket->params[k].index;
    }
    record->n_entries++;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int attach(void *state, tally_ddp *ddp)
{
    (void)ddp;
    ((struct record *)state)->n_attached++;
    ((struct record *)state)->attached = true;
    return TALLY_OK;
}

static void detach(void *state, tally_ddp *ddp)
{
    (void)ddp;
    ((struct record *)state)->n_detached++;
    ((struct record *)state)->attached = false;
}

static void destroy(void *state)
{
    ((struct record *)state)->n_destroyed++;
}

static const tally_hook_table table = {.size = sizeof table,
                                       .name = "record",
                                       .attach = attach,
                                       .reduce = reduce,
                                       .detach = detach,
                                       .destroy = destroy};

/* ---- steps ---- */

static int announce_all(tally_group *group, tally_ddp *ddp, struct record *record, unsigned seed)
{
    int rank = tally_group_rank(group);

    record->seed = seed;
    record->n_entries = 0;
    ddp_fill_grads(record->model, ddp, seed, rank);
    for (int k = 0; k < N; k++) {
        CHECK_OK(group, tally_ddp_grad_ready(ddp, ready[(k + rank) % N]));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK(group, record->failures == 0);
    return 0;
}

/* Buckets came in order, the last one said so, and nothing changed in between. */
static int check_entries(tally_group *group, const struct record *record, unsigned long long step)
{
    int n = record->n_entries;

    CHECK(group, n > 0 && n <= MAX_BUCKETS);
    for (int b = 0; b < n; b++) {
        const struct entry *entry = &record->entries[b];

        CHECK(group, entry->index == b);
        CHECK(group, entry->count == n);
        CHECK(group, entry->is_last == (b == n - 1));
        CHECK(group, entry->step == step);
        CHECK(group, entry->generation == record->entries[0].generation);
    }
    return 0;
}

/* The parameters of all buckets one after the other are in this order. */
static int check_order(tally_group *group, const struct record *record, const int *order)
{
    int k = 0;

    for (int b = 0; b < record->n_entries; b++) {
        for (int p = 0; p < record->entries[b].n_params; p++, k++) {
            CHECK(group, record->entries[b].params[p] == order[k]);
        }
    }
    CHECK(group, k == N);
    return 0;
}

struct mode {
    const char *what;
    int copies;
    int static_graph;
    int find_unused;
    int rebuilt_after; /* steps, 0: never */
    size_t cap;
};

static const struct mode modes[] = {
    {"views", 0, 0, 0, 0, 500},
    {"views, static graph", 0, 1, 0, 0, 500},
    {"views, unused", 0, 0, 1, 0, 500},
    {"copies", 1, 0, 0, 1, 500},
    {"copies, each alone", 1, 0, 0, 1, 1},
    {"copies, one bucket", 1, 0, 0, 1, 1 << 20},
    {"copies, static graph", 1, 1, 0, 2, 500},
    {"copies, unused", 1, 0, 1, 0, 500},
    {"copies, static graph and unused", 1, 1, 1, 2, 500},
};

static int train(tally_group *group, tally_ddp *ddp, struct record *record, const struct mode *mode)
{
    static const int declared[N] = {5, 4, 3, 2, 1, 0};
    unsigned generation = 0;
    const void *first_data = NULL;
    void *grads[N];

    for (int i = 0; i < N; i++) {
        grads[i] = tally_ddp_grad(ddp, i);
    }
    for (int step = 0; step < 5; step++) {
        bool rebuilt = mode->rebuilt_after && step >= mode->rebuilt_after;
        tally_ddp_stats stats = {.size = sizeof stats};

        CHECK_OK(group, announce_all(group, ddp, record, (unsigned)step + 10));
        CHECK_OK(group, check_entries(group, record, (unsigned long long)step));
        CHECK_OK(group, check_order(group, record, rebuilt ? ready : declared));
        CHECK(group, ddp_wrong_means(record->model, ddp, (unsigned)step + 10,
                                     tally_group_size(group)) == 0);
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, strcmp(stats.hook, "record") == 0);
        CHECK(group, stats.rebuilt == (mode->rebuilt_after && step + 1 >= mode->rebuilt_after));
        if (step == 0) {
            generation = record->entries[0].generation;
            first_data = record->entries[0].data;
        }
        CHECK(group, record->entries[0].generation == generation + (rebuilt ? 1 : 0));
        CHECK(group, mode->copies || record->entries[0].data == first_data);
    }
    for (int i = 0; i < N; i++) {
        CHECK(group, tally_ddp_grad(ddp, i) == grads[i]);
    }
    return 0;
}

static int seen_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        struct ddp_model model;
        struct record record = {.group = group, .model = &model};
        tally_ddp_config config;
        tally_hook *hook;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = modes[m].cap;
        config.static_graph = modes[m].static_graph;
        config.find_unused = modes[m].find_unused;
        CHECK(group, ddp_model_make(&model, specs, N, modes[m].copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
        CHECK_OK(group, tally_hook_create(&table, &record, &hook));
        CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
        CHECK(group, record.n_attached == 1 && record.n_detached == 0);
        if (train(group, ddp, &record, &modes[m]) != 0) {
            (void)fprintf(stderr, "with %s\n", modes[m].what);
            return RANKS_FAILED;
        }
        tally_hook_free(hook);
        CHECK(group, record.n_destroyed == 0);
        CHECK_OK(group, tally_ddp_free(ddp));
        CHECK(group, record.n_attached == 1 && record.n_detached == 1 && record.n_destroyed == 1);
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- one hook and another ---- */

static int replaced_body(tally_group *group, void *user)
{
    struct ddp_model model;
    struct record one = {.group = group, .model = &model};
    struct record two = {.group = group, .model = &model};
    tally_hook *first;
    tally_hook *second;
    tally_ddp *ddps[2];

    (void)user;
    CHECK(group, ddp_model_make(&model, specs, N, false) == 0);
    CHECK_OK(group, tally_hook_create(&table, &one, &first));
    CHECK_OK(group, tally_hook_create(&table, &two, &second));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(group, tally_ddp_create(group, model.params, N, NULL, &ddps[k]));
        CHECK_OK(group, tally_ddp_attach_hook(ddps[k], first));
    }
    tally_hook_free(first);
    CHECK(group, one.n_attached == 2);
    CHECK_OK(group, announce_all(group, ddps[0], &one, 1));
    CHECK_OK(group, tally_ddp_attach_hook(ddps[0], second));
    CHECK(group, one.n_detached == 1 && one.n_destroyed == 0 && two.n_attached == 1);
    one.n_entries = 0;
    CHECK_OK(group, announce_all(group, ddps[0], &two, 2));
    CHECK(group, one.n_entries == 0 && two.n_entries > 0 && two.entries[0].step == 1);
    /* The same one again is still attached afterwards, not detached. */
    CHECK_OK(group, tally_ddp_attach_hook(ddps[0], second));
    CHECK(group, two.attached && two.n_attached - two.n_detached == 1 && two.n_destroyed == 0);
    CHECK_OK(group, announce_all(group, ddps[0], &two, 3));
    CHECK_OK(group, announce_all(group, ddps[1], &one, 4));
    CHECK_OK(group, tally_ddp_attach_hook(ddps[1], second));
    CHECK(group, one.n_attached == 2 && one.n_detached == 2 && one.n_destroyed == 1);
    CHECK_OK(group, tally_ddp_free(ddps[0]));
    CHECK_OK(group, tally_ddp_free(ddps[1]));
    CHECK(group, two.n_attached == two.n_detached && two.n_destroyed == 0);
    tally_hook_free(second);
    CHECK(group, two.n_destroyed == 1);
    tally_hook_free(NULL);
    ddp_model_free(&model);
    return 0;
}

static int table_body(tally_group *group, void *user)
{
    tally_hook_table bad = table;
    tally_hook *hook = NULL;

    (void)user;
    CHECK_STATUS(group, tally_hook_create(NULL, NULL, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_create(&table, NULL, NULL), TALLY_ARG);
    bad.size--;
    CHECK_STATUS(group, tally_hook_create(&bad, NULL, &hook), TALLY_ARG);
    bad = table;
    bad.name = NULL;
    CHECK_STATUS(group, tally_hook_create(&bad, NULL, &hook), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "name");
    bad = table;
    bad.reduce = NULL;
    CHECK_STATUS(group, tally_hook_create(&bad, NULL, &hook), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "reduce");
    CHECK(group, hook == NULL);
    return 0;
}

int main(void)
{
    int n_failures = ddp_run_seven("what a hook sees", seen_body, NULL, 1);

    n_failures += ddp_run("what a hook sees", seen_body, NULL, 3);
    n_failures += ddp_run("one hook and another", replaced_body, NULL, 1);
    n_failures += ddp_run("tables", table_body, NULL, 0);
    return n_failures != 0;
}

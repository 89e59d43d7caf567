/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharded optimizer in many circumstances, against the plain loop with the same gradients: unused
 * and delayed parameters, several groups, application tables, parameters that belong to no group,
 * clipping, accumulation, a static graph, sub-groups, and gradients that are released.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/opt_model.h"

#define N_STEPS 5

/* A plain run, and a sharded one. */
struct pair {
    struct opt_run plain;
    struct opt_run sharded;
};

/* setup->config without shard, and with. */
static int start_in(tally_group *group, tally_group *other, const struct opt_setup *setup,
                    struct pair *pair)
{
    tally_optimizer_config config;
    struct opt_setup own = *setup;

    tally_optimizer_config_init(&config, sizeof config);
    if (setup->config) {
        config = *setup->config;
    }
    own.config = &config;
    CHECK_OK(group, opt_start(group, &own, &pair->plain));
    config.shard = 1;
    CHECK_OK(group, opt_start(other, &own, &pair->sharded));
    return 0;
}

static int start(tally_group *group, const struct opt_setup *setup, struct pair *pair)
{
    return start_in(group, group, setup, pair);
}

static int end(struct pair *pair)
{
    CHECK_OK(pair->plain.group, opt_end(&pair->sharded));
    CHECK_OK(pair->plain.group, opt_end(&pair->plain));
    return 0;
}

static int step(struct pair *pair, unsigned seed, unsigned absent)
{
    tally_group *group = pair->plain.group;

    CHECK_OK(group, opt_step(&pair->plain, seed, absent));
    CHECK_OK(group, tally_optimizer_step(pair->plain.optimizer));
    CHECK_OK(group, opt_step(&pair->sharded, seed, absent));
    CHECK(group, opt_differ(&pair->plain, &pair->sharded) == 0);
    return 0;
}

/* ---- unused parameters ---- */

struct unused {
    const char *hook;
    bool copies;
    bool provided;
    int skip;
};

static const struct unused unused_cases[] = {
    {"allreduce", false, false, 0},
    {"allreduce", true, false, 1},
    {"allreduce", false, true, 0},
    {"bf16", false, true, 1},
    {"int8", false, false, 0},
    {"int8", true, false, 1},
    {"powersgd:rank=1,start=1", true, false, 0},
};

/* Parameter 1 is there on the last rank alone, 5 and 6 now and then, in turns; in one step nothing
 * is there at all. */
static unsigned absent_of(const tally_group *group, unsigned s)
{
    int world = tally_group_size(group);
    unsigned absent = tally_group_rank(group) == world - 1 ? 0 : 2;

    absent |= s % 2 ? 32 : 0;
    absent |= (s + (unsigned)tally_group_rank(group)) % 3 ? 64 : 0;
    return s == 3 ? ~0u : absent;
}

static int unused_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t c = 0; c < sizeof unused_cases / sizeof unused_cases[0]; c++) {
        const struct unused *unused = &unused_cases[c];
        tally_ddp_config ddp;
        struct opt_setup setup = {.copies = unused->copies,
                                  .provided = unused->provided,
                                  .hook = unused->hook,
                                  .text = "adamw:lr=0.01,weight_decay=0.1",
                                  .ddp = &ddp};
        tally_ddp_stats stats = {.size = sizeof stats};
        struct pair pair;

        tally_ddp_config_init(&ddp, sizeof ddp);
        ddp.find_unused = 1;
        ddp.skip_unused = unused->skip;
        ddp.bucket_cap_bytes = 4000;
        CHECK_OK(group, start(group, &setup, &pair));
        for (unsigned s = 0; s < N_STEPS + 2; s++) {
            uint64_t before = opt_hash(&pair.sharded);

            CHECK_OK(group, step(&pair, s, absent_of(group, s)));
            CHECK(group, (opt_hash(&pair.sharded) == before) == (s == 3));
            CHECK_OK(group, tally_ddp_get_stats(pair.sharded.ddp, &stats));
            CHECK(group,
                  s != 3 || !unused->skip || (stats.n_reduced == 0 && stats.wire_bytes == 0));
        }
        CHECK_OK(group, end(&pair));
    }
    return 0;
}

/* ---- groups, and application tables ---- */

/* The record of a table; both are updated on one lane. */
struct seen {
    size_t n_parts;
    size_t n_elements;
};

/* Signs of gradients, with their momentum. */
static int signs(void *user, const tally_step_param *param)
{
    struct seen *seen = user;

    seen->n_parts++;
    seen->n_elements += param->n;
    for (size_t e = 0; e < param->n; e++) {
        float *m = &param->state[0][e];

        *m = 0.9f * *m + param->gradient[e];
        param->data[e] -= (float)param->lr * (*m > 0 ? 1.0f : -1.0f) / (float)param->step;
    }
    return TALLY_OK;
}

/* By how large the parameter and its gradient are: needs all of both. */
static int layerwise(void *user, const tally_step_param *param)
{
    struct seen *seen = user;
    double data = 0;
    double gradient = 0;
    size_t n = 1;

    for (int d = 0; d < param->n_dims; d++) {
        n *= param->shape[d];
    }
    if (param->first != 0 || param->n != n) {
        return TALLY_INTERNAL;
    }
    seen->n_parts++;
    seen->n_elements += n;
    for (size_t e = 0; e < n; e++) {
        data += (double)param->data[e] * (double)param->data[e];
        gradient += (double)param->gradient[e] * (double)param->gradient[e];
    }
    for (size_t e = 0; e < n; e++) {
        float *m = &param->state[1][e];

        *m = 0.5f * *m + (float)(param->lr * sqrt(data / (gradient + 1e-9))) * param->gradient[e];
        param->data[e] -= *m;
    }
    return TALLY_OK;
}

static int sum_job(tally_lane *lane, void *user)
{
    return tally_lane_all_reduce(lane, user, 1, TALLY_I64, TALLY_SUM);
}

/* Everybody's parts together are all elements, once. */
static int check_seen(tally_group *group, const struct seen *seen, size_t n_elements)
{
    int64_t sum = (int64_t)seen->n_elements;

    CHECK_OK(group, ranks_job(group, 0, sum_job, &sum));
    CHECK(group, (size_t)sum == n_elements);
    return 0;
}

/* user: NULL for elements, otherwise one table takes whole parameters only. */
static int groups_body(tally_group *group, void *user)
{
    static const int some[] = {1, 5};
    static const int others[] = {4, 0};
    struct seen seen[2][2] = {{{0}}};
    const tally_optimizer_table table = {.size = sizeof table,
                                         .name = user ? "layerwise" : "signs",
                                         .elementwise = user == NULL,
                                         .n_states = user ? 2 : 1,
                                         .step_param = user ? layerwise : signs};

    for (int copies = 0; copies < 2; copies++) {
        tally_optimizer_group groups[3] = {
            {.size = sizeof *groups,
             .text = "sgd:lr=0.05,momentum=0.9",
             .params = some,
             .n_params = 2},
            {.size = sizeof *groups, .text = "adam:lr=0.01"},
            {.size = sizeof *groups, .table = &table, .lr = 0.01, .params = others, .n_params = 2}};
        tally_optimizer_config config;
        const struct opt_setup setup = {.copies = copies, .config = &config};
        struct pair pair;

        tally_optimizer_config_init(&config, sizeof config);
        config.groups = groups;
        config.n_groups = 3;
        /* One counts for the plain run, one for the sharded. */
        groups[2].user = &seen[copies][0];
        CHECK_OK(group, opt_start(group, &setup, &pair.plain));
        groups[2].user = &seen[copies][1];
        config.shard = 1;
        CHECK_OK(group, opt_start(group, &setup, &pair.sharded));
        for (unsigned s = 0; s < N_STEPS; s++) {
            for (int g = 0; g < 3; g++) {
                double lr = 0.01 / (1 + s + (unsigned)g);

                CHECK_OK(group, tally_optimizer_set_lr(pair.plain.optimizer, g, lr));
                CHECK_OK(group, tally_optimizer_set_lr(pair.sharded.optimizer, g, lr));
            }
            CHECK_OK(group, step(&pair, s, 0));
        }
        CHECK_OK(group, check_seen(group, &seen[copies][1], seen[copies][0].n_elements));
        CHECK_OK(group, end(&pair));
    }
    return 0;
}

/* ---- parameters that no group has ---- */

static const struct ddp_spec mixed[] = {
    {"a", TALLY_F32, 0, 2, {11, 13}},
    {"mine", TALLY_F32, 0, 1, {301}},
    {"c", TALLY_F32, 0, 1, {97}},
    {"wide", TALLY_F64, 0, 1, {33}},
    {"frozen", TALLY_F32, TALLY_PARAM_FROZEN, 1, {5}},
    {"e", TALLY_F32, 0, 2, {41, 17}},
    {"late", TALLY_F32, TALLY_PARAM_DELAYED, 1, {77}},
};
#define N_MIXED (sizeof mixed / sizeof mixed[0])

static int mixed_step(struct opt_run *run, unsigned s)
{
    for (size_t i = N_MIXED; i-- > 0;) {
        if (mixed[i].dtype == TALLY_F64) {
            ddp_fill_grad(&run->model, run->ddp, i, s, tally_group_rank(run->group));
        } else if (ddp_has_gradient(&run->model, i)) {
            opt_gradient(run, i, s, false);
        }
        if (ddp_has_gradient(&run->model, i) && !(mixed[i].flags & TALLY_PARAM_DELAYED)) {
            CHECK_OK(run->group, tally_ddp_grad_ready(run->ddp, (int)i));
        }
    }
    if (s % 2) {
        CHECK_OK(run->group, tally_ddp_reduce_delayed(run->ddp));
    }
    CHECK_OK(run->group, tally_ddp_wait(run->ddp));
    return 0;
}

/* They have their means, and are left alone; delayed ones are updated when they were reduced. */
static int mixed_body(tally_group *group, void *user)
{
    static const int named[] = {0, 2, 4, 5, 6};
    const tally_optimizer_group one = {
        .size = sizeof one, .text = "adamw:lr=0.01", .params = named, .n_params = 5};

    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        tally_optimizer_config config;
        const struct opt_setup setup = {
            .specs = mixed, .n_specs = N_MIXED, .copies = copies, .config = &config};
        struct pair pair;

        tally_optimizer_config_init(&config, sizeof config);
        config.groups = &one;
        config.n_groups = 1;
        CHECK_OK(group, start(group, &setup, &pair));
        for (unsigned s = 0; s < N_STEPS; s++) {
            CHECK_OK(group, mixed_step(&pair.plain, s));
            CHECK_OK(group, tally_optimizer_step(pair.plain.optimizer));
            CHECK_OK(group, mixed_step(&pair.sharded, s));
            CHECK(group, opt_differ(&pair.plain, &pair.sharded) == 0);
            for (int i = 1; i < 4; i += 2) {
                CHECK(group,
                      memcmp(tally_ddp_grad(pair.plain.ddp, i), tally_ddp_grad(pair.sharded.ddp, i),
                             pair.plain.model.count[i] * tally_dtype_bytes(mixed[i].dtype)) == 0);
            }
        }
        CHECK_OK(group, end(&pair));
    }
    return 0;
}

/* ---- clipping, accumulation, released gradients ---- */

static int clipped_step(struct pair *pair, unsigned s, bool exact)
{
    tally_group *group = pair->plain.group;
    tally_optimizer_stats a = {.size = sizeof a};
    tally_optimizer_stats b = {.size = sizeof b};

    CHECK_OK(group, opt_accumulated_step(&pair->plain, s, 3));
    CHECK_OK(group, tally_optimizer_step(pair->plain.optimizer));
    CHECK_OK(group, opt_accumulated_step(&pair->sharded, s, 3));
    CHECK_OK(group, tally_optimizer_get_stats(pair->plain.optimizer, &a));
    CHECK_OK(group, tally_optimizer_get_stats(pair->sharded.optimizer, &b));
    CHECK(group, a.norm > 1.5 && fabs(a.norm - b.norm) <= 1e-6 * a.norm);
    CHECK(group, !exact || (a.norm == b.norm && opt_differ(&pair->plain, &pair->sharded) == 0));
    CHECK(group, b.step == s + 1);
    ranks_note(group, 0, opt_hash(&pair->sharded));
    return 0;
}

/* Whole parameters give the same norm; parts of them nearly, and the same everywhere. */
static int clip_body(tally_group *group, void *user)
{
    struct seen seen = {0};
    const tally_optimizer_table table = {
        .size = sizeof table, .name = "layerwise", .n_states = 2, .step_param = layerwise};

    (void)user;
    for (int variant = 0; variant < 4; variant++) {
        bool exact = variant & 1;
        const tally_optimizer_group one = {.size = sizeof one,
                                           .text = exact ? NULL : "sgd:lr=0.01,momentum=0.9",
                                           .table = exact ? &table : NULL,
                                           .user = &seen,
                                           .lr = 0.01};
        tally_optimizer_config config;
        const struct opt_setup setup = {.copies = variant >> 1, .config = &config};
        struct pair pair;
        tally_ddp_stats stats = {.size = sizeof stats};

        tally_optimizer_config_init(&config, sizeof config);
        config.groups = &one;
        config.n_groups = 1;
        config.max_norm = 1.5;
        config.release_gradients = 1;
        CHECK_OK(group, start(group, &setup, &pair));
        for (unsigned s = 0; s < N_STEPS; s++) {
            CHECK_OK(group, clipped_step(&pair, s, exact));
        }
        CHECK(group, ddp_hash_grads(&pair.sharded.model, pair.sharded.ddp) ==
                         ddp_hash_grads(&pair.plain.model, pair.plain.ddp));
        /* Bytes that were sent late still count for the buckets. */
        CHECK_OK(group, tally_ddp_get_stats(pair.sharded.ddp, &stats));
        CHECK(group,
              exact || tally_group_size(group) == 1 || stats.wire_bytes >= stats.gradient_bytes);
        CHECK_STATUS(group, tally_ddp_clip_grad_norm(pair.sharded.ddp, 1, NULL), TALLY_STATE);
        CHECK_TEXT(group, tally_last_error(), "the optimizer is sharded");
        CHECK_OK(group, end(&pair));
    }
    return 0;
}

/* ---- the ddp around it ---- */

/* With a static graph; buckets of copies are rearranged only after the optimizer is freed. Each
 * ddp has a separate group: buckets of several ddps of one group are not rearranged. */
static int buckets_body(tally_group *group, void *user)
{
    tally_group *apart[2];

    (void)user;
    CHECK_OK(group, tally_group_split(group, 0, 0, &apart[0]));
    CHECK_OK(group, tally_group_split(group, 0, 0, &apart[1]));
    for (int static_graph = 0; static_graph < 2; static_graph++) {
        tally_ddp_config ddp;
        const struct opt_setup setup = {.copies = true, .text = "adam", .ddp = &ddp};
        tally_ddp_stats stats = {.size = sizeof stats};
        struct pair pair;

        tally_ddp_config_init(&ddp, sizeof ddp);
        ddp.static_graph = static_graph;
        ddp.bucket_cap_bytes = 4000;
        CHECK_OK(group, start_in(apart[0], apart[1], &setup, &pair));
        for (unsigned s = 0; s < N_STEPS; s++) {
            CHECK_OK(group, step(&pair, s, 0));
            CHECK_OK(group, tally_ddp_get_stats(pair.sharded.ddp, &stats));
            CHECK(group, !stats.rebuilt);
        }
        CHECK_OK(group, tally_ddp_get_stats(pair.plain.ddp, &stats));
        CHECK(group, stats.rebuilt);
        CHECK_OK(group, tally_optimizer_free(pair.sharded.optimizer));
        pair.sharded.optimizer = NULL;
        CHECK_OK(group, opt_step(&pair.sharded, 9, 0));
        CHECK_OK(group, tally_ddp_get_stats(pair.sharded.ddp, &stats));
        CHECK(group, stats.rebuilt);
        CHECK_OK(group, end(&pair));
    }
    CHECK_OK(group, tally_group_close(apart[1]));
    CHECK_OK(group, tally_group_close(apart[0]));
    return 0;
}

/* Ranks that are others among themselves than in the world. */
static int sub_group_body(tally_group *group, void *user)
{
    const struct opt_setup setup = {.text = "adam"};
    tally_group *own;
    struct pair pair;

    (void)user;
    CHECK_OK(group,
             tally_group_split(group, tally_group_rank(group) % 2, -tally_group_rank(group), &own));
    CHECK_OK(group, start(own, &setup, &pair));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, step(&pair, s, 0));
    }
    CHECK_OK(group, end(&pair));
    CHECK_OK(group, tally_group_close(own));
    return 0;
}

/* Nine, seven, five and three elements per rank: everybody has the state of 24. */
static int upstream_sizes_body(tally_group *group, void *user)
{
    static const size_t sizes[] = {9, 7, 5, 3};
    char names[DDP_MAX_PARAMS][8];
    struct ddp_spec specs[DDP_MAX_PARAMS];
    size_t n = 4 * (size_t)tally_group_size(group);
    const struct opt_setup setup = {.specs = specs, .n_specs = n, .text = "sgd:momentum=0.9"};
    tally_optimizer_stats stats = {.size = sizeof stats};
    struct pair pair;

    (void)user;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "p%zu", i % 100);
        specs[i] = (struct ddp_spec){names[i], TALLY_F32, 0, 1, {sizes[i % 4]}};
    }
    CHECK_OK(group, start(group, &setup, &pair));
    CHECK_OK(group, step(&pair, 1, 0));
    CHECK_OK(group, tally_optimizer_get_stats(pair.sharded.optimizer, &stats));
    CHECK(group, stats.state_bytes == 24 * sizeof(float));
    CHECK_OK(group, end(&pair));
    return 0;
}

/* More ranks than elements: some have no part of anything. */
static int tiny_body(tally_group *group, void *user)
{
    static const struct ddp_spec specs[] = {{"one", TALLY_F32, 0, 0, {0}},
                                            {"two", TALLY_F32, 0, 1, {2}}};
    const struct opt_setup setup = {.specs = specs, .n_specs = 2, .text = "adam"};
    tally_optimizer_stats stats = {.size = sizeof stats};
    struct pair pair;
    int64_t sum;

    (void)user;
    CHECK_OK(group, start(group, &setup, &pair));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, step(&pair, s, 0));
    }
    CHECK_OK(group, tally_optimizer_get_stats(pair.sharded.optimizer, &stats));
    CHECK(group, stats.state_bytes <= 2 * sizeof(float));
    sum = (int64_t)stats.state_bytes;
    CHECK_OK(group, ranks_job(group, 0, sum_job, &sum));
    CHECK(group, sum == 6 * sizeof(float));
    CHECK_OK(group, end(&pair));
    return 0;
}

int main(void)
{
    static const int seven[] = {7, 0};
    static const int two_three[] = {2, 3, 0};
    static const int three[] = {3, 0};
    static const int four[] = {4, 0};
    static const int some[] = {1, 4, 7, 0};
    int whole = 1;
    int n_failures = opt_worlds("unused", unused_body, NULL, 1, two_three);

    n_failures += opt_worlds("unused", unused_body, NULL, 1, four);
    n_failures += opt_worlds("groups", groups_body, NULL, 1, three);
    n_failures += opt_worlds("whole parameters", groups_body, &whole, 1, two_three);
    n_failures += opt_worlds("whole parameters", groups_body, &whole, 1, some);
    n_failures += opt_worlds("no group", mixed_body, NULL, 2, two_three);
    n_failures += opt_worlds("clipping", clip_body, NULL, 1, two_three);
    n_failures += opt_worlds("buckets", buckets_body, NULL, 2, two_three);
    n_failures += opt_worlds("a sub-group", sub_group_body, NULL, 1, four);
    n_failures += opt_worlds("sizes", upstream_sizes_body, NULL, 1, some);
    n_failures += opt_worlds("few elements", tiny_body, NULL, 1, seven);
    return n_failures != 0;
}

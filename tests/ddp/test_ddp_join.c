/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with different amounts of input: the divisor, who leads, whose parameters and buffers are
 * everywhere in the end, stopping at the first that has run out, and training again afterwards.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 4
#define N_VARIANTS 6

/* Parameter "rare" has a gradient on rank 0 only, under find_unused. */
static const struct ddp_spec specs[N] = {
    {"weight", TALLY_F32, 0, 2, {5, 5}},
    {"rare", TALLY_F64, 0, 1, {9}},
    {"late", TALLY_F32, TALLY_PARAM_DELAYED, 1, {7}},
    {"large", TALLY_F32, 0, 2, {70, 60}},
};

struct options {
    int copies;
    int by_active;
    int find_unused;
    int static_graph;
};

static int n_steps(int variant, int rank, int world)
{
    const int steps[N_VARIANTS] = {2 + rank, rank ? 1 : 4,          rank ? 3 : 0, 3,
                                   0,        3 * (world - rank) - 2};

    return steps[variant];
}

/* The ranks that have input in step s, and the highest of them; -1 for none. */
static unsigned active_in(int variant, int s, int world, int *root)
{
    unsigned ranks = 0;

    *root = -1;
    for (int r = 0; r < world; r++) {
        if (n_steps(variant, r, world) > s) {
            ranks |= 1u << r;
            *root = r;
        }
    }
    return ranks;
}

static int count_bits(unsigned ranks)
{
    int n = 0;

    for (; ranks; ranks &= ranks - 1) {
        n++;
    }
    return n;
}

/* ---- one epoch ---- */

struct epoch {
    struct ddp_model model;
    struct options options;
    tally_ddp *ddp;
    int variant;
    unsigned seed;
    int32_t buffer[2];
};

static int check_step(tally_group *group, const struct epoch *epoch, int s)
{
    int world = tally_group_size(group);
    int root;
    unsigned ranks = active_in(epoch->variant, s, world, &root);
    double divisor = epoch->options.by_active ? count_bits(ranks) : world;
    unsigned seed = epoch->seed + (unsigned)s;

    for (size_t i = 0; i < N; i++) {
        unsigned having = epoch->options.find_unused && i == 1 ? ranks & 1u : ranks;
        int unused = 7;

        if (i == 2) {
            continue;
        }
        CHECK_OK(group, tally_ddp_is_unused(epoch->ddp, (int)i, &unused));
        CHECK(group, unused == (having == 0));
        CHECK(group,
              having == 0 || ddp_wrong(&epoch->model, epoch->ddp, i,
                                       ((struct ddp_mean){seed, world, having, divisor})) == 0);
    }
    CHECK(group, epoch->buffer[0] == root && epoch->buffer[1] == s);
    return 0;
}

static int run_steps(tally_group *group, struct epoch *epoch)
{
    int rank = tally_group_rank(group);

    for (int s = 0; s < n_steps(epoch->variant, rank, tally_group_size(group)); s++) {
        for (size_t i = N; i-- > 0;) {
            if (i != 2 && (i != 1 || rank == 0 || !epoch->options.find_unused)) {
                ddp_fill_grad(&epoch->model, epoch->ddp, i, epoch->seed + (unsigned)s, rank);
                CHECK_OK(group, tally_ddp_grad_ready(epoch->ddp, (int)i));
            }
        }
        epoch->buffer[0] = rank;
        epoch->buffer[1] = s;
        CHECK_OK(group, tally_ddp_wait(epoch->ddp));
        CHECK_OK(group, check_step(group, epoch, s));
        /* Every rank has its own idea of the parameters: it shows whose are taken in the end. */
        for (size_t i = 0; i < N; i++) {
            ddp_fill_data(&epoch->model, i, epoch->seed + 1000 + (unsigned)s, rank);
        }
        epoch->buffer[0] = rank + 100;
    }
    return 0;
}

static int check_end(tally_group *group, const struct epoch *epoch)
{
    int world = tally_group_size(group);
    int most = 0;
    int root;

    for (int r = 0; r < world; r++) {
        int n = n_steps(epoch->variant, r, world);

        most = n > most ? n : most;
    }
    if (most == 0) {
        return 0;
    }
    (void)active_in(epoch->variant, most - 1, world, &root);
    for (size_t i = 0; i < N; i++) {
        CHECK(group, ddp_not_of(&epoch->model, i, epoch->model.params[i].data,
                                epoch->seed + 1000 + (unsigned)most - 1, root) == 0);
    }
    CHECK(group, epoch->buffer[0] == root + 100 && epoch->buffer[1] == most - 1);
    return 0;
}

static int uneven(tally_group *group, const struct options *options, int variant)
{
    struct epoch epoch = {.options = *options, .variant = variant, .seed = 50};
    tally_buffer buffer = {sizeof buffer, "counter", epoch.buffer, sizeof epoch.buffer, TALLY_U8};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.join = 1;
    config.join_divides_by_active = options->by_active;
    config.find_unused = options->find_unused;
    config.static_graph = options->static_graph;
    config.bucket_cap_bytes = 100;
    config.buffers = &buffer;
    config.n_buffers = 1;
    CHECK(group, ddp_model_make(&epoch.model, specs, N, options->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, epoch.model.params, N, &config, &epoch.ddp));
    /*
     * The second time all ranks start again, whichever ended first; the third time with other
     * inputs.
     */
    for (int round = 0; round < 3; round++) {
        CHECK_OK(group, run_steps(group, &epoch));
        CHECK_OK(group, tally_ddp_join(epoch.ddp));
        CHECK_OK(group, check_end(group, &epoch));
        epoch.seed += 200;
        epoch.variant = round == 1 ? (variant + 1) % N_VARIANTS : epoch.variant;
    }
    CHECK_STATUS(group, tally_ddp_reduce_delayed(epoch.ddp), TALLY_STATE);
    CHECK_OK(group, tally_ddp_free(epoch.ddp));
    ddp_model_free(&epoch.model);
    return 0;
}

static int uneven_body(tally_group *group, void *user)
{
    (void)user;
    for (int variant = 0; variant < N_VARIANTS; variant++) {
        for (int o = 0; o < 8; o++) {
            /* A static graph and an unused parameter go together as well. */
            const struct options options = {o & 1, o >> 1 & 1, o >> 2, (o + variant) % 3 == 0};

            if (uneven(group, &options, variant) != 0) {
                (void)fprintf(stderr, "variant %d, options %d\n", variant, o);
                return RANKS_FAILED;
            }
        }
    }
    return 0;
}

/* ---- stopping ---- */

static int stop_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);

    (void)user;
    for (int o = 0; o < 4; o++) {
        int ends_first = o & 2 ? world - 1 : 0;
        int n = rank == ends_first ? 2 : 5;
        char text[64];
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;
        int s = 0;
        int rc = TALLY_OK;

        tally_ddp_config_init(&config, sizeof config);
        config.join = 1;
        config.join_stops = 1;
        config.bucket_cap_bytes = 100;
        CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, o & 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        for (; s < n && rc == TALLY_OK; s++) {
            ddp_fill_grads(&model, ddp, (unsigned)s, rank);
            for (int i = DDP_N_MIXED - 3; i >= 0; i--) {
                CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
            }
            rc = tally_ddp_wait(ddp);
            CHECK(group, rc != TALLY_OK || ddp_wrong_means(&model, ddp, (unsigned)s, world) == 0);
        }
        if (world == 1) {
            CHECK_OK(group, rc);
            CHECK_OK(group, tally_ddp_join(ddp));
        } else {
            /* All have done two steps; the third one fails, here or in join. */
            CHECK(group, s == (rank == ends_first ? 2 : 3));
            rc = rank == ends_first ? tally_ddp_join(ddp) : rc;
            CHECK_STATUS(group, rc, TALLY_STATE);
            (void)snprintf(text, sizeof text, "rank %d has run out of input", ends_first);
            CHECK_TEXT(group, tally_last_error(), text);
        }
        /* It is over, and can begin again. */
        CHECK_OK(group, ddp_right_step(group, ddp, &model, 77));
        CHECK_OK(group, ddp_right_step(group, ddp, &model, 78));
        CHECK_OK(group, tally_ddp_join(ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- the same as one process with all the input ---- */

/* Rank k does 2 (k + 1) iterations of the gradient of a linear layer, which is its input. */
static int equivalence_body(tally_group *group, void *user)
{
    static const struct ddp_spec spec = {"linear", TALLY_F32, 0, 2, {10, 10}};
    int world = tally_group_size(group);
    int n = 2 * (tally_group_rank(group) + 1);
    int total = world * (world + 1);
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;
    float *weight;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.join = 1;
    CHECK(group, ddp_model_make(&model, &spec, 1, true) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, &config, &ddp));
    weight = model.params[0].data;
    for (int s = 0; s < n; s++) {
        float *grad = tally_ddp_grad(ddp, 0);
        int active = world - s / 2;

        for (int e = 0; e < 100; e++) {
            grad[e] = 50;
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, grad[0] == (float)(50 * active) / (float)world && grad[99] == grad[0]);
        for (int e = 0; e < 100; e++) {
            weight[e] -= 0.03f * (float)world * grad[e];
        }
    }
    CHECK_OK(group, tally_ddp_join(ddp));
    for (int e = 0; e < 100; e++) {
        CHECK(group, fabs((double)weight[e] + 0.03 * 50 * total) < 1e-4 * total);
    }
    ranks_note(group, 0, ranks_hash(0, weight, 100 * sizeof *weight));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- hooks ---- */

struct seen {
    int fail_in; /* step */
    double divisor[8];
};

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct seen *seen = state;

    seen->divisor[bucket->step % 8] = bucket->divisor;
    if ((int)bucket->step == seen->fail_in && tally_group_rank(tally_lane_group(lane)) == 0) {
        seen->fail_in = -1;
        return tally_job_fail(lane, TALLY_NUMERIC, "on purpose");
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_SUM);
}

/* Rank 0 has five steps, the others two: those shadow three more, of which the first fails and is
 * taken again. */
static int hook_body(tally_group *group, void *user)
{
    static const struct ddp_spec spec = {"w", TALLY_F32, 0, 1, {10}};
    const tally_hook_table table = {.size = sizeof table, .name = "sum", .reduce = reduce};
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);
    struct seen seen = {.fail_in = 2};
    struct ddp_model model;
    tally_ddp_config config;
    tally_hook *hook;
    tally_ddp *ddp;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.join = 1;
    config.join_divides_by_active = 1;
    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, &config, &ddp));
    CHECK_OK(group, tally_hook_create(&table, &seen, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    tally_hook_free(hook);
    for (int s = 0; s < (rank == 0 ? 5 : 2); s++) {
        ddp_fill_grad(&model, ddp, 0, (unsigned)s, rank);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        if (s == 2) {
            CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_NUMERIC);
            ddp_fill_grad(&model, ddp, 0, (unsigned)s, rank);
            CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, ddp_wrong(&model, ddp, 0,
                               ((struct ddp_mean){(unsigned)s, world, s < 2 ? ~0u : 1u, 1})) == 0);
    }
    if (rank > 0) {
        CHECK_STATUS(group, tally_ddp_join(ddp), TALLY_NUMERIC);
        CHECK_TEXT(group, tally_last_error(), "rank 0: on purpose");
    }
    CHECK_OK(group, tally_ddp_join(ddp));
    for (int s = 0; s < 5; s++) {
        CHECK(group, seen.divisor[s] == (s < 2 ? world : 1));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("uneven", uneven_body, NULL, 1);

    n_failures += ddp_run("uneven", uneven_body, NULL, 3);
    n_failures += ddp_run("stopping", stop_body, NULL, 1);
    n_failures += ddp_run("stopping", stop_body, NULL, 0);
    n_failures += ddp_run_seven("equivalence", equivalence_body, NULL, 1);
    n_failures += ddp_run("hooks under join", hook_body, NULL, 1);
    return n_failures != 0;
}

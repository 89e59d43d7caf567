/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The assignment of parameters to buckets: the plan alone, against plans written by hand, and the
 * plan as a ddp uses it. Numbers in a plan are buckets: {0, 1, 1} puts the first entry of the order
 * alone.
 */
#include <stdio.h>
#include <string.h>

#include "ddp/plan.h"
#include "support/ddp_model.h"

#define MIB ((size_t)1 << 20)
#define MAX_ITEMS 16

struct golden {
    const char *what;
    size_t n;
    struct tally__plan_item items[MAX_ITEMS];
    size_t n_caps;
    size_t caps[4];
    size_t n_buckets;
    size_t bucket[MAX_ITEMS];
};

#define F(n)                          \
    {                                 \
        4 * (size_t)(n), TALLY_F32, 0 \
    }
#define D(n)                          \
    {                                 \
        8 * (size_t)(n), TALLY_F64, 0 \
    }
#define H(n)                          \
    {                                 \
        2 * (size_t)(n), TALLY_F16, 0 \
    }

/* The buckets of the first four are upstream's, numbered in the order they are closed. */
static const struct golden goldens[] = {
    {"one parameter reaches the cap",
     4,
     {F(100), F(200), F(100), F(50)},
     1,
     {400},
     4,
     {0, 1, 2, 3}},
    {"two dtypes in turn",
     6,
     {F(50), D(25), F(50), D(25), F(50), D(25)},
     1,
     {400},
     4,
     {0, 1, 0, 1, 2, 3}},
    {"the last cap repeats", 4, {F(10), F(10), F(10), F(10)}, 2, {40, 80}, 3, {0, 1, 1, 2}},
    {"caps per dtype",
     6,
     {F(50), D(25), F(50), D(25), F(50), D(25)},
     2,
     {200, 400},
     4,
     {0, 1, 2, 3, 2, 3}},
    {"the default caps",
     5,
     {F(1), F(307200), F(1), F(7340032), F(1)},
     2,
     {MIB, 25 * MIB},
     3,
     {0, 0, 1, 1, 2}},
    {"one giant parameter", 3, {F(1), F(100000000), F(1)}, 1, {1024}, 2, {0, 0, 1}},
    {"a giant first", 3, {F(100000000), F(1), F(1)}, 1, {1024}, 2, {0, 1, 1}},
    {"everything in one", 3, {F(1), F(100000000), F(1)}, 1, {SIZE_MAX}, 1, {0, 0, 0}},
    {"one parameter", 1, {F(3)}, 1, {1 << 20}, 1, {0}},
    {"parameters of no size", 4, {F(0), F(0), F(10), F(0)}, 1, {40}, 2, {0, 0, 0, 1}},
    {"only such", 2, {F(0), F(0)}, 1, {40}, 1, {0, 0}},
    {"a cap of 0 closes at once", 3, {F(0), F(1), H(1)}, 1, {0}, 3, {0, 1, 2}},
    {"exactly the cap", 4, {F(5), F(5), F(5), F(5)}, 1, {40}, 2, {0, 0, 1, 1}},
    {"one byte short", 3, {F(5), F(5), F(5)}, 1, {41}, 1, {0, 0, 0}},
    {"leftovers, the earliest first",
     5,
     {H(1), D(1), F(1), D(1), H(1)},
     1,
     {1000},
     3,
     {0, 1, 2, 1, 0}},
    {"a leftover behind full ones", 4, {H(1), F(10), D(5), F(10)}, 1, {40}, 4, {3, 0, 1, 2}},
    {"four caps",
     6,
     {F(1), F(2), F(3), F(4), F(5), F(4)},
     4,
     {4, 8, 12, 28},
     5,
     {0, 1, 2, 3, 3, 4}},
    {"nothing at all", 0, {F(0)}, 1, {40}, 0, {0}},
};

static int check_golden(const struct golden *golden, const int *order)
{
    size_t bucket[MAX_ITEMS];
    struct tally__plan plan = {.n_buckets = 99, .bucket = bucket};
    struct tally__plan_item items[MAX_ITEMS];

    for (size_t k = 0; k < golden->n; k++) {
        items[order[k]] = golden->items[k];
    }
    tally__plan_make(items, order, golden->n, golden->caps, golden->n_caps, &plan);
    if (plan.n_buckets != golden->n_buckets ||
        memcmp(bucket, golden->bucket, golden->n * sizeof *bucket) != 0) {
        (void)fprintf(stderr, "%s: %zu buckets:", golden->what, plan.n_buckets);
        for (size_t k = 0; k < golden->n; k++) {
            (void)fprintf(stderr, " %zu", bucket[k]);
        }
        (void)fprintf(stderr, "\n");
        return 1;
    }
    return 0;
}

/* A plan depends on the sizes in their order, not on the numbers of the parameters. */
static int check_goldens(void)
{
    int n_failures = 0;

    for (size_t g = 0; g < sizeof goldens / sizeof goldens[0]; g++) {
        int forward[MAX_ITEMS] = {0};
        int backward[MAX_ITEMS] = {0};
        int mixed[MAX_ITEMS] = {0};
        int n = (int)goldens[g].n;

        for (int k = 0; k < n; k++) {
            forward[k] = k;
            backward[k] = n - 1 - k;
            mixed[k] = (k + n / 2) % n;
        }
        n_failures += check_golden(&goldens[g], forward) + check_golden(&goldens[g], backward) +
                      check_golden(&goldens[g], mixed);
    }
    return n_failures;
}

/* ---- the plan of a ddp ---- */

/* The parameters of each bucket as a hook sees them: "2 1|0|". */
struct seen {
    char text[256];
};

static int look(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct seen *seen = state;
    size_t used = strlen(seen->text);

    (void)lane;
    for (int k = 0; k < bucket->n_params; k++) {
        used += (size_t)snprintf(seen->text + used, sizeof seen->text - used, "%s%d", k ? " " : "",
                                 bucket->params[k].index);
    }
    (void)snprintf(seen->text + used, sizeof seen->text - used, "|");
    return TALLY_OK;
}

struct planned {
    const char *what;
    size_t n;
    struct ddp_spec specs[6];
    size_t cap;
    size_t first;
    size_t n_caps;
    size_t caps[4];
    const char *buckets;
};

/* The order is that of the last parameter first. */
static const struct planned plans[] = {
    {"defaults, all in the first bucket",
     3,
     {{"a", TALLY_F32, 0, 1, {10}}, {"b", TALLY_F32, 0, 1, {10}}, {"c", TALLY_F32, 0, 1, {10}}},
     0,
     0,
     0,
     {0},
     "2 1 0|"},
    {"one cap for all",
     3,
     {{"a", TALLY_F32, 0, 1, {10}}, {"b", TALLY_F32, 0, 1, {10}}, {"c", TALLY_F32, 0, 1, {10}}},
     40,
     0,
     0,
     {0},
     "2|1|0|"},
    {"a smaller first one",
     4,
     {{"a", TALLY_F32, 0, 1, {10}},
      {"b", TALLY_F32, 0, 1, {10}},
      {"c", TALLY_F32, 0, 1, {10}},
      {"d", TALLY_F32, 0, 1, {10}}},
     120,
     40,
     0,
     {0},
     "3|2 1 0|"},
    {"a list of caps, and dtypes",
     6,
     {{"a", TALLY_F64, 0, 1, {25}},
      {"b", TALLY_F32, 0, 1, {50}},
      {"c", TALLY_F64, 0, 1, {25}},
      {"d", TALLY_F32, 0, 1, {50}},
      {"e", TALLY_F64, 0, 1, {25}},
      {"f", TALLY_F32, 0, 1, {50}}},
     0,
     0,
     2,
     {200, 400},
     "5|4|3 1|2 0|"},
    {"scalars, frozen, ignored, delayed and empty ones",
     6,
     {{"a", TALLY_F32, 0, 0, {0}},
      {"b", TALLY_F32, TALLY_PARAM_FROZEN, 1, {50}},
      {"c", TALLY_F32, 0, 1, {0}},
      {"d", TALLY_F32, TALLY_PARAM_IGNORED, 1, {50}},
      {"e", TALLY_F32, TALLY_PARAM_DELAYED, 1, {25}},
      {"f", TALLY_BF16, 0, 1, {50}}},
     4,
     0,
     0,
     {0},
     "5|2 0|"},
};

static int planned_body(tally_group *group, void *user)
{
    const struct planned *planned = user;

    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        struct seen seen = {""};
        const tally_hook_table table = {.size = sizeof table, .name = "look", .reduce = look};
        tally_ddp_config config;
        tally_hook *hook;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = planned->cap;
        config.first_bucket_bytes = planned->first;
        config.bucket_caps = planned->n_caps ? planned->caps : NULL;
        config.n_bucket_caps = planned->n_caps;
        CHECK(group, ddp_model_make(&model, planned->specs, planned->n, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        CHECK_OK(group, tally_hook_create(&table, &seen, &hook));
        CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
        tally_hook_free(hook);
        CHECK_OK(group, ddp_step(group, ddp, &model, 1));
        CHECK_TEXT(group, seen.text, planned->buckets);
        CHECK(group, strlen(seen.text) == strlen(planned->buckets));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    int n_failures = check_goldens();

    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        struct planned planned = plans[i];

        n_failures += ddp_run(planned.what, planned_body, &planned, 1);
    }
    return n_failures != 0;
}

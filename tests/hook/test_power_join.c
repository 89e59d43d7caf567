/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD when not every rank has every gradient: ranks that run out of input send zeros and keep
 * their residuals, and gradients may be absent. Against the reference, step by step, while ranks
 * leave one by one; and in the long run, what is applied is the mean that there is.
 */
#include <math.h>
#include <stdio.h>

#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define TOLERANCE 1e-4
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

struct trial {
    const char *text;
    struct power_setting setting;
};

static const struct trial trials[] = {
    {"powersgd:start=0", {1, 2, true, true, 0, 0, false, true}},
    {"powersgd:rank=2,start=0", {2, 2, true, true, 0, 0, false, true}},
    {"powersgd:rank=2,start=0,feedback=0", {2, 2, false, true, 0, 0, false, true}},
    {"batched_powersgd:start=0", {1, 0, true, true, 0, 0, true, true}},
};

struct variant {
    const struct trial *trial;
    bool copies;
    bool by_active;
};

static int make(tally_group *group, const struct variant *variant, struct ddp_model *model,
                tally_ddp **ddp)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1500;
    config.join = 1;
    config.join_divides_by_active = variant->by_active;
    config.hook = variant->trial->text;
    CHECK(group, ddp_model_make(model, power_specs, POWER_N_PARAMS, variant->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}

/* ---- ranks that run out ---- */

static unsigned n_steps(int rank)
{
    return 3 + 2 * (unsigned)rank;
}

/* The last rank has input in all steps, and looks. */
static int check_steps(tally_group *group, const struct variant *variant,
                       const struct ddp_model *model, tally_ddp *ddp)
{
    int world = tally_group_size(group);
    bool looks = tally_group_rank(group) == world - 1;
    struct power_reference *reference =
        power_reference_make(&variant->trial->setting, model, world);
    double distance = 0;

    for (unsigned s = 0; s < n_steps(tally_group_rank(group)) && distance <= TOLERANCE; s++) {
        struct power_step step = {s, 0, 0, power_value};
        int n_active = 0;

        for (int r = 0; r < world; r++) {
            step.active |= n_steps(r) > s ? 1u << r : 0;
            n_active += n_steps(r) > s;
        }
        step.divisor = variant->by_active ? n_active : world;
        if (looks) {
            power_reference_step(reference, ddp, &step);
        }
        CHECK_OK(group, power_run_step(group, ddp, model, power_value, s));
        if (looks) {
            distance = power_reference_distance(reference, ddp);
        }
        if (!(distance <= TOLERANCE)) {
            (void)fprintf(stderr, "%s, %s, mean over %s ranks: step %u: off by %g\n",
                          variant->trial->text, variant->copies ? "copies" : "views",
                          variant->by_active ? "active" : "all", s, distance);
        }
    }
    power_reference_free(reference);
    CHECK(group, distance <= TOLERANCE);
    return 0;
}

static int uneven_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < 4 * N_OF(trials); k++) {
        const struct variant variant = {&trials[k / 4], k % 2 == 1, k / 2 % 2 == 1};
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK_OK(group, make(group, &variant, &model, &ddp));
        CHECK_OK(group, check_steps(group, &variant, &model, ddp));
        CHECK_OK(group, tally_ddp_join(ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- in the long run ---- */

static double steady(unsigned step, int rank, size_t i, size_t e)
{
    (void)step;
    return power_value(0, rank, i, e);
}

/* Rank 0 alone has input. The applied mean is its gradient, divided by the right number of ranks.
 */
static int check_alone(tally_group *group, const struct ddp_model *model, tally_ddp *ddp,
                       double divisor)
{
    enum { LONG = 400, W2 = 8 };
    double sum[30 * 24] = {0};
    double off = 0;
    double whole = 0;

    for (unsigned s = 0; s < LONG; s++) {
        const float *grad = tally_ddp_grad(ddp, W2);

        CHECK_OK(group, power_run_step(group, ddp, model, steady, s));
        for (size_t e = 0; e < model->count[W2]; e++) {
            sum[e] += (double)grad[e];
        }
    }
    for (size_t e = 0; e < model->count[W2]; e++) {
        double mean = steady(0, 0, W2, e) / divisor;

        off += (sum[e] / LONG - mean) * (sum[e] / LONG - mean);
        whole += mean * mean;
    }
    if (!(sqrt(off / whole) <= 0.1)) {
        (void)fprintf(stderr, "divided by %g: off by %g\n", divisor, sqrt(off / whole));
        return ranks_fail(group, __FILE__, __LINE__, "not the mean in the long run");
    }
    return 0;
}

static int alone_body(tally_group *group, void *user)
{
    (void)user;
    for (int by_active = 0; by_active < 2; by_active++) {
        const struct variant variant = {&trials[0], false, by_active == 1};
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK_OK(group, make(group, &variant, &model, &ddp));
        if (tally_group_rank(group) == 0) {
            CHECK_OK(group,
                     check_alone(group, &model, ddp, by_active ? 1 : tally_group_size(group)));
        }
        CHECK_OK(group, tally_ddp_join(ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- absent gradients ---- */

/* Parameter 8 is absent on rank 0 in every second step, and counts as zeros. */
static bool is_absent(unsigned step, int rank, size_t i)
{
    return i == 8 && rank == 0 && step % 2 == 1;
}

static double sometimes(unsigned step, int rank, size_t i, size_t e)
{
    return is_absent(step, rank, i) ? 0 : power_value(step, rank, i, e);
}

static int absent_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);
    struct power_reference *reference;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1500;
    config.find_unused = 1;
    config.hook = trials[1].text;
    CHECK(group, ddp_model_make(&model, power_specs, POWER_N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    reference = power_reference_make(&trials[1].setting, &model, world);
    for (unsigned s = 0; s < 6; s++) {
        const struct power_step step = {s, ~0u, world, sometimes};

        power_reference_step(reference, ddp, &step);
        for (size_t i = model.n; i-- > 0;) {
            float *grad = tally_ddp_grad(ddp, (int)i);

            for (size_t e = 0; e < model.count[i] && i != 7; e++) {
                grad[e] = (float)power_value(s, rank, i, e);
            }
            if (!is_absent(s, rank, i)) {
                CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
            }
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, power_reference_distance(reference, ddp) <= TOLERANCE);
    }
    power_reference_free(reference);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 1; w < RANKS_N_WORLDS - 1; w++) {
        n_failures += hook_run("uneven", uneven_body, NULL, ranks_worlds[w]);
        n_failures += hook_run("absent", absent_body, NULL, ranks_worlds[w]);
    }
    n_failures += hook_run("alone", alone_body, NULL, 3);
    return n_failures != 0;
}

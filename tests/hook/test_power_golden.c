/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD by numbers: PyTorch's results for a worked example, the matrices that are worth
 * compressing, means of low rank, which must not change, and the errors for wrong options.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ddp/ddp.h"
#include "hook/power.h"
#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/* ---- a worked example: two ranks, Q = e1 ---- */

static const struct ddp_spec four_by_four = {"m", TALLY_F32, 0, 2, {4, 4}};

static double example(unsigned step, int rank, size_t i, size_t e)
{
    static const double m[2][16] = {{1, 2, 3, 4, 2, 4, 6, 8, 1, 0, 0, 1, 0, 1, 0, 0},
                                    {0, 1, 0, 1, 1, 1, 1, 1, 2, 0, 2, 0, 4, 3, 2, 1}};

    (void)step;
    (void)i;
    return m[rank][e];
}

/* The matrix as if a step had left this Q. */
static int set_q(tally_group *group, tally_ddp *ddp, const float *q)
{
    struct tally__power *power = ddp->hook->state;
    struct tally__power_matrix *matrix = &power->matrices[0];

    matrix->shape = (struct tally__low_rank){4, 4, 1, 16};
    matrix->q = tally__alloc(4 * sizeof *q, "Q");
    CHECK(group, matrix->q);
    memcpy(matrix->q, q, 4 * sizeof *q);
    return 0;
}

static bool near(double x, double expected)
{
    return fabs(x - expected) <= 1e-6;
}

static int example_body(tally_group *group, void *user)
{
    static const float e1[4] = {1, 0, 0, 0};
    static const double p[4] = {0.169031, 0.507093, 0.507093, 0.676123};
    static const double q[4] = {2.958040, 2.873524, 3.211586, 3.296101};
    static const double row[4] = {0.5, 0.485714, 0.542857, 0.557143};
    const struct tally__power_matrix *matrix;
    struct ddp_model model;
    const float *grad;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, &four_by_four, 1, false) == 0);
    CHECK_OK(group, power_create(group, &model, 1, "powersgd:start=0,min_rate=1", &ddp));
    CHECK_OK(group, set_q(group, ddp, e1));
    CHECK_OK(group, power_run_step(group, ddp, &model, example, 0));
    matrix = &((struct tally__power *)ddp->hook->state)->matrices[0];
    grad = tally_ddp_grad(ddp, 0);
    for (size_t k = 0; k < 4; k++) {
        CHECK(group, near((double)matrix->p[k], p[k]));
        CHECK(group, near((double)matrix->q[k], q[k]));
        CHECK(group, near((double)grad[k], row[k]));
        CHECK(group, fabs((double)grad[12 + k] - 4 * (double)grad[k]) <= 1e-6);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- what is worth it ---- */

static const struct {
    size_t n;
    size_t m;
    size_t rank;
    double min_rate;
    bool worth;
    size_t sent; /* elements */
} table[] = {
    {40, 30, 1, 2, true, 70},     {5, 1, 1, 2, false, 5},           {4, 4, 1, 2, false, 16},
    {2, 2, 1, 0.5, true, 4},      {8, 8, 2, 2, false, 64},          {9, 9, 2, 2, true, 36},
    {1, 1, 1, 0, true, 2},        {1, 1, 1, 0.5, false, 1},         {1, 30, 8, 0.5, true, 31},
    {3, 4, 8, 0.01, true, 3 * 7}, {40, 30, 64, 0.5, true, 30 * 70},
};

static int worth_body(tally_group *group, void *user)
{
    unsigned long long others = (unsigned long long)tally_group_size(group) - 1;

    (void)user;
    for (size_t k = 0; k < N_OF(table); k++) {
        const struct tally__power_options options = {.rank = table[k].rank,
                                                     .min_rate = table[k].min_rate};
        const struct ddp_spec spec = {"m", TALLY_F32, 0, 2, {table[k].n, table[k].m}};
        tally_ddp_stats stats = {.size = sizeof stats};
        char text[100];
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK(group, tally__power_worth(&options, table[k].n, table[k].m) == table[k].worth);
        (void)snprintf(text, sizeof text, "powersgd:start=0,rank=%zu,min_rate=%g", table[k].rank,
                       table[k].min_rate);
        CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
        CHECK_OK(group, power_create(group, &model, 1, text, &ddp));
        CHECK_OK(group, power_run_step(group, ddp, &model, power_value, 0));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        /* Small messages take one phase. */
        CHECK(group, table[k].sent > 600 || stats.wire_bytes == others * 4 * table[k].sent);
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- means of low rank ---- */

static const struct ddp_spec matrices[] = {
    {"square", TALLY_F32, 0, 2, {32, 32}},
    {"tall", TALLY_F32, 0, 2, {61, 20}},
    {"wide", TALLY_F32, 0, 2, {20, 75}},
    {"conv", TALLY_F32, 0, 4, {24, 3, 3, 3}},
};

/* The mean's rank; for threads of one run, all the same. */
static size_t rank_of_mean;

/* Rows stay in one space, as Q, with which a step starts, must not be far off it. */
static double mean_at(unsigned step, size_t i, size_t e)
{
    size_t m = matrices[i].n_dims == 4 ? 27 : matrices[i].shape[1];
    double sum = 0;

    for (size_t k = 0; k < rank_of_mean; k++) {
        sum += ddp_value(TALLY_F64, step, (int)k, i, e / m) *
               ddp_value(TALLY_F64, 1000, (int)k, i, e % m);
    }
    return sum;
}

/* Ranks 0 and 1 are far apart, by a matrix of full rank. */
static double low_rank(unsigned step, int rank, size_t i, size_t e)
{
    double apart = rank > 1 ? 0 : ddp_value(TALLY_F64, step + 2000, 0, i, e);

    return (double)(float)(mean_at(step, i, e) + (rank == 1 ? -apart : apart));
}

static double distance(const struct ddp_model *model, const tally_ddp *ddp, unsigned step)
{
    double most = 0;

    for (size_t i = 0; i < model->n; i++) {
        const float *grad = tally_ddp_grad(ddp, (int)i);
        double off = 0;
        double whole = 0;

        for (size_t e = 0; e < model->count[i]; e++) {
            double mean = mean_at(step, i, e);

            off += ((double)grad[e] - mean) * ((double)grad[e] - mean);
            whole += mean * mean;
        }
        most = off <= most * most * whole ? most : sqrt(off / whole);
    }
    return most;
}

static int recovery_body(tally_group *group, void *user)
{
    const char *text = user;
    struct ddp_model model;
    tally_ddp *ddp;

    for (int copies = 0; copies < 2; copies++) {
        CHECK(group, ddp_model_make(&model, matrices, N_OF(matrices), copies == 1) == 0);
        CHECK_OK(group, power_create(group, &model, 5000, text, &ddp));
        for (unsigned s = 0; s < 4; s++) {
            double off;

            CHECK_OK(group, power_run_step(group, ddp, &model, low_rank, s));
            off = distance(&model, ddp, s);
            if (!(off <= 1e-5)) {
                (void)fprintf(stderr, "%s, mean of rank %zu, step %u: off by %g\n", text,
                              rank_of_mean, s, off);
                return ranks_fail(group, __FILE__, __LINE__, "a mean of low rank");
            }
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* Alone, the mean is the gradient: no two ranks to be apart. */
static int run_recovery(int world)
{
    static const struct {
        const char *text;
        size_t rank;
    } cases[] = {
        {"powersgd:start=0", 1},
        {"powersgd:rank=2,start=0", 1},
        {"powersgd:rank=2,start=0", 2},
        {"powersgd:rank=4,start=0", 1},
        {"powersgd:rank=4,start=0", 3},
        {"powersgd:rank=4,start=0", 4},
        {"powersgd:rank=4,start=0,warm_start=0", 4},
        {"powersgd:rank=4,start=0,feedback=0", 4},
    };
    int n_failures = 0;

    for (size_t k = 0; k < N_OF(cases); k++) {
        rank_of_mean = cases[k].rank;
        n_failures += hook_run("recovery", recovery_body, (void *)cases[k].text, world);
    }
    return n_failures;
}

/* ---- wrong options ---- */

static int options_body(tally_group *group, void *user)
{
    static const struct {
        const char *text;
        const char *says[2];
    } mistakes[] = {
        {"powersgd:rank=0", {"rank", "1..1024"}},
        {"powersgd:rank=-1", {"rank", "1..1024"}},
        {"powersgd:rank=1.5", {"rank", "1..1024"}},
        {"powersgd:rank=1025", {"rank", "1..1024"}},
        {"powersgd:start=-1", {"start", "0 or more"}},
        {"powersgd:min_rate=-0.5", {"min_rate", "0..1e6"}},
        {"powersgd:min_rate=nan", {"min_rate", "0..1e6"}},
        {"powersgd:epsilon=2", {"epsilon", "0..1"}},
        {"powersgd:feedback=2", {"feedback", "0|1"}},
        {"powersgd:warm_start=yes", {"warm_start", "0|1"}},
        {"powersgd:seed=4294967296", {"seed", "0..4294967295"}},
        {"powersgd:report_every=0", {"report_every", "1 or more"}},
        {"powersgd:batch=3", {"batch", "0|1"}},
        {"batched_powersgd:rank=0", {"rank", "1..1024"}},
        {"batched_powersgd:min_rate=2", {"min_rate", "no option"}},
        {"powersgd(allreduce)", {"powersgd", ""}},
    };

    (void)user;
    for (size_t k = 0; k < N_OF(mistakes); k++) {
        tally_hook *hook = NULL;

        CHECK_STATUS(group, tally_hook_parse(mistakes[k].text, &hook), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), mistakes[k].says[0]);
        CHECK_TEXT(group, tally_last_error(), mistakes[k].says[1]);
    }
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    n_failures += hook_run("example", example_body, NULL, 2);
    n_failures += hook_run("options", options_body, NULL, 1);
    for (int world = 2; world <= 7; world += world == 4 ? 3 : 1) {
        n_failures += hook_run("worth", worth_body, NULL, world);
        n_failures += run_recovery(world);
    }
    return n_failures != 0;
}

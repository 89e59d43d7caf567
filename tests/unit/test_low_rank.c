/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank compression as a whole: golden values, exact recovery, feedback, matrices without
 * content, and every kernel against sums in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/low_rank.h"
#include "num/num.h"
#include "support/num_check.h"
#include "support/num_env.h"
#include "tally.h"

#define N_RANKS 2
#define SEED 7
#define KEY 11

/* A matrix that ranks compress together, as a hook would. */
struct job {
    struct tally__low_rank s;
    float *grad[N_RANKS]; /* in: the gradients; out: the approximated mean */
    float *c[N_RANKS];
    float *p; /* shared: what ranks hold alike */
    float *q;
    float *start; /* Q when the step begins */
    float *part[N_RANKS];
};

static float *zeros(size_t n)
{
    float *x = calloc(n, sizeof *x);

    assert_non_null(x);
    return x;
}

static struct job *new_job(struct tally__low_rank s)
{
    struct job *job = calloc(1, sizeof *job);

    assert_non_null(job);
    job->s = s;
    job->p = zeros(s.n * s.r);
    job->q = zeros(s.m * s.r);
    job->start = zeros(s.m * s.r);
    for (int w = 0; w < N_RANKS; w++) {
        job->grad[w] = zeros(s.size);
        job->c[w] = zeros(s.size);
        job->part[w] = zeros((s.n + s.m) * s.r);
    }
    return job;
}

static void free_job(struct job *job)
{
    for (int w = 0; w < N_RANKS; w++) {
        free(job->grad[w]);
        free(job->c[w]);
        free(job->part[w]);
    }
    free(job->p);
    free(job->q);
    free(job->start);
    free(job);
}

static void sum_parts(const struct job *job, size_t n, float divisor, float *to)
{
    const float *in[N_RANKS];

    for (int w = 0; w < N_RANKS; w++) {
        in[w] = job->part[w];
    }
    tally__sum_f32(n, N_RANKS, in, divisor, 1, &to);
}

/* A step with feedback from start on; the number of columns that P has. */
static size_t step_from_start(struct job *job)
{
    const struct tally__low_rank *s = &job->s;
    size_t n_columns;

    for (int w = 0; w < N_RANKS; w++) {
        tally__low_rank_correct(s, job->grad[w], (struct tally__factors){job->p, job->q},
                                job->start, job->c[w], job->part[w]);
    }
    sum_parts(job, s->n * s->r, 1.0f, job->p);
    n_columns = tally__low_rank_orthogonalise(s->n, s->r, 0.0, job->p);
    for (int w = 0; w < N_RANKS; w++) {
        tally__low_rank_multiply_transposed(s, job->c[w], job->p, job->part[w]);
    }
    sum_parts(job, s->m * s->r, (float)N_RANKS, job->q);
    for (int w = 0; w < N_RANKS; w++) {
        tally__low_rank_expand(s, (struct tally__factors){job->p, job->q}, true, job->grad[w]);
    }
    return n_columns;
}

/* A step with a warm start. */
static size_t step(struct job *job)
{
    const struct tally__low_rank *s = &job->s;

    memcpy(job->start, job->q, s->m * s->r * sizeof *job->q);
    tally__low_rank_fill(s->m, s->r, SEED, KEY, job->start);
    (void)tally__low_rank_orthogonalise(s->m, s->r, 0.0, job->start);
    return step_from_start(job);
}

static void assert_near(float got, double want, double tolerance)
{
    if (!(fabs((double)got - want) <= tolerance)) {
        fail_msg("%.9g is not %.9g", (double)got, want);
    }
}

static void golden_gram_schmidt(void **state)
{
    float p[] = {1.0f, 3.0f, 5.0f, 2.0f, 4.0f, 6.0f};
    static const double want[] = {0.169030845, 0.507092535, 0.845154226,
                                  0.897085369, 0.276026785, -0.345032066};

    /* The golden values were computed in fp32 throughout, and are off by up to 7e-7. */
    (void)state;
    assert_int_equal(tally__low_rank_orthogonalise(3, 2, 0.0, p), 2);
    for (size_t i = 0; i < 6; i++) {
        assert_near(p[i], want[i], 1e-6);
    }
}

static void golden_two_ranks(void **state)
{
    static const float grads[N_RANKS][16] = {
        {1, 2, 3, 4, 2, 4, 6, 8, 1, 0, 0, 1, 0, 1, 0, 0},
        {0, 1, 0, 1, 1, 1, 1, 1, 2, 0, 2, 0, 4, 3, 2, 1},
    };
    static const double p[] = {0.169031, 0.507093, 0.507093, 0.676123};
    static const double q[] = {2.958040, 2.873524, 3.211586, 3.296101};
    static const double row[] = {0.5, 0.485714, 0.542857, 0.557143};
    struct job *job = new_job((struct tally__low_rank){4, 4, 1, 16});

    (void)state;
    for (int w = 0; w < N_RANKS; w++) {
        memcpy(job->grad[w], grads[w], sizeof grads[w]);
    }
    job->start[0] = 1.0f;
    assert_int_equal(step_from_start(job), 1);
    for (size_t i = 0; i < 4; i++) {
        assert_near(job->p[i], p[i], 1e-6);
        assert_near(job->q[i], q[i], 1e-6);
        assert_near(job->grad[0][i], row[i], 1e-6);
        assert_near(job->grad[0][12 + i], 4 * row[i], 4e-6);
    }
    assert_memory_equal(job->grad[0], job->grad[1], 16 * sizeof(float));
    free_job(job);
}

/* Element i of the mean of the ranks' gradients. */
static double mean_of(const struct job *job, size_t i)
{
    double sum = 0.0;

    for (int w = 0; w < N_RANKS; w++) {
        sum += (double)job->grad[w][i];
    }
    return sum / N_RANKS;
}

/* Gradients that differ between ranks while their mean is of rank `rank`. */
static void fill_grads(struct job *job, size_t rank, uint64_t stream)
{
    const struct tally__low_rank *s = &job->s;

    for (size_t i = 0; i < s->size; i++) {
        float own = num_float(NUM_PLAIN, stream, i);
        double mean = 0.0;

        for (size_t k = 0; k < rank; k++) {
            mean += (double)num_float(NUM_PLAIN, stream + 2 * k + 1, i / s->m) *
                    (double)num_float(NUM_PLAIN, stream + 2 * k + 2, i % s->m);
        }
        job->grad[0][i] = (float)(mean + (double)own);
        job->grad[1][i] = (float)(mean - (double)own);
    }
}

static double distance(const double *want, const float *got, size_t n)
{
    double error = 0.0;
    double size = 0.0;

    for (size_t i = 0; i < n; i++) {
        error += (want[i] - (double)got[i]) * (want[i] - (double)got[i]);
        size += want[i] * want[i];
    }
    return size > 0.0 ? sqrt(error / size) : sqrt(error);
}

static void check_recovery(struct tally__low_rank s, size_t rank)
{
    struct job *job = new_job(s);
    double *want = calloc(s.size, sizeof *want);

    assert_non_null(want);
    fill_grads(job, rank, 100 * rank + s.n);
    for (size_t i = 0; i < s.size; i++) {
        want[i] = mean_of(job, i);
    }
    (void)step(job);
    if (!(distance(want, job->grad[0], s.size) <= 1e-5)) {
        fail_msg("%zu x %zu of rank %zu by rank %zu: off by %g", s.n, s.m, rank, s.r,
                 distance(want, job->grad[0], s.size));
    }
    free(want);
    free_job(job);
}

static void low_rank_matrices_are_recovered(void **state)
{
    static const struct tally__low_rank shapes[] = {
        {40, 30, 0, 1200},    {5, 200, 0, 1000}, {200, 7, 0, 1400},      {128, 256, 0, 32768},
        {1030, 33, 0, 33990}, {1, 50, 0, 50},    {50, 1, 0, 50},         {1, 1, 0, 1},
        {2, 3, 0, 6},         {3, 2, 0, 6},      {300, 1025, 0, 307500},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t r = 1; r <= 8; r *= 2) {
            for (size_t rank = 0; rank <= r; rank += rank < 2 ? 1 : 2) {
                struct tally__low_rank s = shapes[i];

                s.r = r;
                check_recovery(s, rank);
            }
        }
    }
}

/* A matrix without its end is a matrix with zeros there. */
static void a_matrix_may_end_early(void **state)
{
    struct tally__low_rank all = {20, 19, 3, 380};
    struct tally__low_rank part = {20, 19, 3, 349};
    struct job *a = new_job(all);
    struct job *b = new_job(part);

    (void)state;
    for (int n_steps = 0; n_steps < 3; n_steps++) {
        fill_grads(b, 2, 3);
        for (int w = 0; w < N_RANKS; w++) {
            memset(a->grad[w], 0, all.size * sizeof(float));
            memcpy(a->grad[w], b->grad[w], part.size * sizeof(float));
            /* Feedback would fill the end of the whole matrix. */
            memset(a->c[w], 0, all.size * sizeof(float));
            memset(b->c[w], 0, part.size * sizeof(float));
        }
        memset(a->p, 0, 60 * sizeof(float));
        memset(b->p, 0, 60 * sizeof(float));
        assert_int_equal(step(a), step(b));
        for (size_t i = 0; i < part.size; i++) {
            assert_near(a->grad[0][i], (double)b->grad[0][i], 1e-5);
        }
    }
    free_job(a);
    free_job(b);
}

/* Zeros lead to zeros, and the rank comes back with the gradient. */
static void zero_gradients_are_survived(void **state)
{
    struct tally__low_rank s = {33, 50, 4, 1650};
    struct job *job = new_job(s);

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int n_steps = 0; n_steps < 2; n_steps++) {
            for (int w = 0; w < N_RANKS; w++) {
                memset(job->grad[w], 0, s.size * sizeof(float));
                memset(job->c[w], 0, s.size * sizeof(float));
            }
            memset(job->p, 0, s.n * s.r * sizeof(float));
            assert_int_equal(step(job), 0);
            for (size_t i = 0; i < s.size; i++) {
                assert_true(job->grad[0][i] == 0.0f);
            }
        }
        /* Of rank 1 first: the other columns are lost, and come back. */
        fill_grads(job, 1, 5);
        assert_int_equal(step(job), 1);
        fill_grads(job, 4, 9);
        (void)step(job);
        fill_grads(job, 4, 9);
        assert_int_equal(step(job), 4);
    }
    free_job(job);
}

/* The mean of what is applied comes to the true mean, although each step is of rank 1. */
static void feedback_makes_up_for_what_is_lost(void **state)
{
    struct tally__low_rank s = {24, 36, 1, 864};
    struct job *job = new_job(s);
    double *want = calloc(s.size, sizeof *want);
    double *applied = calloc(s.size, sizeof *applied);
    float *mean = zeros(s.size);
    double first = 0.0;

    (void)state;
    assert_true(want && applied);
    for (int n_steps = 1; n_steps <= 400; n_steps++) {
        fill_grads(job, 24, 1000);
        for (size_t i = 0; i < s.size; i++) {
            want[i] = mean_of(job, i);
        }
        (void)step(job);
        for (size_t i = 0; i < s.size; i++) {
            applied[i] += (double)job->grad[0][i];
            mean[i] = (float)(applied[i] / n_steps);
        }
        first = n_steps == 1 ? distance(want, mean, s.size) : first;
    }
    assert_true(first > 0.5);
    assert_true(distance(want, mean, s.size) < 0.05);
    free(want);
    free(applied);
    free(mean);
    free_job(job);
}

/* The residual that the next step computes is the one that would have been stored. */
static void the_residual_need_not_be_stored(void **state)
{
    struct tally__low_rank s = {9, 45, 3, 400};
    struct job *a = new_job(s);
    struct job *b = new_job(s);
    float *residual = zeros(s.size);

    (void)state;
    for (int n_steps = 0; n_steps < 3; n_steps++) {
        fill_grads(a, 5, (uint64_t)n_steps);
        fill_grads(b, 5, (uint64_t)n_steps);
        (void)step(a);
        (void)step(b);
        assert_memory_equal(a->grad[0], b->grad[0], s.size * sizeof(float));
        for (int w = 0; w < N_RANKS; w++) {
            tally__low_rank_residual(&s, (struct tally__factors){b->p, b->q}, b->c[w]);
            tally__sub_f32(s.size, a->c[w], a->grad[w], residual);
            assert_memory_equal(residual, b->c[w], s.size * sizeof(float));
        }
        memset(b->p, 0, s.n * s.r * sizeof(float));
    }
    free(residual);
    free_job(a);
    free_job(b);
}

/* Numbers between -1 and 1. */
static const float *unit_input(const struct num_case *c, size_t n, uint64_t stream)
{
    float *x = num_output(c, n * sizeof *x, sizeof *x);

    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(int32_t)num_random(stream, i) * 0x1p-31f;
    }
    return x;
}

/* Every instruction set against double precision. */
static void check_products(const struct tally__isa *isa, const struct tally__low_rank *s)
{
    const struct num_case c = {.isa = isa, .n = s->size, .data = NUM_PLAIN};
    const float *x = unit_input(&c, s->size, 1);
    const float *p = unit_input(&c, s->n * s->r, 2);
    const float *q = unit_input(&c, s->m * s->r, 3);
    float *new_p = num_output(&c, s->n * s->r * sizeof(float), sizeof(float));
    float *new_q = num_output(&c, s->m * s->r * sizeof(float), sizeof(float));
    float *corrected = num_output_copy(&c, s->size * sizeof(float), sizeof(float), x);
    float *y = num_output(&c, s->size * sizeof(float), sizeof(float));

    isa->low_rank->low_rank_expand(s, (struct tally__factors){p, q}, true, y);
    isa->low_rank->low_rank_correct(s, x, (struct tally__factors){p, q}, q, corrected, new_p);
    isa->low_rank->low_rank_multiply_transposed(s, corrected, p, new_q);
    for (size_t i = 0; i < s->size; i++) {
        double want = 0.0;

        for (size_t k = 0; k < s->r; k++) {
            want += (double)p[k * s->n + i / s->m] * (double)q[k * s->m + i % s->m];
        }
        assert_near(y[i], want, 1e-6 * (double)s->r);
        assert_near(corrected[i], 2 * (double)x[i] - want, 2e-6 * (double)s->r);
    }
    for (size_t k = 0; k < s->r; k++) {
        for (size_t i = 0; i < s->n; i++) {
            double want = 0.0;

            for (size_t j = 0; j < s->m && i * s->m + j < s->size; j++) {
                want += (double)corrected[i * s->m + j] * (double)q[k * s->m + j];
            }
            assert_near(new_p[k * s->n + i], want, 2e-6 * (double)(s->m * s->r));
        }
        for (size_t j = 0; j < s->m; j++) {
            double want = 0.0;

            for (size_t i = 0; i * s->m + j < s->size; i++) {
                want += (double)corrected[i * s->m + j] * (double)p[k * s->n + i];
            }
            assert_near(new_q[k * s->m + j], want, 2e-6 * (double)(s->n * s->r));
        }
    }
    num_release();
}

static void products_are_right(void **state)
{
    static const struct tally__low_rank shapes[] = {
        {6, 40, 1, 240}, {7, 33, 2, 231},  {13, 600, 3, 7800}, {4, 16, 4, 64},
        {9, 9, 40, 81},  {10, 21, 5, 190}, {1, 1, 1, 1},       {3, 100, 2, 101},
    };

    (void)state;
    for (size_t isa = 0; isa < tally__n_isas; isa++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            if (tally__isas[isa].usable()) {
                check_products(&tally__isas[isa], &shapes[i]);
            }
        }
    }
}

/* The same bits in every floating-point environment, which is left as it was. */
static void the_environment_does_not_matter(void **state)
{
    struct tally__low_rank s = {11, 37, 3, 400};
    struct job *usual = new_job(s);

    (void)state;
    for (unsigned i = 0; i < num_n_environments; i++) {
        struct job *job = i == 0 ? usual : new_job(s);
        uint64_t before;

        for (int w = 0; w < N_RANKS; w++) {
            for (size_t j = 0; j < s.size; j++) {
                job->grad[w][j] = num_float(j % 3 == 0 ? NUM_PLAIN : NUM_TINY, 8, j) * 0x1p-120f;
            }
        }
        num_set_environment(i);
        before = num_environment();
        (void)step(job);
        assert_int_equal(before, num_environment());
        num_set_environment(0);
        assert_memory_equal(job->grad[0], usual->grad[0], s.size * sizeof(float));
        assert_memory_equal(job->p, usual->p, s.n * s.r * sizeof(float));
        if (i > 0) {
            free_job(job);
        }
    }
    free_job(usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_gram_schmidt),
        cmocka_unit_test(golden_two_ranks),
        cmocka_unit_test(low_rank_matrices_are_recovered),
        cmocka_unit_test(a_matrix_may_end_early),
        cmocka_unit_test(zero_gradients_are_survived),
        cmocka_unit_test(feedback_makes_up_for_what_is_lost),
        cmocka_unit_test(the_residual_need_not_be_stored),
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(the_environment_does_not_matter),
    };

    if (tally__num_start() != TALLY_OK) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a hook for each bucket, against cases that are clear without a computer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tally.h"
#include "tune/choose.h"

#define N_BUCKETS 3
#define N_HOOKS 3
#define MEGABYTE 1e6

enum { EXACT, HALF, TENTH };

/* Two hosts, three buckets of a megabyte, hooks that send all, half and a tenth of it; the last one
 * leaves out 5 %. */
struct scene {
    struct tally__profile profile;
    struct tally__question question;
    double sums[N_BUCKETS];
    double losses[N_HOOKS * N_BUCKETS];
    bool banned[N_HOOKS];
    unsigned char choice[N_BUCKETS];
    struct tally__answer answer;
};

static void make(struct scene *scene, double gbit, double backward_s)
{
    static const double parts[N_HOOKS] = {1, 0.5, 0.1};
    static const double lost[N_HOOKS] = {0, 0.001, 0.05};

    memset(scene, 0, sizeof *scene);
    assert_int_equal(tally__profile_make(N_BUCKETS, N_HOOKS, &scene->profile), TALLY_OK);
    scene->profile.hosts = 2;
    scene->profile.ranks_per_host = 1;
    scene->profile.lanes = 1;
    scene->profile.backward_s = backward_s;
    scene->profile.link = (struct tally__link){1e-5, 1e-6, gbit};
    for (size_t b = 0; b < N_BUCKETS; b++) {
        scene->profile.buckets[b] =
            (struct tally__profile_bucket){MEGABYTE, backward_s * (double)(b + 1) / N_BUCKETS};
        scene->sums[b] = 1;
        for (size_t h = 0; h < N_HOOKS; h++) {
            scene->profile.hooks[h].exchanges = 1;
            scene->profile.hooks[h].coding[b] =
                (struct tally__coding){parts[h] * MEGABYTE, h > 0 ? 1e-4 : 0};
            scene->losses[h * N_BUCKETS + b] = lost[h] * lost[h];
        }
    }
    scene->question = (struct tally__question){.profile = &scene->profile,
                                               .sums = scene->sums,
                                               .losses = scene->losses,
                                               .budget = 0.1,
                                               .banned = scene->banned};
}

static void choose(struct scene *scene)
{
    assert_int_equal(tally__choose(&scene->question, scene->choice, &scene->answer), TALLY_OK);
    assert_true(scene->answer.error <= scene->question.budget);
    assert_true(scene->answer.step_s <= scene->answer.exact_s * 1.01);
    assert_true(scene->choice[0] < N_HOOKS);
}

static void all_are(const struct scene *scene, unsigned char hook)
{
    for (size_t b = 0; b < N_BUCKETS; b++) {
        assert_int_equal(scene->choice[b], hook);
    }
}

static void test_lines(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 0.1, 0); /* 80 ms for a megabyte */
    choose(&scene);
    all_are(&scene, TENTH);
    tally__profile_free(&scene.profile);
    make(&scene, 1000, 0); /* 8 us, and coding takes 100 */
    choose(&scene);
    all_are(&scene, EXACT);
    tally__profile_free(&scene.profile);
}

static void test_budget(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 0.1, 0);
    scene.question.budget = 0.01;
    choose(&scene);
    all_are(&scene, HALF);
    /* One bucket of three may lose 5 %. */
    scene.question.budget = 0.03;
    choose(&scene);
    assert_int_equal(
        (scene.choice[0] == TENTH) + (scene.choice[1] == TENTH) + (scene.choice[2] == TENTH), 1);
    scene.question.budget = 0;
    choose(&scene);
    all_are(&scene, EXACT);
    scene.question.budget = 1;
    scene.banned[TENTH] = true;
    choose(&scene);
    all_are(&scene, HALF);
    tally__profile_free(&scene.profile);
}

/* Backward hides all buckets but the last one. */
static void test_hidden(void **state)
{
    struct tally__bucket_answer of[N_BUCKETS];
    struct scene scene;

    (void)state;
    make(&scene, 0.1, 1);
    choose(&scene);
    assert_int_equal(scene.choice[0], EXACT);
    assert_int_equal(scene.choice[1], EXACT);
    assert_int_equal(scene.choice[2], TENTH);
    assert_int_equal(tally__choice_explain(&scene.question, scene.choice, of), TALLY_OK);
    assert_true(of[0].nothing_s > scene.answer.step_s * 0.999 && of[0].bucket_s > 0.07);
    assert_int_equal(of[2].runner_up, HALF);
    assert_true(of[2].runner_up_fits && of[2].exact_s > scene.answer.step_s + 0.05);
    tally__profile_free(&scene.profile);
}

/* A megabyte takes 80 ms, and a bucket is ready every 150 or 90 ms: if it took a quarter longer
 * than was measured, backward would still hide it, or would not. */
static void test_barely_hidden(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 0.1, 0.45);
    choose(&scene);
    assert_true(scene.choice[0] == EXACT && scene.choice[1] == EXACT);
    tally__profile_free(&scene.profile);
    make(&scene, 0.1, 0.27);
    choose(&scene);
    assert_false(scene.choice[0] == EXACT && scene.choice[1] == EXACT);
    tally__profile_free(&scene.profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_barely_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

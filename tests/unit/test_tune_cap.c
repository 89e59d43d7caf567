/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a bucket cap, against cases that are clear without a computer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tally.h"
#include "tune/cap.h"

#define MOST_PARTS 64
#define MEGABYTE 1048576.0

/* Two hosts; parts of equal size in buckets of equal size, ready one after the other. */
struct scene {
    struct tally__profile profile;
    struct tally__cap_part parts[MOST_PARTS];
    unsigned char choice[MOST_PARTS];
    struct tally__cap_question question;
    struct tally__cap_answer answer;
};

static void make(struct scene *scene, size_t n_parts, double part_bytes, size_t n_buckets,
                 double backward_s)
{
    memset(scene, 0, sizeof *scene);
    assert_int_equal(tally__profile_make(n_buckets, 1, &scene->profile), TALLY_OK);
    scene->profile.hosts = 2;
    scene->profile.ranks_per_host = 1;
    scene->profile.lanes = 1;
    scene->profile.backward_s = backward_s;
    scene->profile.link = (struct tally__link){1e-4, 1e-6, 1};
    scene->profile.hooks[0].exchanges = 1;
    for (size_t b = 0; b < n_buckets; b++) {
        double bytes = part_bytes * (double)n_parts / (double)n_buckets;

        scene->profile.buckets[b] =
            (struct tally__profile_bucket){bytes, backward_s * (double)(b + 1) / (double)n_buckets};
        scene->profile.hooks[0].coding[b].bytes = bytes;
    }
    for (size_t i = 0; i < n_parts; i++) {
        scene->parts[i] = (struct tally__cap_part){part_bytes, i * n_buckets / n_parts};
    }
    scene->question =
        (struct tally__cap_question){&scene->profile, scene->choice, scene->parts, n_parts};
}

static void choose(struct scene *scene)
{
    assert_int_equal(tally__cap_choose(&scene->question, &scene->answer), TALLY_OK);
    assert_true(scene->answer.now_s > 0 && scene->answer.step_s > 0);
    tally__profile_free(&scene->profile);
}

/* One bucket begins when backward ends; smaller ones travel beside it. */
static void test_overlap(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 32, MEGABYTE, 1, 0.3);
    choose(&scene);
    assert_true(scene.answer.cap_bytes <= 4 << 20);
    assert_true(scene.answer.step_s < 0.7 * scene.answer.now_s);
}

/* Nothing to hide behind, and rounds cost more than bytes: one bucket. */
static void test_rounds(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 64, 65536, 64, 0);
    scene.profile.link.latency_s = 1e-2;
    choose(&scene);
    assert_true(scene.answer.cap_bytes >= 4 << 20);
    assert_true(scene.answer.step_s < 0.2 * scene.answer.now_s);
}

/* A cap cannot divide a parameter. */
static void test_one_parameter(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 1, 32 * MEGABYTE, 1, 0.3);
    choose(&scene);
    assert_true(scene.answer.step_s == scene.answer.now_s);
}

/* Parameters below the least cap stay together. */
static void test_small(void **state)
{
    struct scene scene;

    (void)state;
    make(&scene, 2, 1000, 1, 0.3);
    choose(&scene);
    assert_true(scene.answer.cap_bytes == 0);
    assert_true(scene.answer.step_s == scene.answer.now_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_one_parameter),
        cmocka_unit_test(test_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

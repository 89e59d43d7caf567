/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that leaves alone: it takes fewer steps, or fails and cleans up. It does not wait, and the
 * others read at once which rank it was and what they were doing. Also ranks that make different
 * calls: the message says what each rank does, in the application's words.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "support/ddp_model.h"

#define N_STEPS 5

static const struct ddp_spec specs[] = {{"wte", TALLY_F32, 0, 2, {70, 90}},
                                        {"bias", TALLY_F32, 0, 1, {3}}};
#define N_PARAMS (sizeof specs / sizeof specs[0])

struct scene {
    struct ddp_model model;
    tally_ddp *ddp;
};

static int last_of(const tally_group *group)
{
    return tally_group_size(group) - 1;
}

static bool is_last(const tally_group *group)
{
    return tally_group_rank(group) == last_of(group);
}

static int start(tally_group *group, struct scene *scene, const tally_ddp_config *config)
{
    CHECK(group, ddp_model_make(&scene->model, specs, N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, scene->model.params, N_PARAMS, config, &scene->ddp));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, ddp_right_step(group, scene->ddp, &scene->model, s));
    }
    return 0;
}

static int end(tally_group *group, struct scene *scene)
{
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    ddp_model_free(&scene->model);
    return 0;
}

static int announce(tally_group *group, struct scene *scene)
{
    for (int i = 0; i < (int)N_PARAMS; i++) {
        CHECK_OK(group, tally_ddp_grad_ready(scene->ddp, i));
    }
    return 0;
}

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The last rank takes one step less. */
static int uneven_body(tally_group *group, void *user)
{
    struct scene scene;
    char text[256];

    (void)user;
    CHECK_OK(group, start(group, &scene, NULL));
    if (!is_last(group)) {
        CHECK_OK(group, announce(group, &scene));
        CHECK_STATUS(group, tally_ddp_wait(scene.ddp), TALLY_MISMATCH);
        (void)snprintf(text, sizeof text, "rank %d freed its ddp after 5 steps while rank ",
                       last_of(group));
        CHECK_TEXT(group, tally_last_error(), text);
        CHECK_TEXT(group, tally_last_error(),
                   " waits in step 6 (bucket 0: 'bias', ...): all ranks must take the same number "
                   "of steps; see config.join");
    }
    return end(group, &scene);
}

/* Its disk is full: it cleans up and goes, while the others are in a barrier of the group. */
static int failing_body(tally_group *group, void *user)
{
    bool says_why = *(const bool *)user;
    struct scene scene;
    tally_future *future;
    char text[256];
    int rc;

    CHECK_OK(group, start(group, &scene, NULL));
    /* All have left the last step. */
    (void)atomic_fetch_add(&ranks_words()[0], 1);
    CHECK_OK(group, ranks_await(&ranks_words()[0], (uint32_t)tally_group_size(group)));
    if (is_last(group)) {
        double began = seconds();

        if (says_why) {
            CHECK_OK(group, tally_group_abort(group, "its disk is full"));
        }
        CHECK_OK(group, end(group, &scene));
        CHECK_OK(group, ranks_close(group));
        CHECK(NULL, seconds() - began < 20);
        return 0;
    }
    (void)snprintf(text, sizeof text,
                   says_why ? "rank %d gave up: its disk is full"
                            : "rank %d closed its group while rank ",
                   last_of(group));
    rc = tally_barrier(group, &future);
    rc = rc == TALLY_OK ? ranks_finish(future) : rc;
    CHECK_STATUS(group, rc, says_why ? TALLY_ABORTED : TALLY_PEER);
    CHECK_TEXT(group, tally_last_error(), text);
    return end(group, &scene);
}

/* ---- different calls ---- */

struct clash {
    int (*others)(struct scene *scene);
    int (*last)(struct scene *scene);
    const char *one; /* parts of the text */
    const char *two;
    const char *hint;
};

static int step(struct scene *scene)
{
    for (int i = 0; i < (int)N_PARAMS; i++) {
        int rc = tally_ddp_grad_ready(scene->ddp, i);

        if (rc != TALLY_OK) {
            return rc;
        }
    }
    return tally_ddp_wait(scene->ddp);
}

static int mean_scalar(struct scene *scene)
{
    double value = 1;

    return tally_ddp_mean_scalar(scene->ddp, &value);
}

static int set_hook(struct scene *scene)
{
    return tally_ddp_set_hook(scene->ddp, "bf16");
}

static int broadcast(struct scene *scene)
{
    return tally_ddp_broadcast(scene->ddp, 0);
}

static int leave(struct scene *scene)
{
    (void)scene;
    return TALLY_MISMATCH;
}

static const struct clash clashes[] = {
    {step, mean_scalar, "rank 0 is in step 6 (bucket 0: 'bias', ...)",
     "is in tally_ddp_mean_scalar after 5 steps", "between the same two steps"},
    {step, set_hook, "is in step 6", "is in tally_ddp_set_hook after 5 steps",
     "between the same two steps"},
    {mean_scalar, set_hook, "rank 0 is in tally_ddp_mean_scalar after 5 steps",
     "is in tally_ddp_set_hook after 5 steps", "the same calls in the same order"},
    {set_hook, broadcast, "is in tally_ddp_set_hook", "is in tally_ddp_broadcast",
     "the same calls in the same order"},
    {mean_scalar, leave, "freed its ddp after 5 steps",
     "waits in tally_ddp_mean_scalar after 5 steps", "the same calls in the same order"},
};

static int clash_body(tally_group *group, void *user)
{
    const struct clash *clash = user;
    struct scene scene;
    int rc;

    CHECK_OK(group, start(group, &scene, NULL));
    rc = (is_last(group) ? clash->last : clash->others)(&scene);
    if (tally_group_size(group) > 1) {
        CHECK_STATUS(group, rc, TALLY_MISMATCH);
    }
    if (tally_group_size(group) > 1 && !(is_last(group) && clash->last == leave)) {
        CHECK_TEXT(group, tally_last_error(), clash->one);
        CHECK_TEXT(group, tally_last_error(), clash->two);
        CHECK_TEXT(group, tally_last_error(), clash->hint);
        CHECK(group, strstr(tally_last_error(), "job") == NULL);
        CHECK(group, strstr(tally_last_error(), "lane") == NULL);
    }
    return end(group, &scene);
}

/* ---- a forgotten wait ---- */

static int forgotten_body(tally_group *group, void *user)
{
    struct scene scene;

    (void)user;
    CHECK_OK(group, start(group, &scene, NULL));
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 1));
    CHECK_STATUS(group, tally_ddp_grad_ready(scene.ddp, 1), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "announced twice in one step");
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
    CHECK_STATUS(group, tally_ddp_grad_ready(scene.ddp, 1), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(),
               "'bias') was announced again after all gradients of step 6: tally_ddp_wait was not "
               "called since step 5");
    CHECK_OK(group, tally_ddp_wait(scene.ddp));
    return end(group, &scene);
}

/* ---- memory ---- */

#define BIG_BYTES ((size_t)4 << 20)

/* Kibibytes that the process may grow by: 36 ddps that stay would be 144 MiB per rank. Sanitizers
 * keep freed memory for a while. */
#ifdef TALLY_TESTS_SANITIZED
#define MAX_GROWTH_KB (1024L * 1024)
#else
#define MAX_GROWTH_KB (96L * 1024)
#endif

/* Memory that peers may still read is released when all ranks have freed theirs. */
static int loop_body(tally_group *group, void *user)
{
    static const struct ddp_spec big[] = {{"big", TALLY_F32, 0, 1, {BIG_BYTES / sizeof(float)}}};
    struct rusage before;
    struct rusage after;

    (void)user;
    for (unsigned s = 0; s < 40; s++) {
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, big, 1, false) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
        CHECK_OK(group, ddp_step(group, ddp, &model, s));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
        CHECK(group, getrusage(RUSAGE_SELF, s == 3 ? &before : &after) == 0);
    }
    CHECK(group, after.ru_maxrss - before.ru_maxrss < MAX_GROWTH_KB);
    return 0;
}

/* A deadline would be noticed. */
static int run(const char *name, ranks_body *body, void *user, bool may_leak)
{
    static const int worlds[] = {2, 3, RANKS_REPEATS(4, 0), 0};
    const struct ranks ranks = {.lanes = 1, .timeout_s = 60, .may_leak = may_leak};

    return ranks_run_worlds(name, &ranks, worlds, body, user);
}

int main(void)
{
    static bool says_why[] = {false, true};
    int n_failures = run("uneven", uneven_body, NULL, true);

    n_failures += run("failing", failing_body, &says_why[0], true);
    n_failures += run("failing", failing_body, &says_why[1], true);
    for (size_t i = 0; i < sizeof clashes / sizeof clashes[0]; i++) {
        n_failures += run(clashes[i].one, clash_body, (void *)&clashes[i], true);
    }
    n_failures += run("forgotten", forgotten_body, NULL, false);
    n_failures += run("loop", loop_body, NULL, false);
    return n_failures != 0;
}

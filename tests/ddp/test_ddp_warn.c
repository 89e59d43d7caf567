/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warnings of check mode, by name: gradients that stay zero because backward writes elsewhere,
 * parameters that do not change because the update writes elsewhere; and, in any mode, postlocal
 * without an averager. They go to the callback, or, in check mode without one, to stderr.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ddp_model.h"

#define N 3
#define N_STEPS 6

static const struct ddp_spec specs[N] = {{"forgotten", TALLY_F32, 0, 1, {4}},
                                         {"right", TALLY_F32, 0, 1, {5}},
                                         {"still", TALLY_F64, 0, 1, {3}}};

/* All that the ranks, which are threads, were told. */
static struct {
    pthread_mutex_t mutex;
    char text[1 << 14];
    int n_lines;
} heard = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void hear(void *user, int level, const char *text)
{
    (void)user;
    (void)level;
    (void)pthread_mutex_lock(&heard.mutex);
    (void)strncat(heard.text, text, sizeof heard.text - strlen(heard.text) - 2);
    (void)strncat(heard.text, "\n", 2);
    heard.n_lines++;
    (void)pthread_mutex_unlock(&heard.mutex);
}

struct course {
    const char *hook;
    int check;
    bool is_right; /* all gradients are written, and all parameters updated */
};

/* The gradient of "forgotten" is never written, and "still" is never updated. */
static int train(tally_group *group, void *user)
{
    const struct course *course = user;
    tally_ddp_config config;
    struct ddp_model model;
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.check = course->check;
    config.hook = course->hook;
    CHECK(group, ddp_model_make(&model, specs, N, true) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
    for (unsigned s = 0; s < N_STEPS; s++) {
        for (int i = course->is_right ? 0 : 1; i < N; i++) {
            ddp_fill_grad(&model, ddp, (size_t)i, s, tally_group_rank(group));
        }
        for (int i = 0; i < N; i++) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        for (int i = 0; i < (course->is_right ? N : N - 1); i++) {
            ((unsigned char *)tally_ddp_data(ddp, i))[0]++;
        }
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int run(int world, struct course course)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .world = world, .lanes = 1};

    heard.text[0] = '\0';
    heard.n_lines = 0;
    return ranks_run(&ranks, train, &course);
}

static int expect(const char *what, const char *part, bool is_there)
{
    if ((strstr(heard.text, part) != NULL) == is_there) {
        return 0;
    }
    (void)fprintf(stderr, "%s: %s '%s' in:\n%s\n", what, is_there ? "no" : "there is", part,
                  heard.text);
    return 1;
}

static int expect_lines(const char *what, int n)
{
    if (heard.n_lines == n) {
        return 0;
    }
    (void)fprintf(stderr, "%s: %d lines, not %d:\n%s\n", what, heard.n_lines, n, heard.text);
    return 1;
}

/* The output on stderr. */
static int run_without_callback(struct course course)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    int n_failures = !file || before < 0 || dup2(fileno(file), STDERR_FILENO) < 0;
    size_t n;

    if (n_failures) {
        return n_failures;
    }
    n_failures += run(1, course);
    (void)fflush(stderr);
    n_failures += dup2(before, STDERR_FILENO) < 0;
    rewind(file);
    n = fread(heard.text, 1, sizeof heard.text - 1, file);
    heard.text[n] = '\0';
    (void)close(before);
    (void)fclose(file);
    return n_failures;
}

int main(void)
{
    static const char zeros[] = "gradients of 1 of 3 parameters were all zeros: 0 ('forgotten')";
    static const char stays[] = "1 of 3 parameters did not change, although their gradients are "
                                "not zeros: 2 ('still')";
    int n_failures = 0;

    (void)unsetenv("TALLY_LOG");
    (void)unsetenv("TALLY_CHECK");
    n_failures += tally_log_set(hear, NULL, TALLY_LOG_WARN);
    n_failures += run(2, (struct course){.check = 1});
    n_failures += expect("wrong", "check: in the first 3 steps", true);
    n_failures += expect("wrong", zeros, true);
    n_failures += expect("wrong", "tally_param.grad", true);
    n_failures += expect("wrong", stays, true);
    n_failures += expect_lines("wrong, each rank once", 4);
    n_failures += run(2, (struct course){.check = 1, .is_right = true});
    n_failures += expect_lines("right", 0);
    n_failures += run(2, (struct course){.check = -1});
    n_failures += expect_lines("off", 0);
    n_failures += setenv("TALLY_CHECK", "1", 1);
    n_failures += run(1, (struct course){.check = 0});
    n_failures += expect("by the environment", zeros, true);
    n_failures += run(1, (struct course){.check = -1});
    n_failures += expect_lines("off in spite of the environment", 0);
    (void)unsetenv("TALLY_CHECK");

    n_failures += run(2, (struct course){.hook = "postlocal:start=2", .is_right = true});
    n_failures += expect("postlocal", "hook 'postlocal:start=2': after 2 steps", true);
    n_failures += expect("postlocal", "tally_averager_create", true);
    n_failures += expect_lines("postlocal, each rank once", 2);

    n_failures += tally_log_set(NULL, NULL, TALLY_LOG_NONE);
    n_failures += run_without_callback((struct course){.check = 1});
    n_failures += expect("stderr", "tally: warning: check:", true);
    n_failures += expect("stderr", zeros, true);
    n_failures += run_without_callback((struct course){.hook = "postlocal:start=2", .check = -1});
    n_failures += expect("stderr without check mode", "tally", false);
    return n_failures != 0;
}

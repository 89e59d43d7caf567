/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A forked child has copies of its parent's objects, as a data loader's worker has, and may run
 * their destructors. Every public function must notice that, return at once, and disturb neither
 * the parent nor the other ranks. The table has every function of the header.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

#define N 1000
#define CHILD_S 60

struct scene {
    tally_group *group;
    tally_group *other; /* a sub-group */
    tally_ddp *ddp;
    tally_optimizer *optimizer;
    tally_averager *averager;
    tally_reducer *reducer;
    tally_future *future;
    tally_hook *hook;
    tally_lane *lane;
    void *memory;
    float data[N];
    size_t bytes[8];
    size_t n_bytes;
    double number;
    int count;
    tally_future *made;
    void *got;
    tally_ddp *made_ddp;
    tally_optimizer *made_optimizer;
    tally_averager *made_averager;
    tally_reducer *made_reducer;
    tally_group *made_group;
    tally_ddp_stats ddp_stats;
    tally_bucket_stats bucket_stats;
    tally_rank_stats rank_stats;
    tally_bucket_choice choice;
    tally_optimizer_stats optimizer_stats;
    tally_averager_stats averager_stats;
};

static int no_job(tally_lane *lane, void *user)
{
    struct scene *scene = user;

    scene->lane = lane;
    return TALLY_OK;
}

static void on_done(void *user, int status, const char *text)
{
    (void)user;
    (void)status;
    (void)text;
}

static const size_t shape[] = {N};
static const tally_param params[] = {
    {.size = sizeof *params, .name = "a", .n_dims = 1, .shape = shape},
    {.size = sizeof *params, .name = "b", .n_dims = 1, .shape = shape},
};

static const int numbers[] = {0, 1};

/* name, what a forked child gets, and the call, with s for the scene. */
#define REFUSED_LIST(X)                                                                            \
    X(tally_group_split, STATE, tally_group_split(s->group, 0, 0, &s->made_group))                 \
    X(tally_group_abort, STATE, tally_group_abort(s->group, "child"))                              \
    X(tally_group_alloc, STATE, tally_group_alloc(s->group, 100, &s->got))                         \
    X(tally_trace_start, STATE, tally_trace_start(s->group, "/nowhere", 0))                        \
    X(tally_trace_write, STATE, tally_trace_write(s->group))                                       \
    X(tally_trace_stop, STATE, tally_trace_stop(s->group))                                         \
    X(tally_submit, STATE, tally_submit(s->group, 0, no_job, s, &s->made))                         \
    X(tally_future_wait, STATE, tally_future_wait(s->future))                                      \
    X(tally_future_wait_for, STATE, tally_future_wait_for(s->future, 1))                           \
    X(tally_future_test, STATE, tally_future_test(s->future, &s->count))                           \
    X(tally_future_on_done, STATE, tally_future_on_done(s->future, on_done, NULL))                 \
    X(tally_lane_all_reduce, STATE,                                                                \
      tally_lane_all_reduce(s->lane, s->data, N, TALLY_F32, TALLY_SUM))                            \
    X(tally_lane_reduce_scatter, STATE,                                                            \
      tally_lane_reduce_scatter(s->lane, s->data, N, TALLY_F32, TALLY_SUM))                        \
    X(tally_lane_all_gather, STATE, tally_lane_all_gather(s->lane, s->data, s->bytes, s->data))    \
    X(tally_lane_all_to_all, STATE,                                                                \
      tally_lane_all_to_all(s->lane, s->data, s->bytes, s->data, s->bytes))                        \
    X(tally_lane_broadcast, STATE, tally_lane_broadcast(s->lane, s->data, N, 0))                   \
    X(tally_lane_barrier, STATE, tally_lane_barrier(s->lane))                                      \
    X(tally_all_reduce, STATE,                                                                     \
      tally_all_reduce(s->group, s->data, N, TALLY_F32, TALLY_SUM, &s->made))                      \
    X(tally_reduce_scatter, STATE,                                                                 \
      tally_reduce_scatter(s->group, s->data, N, TALLY_F32, TALLY_SUM, &s->made))                  \
    X(tally_all_gather, STATE, tally_all_gather(s->group, s->data, s->bytes, s->data, &s->made))   \
    X(tally_all_to_all, STATE,                                                                     \
      tally_all_to_all(s->group, s->data, s->bytes, s->data, s->bytes, &s->made))                  \
    X(tally_broadcast, STATE, tally_broadcast(s->group, s->data, N, 0, &s->made))                  \
    X(tally_barrier, STATE, tally_barrier(s->group, &s->made))                                     \
    X(tally_ddp_create, STATE, tally_ddp_create(s->group, params, 2, NULL, &s->made_ddp))          \
    X(tally_ddp_set_hook, STATE, tally_ddp_set_hook(s->ddp, "bf16"))                               \
    X(tally_ddp_register_hook, STATE, tally_ddp_register_hook(s->ddp, TALLY_HOOK_ALLREDUCE))       \
    X(tally_ddp_attach_hook, STATE, tally_ddp_attach_hook(s->ddp, s->hook))                        \
    X(tally_ddp_save, STATE, tally_ddp_save(s->ddp, NULL, &s->n_bytes))                            \
    X(tally_ddp_load, STATE, tally_ddp_load(s->ddp, (const void *const *)&s->got, &s->n_bytes, 1)) \
    X(tally_ddp_broadcast, STATE, tally_ddp_broadcast(s->ddp, 0))                                  \
    X(tally_ddp_grad_ready, STATE, tally_ddp_grad_ready(s->ddp, 0))                                \
    X(tally_ddp_grad_absent, STATE, tally_ddp_grad_absent(s->ddp, 0))                              \
    X(tally_ddp_wait, STATE, tally_ddp_wait(s->ddp))                                               \
    X(tally_ddp_is_unused, STATE, tally_ddp_is_unused(s->ddp, 0, &s->count))                       \
    X(tally_ddp_no_sync_begin, STATE, tally_ddp_no_sync_begin(s->ddp))                             \
    X(tally_ddp_no_sync_end, STATE, tally_ddp_no_sync_end(s->ddp))                                 \
    X(tally_ddp_zero_grad, STATE, tally_ddp_zero_grad(s->ddp))                                     \
    X(tally_ddp_clip_grad_norm, STATE, tally_ddp_clip_grad_norm(s->ddp, 1, &s->number))            \
    X(tally_ddp_mean_scalar, STATE, tally_ddp_mean_scalar(s->ddp, &s->number))                     \
    X(tally_ddp_mean_scalars, STATE, tally_ddp_mean_scalars(s->ddp, &s->number, 1))                \
    X(tally_ddp_check, STATE, tally_ddp_check(s->ddp))                                             \
    X(tally_ddp_join, STATE, tally_ddp_join(s->ddp))                                               \
    X(tally_ddp_reduce_delayed, STATE, tally_ddp_reduce_delayed(s->ddp))                           \
    X(tally_ddp_refresh_low, STATE, tally_ddp_refresh_low(s->ddp))                                 \
    X(tally_ddp_get_stats, STATE, tally_ddp_get_stats(s->ddp, &s->ddp_stats))                      \
    X(tally_ddp_get_bucket_stats, STATE, tally_ddp_get_bucket_stats(s->ddp, 0, &s->bucket_stats))  \
    X(tally_ddp_get_rank_stats, STATE, tally_ddp_get_rank_stats(s->ddp, 0, &s->rank_stats))        \
    X(tally_ddp_explain, STATE, tally_ddp_explain(s->ddp, 0, &s->choice))                          \
    X(tally_checkpoint_save, STATE, tally_checkpoint_save(s->ddp, "/nowhere", NULL))               \
    X(tally_checkpoint_load, STATE, tally_checkpoint_load(s->ddp, "/nowhere", NULL, NULL))         \
    X(tally_checkpoint_wait, STATE, tally_checkpoint_wait(s->ddp))                                 \
    X(tally_reducer_create, STATE,                                                                 \
      tally_reducer_create(s->group, params, 2, NULL, &s->made_reducer))                           \
    X(tally_reducer_reduce, STATE,                                                                 \
      tally_reducer_reduce(s->reducer, numbers, 2, s->data, 1, 0, &s->made))                       \
    X(tally_reducer_set_hook, STATE, tally_reducer_set_hook(s->reducer, "bf16"))                   \
    X(tally_reducer_attach_hook, STATE, tally_reducer_attach_hook(s->reducer, s->hook))            \
    X(tally_reducer_save, STATE, tally_reducer_save(s->reducer, NULL, &s->n_bytes))                \
    X(tally_reducer_load, STATE,                                                                   \
      tally_reducer_load(s->reducer, (const void *const *)&s->got, &s->n_bytes, 1))                \
    X(tally_reducer_get_stats, STATE, tally_reducer_get_stats(s->reducer, &s->ddp_stats))          \
    X(tally_reducer_get_rank_stats, STATE,                                                         \
      tally_reducer_get_rank_stats(s->reducer, 0, &s->rank_stats))                                 \
    X(tally_averager_create, STATE, tally_averager_create(s->ddp, NULL, &s->made_averager))        \
    X(tally_averager_step, STATE, tally_averager_step(s->averager, &s->count))                     \
    X(tally_averager_average, STATE, tally_averager_average(s->averager))                          \
    X(tally_averager_save, STATE, tally_averager_save(s->averager, NULL, &s->n_bytes))             \
    X(tally_averager_load, STATE,                                                                  \
      tally_averager_load(s->averager, (const void *const *)&s->got, &s->n_bytes, 1))              \
    X(tally_averager_get_stats, STATE, tally_averager_get_stats(s->averager, &s->averager_stats))  \
    X(tally_optimizer_create, STATE,                                                               \
      tally_optimizer_create(s->ddp, "sgd", NULL, &s->made_optimizer))                             \
    X(tally_optimizer_step, STATE, tally_optimizer_step(s->optimizer))                             \
    X(tally_optimizer_set_lr, STATE, tally_optimizer_set_lr(s->optimizer, 0, 1))                   \
    X(tally_optimizer_save, STATE, tally_optimizer_save(s->optimizer, NULL, &s->n_bytes))          \
    X(tally_optimizer_consolidate, STATE,                                                          \
      tally_optimizer_consolidate(s->optimizer, 0, NULL, &s->n_bytes))                             \
    X(tally_optimizer_load, STATE,                                                                 \
      tally_optimizer_load(s->optimizer, (const void *const *)&s->got, &s->n_bytes, 1))            \
    X(tally_optimizer_get_stats, STATE,                                                            \
      tally_optimizer_get_stats(s->optimizer, &s->optimizer_stats))

/* Functions that free or close do nothing and succeed. Twice: nothing may be freed. */
#define FREEING_LIST(X)                                                \
    X(tally_future_free, OK, (tally_future_free(s->future), TALLY_OK)) \
    X(tally_group_free, OK, tally_group_free(s->group, s->memory))     \
    X(tally_optimizer_free, OK, tally_optimizer_free(s->optimizer))    \
    X(tally_averager_free, OK, tally_averager_free(s->averager))       \
    X(tally_reducer_free, OK, tally_reducer_free(s->reducer))          \
    X(tally_ddp_free, OK, tally_ddp_free(s->ddp))                      \
    X(tally_group_close, OK, tally_group_close(s->other))

/* Nothing to reach for, or facts that a child may know. */
#define FACT_LIST(X)                                                                 \
    X(tally_ddp_grad, OK, tally_ddp_grad(s->ddp, 0) != NULL)                         \
    X(tally_ddp_mean, OK, tally_ddp_mean(s->ddp, 0) != NULL)                         \
    X(tally_ddp_data, OK, tally_ddp_data(s->ddp, 0) != NULL)                         \
    X(tally_ddp_low, OK, tally_ddp_low(s->ddp, 0) != NULL)                           \
    X(tally_ddp_low_buffer, OK, tally_ddp_low_buffer(s->ddp, 0) != NULL)             \
    X(tally_lane_for, OK, tally_lane_for(s->lane, s->other) != NULL)                 \
    X(tally_ddp_bucket_params, OK, tally_ddp_bucket_params(s->ddp, 0, NULL, 0) != 0) \
    X(tally_ddp_ready_order, OK, tally_ddp_ready_order(s->ddp, NULL, 0) != 0)        \
    X(tally_group_rank, OK, tally_group_rank(s->group) < 0)                          \
    X(tally_group_size, OK, tally_group_size(s->group) < 1)                          \
    X(tally_group_backend, OK, tally_group_backend(s->group)[0] == '\0')             \
    X(tally_group_bytes_sent, OK, (tally_group_bytes_sent(s->group), 0))             \
    X(tally_future_bytes_sent, OK, (tally_future_bytes_sent(s->future), 0))          \
    X(tally_lane_group, OK, tally_lane_group(s->lane) == NULL)                       \
    X(tally_lane_index, OK, tally_lane_index(s->lane) != 0)                          \
    X(tally_ddp_group, OK, tally_ddp_group(s->ddp) == NULL)                          \
    X(tally_ddp_n_params, OK, tally_ddp_n_params(s->ddp) != 2)                       \
    X(tally_ddp_param_name, OK, tally_ddp_param_name(s->ddp, 1) != NULL)             \
    X(tally_ddp_param_count, OK, tally_ddp_param_count(s->ddp, 1) != 0)              \
    X(tally_averager_steps, OK, tally_averager_steps(s->averager) != 0)              \
    X(tally_optimizer_lr, OK, tally_optimizer_lr(s->optimizer, 0) < 0)               \
    X(tally_optimizer_loss_scale, OK, tally_optimizer_loss_scale(s->optimizer) < 0)

#define ALL_LIST(X) REFUSED_LIST(X) FREEING_LIST(X) FACT_LIST(X)

/* Functions that belong to no group. */
static const char *const independent[] = {
    "tally_version",
    "tally_status_name",
    "tally_status_text",
    "tally_last_error",
    "tally_log_set",
    "tally_log_stderr",
    "tally_env_count",
    "tally_env_get",
    "tally_env_check",
    "tally_isa",
    "tally_group_config_init",
    "tally_group_open",
    "tally_group_open_threads",
    "tally_job_fail",
    "tally_dtype_bytes",
    "tally_shard",
    "tally_bucket_residual",
    "tally_hook_create",
    "tally_hook_parse",
    "tally_hook_wrap",
    "tally_hook_free",
    "tally_hook_count",
    "tally_hook_describe",
    "tally_hook_describe_option",
    "tally_ddp_config_init",
    "tally_checkpoint_config_init",
    "tally_checkpoint_inspect",
    "tally_averager_config_init",
    "tally_optimizer_count",
    "tally_optimizer_describe",
    "tally_optimizer_describe_option",
    "tally_optimizer_config_init",
};

#define DEFINE(name, expected, call)       \
    static int try_##name(struct scene *s) \
    {                                      \
        return (call);                     \
    }
ALL_LIST(DEFINE)
#undef DEFINE

static const struct {
    const char *name;
    int expected;
    int (*call)(struct scene *scene);
} calls[] = {
#define ROW(name, expected, call) {#name, TALLY_##expected, try_##name},
    ALL_LIST(ROW)
#undef ROW
};

#define N_CALLS (sizeof calls / sizeof calls[0])

/* ---- the child ---- */

/* A child may open and use its own group. */
static int train_alone(void)
{
    tally_group *group = NULL;
    tally_group_config config;
    tally_ddp *ddp = NULL;
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.backend = "self";
    config.world = 1;
    rc = tally_group_open(&config, &group);
    rc = rc == TALLY_OK ? tally_ddp_create(group, params, 2, NULL, &ddp) : rc;
    rc = rc == TALLY_OK ? tally_ddp_grad_ready(ddp, 1) : rc;
    rc = rc == TALLY_OK ? tally_ddp_grad_ready(ddp, 0) : rc;
    rc = rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
    rc = rc == TALLY_OK ? tally_ddp_free(ddp) : rc;
    return rc == TALLY_OK ? tally_group_close(group) : rc;
}

/* But not over MPI, whose connections are the parent's. */
static int count_opened_over_mpi(void)
{
    tally_group *group = NULL;
    int rc = tally_group_open(NULL, &group);

    if (rc == TALLY_STATE && strstr(tally_last_error(), "forked child")) {
        return 0;
    }
    (void)fprintf(stderr, "a forked child opens a group over MPI: %s\n",
                  rc == TALLY_OK ? "OK" : tally_last_error());
    return 1;
}

static int be_child(struct scene *scene)
{
    int n_wrong = 0;

    (void)alarm(CHILD_S);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N_CALLS; i++) {
            int got = calls[i].call(scene);

            if (got != calls[i].expected ||
                (got == TALLY_STATE && !strstr(tally_last_error(), "forked child"))) {
                (void)fprintf(stderr, "a forked child gets %d from %s: %s\n", got, calls[i].name,
                              tally_last_error());
                n_wrong++;
            }
        }
    }
    n_wrong += ranks_are_mpi() ? count_opened_over_mpi() : 0;
    if (ranks_now()->kind == RANKS_PROCESSES && train_alone() != TALLY_OK) {
        (void)fprintf(stderr, "a forked child cannot train: %s\n", tally_last_error());
        n_wrong++;
    }
    return n_wrong > 0;
}

/* Ends as a worker does, with all exit handlers. */
static int fork_child(struct scene *scene)
{
    pid_t child;
    int status = -1;

    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        int rc = be_child(scene);

#if TALLY_TESTS_SANITIZED
        _exit(rc); /* here, memory of the other threads looks like leaks */
#else
        exit(rc);
#endif
    }
    CHECK(scene->group, child > 0 && waitpid(child, &status, 0) == child);
    CHECK(scene->group, status == 0);
    return 0;
}

/* ---- the parent ---- */

static int announce(struct scene *scene)
{
    for (int i = 1; i >= 0; i--) {
        float *gradient = tally_ddp_grad(scene->ddp, i);

        for (int e = 0; e < N; e++) {
            gradient[e] = (float)(tally_group_rank(scene->group) + i);
        }
        CHECK_OK(scene->group, tally_ddp_grad_ready(scene->ddp, i));
    }
    return 0;
}

static int make(struct scene *scene)
{
    const tally_averager_level level = {.period = 2};
    tally_averager_config averager;
    tally_group *group = scene->group;

    tally_averager_config_init(&averager, sizeof averager);
    averager.levels = &level;
    averager.n_levels = 1;
    CHECK_OK(group, tally_group_split(group, 0, 0, &scene->other));
    CHECK_OK(group, tally_group_alloc(group, 5000, &scene->memory));
    CHECK_OK(group, tally_ddp_create(group, params, 2, NULL, &scene->ddp));
    CHECK_OK(group, tally_averager_create(scene->ddp, &averager, &scene->averager));
    CHECK_OK(group, tally_optimizer_create(scene->ddp, "sgd:lr=0.5", NULL, &scene->optimizer));
    CHECK_OK(group, tally_reducer_create(group, params, 2, NULL, &scene->reducer));
    CHECK_OK(group, tally_hook_parse("bf16", &scene->hook));
    CHECK_OK(group, tally_submit(group, 0, no_job, scene, &scene->future));
    CHECK_OK(group, tally_future_wait(scene->future));
    return 0;
}

static int check_mean(struct scene *scene)
{
    float expected = (float)(tally_group_size(scene->group) - 1) / 2;
    const float *mean = tally_ddp_mean(scene->ddp, 0);

    for (int e = 0; e < N; e++) {
        CHECK(scene->group, mean[e] == expected);
    }
    return 0;
}

static int end(struct scene *scene)
{
    tally_group *group = scene->group;

    tally_future_free(scene->future);
    tally_hook_free(scene->hook);
    CHECK_OK(group, tally_optimizer_free(scene->optimizer));
    CHECK_OK(group, tally_averager_free(scene->averager));
    CHECK_OK(group, tally_reducer_free(scene->reducer));
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    CHECK_OK(group, tally_group_free(group, scene->memory));
    return tally_group_close(scene->other);
}

/* Children are forked between steps, and in the middle of one, while lanes are at work. */
static int body(tally_group *group, void *user)
{
    struct scene scene = {.group = group,
                          .ddp_stats = {.size = sizeof scene.ddp_stats},
                          .bucket_stats = {.size = sizeof scene.bucket_stats},
                          .rank_stats = {.size = sizeof scene.rank_stats},
                          .choice = {.size = sizeof scene.choice},
                          .optimizer_stats = {.size = sizeof scene.optimizer_stats},
                          .averager_stats = {.size = sizeof scene.averager_stats}};

    (void)user;
    CHECK_OK(group, make(&scene));
    for (int step = 0; step < 3; step++) {
        if (step == 1) {
            CHECK_OK(group, fork_child(&scene));
        }
        CHECK_OK(group, announce(&scene));
        if (step == 2) {
            CHECK_OK(group, fork_child(&scene));
        }
        CHECK_OK(group, tally_ddp_wait(scene.ddp));
        CHECK_OK(group, check_mean(&scene));
    }
    return end(&scene);
}

/* ---- the table is complete ---- */

static bool is_known(const char *name)
{
    for (size_t i = 0; i < N_CALLS; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof independent / sizeof independent[0]; i++) {
        if (strcmp(independent[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Every name that the header declares with TALLY_API; a declaration may take two lines. */
static int count_unknown(const char *header)
{
    FILE *file = fopen(header, "r");
    char line[512];
    char name[64];
    int n_unknown = 0;
    int n_known = 0;
    bool is_open = false;

    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, " tally_");
        const char *starred = strstr(line, "*tally_");

        is_open = is_open || strncmp(line, "TALLY_API ", 10) == 0;
        for (at = starred ? starred : at; is_open && at; at = strstr(at + 1, " tally_")) {
            if (sscanf(at + 1, "%63[a-z_0-9](", name) == 1 && at[1 + strlen(name)] == '(') {
                is_open = false;
                n_known++;
                if (!is_known(name)) {
                    (void)fprintf(stderr, "%s is not in the table of test_fork.c\n", name);
                    n_unknown++;
                }
                break;
            }
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return n_known > 30 ? n_unknown : 1;
}

int main(void)
{
    int n_failures = count_unknown(TALLY_TESTS_INCLUDE "/tally.h") +
                     count_unknown(TALLY_TESTS_INCLUDE "/tally_extend.h");

    for (int lanes = 0; lanes < 3; lanes++) {
        for (int world = 1; world < 4; world++) {
            struct ranks ranks = {.kind = RANKS_PROCESSES, .world = world, .lanes = lanes};

            n_failures += ranks_run(&ranks, body, NULL);
            ranks.kind = RANKS_THREADS;
            n_failures += ranks_run(&ranks, body, NULL);
        }
    }
    (void)printf("%d failures\n", n_failures);
    return n_failures > 0;
}

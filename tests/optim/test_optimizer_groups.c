/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of parameters, application optimizers, and everything that must be refused when an
 * optimizer is made or used: on every rank, with a text that names the thing.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/opt_model.h"

#define N_STEPS 5

static tally_optimizer_config config_of(const tally_optimizer_group *groups, size_t n, int overlap)
{
    tally_optimizer_config config;

    tally_optimizer_config_init(&config, sizeof config);
    config.groups = groups;
    config.n_groups = n;
    config.overlap = overlap;
    return config;
}

/* ---- groups ---- */

/* A separate run for each group gives the expected parameters of the group. */
static int groups_body(tally_group *group, void *user)
{
    static const int biases[] = {2, 6};
    static const int first[] = {0};
    const tally_optimizer_group groups[] = {
        {.size = sizeof groups[0],
         .text = "adamw:lr=0.02,weight_decay=0",
         .params = biases,
         .n_params = 2},
        {.size = sizeof groups[0], .text = "adamw:lr=0.01,weight_decay=0.2"},
        {.size = sizeof groups[0],
         .text = "sgd:lr=0.5,momentum=0.9",
         .params = first,
         .n_params = 1}};
    struct opt_run runs[3];
    struct opt_run run;
    tally_optimizer_config config = config_of(groups, 3, 1);
    struct opt_setup setup = {.config = &config};

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &run));
    setup.config = NULL;
    for (int g = 0; g < 3; g++) {
        setup.text = groups[g].text;
        CHECK_OK(group, opt_start(group, &setup, &runs[g]));
    }
    CHECK(group, tally_optimizer_lr(run.optimizer, 1) == 0.01);
    for (unsigned s = 0; s < N_STEPS; s++) {
        double lr = 0.02 / (s + 1);

        CHECK_OK(group, tally_optimizer_set_lr(run.optimizer, 0, lr));
        CHECK_OK(group, opt_step(&run, s, 0));
        for (int g = 0; g < 3; g++) {
            CHECK_OK(group, g == 0 ? tally_optimizer_set_lr(runs[g].optimizer, -1, lr) : TALLY_OK);
            CHECK_OK(group, opt_step(&runs[g], s, 0));
            CHECK_OK(group, tally_optimizer_step(runs[g].optimizer));
        }
        for (size_t i = 0; i < OPT_N_PARAMS; i++) {
            int g = i == 0 ? 2 : i == 2 || i == 6 ? 0 : 1;

            CHECK(group, memcmp(run.model.params[i].data, runs[g].model.params[i].data,
                                run.model.count[i] * sizeof(float)) == 0);
        }
    }
    CHECK(group, tally_optimizer_lr(run.optimizer, 1) == 0.01);
    CHECK(group, tally_optimizer_lr(run.optimizer, 3) == -1);
    CHECK(group, tally_optimizer_lr(NULL, 0) == -1);
    for (int g = 0; g < 3; g++) {
        CHECK_OK(group, opt_end(&runs[g]));
    }
    return opt_end(&run);
}

/* ---- one's own ---- */

struct own {
    int fails_on; /* a rank; -1: nowhere */
    int fails_at; /* the parameter's steps */
    bool has_text;
    int rank;
    atomic_int n_calls;
    atomic_int n_destroyed;
};

/* Keeps the sum of all gradients as a state: p = start - lr * sum. Not elementwise, though it could
 * be: it sees whole parameters. */
static int sum_up(void *user, const tally_step_param *param)
{
    struct own *own = user;

    atomic_fetch_add(&own->n_calls, 1);
    if (own->rank == own->fails_on && param->index == 5 && (int)param->step == own->fails_at) {
        return own->has_text ? tally_job_fail(NULL, TALLY_UNSUPPORTED, "the fifth is out of reach")
                             : TALLY_UNSUPPORTED;
    }
    for (size_t e = 0; e < param->n; e++) {
        param->state[0][e] += param->gradient[e];
        param->data[e] -= (float)param->lr * param->gradient[e];
    }
    return param->first == 0 && param->n_dims <= 3 ? TALLY_OK : TALLY_INTERNAL;
}

static void destroy_own(void *user)
{
    atomic_fetch_add(&((struct own *)user)->n_destroyed, 1);
}

static const tally_optimizer_table own_table = {.size = sizeof own_table,
                                                .name = "sum",
                                                .n_states = 1,
                                                .step_param = sum_up,
                                                .destroy = destroy_own};

static tally_optimizer_group group_of(const tally_optimizer_table *table, struct own *own)
{
    return (tally_optimizer_group){
        .size = sizeof(tally_optimizer_group), .table = table, .user = own, .lr = 0.25};
}

static int own_body(tally_group *group, void *user)
{
    struct own own = {.fails_on = -1};
    const tally_optimizer_group one = group_of(&own_table, &own);
    tally_optimizer_config config = config_of(&one, 1, 1);
    struct opt_setup setup = {.text = "sgd:lr=0.25"};
    struct opt_run plain;
    struct opt_run run;
    tally_optimizer_stats stats = {.size = sizeof stats};
    size_t n_elements = 0;

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &plain));
    setup = (struct opt_setup){.config = &config, .copies = true};
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, opt_step(&plain, s, 0));
        CHECK_OK(group, tally_optimizer_step(plain.optimizer));
        CHECK_OK(group, opt_step(&run, s, 0));
        CHECK(group, opt_differ(&plain, &run) == 0);
    }
    for (size_t i = 0; i < OPT_N_PARAMS; i++) {
        n_elements += run.model.count[i];
    }
    CHECK_OK(group, tally_optimizer_get_stats(run.optimizer, &stats));
    CHECK(group, stats.state_bytes == n_elements * sizeof(float));
    CHECK(group, stats.step == N_STEPS && stats.update_s > 0 && stats.norm == 0);
    /* The one without elements is not worth a call. */
    CHECK(group, own.n_calls == N_STEPS * (OPT_N_PARAMS - 1));
    CHECK_OK(group, opt_end(&plain));
    CHECK(group, own.n_destroyed == 0);
    CHECK_OK(group, opt_end(&run));
    CHECK(group, own.n_destroyed == 1);
    return 0;
}

/* It fails in the third step, on the last rank: with overlap on all ranks, on call on that one. */
static int failing(tally_group *group, int overlap, double max_norm, bool has_text)
{
    int last = tally_group_size(group) - 1;
    struct own own = {
        .fails_on = last, .fails_at = 3, .has_text = has_text, .rank = tally_group_rank(group)};
    const tally_optimizer_group one = group_of(&own_table, &own);
    tally_optimizer_config config = config_of(&one, 1, overlap);
    const struct opt_setup setup = {.config = &config};
    bool hears = overlap || own.rank == last;
    struct opt_run run;

    config.max_norm = max_norm;
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned s = 0; s < 2; s++) {
        CHECK_OK(group, opt_step(&run, s, 0));
        CHECK_OK(group, overlap ? TALLY_OK : tally_optimizer_step(run.optimizer));
    }
    for (size_t i = OPT_N_PARAMS; i-- > 0;) {
        opt_gradient(&run, i, 3, false);
        CHECK_OK(group, tally_ddp_grad_ready(run.ddp, (int)i));
    }
    CHECK_STATUS(group, tally_ddp_wait(run.ddp), overlap ? TALLY_UNSUPPORTED : TALLY_OK);
    if (!overlap) {
        CHECK_STATUS(group, tally_optimizer_step(run.optimizer),
                     hears ? TALLY_UNSUPPORTED : TALLY_OK);
    }
    if (hears) {
        CHECK_TEXT(group, tally_last_error(),
                   has_text ? "the fifth is out of reach" : "step_param failed");
    }
    /* The group lives on; the parameter's step did not count. */
    own.fails_on = -1;
    CHECK_OK(group, opt_step(&run, 4, 0));
    return opt_end(&run);
}

static int failing_body(tally_group *group, void *user)
{
    (void)user;
    for (int o = 0; o < 8; o++) {
        CHECK_OK(group, failing(group, o & 1, o & 2 ? 1 : 0, o & 4));
    }
    return 0;
}

/* ---- refused ---- */

static const int none_such[] = {99};
static const int twice[] = {1, 2, 1};
static const tally_optimizer_table no_step = {.size = sizeof no_step, .name = "lazy"};
static const tally_optimizer_table many_states = {
    .size = sizeof many_states, .name = "many", .n_states = 9, .step_param = sum_up};

struct mistake {
    const char *text;
    tally_optimizer_group group;
    int status;
    const char *says;
};

static const struct mistake mistakes[] = {
    {.text = "adamx", .status = TALLY_ARG, .says = "adamx"},
    {.text = "adam:lr=-1", .status = TALLY_ARG, .says = "lr"},
    {.status = TALLY_ARG, .says = "neither text nor table"},
    {.group = {.text = "sgd", .table = &own_table}, .status = TALLY_ARG, .says = "both set"},
    {.group = {.table = &no_step}, .status = TALLY_ARG, .says = "step_param"},
    {.group = {.table = &many_states}, .status = TALLY_ARG, .says = "9"},
    {.group = {.table = &own_table, .lr = -1}, .status = TALLY_ARG, .says = "0..1e38, not -1"},
    {.group = {.table = &own_table, .lr = 1e39}, .status = TALLY_ARG, .says = "not 1e+39"},
    {.group = {.text = "sgd", .n_params = 2}, .status = TALLY_ARG, .says = "params is NULL"},
    {.group = {.text = "sgd", .params = none_such, .n_params = 1},
     .status = TALLY_ARG,
     .says = "no parameter 99"},
    {.group = {.text = "sgd", .params = twice, .n_params = 3},
     .status = TALLY_ARG,
     .says = "'fc1.weight' is in groups 0 and 0"},
};

/* The last rank makes the mistake; all hear of it, and can go on to make an optimizer. */
static int mistakes_body(tally_group *group, void *user)
{
    struct own own = {.fails_on = -1};
    bool errs = tally_group_rank(group) == tally_group_size(group) - 1;
    const struct opt_setup setup = {0};
    struct opt_run run;

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (size_t m = 0; m < sizeof mistakes / sizeof mistakes[0]; m++) {
        tally_optimizer_group wrong = mistakes[m].group;
        tally_optimizer_config config = config_of(&wrong, 1, 0);
        const char *text = errs ? mistakes[m].text : "sgd";

        wrong.size = sizeof wrong;
        wrong.user = &own;
        CHECK_STATUS(group,
                     tally_optimizer_create(run.ddp, text, text ? NULL : &config, &run.optimizer),
                     mistakes[m].status);
        CHECK_TEXT(group, tally_last_error(), mistakes[m].says);
    }
    CHECK(group, own.n_destroyed == 0);
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", NULL, errs ? NULL : &run.optimizer),
                 TALLY_ARG);
    CHECK_OK(group, tally_optimizer_create(run.ddp, "sgd", NULL, &run.optimizer));
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", NULL, &run.optimizer), TALLY_STATE);
    return opt_end(&run);
}

/* Ranks that were given different things. */
static int disagree_body(tally_group *group, void *user)
{
    static const int two[] = {1, 2};
    static const int other_two[] = {1, 3};
    const struct opt_setup setup = {0};
    bool errs = tally_group_rank(group) == tally_group_size(group) - 1;
    tally_optimizer *optimizer;
    struct opt_run run;

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, errs ? "adam" : "sgd", NULL, &optimizer),
                 TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "optimizer group 0 is 'sgd' on rank 0 and 'adam' on");
    for (int o = 0; o < 5; o++) {
        static const char *const says[] = {
            "overlap is 0 on rank 0 and 1", "max_norm is 0 on rank 0 and 2",
            "release_gradients is 0 on rank 0 and 1", "rank 0 has 2 groups and rank",
            "optimizer group is 0 on rank 0 and 1"};
        const tally_optimizer_group groups[] = {{.size = sizeof groups[0],
                                                 .text = "sgd",
                                                 .params = errs && o == 4 ? other_two : two,
                                                 .n_params = 2},
                                                {.size = sizeof groups[0], .text = "adam"}};
        tally_optimizer_config config = config_of(groups, errs && o == 3 ? 1 : 2, errs && o == 0);

        config.max_norm = errs && o == 1 ? 2 : 0;
        config.release_gradients = errs && o == 2;
        CHECK_STATUS(group, tally_optimizer_create(run.ddp, NULL, &config, &optimizer),
                     TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(), says[o]);
    }
    return opt_end(&run);
}

/* On every rank alike. */
static int states_body(tally_group *group, void *user)
{
    struct ddp_spec specs[OPT_N_PARAMS];
    struct opt_setup setup = {.specs = specs, .n_specs = OPT_N_PARAMS};
    tally_optimizer_config config = config_of(NULL, 0, 0);
    tally_ddp_config join;
    tally_optimizer *optimizer;
    struct opt_run run;

    (void)user;
    memcpy(specs, opt_specs, sizeof specs);
    specs[4].dtype = TALLY_F16;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", NULL, &optimizer),
                 TALLY_UNSUPPORTED);
    CHECK_TEXT(group, tally_last_error(), "'conv' is not fp32");
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, NULL, NULL, &optimizer), TALLY_ARG);
    config.max_norm = -1;
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", &config, &optimizer), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "max_norm takes 0 or more, not -1");
    config.max_norm = (double)NAN;
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", &config, &optimizer), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "max_norm takes 0 or more, not nan");
    config.size--;
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", &config, &optimizer), TALLY_ARG);
    CHECK_STATUS(group, tally_optimizer_create(NULL, "sgd", NULL, &optimizer), TALLY_ARG);
    CHECK_OK(group, opt_end(&run));

    memcpy(specs, opt_specs, sizeof specs);
    tally_ddp_config_init(&join, sizeof join);
    join.join = 1;
    setup.ddp = &join;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "sgd", NULL, &optimizer),
                 TALLY_UNSUPPORTED);
    CHECK_TEXT(group, tally_last_error(), "overlap");
    return opt_end(&run);
}

/* Calls in the wrong place. */
static int places_body(tally_group *group, void *user)
{
    tally_optimizer_config config = config_of(NULL, 0, 1);
    struct opt_setup setup = {.text = "sgd"};
    tally_optimizer_stats stats = {.size = sizeof stats};
    struct opt_run run;

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_STATUS(group, tally_optimizer_step(run.optimizer), TALLY_STATE);
    CHECK_OK(group, opt_step(&run, 0, 0));
    CHECK_OK(group, tally_optimizer_step(run.optimizer));
    CHECK_STATUS(group, tally_optimizer_step(run.optimizer), TALLY_STATE);
    CHECK_STATUS(group, tally_optimizer_step(NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_optimizer_set_lr(run.optimizer, 1, 0.1), TALLY_ARG);
    CHECK_STATUS(group, tally_optimizer_set_lr(run.optimizer, 0, -0.1), TALLY_ARG);
    CHECK_OK(group, tally_optimizer_set_lr(run.optimizer, 0, 1e38));
    CHECK_STATUS(group, tally_optimizer_set_lr(run.optimizer, 0, 1e39), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "lr takes 0..1e38, not 1e+39");
    CHECK(group, tally_optimizer_lr(run.optimizer, 0) == 1e38);
    CHECK_OK(group, tally_optimizer_set_lr(run.optimizer, 0, 0.1));
    for (int i = 0; i < OPT_N_PARAMS; i++) {
        CHECK_OK(group, tally_ddp_grad_ready(run.ddp, i));
    }
    CHECK_STATUS(group, tally_optimizer_set_lr(run.optimizer, 0, 0.1), TALLY_STATE);
    CHECK_STATUS(group, tally_optimizer_step(run.optimizer), TALLY_STATE);
    CHECK_STATUS(group, tally_optimizer_free(run.optimizer), TALLY_STATE);
    CHECK_OK(group, tally_ddp_wait(run.ddp));
    /* The ddp first, and what is left of the optimizer then. */
    CHECK_OK(group, tally_ddp_free(run.ddp));
    run.ddp = NULL;
    CHECK_STATUS(group, tally_optimizer_step(run.optimizer), TALLY_STATE);
    CHECK_STATUS(group, tally_optimizer_get_stats(run.optimizer, &stats), TALLY_STATE);
    CHECK_OK(group, opt_end(&run));

    setup.config = &config;
    CHECK_OK(group, opt_start(group, &setup, &run));
    CHECK_OK(group, opt_step(&run, 0, 0));
    CHECK_STATUS(group, tally_optimizer_step(run.optimizer), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "overlap");
    CHECK_STATUS(group, tally_optimizer_get_stats(run.optimizer, NULL), TALLY_ARG);
    /* The ddp goes on without one. */
    CHECK_OK(group, tally_optimizer_free(run.optimizer));
    run.optimizer = NULL;
    CHECK_OK(group, opt_step(&run, 1, 0));
    return opt_end(&run);
}

/* ---- watched ---- */

struct watcher {
    tally_optimizer *optimizer;
    pthread_t thread;
    atomic_bool is_over;
    int n_wrong;
};

static void *watch(void *user)
{
    struct watcher *watcher = user;
    tally_optimizer_stats stats = {.size = sizeof stats};
    unsigned long long step = 0;

    while (!atomic_load(&watcher->is_over)) {
        watcher->n_wrong += tally_optimizer_get_stats(watcher->optimizer, &stats) != TALLY_OK;
        watcher->n_wrong += stats.step < step;
        step = stats.step;
    }
    return NULL;
}

/* Statistics are any thread's, also during a step. */
static int watched_body(tally_group *group, void *user)
{
    tally_optimizer_config config;
    const struct opt_setup setup = {.text = "adam:lr=0.01", .config = &config};
    struct watcher watcher = {.n_wrong = 0};
    struct opt_run run;

    (void)user;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.max_norm = 1;
    CHECK_OK(group, opt_start(group, &setup, &run));
    watcher.optimizer = run.optimizer;
    CHECK(group, pthread_create(&watcher.thread, NULL, watch, &watcher) == 0);
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, opt_step(&run, s, 0));
    }
    atomic_store(&watcher.is_over, true);
    CHECK(group, pthread_join(watcher.thread, NULL) == 0);
    CHECK(group, watcher.n_wrong == 0);
    return opt_end(&run);
}

int main(void)
{
    static const int two_three[] = {2, 3, 0};
    static const int three[] = {3, 0};
    static const int four[] = {4, 0};
    int n_failures = opt_worlds("groups", groups_body, NULL, 1, two_three);

    n_failures += opt_worlds("one's own", own_body, NULL, 3, three);
    n_failures += opt_worlds("failing", failing_body, NULL, 2, four);
    n_failures += opt_worlds("mistakes", mistakes_body, NULL, 1, two_three);
    n_failures += opt_worlds("disagree", disagree_body, NULL, 1, two_three);
    n_failures += opt_worlds("states", states_body, NULL, 1, three);
    n_failures += opt_worlds("places", places_body, NULL, 1, three);
    n_failures += opt_worlds("watched", watched_body, NULL, 2, three);
    return n_failures != 0;
}

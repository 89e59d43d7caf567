/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank, world and backend of a process: every combination of config and environment, and a
 * clear text for each that makes no sense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>
#include <tally.h>

#include "comm/group_config.h"

static const char *const variables[] = {
    "TALLY_RANK",          "TALLY_WORLD",          "TALLY_RENDEZVOUS",   "TALLY_BACKEND",
    "TALLY_LANES",         "TALLY_TIMEOUT",        "TALLY_OPEN_TIMEOUT", "RANK",
    "WORLD_SIZE",          "LOCAL_WORLD_SIZE",     "MASTER_ADDR",        "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",           "SLURM_STEP_NUM_TASKS",
    "LOCAL_RANK",
};

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        (void)unsetenv(variables[i]);
    }
    return 0;
}

/* Sets "NAME=value NAME=value", and nothing else. */
static void set_environment(const char *text)
{
    char copy[512];
    char *rest = copy;
    char *word;

    (void)clear_environment(NULL);
    (void)snprintf(copy, sizeof copy, "%s", text);
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        char *value = strchr(word, '=');

        assert_non_null(value);
        *value = '\0';
        assert_int_equal(setenv(word, value + 1, 1), 0);
    }
}

/* ---- from the environment alone ---- */

struct environment {
    const char *set;
    int status;
    int rank;
    int world;
    const char *text; /* in the error, or the rendezvous */
};

static const struct environment environments[] = {
    {"", TALLY_OK, 0, 1, ""},
    /* tally run */
    {"TALLY_WORLD=4 TALLY_RANK=2 TALLY_RENDEZVOUS=@x", TALLY_OK, 2, 4, "@x"},
    {"TALLY_WORLD=1 TALLY_RANK=0", TALLY_OK, 0, 1, ""},
    {"TALLY_WORLD=4 TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0, "TALLY_RANK"},
    {"TALLY_WORLD=4 TALLY_RANK=2", TALLY_ARG, 0, 0, "rendezvous"},
    {"TALLY_WORLD=4 TALLY_RANK=4 TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0, "rank 4 is not in 0..3"},
    {"TALLY_WORLD=4 TALLY_RANK=-1 TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0, "TALLY_RANK"},
    {"TALLY_WORLD=x TALLY_RANK=0", TALLY_ARG, 0, 0, "TALLY_WORLD"},
    {"TALLY_WORLD=0 TALLY_RANK=0", TALLY_ARG, 0, 0, "world of 0 ranks"},
    {"TALLY_WORLD=5000 TALLY_RANK=0 TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0, "world of 5000"},
    {"TALLY_WORLD=4 TALLY_RANK=2x TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0, "TALLY_RANK"},
    {"TALLY_WORLD= TALLY_RANK=", TALLY_OK, 0, 1, ""},
    /* tally run wins over others */
    {"TALLY_WORLD=4 TALLY_RANK=2 TALLY_RENDEZVOUS=@x RANK=0 WORLD_SIZE=9", TALLY_OK, 2, 4, "@x"},
    /* other launchers */
    {"RANK=3 WORLD_SIZE=4 TALLY_RENDEZVOUS=@y", TALLY_OK, 3, 4, "@y"},
    {"RANK=3 WORLD_SIZE=4 MASTER_PORT=29500", TALLY_OK, 3, 4, "29500"},
    {"RANK=3 WORLD_SIZE=4 MASTER_ADDR=here MASTER_PORT=29500", TALLY_OK, 3, 4, "here-29500"},
    {"RANK=3 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=job7", TALLY_OK, 3, 4, "job7"},
    {"RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_PORT=1", TALLY_OK, 3, 4, "-1"},
    {"RANK=3 WORLD_SIZE=4", TALLY_ARG, 0, 0, "MASTER_PORT"},
    {"RANK=3 WORLD_SIZE=4 MASTER_ADDR=here", TALLY_ARG, 0, 0, "MASTER_PORT"},
    {"RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_PORT=1", TALLY_UNSUPPORTED, 0, 0,
     "LOCAL_WORLD_SIZE=2 of WORLD_SIZE=4"},
    {"RANK=4 WORLD_SIZE=4 MASTER_PORT=1", TALLY_ARG, 0, 0, "rank 4 is not in 0..3"},
    {"RANK=a WORLD_SIZE=4 MASTER_PORT=1", TALLY_ARG, 0, 0, "RANK"},
    {"RANK=0 WORLD_SIZE=b", TALLY_ARG, 0, 0, "WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=c MASTER_PORT=1", TALLY_ARG, 0, 0, "LOCAL_WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=1", TALLY_OK, 0, 1, ""},
    {"RANK=0", TALLY_OK, 0, 1, ""},
    {"WORLD_SIZE=1", TALLY_OK, 0, 1, ""},
    /* never alone in silence */
    {"WORLD_SIZE=4", TALLY_ARG, 0, 0, "WORLD_SIZE=4"},
    {"TALLY_RANK=1", TALLY_ARG, 0, 0, "TALLY_RANK=1 says"},
    {"TALLY_RANK=1", TALLY_ARG, 0, 0, "set TALLY_WORLD too"},
    {"TALLY_RANK=1 TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0, "TALLY_WORLD"},
    {"TALLY_RANK=1 TALLY_BACKEND=shm", TALLY_ARG, 0, 0, "TALLY_WORLD"},
    {"TALLY_RANK=1 WORLD_SIZE=1", TALLY_ARG, 0, 0, "TALLY_WORLD"},
    {"TALLY_RANK=x", TALLY_ARG, 0, 0, "TALLY_RANK"},
    {"TALLY_RANK=0", TALLY_OK, 0, 1, ""},
    {"RANK=1", TALLY_ARG, 0, 0, "RANK=1 says"},
    {"RANK=1 MASTER_PORT=9 LOCAL_RANK=1", TALLY_ARG, 0, 0, "set WORLD_SIZE too"},
    {"LOCAL_RANK=1", TALLY_ARG, 0, 0, "LOCAL_RANK=1 says"},
    {"LOCAL_RANK=1", TALLY_ARG, 0, 0, "set WORLD_SIZE too"},
    {"LOCAL_RANK=x", TALLY_ARG, 0, 0, "LOCAL_RANK"},
    {"LOCAL_RANK=0", TALLY_OK, 0, 1, ""},
    {"LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", TALLY_ARG, 0, 0, "LOCAL_WORLD_SIZE=2 says"},
    {"TALLY_WORLD=1 TALLY_RANK=0 LOCAL_RANK=1", TALLY_OK, 0, 1, ""},
    {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=1", TALLY_OK, 0, 1, ""},
    {"RANK=0 LOCAL_WORLD_SIZE=2", TALLY_ARG, 0, 0, "set WORLD_SIZE too"},
    {"RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", TALLY_OK, 0, 1, ""},
    {"TALLY_WORLD=1 TALLY_RANK=0 RANK=1", TALLY_OK, 0, 1, ""},
    {"TALLY_BACKEND=shm OMPI_COMM_WORLD_SIZE=2", TALLY_ARG, 0, 0, "OMPI_COMM_WORLD_SIZE=2"},
    {"OMPI_COMM_WORLD_SIZE=1", TALLY_OK, 0, 1, ""},
    {"TALLY_BACKEND=self PMI_SIZE=3", TALLY_ARG, 0, 0, "PMI_SIZE=3"},
    {"TALLY_BACKEND=self SLURM_STEP_NUM_TASKS=64", TALLY_ARG, 0, 0, "SLURM_STEP_NUM_TASKS=64"},
    /* rank and world are MPI's to say */
    {"OMPI_COMM_WORLD_SIZE=2", TALLY_OK, -1, 0, ""},
    {"PMI_SIZE=3", TALLY_OK, -1, 0, ""},
    {"SLURM_STEP_NUM_TASKS=64", TALLY_OK, -1, 0, ""},
    {"TALLY_BACKEND=mpi", TALLY_OK, -1, 0, ""},
    {"OMPI_COMM_WORLD_SIZE=zwei", TALLY_ARG, 0, 0, "OMPI_COMM_WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_SIZE=4", TALLY_ARG, 0, 0, "OMPI_COMM_WORLD_SIZE=4"},
    {"TALLY_WORLD=1 TALLY_RANK=0 PMI_SIZE=4", TALLY_ARG, 0, 0, "PMI_SIZE=4"},
    {"TALLY_WORLD=1 TALLY_RANK=0 WORLD_SIZE=4", TALLY_ARG, 0, 0, "WORLD_SIZE=4"},
    {"TALLY_WORLD=2 TALLY_RANK=1 TALLY_RENDEZVOUS=@x OMPI_COMM_WORLD_SIZE=2", TALLY_OK, 1, 2, "@x"},
    /* the rest */
    {"TALLY_BACKEND=shm", TALLY_OK, 0, 1, ""},
    {"TALLY_BACKEND=tcp", TALLY_ARG, 0, 0, "TALLY_BACKEND"},
    {"TALLY_BACKEND=self TALLY_WORLD=2 TALLY_RANK=0 TALLY_RENDEZVOUS=@x", TALLY_ARG, 0, 0,
     "one rank, not 2"},
    {"TALLY_LANES=65", TALLY_ARG, 0, 0, "65 lanes"},
    {"TALLY_LANES=-1", TALLY_ARG, 0, 0, "TALLY_LANES"},
    {"TALLY_TIMEOUT=0", TALLY_ARG, 0, 0, "TALLY_TIMEOUT"},
    {"TALLY_TIMEOUT=-3", TALLY_ARG, 0, 0, "TALLY_TIMEOUT"},
    {"TALLY_OPEN_TIMEOUT=soon", TALLY_ARG, 0, 0, "TALLY_OPEN_TIMEOUT"},
};

static void check_environment(const struct environment *e)
{
    struct tally__settings settings;
    int rc;

    set_environment(e->set);
    rc = tally__group_config_resolve(NULL, &settings);
    if (rc != e->status) {
        fail_msg("'%s' gives %s, not %s: %s", e->set, tally_status_name(rc),
                 tally_status_name(e->status), tally_last_error());
    }
    if (rc == TALLY_OK) {
        assert_int_equal(settings.rank, e->rank);
        assert_int_equal(settings.world, e->world);
        assert_int_equal(settings.is_self, e->world == 1 && !strstr(e->set, "shm"));
    }
    if (!strstr(rc == TALLY_OK ? settings.rendezvous : tally_last_error(), e->text)) {
        fail_msg("'%s': no '%s' in '%s'", e->set, e->text,
                 rc == TALLY_OK ? settings.rendezvous : tally_last_error());
    }
}

static void test_environments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        check_environment(&environments[i]);
    }
}

/* The number of processes that MPI sees, against what launchers say. */
static void test_mpi_worlds(void **state)
{
    static const struct {
        const char *set;
        int n_processes;
        int status;
        const char *text;
    } worlds[] = {
        {"", 1, TALLY_OK, ""},
        {"", 4, TALLY_OK, ""},
        {"TALLY_WORLD=2", 1, TALLY_ARG,
         "TALLY_WORLD=2 says that there are 2 ranks, but XMPI sees 1"},
        {"TALLY_WORLD=2", 4, TALLY_ARG, "but XMPI sees 4"},
        {"TALLY_WORLD=2", 2, TALLY_OK, ""},
        {"TALLY_WORLD=1", 1, TALLY_OK, ""},
        {"TALLY_WORLD=1", 4, TALLY_OK, ""},
        {"TALLY_RANK=1", 1, TALLY_ARG, "set TALLY_WORLD too"},
        {"RANK=1", 1, TALLY_ARG, "set WORLD_SIZE too"},
        {"RANK=1", 2, TALLY_OK, ""},
        {"WORLD_SIZE=3", 1, TALLY_ARG, "WORLD_SIZE=3"},
        {"WORLD_SIZE=3", 2, TALLY_ARG, "TALLY_BACKEND=shm"},
        {"WORLD_SIZE=3", 3, TALLY_OK, ""},
        {"TALLY_WORLD=3 WORLD_SIZE=4", 3, TALLY_ARG, "WORLD_SIZE=4"},
        {"OMPI_COMM_WORLD_SIZE=2", 1, TALLY_ARG, "another MPI's"},
        {"PMI_SIZE=2", 1, TALLY_ARG, "another MPI's"},
        {"SLURM_STEP_NUM_TASKS=2", 1, TALLY_ARG, "another MPI's"},
        {"SLURM_STEP_NUM_TASKS=2", 8, TALLY_OK, ""},
        {"OMPI_COMM_WORLD_SIZE=2", 2, TALLY_OK, ""},
        {"PMI_SIZE=x", 2, TALLY_ARG, "PMI_SIZE"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        int rc;

        set_environment(worlds[i].set);
        rc = tally__check_mpi_world("XMPI", worlds[i].n_processes);
        if (rc != worlds[i].status ||
            (rc != TALLY_OK && !strstr(tally_last_error(), worlds[i].text))) {
            fail_msg("'%s', MPI sees %d: %s: %s", worlds[i].set, worlds[i].n_processes,
                     tally_status_name(rc), tally_last_error());
        }
    }
}

/* Jobs of the same port but other ids, and other users', do not meet. */
static void test_derived_names(void **state)
{
    struct tally__settings one;
    struct tally__settings other;
    char user[32];

    (void)state;
    (void)snprintf(user, sizeof user, "-%lu-", (unsigned long)getuid());
    set_environment("RANK=0 WORLD_SIZE=2 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=a");
    assert_int_equal(tally__group_config_resolve(NULL, &one), TALLY_OK);
    set_environment("RANK=1 WORLD_SIZE=2 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=b");
    assert_int_equal(tally__group_config_resolve(NULL, &other), TALLY_OK);
    assert_string_not_equal(one.rendezvous, other.rendezvous);
    assert_non_null(strstr(one.rendezvous, user));
    set_environment("RANK=1 WORLD_SIZE=2 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=a");
    assert_int_equal(tally__group_config_resolve(NULL, &other), TALLY_OK);
    assert_string_equal(one.rendezvous, other.rendezvous);
}

/* ---- from the config ---- */

struct configured {
    const char *environment;
    int rank;
    int world;
    const char *rendezvous;
    const char *backend;
    int status;
    int expected_rank;
    int expected_world;
    const char *text;
};

static const struct configured configured[] = {
    {"", 1, 3, "@z", NULL, TALLY_OK, 1, 3, "@z"},
    {"", 0, 1, NULL, NULL, TALLY_OK, 0, 1, ""},
    {"", -1, 1, NULL, NULL, TALLY_OK, 0, 1, ""},
    {"", 0, 1, "@z", "shm", TALLY_OK, 0, 1, "@z"},
    {"", 3, 3, "@z", NULL, TALLY_ARG, 0, 0, "rank 3 is not in 0..2"},
    {"", -1, 3, "@z", NULL, TALLY_ARG, 0, 0, "rank"},
    {"", -7, 3, "@z", NULL, TALLY_ARG, 0, 0, "rank -7"},
    {"", 0, -1, "@z", NULL, TALLY_ARG, 0, 0, "world of -1"},
    {"", 0, 5000, "@z", NULL, TALLY_ARG, 0, 0, "world of 5000"},
    {"", 0, 2, NULL, NULL, TALLY_ARG, 0, 0, "rendezvous"},
    {"", 0, 2, "", NULL, TALLY_ARG, 0, 0, "rendezvous"},
    {"", 0, 2, "@", NULL, TALLY_ARG, 0, 0, "rendezvous"},
    {"", 0, 2, "@z", "self", TALLY_ARG, 0, 0, "one rank, not 2"},
    {"", 0, 2, "@z", "ib", TALLY_ARG, 0, 0, "unknown backend 'ib'"},
    {"", 0, 1, NULL, "", TALLY_ARG, 0, 0, "unknown backend ''"},
    /* Given is given; the environment fills the gaps. */
    {"TALLY_WORLD=2 TALLY_RANK=0 TALLY_RENDEZVOUS=@e", 1, 3, "@z", NULL, TALLY_OK, 1, 3, "@z"},
    {"TALLY_WORLD=2 TALLY_RANK=0 TALLY_RENDEZVOUS=@e", 1, 3, NULL, NULL, TALLY_OK, 1, 3, "@e"},
    {"TALLY_WORLD=2 TALLY_RANK=0 TALLY_RENDEZVOUS=@e", -1, 0, "@z", NULL, TALLY_OK, 0, 2, "@z"},
    {"TALLY_WORLD=3 TALLY_RANK=0 TALLY_RENDEZVOUS=@e", 2, 0, NULL, NULL, TALLY_OK, 2, 3, "@e"},
    {"TALLY_WORLD=3 TALLY_RANK=2 TALLY_RENDEZVOUS=@e", -1, 3, NULL, NULL, TALLY_OK, 2, 3, "@e"},
    {"RANK=1 WORLD_SIZE=4 MASTER_PORT=5", -1, 4, "@z", NULL, TALLY_OK, 1, 4, "@z"},
    {"RANK=1 WORLD_SIZE=4 MASTER_PORT=5", 2, 0, "@z", NULL, TALLY_OK, 2, 4, "@z"},
    {"", 3, 0, NULL, NULL, TALLY_ARG, 0, 0, "rank 3 is not in 0..0"},
    {"", 0, 0, NULL, NULL, TALLY_OK, 0, 1, ""},
    /* A world of one that was asked for is not a silent one. */
    {"OMPI_COMM_WORLD_SIZE=4", 0, 1, NULL, NULL, TALLY_OK, 0, 1, ""},
    {"TALLY_RANK=1", 0, 1, NULL, NULL, TALLY_OK, 0, 1, ""},
    /* Of MPI, what is given is only compared. */
    {"TALLY_WORLD=2 TALLY_RANK=0 TALLY_RENDEZVOUS=@e", -1, 0, NULL, "mpi", TALLY_OK, -1, 0, ""},
    {"", 3, 4, NULL, "mpi", TALLY_OK, 3, 4, ""},
};

static void test_configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configured / sizeof configured[0]; i++) {
        const struct configured *c = &configured[i];
        tally_group_config config;
        struct tally__settings settings;
        int rc;

        set_environment(c->environment);
        tally_group_config_init(&config, sizeof config);
        config.rank = c->rank;
        config.world = c->world;
        config.rendezvous = c->rendezvous;
        config.backend = c->backend;
        rc = tally__group_config_resolve(&config, &settings);
        if (rc != c->status) {
            fail_msg("config %zu gives %s, not %s: %s", i, tally_status_name(rc),
                     tally_status_name(c->status), tally_last_error());
        }
        if (rc == TALLY_OK) {
            assert_int_equal(settings.rank, c->expected_rank);
            assert_int_equal(settings.world, c->expected_world);
        }
        if (!strstr(rc == TALLY_OK ? settings.rendezvous : tally_last_error(), c->text)) {
            fail_msg("config %zu: no '%s' in '%s'", i, c->text,
                     rc == TALLY_OK ? settings.rendezvous : tally_last_error());
        }
    }
}

static void test_limits(void **state)
{
    static const struct {
        double timeout_s;
        double open_timeout_s;
        int lanes;
        const char *text;
    } wrong[] = {
        {-1, 0, 1, "-1 s"},     {(double)NAN, 0, 1, "nan s"}, {1e9, 0, 1, "1e+09 s"},
        {0, -0.5, 1, "-0.5 s"}, {0, (double)NAN, 1, "nan s"}, {0, (double)INFINITY, 1, "inf s"},
        {0, 0, -2, "-2 lanes"}, {0, 0, 65, "65 lanes"},
    };
    tally_group_config config;
    tally_group *group = NULL;
    struct tally__settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tally_group_config_init(&config, sizeof config);
        config.timeout_s = wrong[i].timeout_s;
        config.open_timeout_s = wrong[i].open_timeout_s;
        config.lanes = wrong[i].lanes;
        assert_int_equal(tally__group_config_resolve(&config, &settings), TALLY_ARG);
        assert_non_null(strstr(tally_last_error(), wrong[i].text));
        assert_int_equal(tally_group_open(&config, &group), TALLY_ARG);
        assert_null(group);
        if (wrong[i].open_timeout_s == 0) {
            assert_int_equal(tally_group_open_threads(&config, 1, &group), TALLY_ARG);
        }
    }
    set_environment("TALLY_LANES=3 TALLY_TIMEOUT=7.5 TALLY_OPEN_TIMEOUT=2");
    assert_int_equal(tally__group_config_resolve(NULL, &settings), TALLY_OK);
    assert_int_equal(settings.lanes, 3);
    assert_true(settings.timeout_s == 7.5 && settings.open_timeout_s == 2);
    tally_group_config_init(&config, sizeof config);
    config.lanes = 0;
    config.timeout_s = 1;
    config.open_timeout_s = 3;
    assert_int_equal(tally__group_config_resolve(&config, &settings), TALLY_OK);
    assert_int_equal(settings.lanes, 0);
    assert_true(settings.timeout_s == 1 && settings.open_timeout_s == 3);
}

static void test_sizes(void **state)
{
    tally_group_config config = {0};
    tally_group *group = NULL;
    char longest[200];

    (void)state;
    assert_int_equal(tally_group_open(&config, &group), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "config: size is 0"));
    assert_int_equal(tally_group_open_threads(&config, 1, &group), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "config: size is 0"));
    tally_group_config_init(NULL, sizeof config);
    assert_int_equal(tally_group_open(NULL, NULL), TALLY_ARG);
    assert_int_equal(tally_group_open_threads(NULL, 1, NULL), TALLY_ARG);
    assert_int_equal(tally_group_open_threads(NULL, 0, &group), TALLY_ARG);
    assert_int_equal(tally_group_open_threads(NULL, -3, &group), TALLY_ARG);
    assert_int_equal(tally_group_open_threads(NULL, 4097, &group), TALLY_ARG);
    assert_null(group);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    tally_group_config_init(&config, sizeof config);
    config.rank = 0;
    config.world = 2;
    config.rendezvous = longest;
    assert_int_equal(tally_group_open(&config, &group), TALLY_ARG);
    assert_non_null(strstr(tally_last_error(), "longer than 107"));
}

/* The public way in: alone, with both backends, and as many threads. */
static void test_open(void **state)
{
    tally_group_config config;
    tally_group *groups[3] = {NULL};

    (void)state;
    assert_int_equal(tally_group_open(NULL, groups), TALLY_OK);
    assert_string_equal(tally_group_backend(groups[0]), "self");
    assert_int_equal(tally_group_close(groups[0]), TALLY_OK);
    tally_group_config_init(&config, sizeof config);
    config.backend = "shm";
    assert_int_equal(tally_group_open(&config, groups), TALLY_OK);
    assert_string_equal(tally_group_backend(groups[0]), "shm");
    assert_int_equal(tally_group_size(groups[0]), 1);
    assert_int_equal(tally_group_close(groups[0]), TALLY_OK);
    /* Threads do not care what launched the process. */
    set_environment("OMPI_COMM_WORLD_SIZE=4 TALLY_WORLD=9 WORLD_SIZE=3");
    assert_int_equal(tally_group_open_threads(NULL, 3, groups), TALLY_OK);
    for (int r = 0; r < 3; r++) {
        assert_string_equal(tally_group_backend(groups[r]), "thread");
        assert_int_equal(tally_group_rank(groups[r]), r);
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(tally_group_close(groups[r]), TALLY_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_environments, clear_environment),
        cmocka_unit_test_setup(test_mpi_worlds, clear_environment),
        cmocka_unit_test_setup(test_derived_names, clear_environment),
        cmocka_unit_test_setup(test_configs, clear_environment),
        cmocka_unit_test_setup(test_limits, clear_environment),
        cmocka_unit_test_setup(test_sizes, clear_environment),
        cmocka_unit_test_setup(test_open, clear_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

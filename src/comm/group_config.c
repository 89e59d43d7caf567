/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolves this process's settings in a group: from the config, from `tally run`, from other
 * launchers, or for a single process. Reads the environment, changes nothing.
 */
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/env.h"
#include "base/status.h"
#include "comm/group_config.h"

#define UNSET_RANK (-1)

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) <=
                   sizeof(((struct tally__settings *)0)->rendezvous),
               "a rendezvous has room for every path a socket can have");

static int copy_rendezvous(const char *text, struct tally__settings *settings)
{
    size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;

    if (strlen(text) > most) {
        return tally__fail(TALLY_ARG, "rendezvous '%s' is longer than %zu characters", text, most);
    }
    if (!*text || strcmp(text, "@") == 0) {
        return tally__fail(
            TALLY_ARG, "rendezvous '%s' is empty: expected the path of a socket, or @name", text);
    }
    (void)snprintf(settings->rendezvous, sizeof settings->rendezvous, "%s", text);
    return TALLY_OK;
}

/* A name without a file: the same on all ranks of one job, different in every other job. */
static int derive_rendezvous(struct tally__settings *settings)
{
    const char *port = tally__env_text(TALLY__ENV_MASTER_PORT);
    const char *run = tally__env_text(TALLY__ENV_RUN_ID);
    char name[sizeof settings->rendezvous];

    if (!*port && !*run) {
        return tally__fail(TALLY_ARG,
                           "WORLD_SIZE=%d says that there are more ranks, but not where "
                           "they meet: set TALLY_RENDEZVOUS, or MASTER_PORT",
                           settings->world);
    }
    (void)snprintf(name, sizeof name, "@tally-%lu-%.40s-%.20s-%.20s", (unsigned long)getuid(), run,
                   tally__env_text(TALLY__ENV_MASTER_ADDR), port);
    return copy_rendezvous(name, settings);
}

/* The variables in which launchers give the number of ranks; from OMPI_WORLD on, launchers of MPI.
 */
static const enum tally__env_id sizes[] = {TALLY__ENV_WORLD, TALLY__ENV_OTHER_WORLD,
                                           TALLY__ENV_OMPI_WORLD, TALLY__ENV_PMI_WORLD,
                                           TALLY__ENV_SLURM_WORLD};

#define N_SIZES (sizeof sizes / sizeof sizes[0])
#define FIRST_OF_MPI 2

/* The first variable, from index on, of a launcher that has started several processes; *index is
 * N_SIZES when there is none. */
static int find_launcher(size_t *index, int *size)
{
    for (; *index < N_SIZES; (*index)++) {
        if (tally__env_is_set(sizes[*index])) {
            TRY(tally__env_count(sizes[*index], size));
            if (*size > 1) {
                return TALLY_OK;
            }
        }
    }
    return TALLY_OK;
}

/* Whether a launcher of MPI has started several processes. */
static int check_mpi_launcher(struct tally__settings *settings)
{
    size_t i = FIRST_OF_MPI;
    int size;

    TRY(find_launcher(&i, &size));
    settings->is_mpi = settings->is_mpi || i < N_SIZES;
    return TALLY_OK;
}

/* Variables of a process among several, without their number; TALLY_WORLD takes precedence. */
static int check_no_rank(void)
{
    static const struct {
        enum tally__env_id id;
        int most; /* the largest value in a single process */
        enum tally__env_id size;
    } signs[] = {{TALLY__ENV_RANK, 0, TALLY__ENV_WORLD},
                 {TALLY__ENV_OTHER_RANK, 0, TALLY__ENV_OTHER_WORLD},
                 {TALLY__ENV_OTHER_LOCAL_RANK, 0, TALLY__ENV_OTHER_WORLD},
                 {TALLY__ENV_OTHER_LOCAL_WORLD, 1, TALLY__ENV_OTHER_WORLD}};

    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        tally_env_var var = {.size = sizeof var};
        tally_env_var missing = {.size = sizeof missing};
        int value;

        if (!tally__env_is_set(signs[i].id) || tally__env_is_set(signs[i].size) ||
            tally__env_is_set(TALLY__ENV_WORLD)) {
            continue;
        }
        TRY(tally__env_count(signs[i].id, &value));
        if (value > signs[i].most) {
            TRY(tally_env_get((size_t)signs[i].id, &var));
            TRY(tally_env_get((size_t)signs[i].size, &missing));
            return tally__fail(TALLY_ARG,
                               "%s=%d says that there are several ranks, but their number is "
                               "missing: set %s too, or start the program with tally run, or "
                               "unset %s",
                               var.name, value, missing.name, var.name);
        }
    }
    return TALLY_OK;
}

/* Fails if this would be a single process although a launcher started several. */
static int check_alone(void)
{
    tally_env_var var = {.size = sizeof var};
    size_t i = 0;
    int size = 0;

    TRY(find_launcher(&i, &size));
    if (i == N_SIZES) {
        return check_no_rank();
    }
    TRY(tally_env_get((size_t)sizes[i], &var));
    return tally__fail(TALLY_ARG,
                       "%s=%d says that there are %d ranks, but this process would be a world of "
                       "one: start it with tally run, or unset %s",
                       var.name, size, size, var.name);
}

/* Fails when a launcher's number of ranks cannot be that of MPI. Launchers of MPI count processes
 * of their own in other ways too (srun starts one for each machine), so theirs only has to be one
 * where MPI's is. */
int tally__check_mpi_world(const char *mpi, int n_processes)
{
    int size = 0;

    for (size_t i = 0; i < N_SIZES; i++) {
        tally_env_var var = {.size = sizeof var};

        TRY(find_launcher(&i, &size));
        if (i == N_SIZES) {
            break;
        }
        TRY(tally_env_get((size_t)sizes[i], &var));
        if (i >= FIRST_OF_MPI && n_processes == 1) {
            return tally__fail(TALLY_ARG,
                               "%s=%d says that there are %d ranks, but %s sees one: the launcher "
                               "is another MPI's; use that of %s, or set TALLY_MPI",
                               var.name, size, size, mpi, mpi);
        }
        if (i < FIRST_OF_MPI && n_processes != size) {
            return tally__fail(TALLY_ARG,
                               "%s=%d says that there are %d ranks, but %s sees %d: start them "
                               "with mpirun, or use backend shm (TALLY_BACKEND=shm), or unset %s",
                               var.name, size, size, mpi, n_processes, var.name);
        }
    }
    return n_processes == 1 ? check_no_rank() : TALLY_OK;
}

static int settings_by_launcher(const tally_group_config *config, struct tally__settings *settings)
{
    TRY(tally__env_count(TALLY__ENV_WORLD, &settings->world));
    if (config->rank == UNSET_RANK) {
        if (!tally__env_is_set(TALLY__ENV_RANK)) {
            return tally__fail(TALLY_ARG, "TALLY_WORLD is set, but TALLY_RANK is not");
        }
        TRY(tally__env_count(TALLY__ENV_RANK, &settings->rank));
    }
    return settings->world == 1 ? check_alone() : TALLY_OK;
}

static bool is_other_launcher(const tally_group_config *config)
{
    return tally__env_is_set(TALLY__ENV_OTHER_WORLD) &&
           (tally__env_is_set(TALLY__ENV_OTHER_RANK) || config->rank != UNSET_RANK);
}

static int settings_by_other_launcher(const tally_group_config *config,
                                      struct tally__settings *settings)
{
    int local;

    TRY(tally__env_count(TALLY__ENV_OTHER_WORLD, &settings->world));
    if (config->rank == UNSET_RANK) {
        TRY(tally__env_count(TALLY__ENV_OTHER_RANK, &settings->rank));
    }
    if (tally__env_is_set(TALLY__ENV_OTHER_LOCAL_WORLD)) {
        TRY(tally__env_count(TALLY__ENV_OTHER_LOCAL_WORLD, &local));
        if (local < settings->world) {
            return tally__fail(TALLY_UNSUPPORTED,
                               "LOCAL_WORLD_SIZE=%d of WORLD_SIZE=%d: the ranks are on several "
                               "machines, and shared memory reaches one",
                               local, settings->world);
        }
    }
    return settings->world == 1 ? check_alone() : TALLY_OK;
}

/* The world is known; the rank may come from the environment. */
static int settings_of_given_world(const tally_group_config *config,
                                   struct tally__settings *settings)
{
    settings->world = config->world;
    if (config->rank != UNSET_RANK) {
        return TALLY_OK;
    }
    if (settings->world == 1) {
        settings->rank = 0;
    } else if (tally__env_is_set(TALLY__ENV_RANK)) {
        TRY(tally__env_count(TALLY__ENV_RANK, &settings->rank));
    } else if (tally__env_is_set(TALLY__ENV_OTHER_RANK)) {
        TRY(tally__env_count(TALLY__ENV_OTHER_RANK, &settings->rank));
    }
    return TALLY_OK;
}

/* The config takes precedence; the environment completes it. */
static int find_rank_and_world(const tally_group_config *config, struct tally__settings *settings)
{
    settings->rank = config->rank;
    if (config->world != 0) {
        TRY(settings_of_given_world(config, settings));
    } else if (tally__env_is_set(TALLY__ENV_WORLD)) {
        TRY(settings_by_launcher(config, settings));
    } else if (is_other_launcher(config)) {
        TRY(settings_by_other_launcher(config, settings));
    } else {
        settings->world = 1;
        settings->rank = config->rank == UNSET_RANK ? 0 : config->rank;
        TRY(check_alone());
    }
    if (settings->world < 1 || settings->world > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG, "a world of %d ranks is not in 1..%d", settings->world,
                           TALLY__MAX_WORLD);
    }
    if (settings->rank < 0 || settings->rank >= settings->world) {
        return tally__fail(TALLY_ARG, "rank %d is not in 0..%d", settings->rank,
                           settings->world - 1);
    }
    return TALLY_OK;
}

/* Whether the ranks are MPI's: requested, or started only by a launcher of MPI. */
static int find_mpi(const tally_group_config *config, const char *backend,
                    struct tally__settings *settings)
{
    bool is_auto = strcmp(backend, "auto") == 0;

    if (config->mpi_comm && !is_auto && strcmp(backend, "mpi") != 0) {
        return tally__fail(TALLY_ARG, "a communicator is for backend mpi, not %s", backend);
    }
    settings->is_mpi = config->mpi_comm || strcmp(backend, "mpi") == 0;
    settings->mpi_comm = config->mpi_comm;
    settings->rank = config->rank;
    settings->world = config->world;
    if (is_auto && config->world == 0 && !tally__env_is_set(TALLY__ENV_WORLD) &&
        !is_other_launcher(config)) {
        TRY(check_mpi_launcher(settings));
    }
    return TALLY_OK;
}

static int find_backend(const char *backend, struct tally__settings *settings)
{
    if (strcmp(backend, "auto") == 0) {
        settings->is_self = settings->world == 1;
    } else if (strcmp(backend, "self") == 0) {
        if (settings->world > 1) {
            return tally__fail(
                TALLY_ARG,
                "backend self has one rank, not %d as the launcher or the config says: unset "
                "TALLY_BACKEND, or start the program alone",
                settings->world);
        }
        settings->is_self = 1;
    } else if (strcmp(backend, "shm") == 0) {
        settings->is_self = 0;
    } else {
        return tally__fail(TALLY_ARG, "unknown backend '%s'; accepted: auto self shm mpi", backend);
    }
    return TALLY_OK;
}

static int find_rendezvous(const tally_group_config *config, struct tally__settings *settings)
{
    if (config->rendezvous) {
        return copy_rendezvous(config->rendezvous, settings);
    }
    if (tally__env_is_set(TALLY__ENV_RENDEZVOUS)) {
        return copy_rendezvous(tally__env_text(TALLY__ENV_RENDEZVOUS), settings);
    }
    if (settings->world == 1) {
        return TALLY_OK;
    }
    if (config->world > 0 || tally__env_is_set(TALLY__ENV_WORLD)) {
        return tally__fail(TALLY_ARG, "a world of %d ranks needs a rendezvous", settings->world);
    }
    return derive_rendezvous(settings);
}

static int find_limits(const tally_group_config *config, struct tally__settings *settings)
{
    settings->timeout_s = config->timeout_s;
    settings->open_timeout_s = config->open_timeout_s;
    settings->lanes = config->lanes;
    if (settings->timeout_s == 0) {
        TRY(tally__env_seconds(TALLY__ENV_TIMEOUT, &settings->timeout_s));
    }
    if (settings->open_timeout_s == 0) {
        TRY(tally__env_seconds(TALLY__ENV_OPEN_TIMEOUT, &settings->open_timeout_s));
    }
    if (settings->lanes == -1) {
        TRY(tally__env_count(TALLY__ENV_LANES, &settings->lanes));
    }
    if (!(settings->timeout_s > 0 && settings->timeout_s <= TALLY__SECONDS_MAX) ||
        !(settings->open_timeout_s > 0 && settings->open_timeout_s <= TALLY__SECONDS_MAX)) {
        return tally__fail(TALLY_ARG, "timeouts of %g s and %g s are not in 0..%g",
                           settings->timeout_s, settings->open_timeout_s, TALLY__SECONDS_MAX);
    }
    if (settings->lanes < 0 || settings->lanes > TALLY__MAX_LANES) {
        return tally__fail(TALLY_ARG, "%d lanes are not in 0..%d", settings->lanes,
                           TALLY__MAX_LANES);
    }
    return TALLY_OK;
}

int tally__group_config_resolve(const tally_group_config *config, struct tally__settings *settings)
{
    tally_group_config copy;
    const char *backend;

    tally_group_config_init(&copy, sizeof copy);
    if (config) {
        TRY(tally__sized_read(TALLY__GROUP_CONFIG, "tally_group_open: config", config, &copy));
    }
    *settings = (struct tally__settings){0};
    backend = copy.backend;
    if (!backend) {
        TRY(tally__env_choice(TALLY__ENV_BACKEND, &backend));
    }
    TRY(find_mpi(&copy, backend, settings));
    if (!settings->is_mpi) {
        TRY(find_rank_and_world(&copy, settings));
        TRY(find_backend(backend, settings));
        TRY(find_rendezvous(&copy, settings));
    }
    return find_limits(&copy, settings);
}

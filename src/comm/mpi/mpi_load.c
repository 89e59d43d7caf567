/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the MPI and loads its shared object. No MPI header: this is part of libtally. */
#include "comm/mpi/mpi_load.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/status.h"

static const struct known_mpi {
    const char *word; /* of TALLY_MPI, and of the object's name */
    const char *name; /* as it calls itself */
    const char *package;
    enum tally__env_id world; /* the variable that its launcher sets */
} known[] = {
    {"openmpi", "Open MPI", "libopenmpi-dev", TALLY__ENV_OMPI_WORLD},
    {"mpich", "MPICH", "libmpich-dev", TALLY__ENV_PMI_WORLD},
};

#define N_KNOWN (sizeof known / sizeof known[0])

static const struct tally__mpi_api *loaded;

/* POSIX says that a data pointer from dlsym can be a function; C has no cast for it. */
static tally__mpi_api_fn *function_of(void *symbol)
{
    tally__mpi_api_fn *function;

    memcpy(&function, &symbol, sizeof function);
    return function;
}

/* The text of the MPI that the program has been linked with, or "". */
static void version_in_program(char *text)
{
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    int (*get)(char *, int *);
    int n = 0;

    text[0] = '\0';
    if (symbol) {
        memcpy(&get, &symbol, sizeof get);
        (void)get(text, &n);
    }
}

/* Whether an object names a dynamic linker; asked of the program itself, which comes first. */
static int has_linker(struct dl_phdr_info *object, size_t bytes, void *user)
{
    bool *found = user;

    (void)bytes;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        *found = *found || object->dlpi_phdr[i].p_type == PT_INTERP;
    }
    return 1;
}

/* In a program that is linked statically, dlopen crashes or loads a second C library. */
static int check_can_load(void)
{
    bool is_dynamic = false;

    (void)dl_iterate_phdr(has_linker, &is_dynamic);
    return is_dynamic ? TALLY_OK
                      : tally__fail(TALLY_UNSUPPORTED,
                                    "this program is linked statically, and backend mpi loads MPI "
                                    "while the program runs: link it without -static, or start it "
                                    "with tally run, which needs no MPI");
}

static int load(const char *file)
{
    /* Global: both MPIs load parts of their own that look for the rest of them there. */
    void *object = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    void *symbol = object ? dlsym(object, TALLY__MPI_API_SYMBOL) : NULL;
    const struct tally__mpi_api *api;

    if (!symbol) {
        return tally__fail(TALLY_UNSUPPORTED, "%s", dlerror());
    }
    api = function_of(symbol)();
    if (api->size != sizeof *api || api->version != TALLY__MPI_API_VERSION) {
        return tally__fail(TALLY_UNSUPPORTED, "%s belongs to another version of tally", file);
    }
    loaded = api;
    return TALLY_OK;
}

static int load_known(const struct known_mpi *mpi)
{
    char file[64];

    (void)snprintf(file, sizeof file, "libtally-%s.so", mpi->word);
    if (load(file) == TALLY_OK) {
        return TALLY_OK;
    }
    return tally__fail(TALLY_UNSUPPORTED,
                       "tally's part for %s cannot be loaded (%s): install %s and build tally "
                       "again, or say with TALLY_MPI where %s is",
                       mpi->name, tally_last_error(), mpi->package, file);
}

static int load_named(const char *wanted)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (strcmp(wanted, known[i].word) == 0) {
            return load_known(&known[i]);
        }
    }
    if (!strchr(wanted, '/')) {
        return tally__fail(TALLY_ARG, "TALLY_MPI=%s is none of auto, openmpi, mpich, or a path",
                           wanted);
    }
    return load(wanted);
}

static int load_for_program(const char *version)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (strstr(version, known[i].name)) {
            return load_known(&known[i]);
        }
    }
    return tally__fail(TALLY_UNSUPPORTED,
                       "this program uses an MPI that tally does not know: %.80s", version);
}

static int load_for_launcher(void)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (tally__env_is_set(known[i].world)) {
            return load_known(&known[i]);
        }
    }
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (load_known(&known[i]) == TALLY_OK) {
            return TALLY_OK;
        }
    }
    return tally__fail(TALLY_UNSUPPORTED,
                       "no part of tally for an MPI can be loaded: install libopenmpi-dev or "
                       "libmpich-dev and build tally again (%s)",
                       tally_last_error());
}

int tally__mpi_load(const struct tally__mpi_api **api)
{
    const char *wanted = tally__env_text(TALLY__ENV_MPI);
    char version[8192]; /* MPI_MAX_LIBRARY_VERSION_STRING of any MPI */

    if (!loaded) {
        TRY(check_can_load());
    }
    if (!loaded && strcmp(wanted, "auto") != 0) {
        TRY(load_named(wanted));
    }
    if (!loaded) {
        version_in_program(version);
        TRY(*version ? load_for_program(version) : load_for_launcher());
    }
    *api = loaded;
    return TALLY_OK;
}

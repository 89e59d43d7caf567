/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that mpirun has started (tests/support/run_mpi.sh): every process runs the whole test
 * program, and takes its part in those runs that have as many ranks as there are processes. The
 * board is a file that all of them map.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks_inner.h"

static int number(const char *name)
{
    const char *text = getenv(name);

    return text ? (int)strtol(text, NULL, 10) : -1;
}

int ranks_mpi_world(void)
{
    int world = number("TALLY_TEST_MPI_WORLD");

    return world > 0 ? world : 0;
}

bool ranks_are_mpi(void)
{
    return ranks_mpi_world() > 0;
}

static int mpi_rank(void)
{
    int rank = number("OMPI_COMM_WORLD_RANK");

    return rank >= 0 ? rank : number("PMI_RANK");
}

bool ranks_mpi_is_first(void)
{
    return ranks_mpi_world() == 0 || mpi_rank() == 0;
}

int ranks_mpi_board(void)
{
    const char *file = getenv("TALLY_TEST_MPI_BOARD");
    int fd;

    if (ranks_mpi_world() == 0 || !file) {
        return -1;
    }
    fd = open(file, O_RDWR);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0) {
        (void)fprintf(stderr, "no file for the board\n");
        exit(1);
    }
    return fd;
}

/* No rank continues before all processes have come. */
static void pass_gate(void)
{
    static uint32_t n_passed;
    _Atomic uint32_t *gate = &ranks_board()->gate;
    uint32_t all = ++n_passed * (uint32_t)ranks_mpi_world();

    atomic_fetch_add(gate, 1);
    for (int ms = 0; atomic_load(gate) < all; ms++) {
        if (ms > DEADLINE_S * 1000) {
            (void)fprintf(stderr, "rank %d waits in vain for the others\n", mpi_rank());
            _exit(1);
        }
        ranks_sleep_ms(1);
    }
}

int ranks_run_mpi(const struct ranks *ranks, ranks_body *body, void *user)
{
    struct rank_context context = {.ranks = ranks, .body = body, .user = user, .rank = mpi_rank()};
    struct board *board = ranks_board();
    tally_group_config config;
    int n_failures;

    pass_gate();
    if (context.rank == 0) {
        memset((void *)&board->of_run, 0, sizeof board->of_run);
    }
    pass_gate();
    ranks_fill_config(ranks, &config);
    config.backend = "mpi";
    if (tally_group_open(&config, &context.group) != TALLY_OK) {
        (void)fprintf(stderr, "rank %d cannot open: %s\n", context.rank, tally_last_error());
        exit(1);
    }
    ranks_note_one_phase(context.group);
    ranks_run_one(&context);
    pass_gate();
    n_failures = context.n_failures + ranks_compare_notes(ranks);
    pass_gate();
    return n_failures;
}

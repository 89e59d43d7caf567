/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sub-groups: colors, keys, none at all, nested ones; collectives in them, alone and in one job
 * with the parent; closing in any order, again and again, without growth.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting_memory.h"
#include "support/ranks.h"

static int n_failures;

/* The sum over the group of each rank's number, plain and through stages. */
static int check_sum(tally_group *group, double number, double expected)
{
    float many[5000];
    tally_future *future;
    double sum = number;

    CHECK_OK(group, tally_all_reduce(group, &sum, 1, TALLY_F64, TALLY_SUM, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK(group, sum == expected);
    for (size_t i = 0; i < 5000; i++) {
        many[i] = (float)number;
    }
    CHECK_OK(group, tally_all_reduce(group, many, 5000, TALLY_F32, TALLY_SUM, &future));
    CHECK_OK(group, ranks_finish(future));
    for (size_t i = 0; i < 5000; i++) {
        CHECK(group, many[i] == (float)expected);
    }
    return 0;
}

static double sum_of_color(int world, int color, int n_colors)
{
    double sum = 0;

    for (int r = color; r < world; r += n_colors) {
        sum += r;
    }
    return sum;
}

/* ---- colors and keys ---- */

static int colors_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    tally_group *parity;
    tally_group *reversed;
    tally_group *few;
    tally_group *same;

    (void)user;
    CHECK_OK(group, tally_group_split(group, rank % 2, 0, &parity));
    CHECK(group, tally_group_rank(parity) == rank / 2);
    CHECK(group, tally_group_size(parity) == (world + 1 - rank % 2) / 2);
    CHECK(group, strcmp(tally_group_backend(parity), tally_group_backend(group)) == 0);
    CHECK_OK(group, tally_group_split(group, INT_MAX, -rank, &reversed));
    CHECK(group, tally_group_rank(reversed) == world - 1 - rank);
    CHECK(group, tally_group_size(reversed) == world);
    few = group;
    CHECK_OK(group, tally_group_split(group, rank % 3 == 0 ? -5 : 7, INT_MIN, &few));
    CHECK(group, (few == NULL) == (rank % 3 == 0));
    same = group;
    CHECK_OK(group, tally_group_split(group, -1, 0, &same));
    CHECK(group, same == NULL);
    CHECK(group, check_sum(parity, rank, sum_of_color(world, rank % 2, 2)) == 0);
    CHECK(group, check_sum(reversed, rank, sum_of_color(world, 0, 1)) == 0);
    if (few) {
        double sum = sum_of_color(world, 0, 1) - sum_of_color(world, 0, 3);

        CHECK(group, check_sum(few, rank, sum) == 0);
    }
    CHECK_STATUS(group, tally_group_close(group), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), few ? "3 ddps or sub-groups" : "2 ddps or sub-groups");
    CHECK_STATUS(group, tally_group_split(NULL, 0, 0, &same), TALLY_ARG);
    CHECK_STATUS(group, tally_group_split(group, 0, 0, NULL), TALLY_ARG);
    /* Closing is not collective: every rank has its own order. */
    CHECK_OK(group, tally_group_close(rank % 2 ? parity : reversed));
    CHECK_OK(group, tally_group_close(few));
    CHECK_OK(group, tally_group_close(rank % 2 ? reversed : parity));
    return check_sum(group, rank, sum_of_color(world, 0, 1));
}

/* ---- nested ---- */

static int nested_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    tally_group *groups[5] = {group};
    int depth = 0;

    (void)user;
    /* Halves of halves, down to one rank. */
    while (tally_group_size(groups[depth]) > 1) {
        int half = tally_group_rank(groups[depth]) * 2 / tally_group_size(groups[depth]);

        CHECK_OK(group, tally_group_split(groups[depth], half, 0, &groups[depth + 1]));
        depth++;
        CHECK(group, check_sum(groups[depth], 1, tally_group_size(groups[depth])) == 0);
    }
    for (int i = depth; i > 0; i--) {
        CHECK(group, check_sum(groups[i - 1], 1, tally_group_size(groups[i - 1])) == 0);
        if (i > 1) {
            CHECK_STATUS(group, tally_group_close(groups[i - 1]), TALLY_STATE);
        }
        CHECK_OK(group, tally_group_close(groups[i]));
    }
    return check_sum(group, rank, sum_of_color(world, 0, 1));
}

/* ---- several groups in one job ---- */

struct mixed {
    tally_group *row;
    tally_group *column;
    tally_group *stranger;
    double sum;
    double of_rows;
    bool fails;
};

static int mixed_job(tally_lane *lane, void *user)
{
    struct mixed *mixed = user;
    tally_group *group = tally_lane_group(lane);
    tally_lane *row = tally_lane_for(lane, mixed->row);
    tally_lane *column = tally_lane_for(row, mixed->column);

    CHECK(group, row && column && tally_lane_group(row) == mixed->row);
    CHECK(group, tally_lane_index(column) == tally_lane_index(lane));
    CHECK(group, tally_lane_for(row, group) == lane && tally_lane_for(lane, group) == lane);
    CHECK(group, tally_lane_for(lane, mixed->stranger) == NULL);
    mixed->of_rows = tally_group_rank(group);
    mixed->sum = mixed->of_rows;
    CHECK_OK(group, tally_lane_all_reduce(row, &mixed->of_rows, 1, TALLY_F64, TALLY_SUM));
    CHECK_OK(group, tally_lane_all_reduce(lane, &mixed->sum, 1, TALLY_F64, TALLY_SUM));
    CHECK_OK(group, tally_lane_all_reduce(column, &mixed->of_rows, 1, TALLY_F64, TALLY_SUM));
    CHECK_OK(group, tally_lane_barrier(lane));
    if (mixed->fails) {
        int root = tally_group_rank(group) == tally_group_size(group) - 1 ? 99 : 0;
        int rc = tally_lane_broadcast(row, &mixed->sum, 8, root);

        /* The other rows have not failed and go on, until the job's end tells them. */
        return rc != TALLY_OK ? rc : tally_lane_barrier(row);
    }
    return TALLY_OK;
}

/* Rows of three, columns over the rows; a world that does not divide by three has a short row. */
static int mixed_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    struct mixed mixed = {0};
    tally_group_config config;

    (void)user;
    tally_group_config_init(&config, sizeof config);
    config.world = 1;
    CHECK_OK(group, tally_group_open(&config, &mixed.stranger));
    CHECK_OK(group, tally_group_split(group, rank / 3, 0, &mixed.row));
    CHECK_OK(group, tally_group_split(group, rank % 3, 0, &mixed.column));
    for (int i = 0; i < 12; i++) {
        uint64_t row_bytes = 8 * (uint64_t)(tally_group_size(mixed.row) - 1);
        uint64_t column_bytes = 8 * (uint64_t)(tally_group_size(mixed.column) - 1);
        tally_future *future;

        mixed.fails = i % 4 == 3;
        CHECK_OK(group, tally_submit(group, i % 2, mixed_job, &mixed, &future));
        CHECK_STATUS(group, tally_future_wait(future), mixed.fails ? TALLY_ARG : TALLY_OK);
        CHECK(group, mixed.sum == sum_of_color(world, 0, 1));
        if (mixed.fails) {
            CHECK_TEXT(group, tally_last_error(), "root 99 is not in 0..");
        } else {
            CHECK(group, tally_future_bytes_sent(future) ==
                             row_bytes + column_bytes + 8 * (uint64_t)(world - 1));
        }
        /* All columns are full only in a square: there every rank has the sum of all. */
        CHECK(group, world % 3 != 0 || mixed.of_rows == mixed.sum);
        tally_future_free(future);
    }
    CHECK(group, check_sum(mixed.row, 1, tally_group_size(mixed.row)) == 0);
    CHECK_OK(group, tally_group_close(mixed.row));
    CHECK_OK(group, tally_group_close(mixed.column));
    CHECK_OK(group, tally_group_close(mixed.stranger));
    return 0;
}

/* ---- many times ---- */

static _Atomic size_t live_after_warm_up;

/* The memory that all ranks' files of group memory occupy. */
static size_t shared_kilobytes(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    bool is_ours = false;
    size_t sum = 0;

    while (file && fgets(line, sizeof line, file)) {
        if (strchr(line, '-') && strstr(line, " rw-")) {
            is_ours = strstr(line, "memfd:tally") != NULL;
        } else if (is_ours && strncmp(line, "Rss:", 4) == 0) {
            sum += strtoul(line + 4, NULL, 10);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return sum;
}

/* No rank has more memory than after the first few cycles, wherever the others are. */
static int cycles_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    bool is_alone = ranks_now()->kind == RANKS_PROCESSES;
    bool is_mpi = strcmp(tally_group_backend(group), "mpi") == 0;
    tally_future *future;
    size_t before = 0;

    (void)user;
    for (int i = 0; i < 200; i++) {
        tally_group *child;
        tally_group *grandchild;

        CHECK_OK(group, tally_group_split(group, (rank + i) % 2, i, &child));
        CHECK_OK(group, tally_group_split(child, 0, -rank, &grandchild));
        if (i % 20 == 0) {
            CHECK(group, check_sum(grandchild, 1, tally_group_size(child)) == 0);
        }
        CHECK_OK(group, tally_group_close(grandchild));
        CHECK_OK(group, tally_group_close(child));
        if (i == 20) {
            CHECK_OK(group, tally_barrier(group, &future));
            CHECK_OK(group, ranks_finish(future));
            before = is_alone ? shared_kilobytes() : counting_memory_live();
            CHECK(group, before > 0 || is_mpi);
            atomic_store(&live_after_warm_up, before);
            CHECK_OK(group, tally_barrier(group, &future));
            CHECK_OK(group, ranks_finish(future));
        }
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    if (is_alone) {
        CHECK(group, counting_memory_live() < 100 || is_mpi);
        CHECK(group, shared_kilobytes() <= before + 1024);
    } else {
        /* A cycle's groups may be freed a split later on one rank than on another. */
        CHECK(group, counting_memory_live() <=
                         atomic_load(&live_after_warm_up) + 12 * (size_t)tally_group_size(group));
    }
    return 0;
}

/* ---- ends ---- */

/* A sub-group is given up and closed at once: the others still learn the reason. */
static int given_up_body(tally_group *group, void *user)
{
    tally_future *future;
    tally_group *child;

    (void)user;
    CHECK_OK(group, tally_group_split(group, 0, 0, &child));
    if (tally_group_rank(child) == 0) {
        CHECK_OK(group, tally_group_abort(child, "no more of this"));
    } else {
        ranks_sleep_ms(20);
        CHECK_OK(group, tally_barrier(child, &future));
        CHECK_STATUS(group, ranks_finish(future), TALLY_ABORTED);
        CHECK_TEXT(group, tally_last_error(), "no more of this");
    }
    CHECK_STATUS(group, tally_barrier(child, &future), TALLY_ABORTED);
    CHECK_OK(group, tally_group_close(child));
    /* The parent lives on. */
    return check_sum(group, 1, tally_group_size(group));
}

/* Rank 0 leaves a sub-group in which others wait for it. */
static int closed_early_body(tally_group *group, void *user)
{
    tally_future *future;
    tally_group *child;

    (void)user;
    CHECK_OK(group, tally_group_split(group, 0, 0, &child));
    if (tally_group_rank(child) != 0) {
        CHECK_OK(group, tally_barrier(child, &future));
        CHECK_STATUS(group, ranks_finish(future), TALLY_PEER);
        CHECK_TEXT(group, tally_last_error(), "rank 0 closed its group");
    }
    CHECK_OK(group, tally_group_close(child));
    return check_sum(group, 1, tally_group_size(group));
}

static void test(const char *name, ranks_body *body, int least, int lanes)
{
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        for (int k = 0; k < 2; k++) {
            const struct ranks ranks = {.kind = k ? RANKS_PROCESSES : RANKS_THREADS,
                                        .world = ranks_worlds[w],
                                        .lanes = lanes,
                                        .timeout_s = 20};

            n_failures += ranks.world >= least ? ranks_run_named(name, &ranks, body, NULL) : 0;
        }
    }
}

int main(void)
{
    test("colors", colors_body, 1, 1);
    test("colors without lanes", colors_body, 1, 0);
    test("nested", nested_body, 1, 2);
    test("several groups in one job", mixed_body, 1, 2);
    test("many times", cycles_body, 2, 1);
    test("given up", given_up_body, 2, 1);
    test("closed early", closed_early_body, 2, 1);
    return n_failures != 0;
}

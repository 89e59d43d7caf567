/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that only ask: texts, lists, environment, sizes. Any order is legal. */
#include <stdio.h>
#include <string.h>

#include "fuzz/api_rank.h"

static void ask_texts(struct api_rank *rank)
{
    int status = (int)api_pick(rank, 20) - 15;

    if (!*ASK(rank, tally_version()) || !*ASK(rank, tally_status_name(status)) ||
        !*ASK(rank, tally_status_text(status)) || !ASK(rank, tally_last_error())) {
        api_fail(rank, "an empty text of status %d", status);
    }
    if (rank->rank == 0 && rank->program->seed <= 40) {
        ASK(rank, tally_log_stderr(NULL, TALLY_LOG_INFO, "a line of the fuzzer's"));
    }
}

static void ask_environment(struct api_rank *rank)
{
    tally_env_var var = {.size = api_chance(rank, 4) ? 3 : sizeof var};
    size_t n = ASK(rank, tally_env_count());
    const char *isa = "";

    (void)CALL(rank, tally_env_get(api_pick(rank, (unsigned)n + 2), &var));
    (void)CALL(rank, tally_env_get(0, NULL));
    (void)CALL(rank, tally_env_check());
    (void)CALL(rank, tally_isa(api_chance(rank, 4) ? NULL : &isa));
}

static void ask_hooks(struct api_rank *rank)
{
    tally_hook_info info = {.size = api_chance(rank, 4) ? 1 : sizeof info};
    tally_hook_option option = {.size = api_chance(rank, 4) ? 1 : sizeof option};
    size_t index = api_pick(rank, (unsigned)ASK(rank, tally_hook_count()) + 2);

    (void)CALL(rank, tally_hook_describe(index, &info));
    (void)CALL(rank, tally_hook_describe_option(index, api_pick(rank, 5), &option));
}

static void ask_optimizers(struct api_rank *rank)
{
    tally_optimizer_info info = {.size = api_chance(rank, 4) ? 1 : sizeof info};
    tally_optimizer_option option = {.size = api_chance(rank, 4) ? 1 : sizeof option};
    size_t index = api_pick(rank, (unsigned)ASK(rank, tally_optimizer_count()) + 2);

    (void)CALL(rank, tally_optimizer_describe(index, &info));
    (void)CALL(rank, tally_optimizer_describe_option(index, api_pick(rank, 9), &option));
}

static void ask_sizes(struct api_rank *rank)
{
    size_t count = api_pick(rank, 3) ? api_pick(rank, 100) : SIZE_MAX - api_pick(rank, 100);
    int size = (int)api_pick(rank, 9) - 1;
    size_t offset = 0;
    size_t n = 0;

    (void)ASK(rank, tally_dtype_bytes((int)api_pick(rank, 12) - 3));
    if (size >= 1) {
        ASK(rank, tally_shard(count, size, (int)api_pick(rank, (unsigned)size), &offset, &n));
        if (offset > count || n > count - offset) {
            api_fail(rank, "a shard of %zu elements that ends behind them", count);
        }
    }
}

/* Groups of this rank alone, opened and closed at once. */
static void open_alone(struct api_rank *rank)
{
    static const char *const backends[] = {"self", "self", "shm", "thread", "mpi?", ""};
    /* A program may have a newer, larger config. */
    union {
        tally_group_config config;
        unsigned char room[sizeof(tally_group_config) + 64];
    } given = {.room = {0}};
    tally_group_config *config = &given.config;
    tally_group *group = NULL;

    ASK(rank, tally_group_config_init(config, sizeof *config));
    config->backend = API_PICK_OF(rank, backends);
    config->rank = api_chance(rank, 4) ? (int)api_pick(rank, 4) - 2 : 0;
    config->world = api_chance(rank, 6) ? -(int)api_pick(rank, 3) : 1;
    config->lanes = (int)api_pick(rank, 4) - 1;
    config->timeout_s = api_chance(rank, 6) ? -1 : 5;
    config->open_timeout_s = 5;
    if (api_chance(rank, 10)) {
        config->size = api_pick(rank, 2) ? sizeof given : 4;
    }
    if (CALL(rank, tally_group_open(config, api_chance(rank, 10) ? NULL : &group)) == TALLY_OK) {
        (void)CALL(rank, tally_group_close(group));
    }
}

static void open_few_threads(struct api_rank *rank)
{
    tally_group *groups[3] = {NULL, NULL, NULL};
    tally_group_config config;
    int n = (int)api_pick(rank, 5) - 1;

    ASK(rank, tally_group_config_init(&config, sizeof config));
    config.lanes = (int)api_pick(rank, 3);
    if (CALL(rank, tally_group_open_threads(api_chance(rank, 3) ? NULL : &config, n,
                                            api_chance(rank, 6) ? NULL : groups)) == TALLY_OK) {
        for (int r = 0; r < n && r < 3; r++) {
            (void)CALL(rank, tally_group_close(groups[r]));
        }
    }
}

const struct api_row api_fact_rows[] = {
    {"texts", ask_texts, 1, false},
    {"environment", ask_environment, 1, false},
    {"list of hooks", ask_hooks, 1, false},
    {"list of optimizers", ask_optimizers, 1, false},
    {"sizes", ask_sizes, 1, false},
    {"a group of one", open_alone, 1, false},
    {"groups of threads", open_few_threads, 1, false},
    {NULL, NULL, 0, false},
};

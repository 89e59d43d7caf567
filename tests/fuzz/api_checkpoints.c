/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on checkpoints in files, and on traces. Every model has a directory; what is loaded
 * may be of a model that was there before. The directories lie in one folder for the whole
 * campaign.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/api_rank.h"

static char folder[64];

void api_checkpoints_begin(void)
{
    (void)snprintf(folder, sizeof folder, "/dev/shm/api-fuzz-XXXXXX");
    if (!mkdtemp(folder)) {
        (void)snprintf(folder, sizeof folder, "/tmp/tally-api-XXXXXX");
        (void)mkdtemp(folder);
    }
}

void api_checkpoints_end(void)
{
    char command[100];

    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) { // NOLINT: the name is ours
        (void)fprintf(stderr, "%s cannot be removed\n", folder);
    }
}

static void name_directory(const struct api_rank *rank, const struct api_model *model, char *name)
{
    (void)snprintf(name, 128, "%s/%llu-%d", folder, (unsigned long long)rank->program->seed,
                   (int)(model - rank->models));
}

/* The application's state. */
struct state {
    unsigned char bytes[8];
    tally_checkpoint_blob blob;
};

static tally_checkpoint_config draw_config(struct api_rank *rank, struct state *state)
{
    static const char *const names[] = {"state", "state", "state", "", NULL};
    tally_checkpoint_config config;

    ASK(rank, tally_checkpoint_config_init(&config, sizeof config));
    memset(state->bytes, rank->rank, sizeof state->bytes);
    state->blob = (tally_checkpoint_blob){sizeof state->blob, API_PICK_OF(rank, names),
                                          state->bytes, api_chance(rank, 9) ? 3 : 8, 0};
    config.blobs = &state->blob;
    config.n_blobs = !api_chance(rank, 4);
    config.keep = (int)api_pick(rank, 4) - api_chance(rank, 9);
    config.async = api_chance(rank, 2);
    config.params_only = api_chance(rank, 4);
    return config;
}

static void save_files(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    struct state state;
    const tally_checkpoint_config config = draw_config(rank, &state);
    char directory[128];

    name_directory(rank, model, directory);
    (void)api_judge(
        model,
        CALL(rank, tally_checkpoint_save(
                       model->ddp, api_chance(rank, 9) ? "/dev/null/x" : directory, &config)));
}

static void load_files(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    tally_checkpoint_info info = {.size = sizeof info};
    struct state state;
    tally_checkpoint_config config = draw_config(rank, &state);
    char directory[128];

    name_directory(rank, model, directory);
    config.name = api_chance(rank, 4) ? "save-000001-step-1" : NULL;
    (void)api_judge(model,
                    CALL(rank, tally_checkpoint_load(model->ddp, directory, &config, &info)));
}

static void look_at_files(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    tally_checkpoint_info info = {.size = sizeof info};
    char directory[128];

    name_directory(rank, model, directory);
    (void)api_judge(model, CALL(rank, tally_checkpoint_wait(model->ddp)));
    (void)CALL_ANY(rank, tally_checkpoint_inspect(directory, NULL, &info, NULL, NULL));
}

/* A trace of this rank's next operations, or the end of it. Names are never used twice: a trace
 * that is under way keeps its file. */
static void trace(struct api_rank *rank)
{
    char name[128];

    (void)snprintf(name, sizeof name, "%s/trace-%llu-%u-%%r", folder,
                   (unsigned long long)rank->program->seed, api_pick(rank, 1000000));
    (void)CALL(rank, tally_trace_start(api_chance(rank, 9) ? NULL : rank->groups[0],
                                       api_chance(rank, 9) ? "" : name,
                                       api_chance(rank, 9) ? 10 : 300000));
    (void)CALL(rank, tally_trace_write(api_chance(rank, 9) ? NULL : rank->groups[0]));
    if (api_chance(rank, 2)) {
        (void)CALL(rank, tally_trace_stop(api_chance(rank, 9) ? NULL : rank->groups[0]));
    }
}

const struct api_row api_checkpoint_rows[] = {
    {"save files", save_files, 2, false},
    {"load files", load_files, 2, false},
    {"look at files", look_at_files, 1, false},
    {"trace", trace, 1, false},
    {NULL, NULL, 0, false},
};

/* SPDX-License-Identifier: Apache-2.0 */
/* One operation: a reducer from its creation to its end, with random buckets. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/api_rank.h"

#define N_PARAMS 4
#define MOST 64

struct framework {
    tally_reducer *reducer;
    size_t shapes[N_PARAMS][2];
    float data[N_PARAMS * MOST];
};

static int make(struct api_rank *rank, struct framework *framework)
{
    static const char *const names[N_PARAMS] = {"a", "b", "c", "d"};
    tally_param params[N_PARAMS] = {0};
    const char *text = api_hook_text(rank);

    for (int i = 0; i < N_PARAMS; i++) {
        framework->shapes[i][0] = 1 + api_pick(rank, 8);
        framework->shapes[i][1] = api_pick(rank, 9);
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[api_chance(rank, 60) ? 0 : i],
                                  .n_dims = 2,
                                  .shape = framework->shapes[i],
                                  .flags = api_chance(rank, 100) ? TALLY_PARAM_FROZEN : 0};
    }
    api_note(rank, "  hook %s", text);
    return CALL(rank,
                tally_reducer_create(rank->groups[0], params, N_PARAMS, text, &framework->reducer));
}

/* A step in random buckets. Every future is waited for: the data is the operation's. */
static void step(struct api_rank *rank, struct framework *framework)
{
    int order[N_PARAMS] = {0, 1, 2, 3};
    tally_future *future = NULL;
    size_t n;

    if (api_chance(rank, 2)) {
        order[0] = 2;
        order[2] = api_chance(rank, 20) ? 9 : 0;
    }
    for (size_t k = 0; k < N_PARAMS; k += n) {
        n = 1 + api_pick(rank, (unsigned)(N_PARAMS - k));
        if (CALL(rank, tally_reducer_reduce(framework->reducer, order + k, n, framework->data,
                                            k + n == N_PARAMS && !api_chance(rank, 30),
                                            api_chance(rank, 4) ? 3 : 0, &future)) == TALLY_OK) {
            (void)api_finish(rank, future);
        }
    }
}

/* This rank's own blob is all there is in a world of one; elsewhere it is one too few. */
static void save_and_load(struct api_rank *rank, struct framework *framework)
{
    size_t bytes = 0;
    void *blob;

    if (CALL(rank, tally_reducer_save(framework->reducer, NULL, &bytes)) != TALLY_OK) {
        return;
    }
    blob = malloc(bytes);
    if (blob && CALL(rank, tally_reducer_save(framework->reducer, blob, &bytes)) == TALLY_OK) {
        const void *blobs[1] = {blob};

        (void)CALL(rank, tally_reducer_load(framework->reducer, blobs, &bytes, 1));
    }
    free(blob);
}

static void use(struct api_rank *rank, struct framework *framework)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_rank_stats late = {.size = sizeof late};
    unsigned n_steps = api_pick(rank, 4);

    for (unsigned s = 0; s < n_steps; s++) {
        step(rank, framework);
    }
    switch (api_pick(rank, 4)) {
    case 0:
        (void)CALL(rank, tally_reducer_set_hook(framework->reducer, api_hook_text(rank)));
        break;
    case 1:
        (void)CALL(rank, tally_reducer_attach_hook(framework->reducer,
                                                   rank->hooks[api_pick(rank, API_N_HOOKS)]));
        break;
    case 2:
        save_and_load(rank, framework);
        break;
    default:
        (void)CALL(rank, tally_reducer_get_stats(framework->reducer, &stats));
        (void)CALL(rank, tally_reducer_get_rank_stats(framework->reducer,
                                                      (int)api_pick(rank, 5) - 1, &late));
    }
    step(rank, framework);
}

static void run(struct api_rank *rank)
{
    struct framework *framework = calloc(1, sizeof *framework);
    tally_future *future = NULL;

    if (framework && make(rank, framework) == TALLY_OK) {
        use(rank, framework);
        /* A reducer that is freed in the middle of a step gives up its group, which a rank that
         * still waits may see. */
        if (CALL(rank, tally_barrier(rank->groups[0], &future)) == TALLY_OK) {
            (void)api_finish(rank, future);
        }
        (void)CALL(rank, tally_reducer_free(framework->reducer));
    }
    free(framework);
}

const struct api_row api_reducer_rows[] = {
    {"use a reducer", run, 3, false},
    {NULL, NULL, 0, false},
};

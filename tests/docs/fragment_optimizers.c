/* SPDX-License-Identifier: Apache-2.0 */
/* The C blocks of docs/optimizers.md, except the optimizer that the reader writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragment_model.h"

static unsigned long long steps_of(tally_optimizer *of)
{
    tally_optimizer_stats stats = {.size = sizeof stats};

    tally_optimizer_get_stats(of, &stats);
    return stats.step;
}

static void train(void)
{
    double before = distance();

#include "docs/optimizers.md#in-a-training-loop"
    EXPECT(steps_of(optimizer) == (unsigned long long)n_steps);
    EXPECT(distance() < before);
    tally_optimizer_free(optimizer);
}

static void train_groups(void)
{
#include "docs/optimizers.md#in-a-training-loop.2"
    EXPECT(tally_optimizer_lr(optimizer, 0) == 3e-4 && tally_optimizer_lr(optimizer, 1) == 6e-4);
    backward();
    tally_ddp_wait(ddp);
    tally_optimizer_step(optimizer);
}

/*
 * Every rank has the state of all: the states have equal length here, and are equal except for
 * shards.
 */
static void *save_own(size_t *saved)
{
#include "docs/optimizers.md#checkpoints"
    *saved = bytes;
    return blob;
}

static void save_and_load(void)
{
    int n_saved = tally_group_size(group);
    size_t sizes[8];
    const void *blobs[8];
    size_t saved;
    char *own = save_own(&saved);
    char *all = malloc(saved * (size_t)n_saved);
    tally_future *future;

    EXPECT(n_saved <= 8 && own && all);
    for (int r = 0; r < n_saved; r++) {
        sizes[r] = saved;
        blobs[r] = all + (size_t)r * saved;
    }
    tally_all_gather(group, own, sizes, all, &future);
    tally_future_wait(future);
    tally_future_free(future);
    tally_optimizer_set_lr(optimizer, -1, 1);
#include "docs/optimizers.md#checkpoints.2"
    EXPECT(tally_optimizer_lr(optimizer, 1) == 6e-4);
    free(own);
    free(all);
}

static void train_sharded(void)
{
    double before = distance();

#include "docs/optimizers.md#zero"
    backward();
    tally_ddp_wait(ddp);
    EXPECT(steps_of(optimizer) == 1 && distance() < before);
    tally_optimizer_free(optimizer);
}

void run_fragments(void)
{
    make_ddp(NULL);
    train();
    train_groups();
    save_and_load();
    tally_optimizer_free(optimizer);
    train_sharded();
    free_ddp();
}

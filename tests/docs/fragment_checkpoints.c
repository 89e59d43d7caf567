/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of C in docs/checkpoints.md. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fragment_model.h"

static long long position;

static void train(int from)
{
#include "docs/checkpoints.md#checkpoints"
    EXPECT((int)info.step == from && position == 64LL * n_steps);
}

/* All ranks work in one new folder, which rank 0 makes. */
static void enter_folder(char *folder)
{
    tally_future *future;

    if (tally_group_rank(group) == 0) {
        (void)snprintf(folder, 32, "/tmp/tally-docs-%ld", (long)getpid());
        EXPECT(mkdir(folder, 0777) == 0);
    }
    tally_broadcast(group, folder, 32, 0, &future);
    tally_future_wait(future);
    tally_future_free(future);
    EXPECT(chdir(folder) == 0);
}

void run_fragments(void)
{
    char folder[32] = "";
    char command[64];
    tally_future *future;

    enter_folder(folder);
    n_steps = 30;
    make_ddp(NULL);
    train(0);
    free_ddp();
    position = 0;
    n_steps = 50;
    make_ddp(NULL);
    train(30);
    free_ddp();
    tally_barrier(group, &future);
    tally_future_wait(future);
    tally_future_free(future);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    EXPECT(tally_group_rank(group) != 0 || system(command) == 0);
}

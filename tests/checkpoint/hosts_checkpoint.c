/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts_checkpoint DIR seen|hidden: ranks on several machines save to a directory and load from it.
 * With "hidden" only the machine of rank 0 has it: both calls fail on all ranks and name a rank
 * that does not see it, and training continues.
 */
#include <stdio.h>
#include <string.h>

#include "support/ckpt_run.h"

static int save_and_load(struct ckpt_run *run, const char *directory)
{
    tally_checkpoint_info info = {.size = sizeof info};
    tally_checkpoint_config config = ckpt_config(run);
    uint64_t hashes[2];

    CHECK_OK(run->group, ckpt_save(run, directory));
    config.async = 1;
    CHECK(run->group, ckpt_steps(run, 1) == 0);
    CHECK_OK(run->group, tally_checkpoint_save(run->ddp, directory, &config));
    CHECK(run->group, ckpt_hash(run, &hashes[0]) == 0);
    CHECK(run->group, ckpt_steps(run, 2) == 0);
    CHECK_OK(run->group, ckpt_load(run, directory, &info));
    CHECK(run->group, ckpt_hash(run, &hashes[1]) == 0);
    CHECK(run->group, hashes[0] == hashes[1] && info.step == 3);
    return 0;
}

/* The directory of rank 0 has a checkpoint. */
static int fail_to(struct ckpt_run *run, const char *directory)
{
    tally_checkpoint_info info = {.size = sizeof info};
    uint64_t hashes[2];

    CHECK(run->group, ckpt_hash(run, &hashes[0]) == 0);
    CHECK_STATUS(run->group, ckpt_save(run, directory), TALLY_SYSTEM);
    CHECK_TEXT(run->group, tally_last_error(), " does not see '");
    CHECK_TEXT(run->group, tally_last_error(), "rank 1");
    CHECK_STATUS(run->group, ckpt_load(run, directory, &info), TALLY_SYSTEM);
    CHECK_TEXT(run->group, tally_last_error(), " does not see '");
    CHECK_TEXT(run->group, tally_last_error(), "rank 1");
    CHECK(run->group, ckpt_hash(run, &hashes[1]) == 0);
    CHECK(run->group, hashes[0] == hashes[1]);
    return ckpt_steps(run, 1);
}

int main(int argc, char **argv)
{
    static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw"};
    static struct ckpt_run run;
    tally_group *group;
    int failures;

    if (argc != 3 || tally_group_open(NULL, &group) != TALLY_OK) {
        (void)fprintf(stderr, "hosts_checkpoint: %s\n", tally_last_error());
        return 2;
    }
    failures = ckpt_start(group, &setup, &run) != 0 || ckpt_steps(&run, 2) != 0;
    failures +=
        strcmp(argv[2], "seen") == 0 ? save_and_load(&run, argv[1]) : fail_to(&run, argv[1]);
    failures += ckpt_end(&run);
    printf("rank %d of %d: %s\n", tally_group_rank(group), tally_group_size(group),
           failures == 0 ? "as expected" : "FAILED");
    (void)tally_group_close(group);
    return failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torn checkpoints. Every write, fsync, rename, mkdir, unlink and rmdir of a save fails in turn, or
 * kills its process, on each rank, in the call and behind it. After each: the newest complete
 * checkpoint loads, with the bits of its step; if a call failed, all ranks have an error with a
 * text; the next save succeeds, and leaves no stray file.
 *
 *     test_checkpoint_torn [MOST]      worlds of 1 to MOST ranks; without: 2 ranks
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ckpt_run.h"
#include "support/failing_calls.h"

#define KEEP 2
#define MAX_STEPS 20000
#define MAX_WORLD 4

/* Shared by all processes. */
struct shared {
    uint64_t hashes[MAX_STEPS]; /* of the values after each step; 0: not known yet */
    unsigned long long newest;  /* step of the checkpoint that the last trial found */
    bool is_hit;
    bool has_saved; /* rank 0: the call under test has succeeded */
    char text[1024];
};

struct trial {
    struct shared *shared;
    const char *folder;
    int world;
    int victim; /* -1: nobody */
    const char *name;
    size_t n;
    bool kills;
    bool async;
    unsigned number; /* makes the name of the rendezvous unique */
};

static int save(struct ckpt_run *run, const struct trial *trial)
{
    tally_checkpoint_config config = ckpt_config(run);
    int rc;

    config.keep = KEEP;
    config.async = trial->async;
    rc = tally_checkpoint_save(run->ddp, trial->folder, &config);
    return rc == TALLY_OK ? tally_checkpoint_wait(run->ddp) : rc;
}

/* Loads, and compares with what the values were after that step. */
static int load(struct ckpt_run *run, const struct trial *trial, unsigned long long *step)
{
    tally_checkpoint_info info = {.size = sizeof info};

    CHECK_OK(run->group, ckpt_load(run, trial->folder, &info));
    CHECK(run->group, info.n_skipped == 0 && info.step < MAX_STEPS);
    *step = info.step;
    if (info.world == 0) {
        return 0;
    }
    CHECK(run->group, info.world == trial->world);
    CHECK(run->group, info.step == (unsigned long long)run->position);
    CHECK(run->group, ckpt_hash_values(run) == trial->shared->hashes[info.step]);
    return 0;
}

/* One save in which the call fails; loads before and after; then a save in which none fails. */
static int body(tally_group *group, const struct trial *trial)
{
    static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw", .shard = true};
    static struct ckpt_run run;
    struct shared *shared = trial->shared;
    unsigned long long before;
    unsigned long long after;
    bool is_victim = tally_group_rank(group) == trial->victim;
    int rc;

    CHECK(group, ckpt_start(group, &setup, &run) == 0);
    CHECK(group, load(&run, trial, &before) == 0);
    CHECK(group, ckpt_steps(&run, 1) == 0);
    shared->hashes[before + 1] = ckpt_hash_values(&run);
    if (is_victim) {
        failing_calls_kill(trial->kills);
        failing_calls_arm(trial->name, trial->n);
    }
    rc = save(&run, trial);
    if (is_victim) {
        shared->is_hit = failing_calls_hit();
        failing_calls_arm(NULL, 0);
    }
    shared->has_saved = tally_group_rank(group) == 0 ? rc == TALLY_OK : shared->has_saved;
    if (rc == TALLY_PEER || rc == TALLY_ABORTED) {
        return trial->kills ? 0 : 1;
    }
    CHECK(group, rc == TALLY_OK || rc == TALLY_SYSTEM);
    CHECK(group, rc == TALLY_OK || tally_last_error()[0] != '\0');
    CHECK(group, load(&run, trial, &after) == 0);
    CHECK(group, after == before + (rc == TALLY_OK) || (rc != TALLY_OK && after == before + 1));
    CHECK_OK(group, save(&run, trial));
    CHECK(group, load(&run, trial, &after) == 0);
    if (tally_group_rank(group) == 0) {
        shared->newest = after;
        CHECK(group, ckpt_count(trial->folder, ".") == 0);
        CHECK(group, ckpt_count(trial->folder, "save-") <= KEEP);
    }
    return ckpt_end(&run);
}

static int rank_main(const struct trial *trial, int rank)
{
    tally_group_config config;
    tally_group *group;
    char rendezvous[64];
    int rc;

    (void)snprintf(rendezvous, sizeof rendezvous, "@tally-torn-%d-%u", (int)getppid(),
                   trial->number);
    tally_group_config_init(&config, sizeof config);
    config.backend = "shm";
    config.rank = rank;
    config.world = trial->world;
    config.rendezvous = rendezvous;
    config.timeout_s = 20;
    config.lanes = 1;
    if (tally_group_open(&config, &group) != TALLY_OK) {
        (void)fprintf(stderr, "rank %d: %s\n", rank, tally_last_error());
        return 1;
    }
    rc = body(group, trial);
    (void)tally_group_close(group);
    return rc != 0;
}

/* Returns the number of ranks that complained. */
static int run(const struct trial *trial)
{
    pid_t pids[MAX_WORLD];
    int failures = 0;

    trial->shared->is_hit = false;
    for (int r = 0; r < trial->world; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            _exit(rank_main(trial, r));
        }
    }
    for (int r = 0; r < trial->world; r++) {
        int status = -1;

        (void)waitpid(pids[r], &status, 0);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && r == trial->victim &&
            trial->kills) {
            trial->shared->is_hit = true;
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            failures++;
        }
    }
    return failures;
}

/* All calls of a function on one rank. Returns failures; *n_points counts the calls. */
static int each_call(struct trial *trial, size_t *n_points)
{
    for (trial->n = 1;; trial->n++) {
        struct trial good = *trial;
        int failures;

        trial->number++;
        failures = run(trial);
        if (trial->shared->is_hit && trial->kills) {
            good.victim = -1;
            good.kills = false;
            good.number = ++trial->number;
            failures += run(&good);
            trial->shared->is_hit = true;
        }
        if (failures > 0) {
            (void)fprintf(stderr, "FAILED: world %d, %s number %zu %s on rank %d%s\n", trial->world,
                          trial->name, trial->n, trial->kills ? "kills" : "fails", trial->victim,
                          trial->async ? ", asynchronous" : "");
            return failures;
        }
        if (!trial->shared->is_hit) {
            return 0;
        }
        ++*n_points;
    }
}

static int world_of(struct trial *trial)
{
    static const char *const names[] = {"write", "fsync", "rename", "mkdir", "unlink", "rmdir"};
    size_t n_points = 0;
    int failures = 0;

    memset(trial->shared, 0, sizeof *trial->shared);
    trial->folder = ckpt_folder_make();
    for (int kills = 0; kills < 2; kills++) {
        for (trial->victim = 0; trial->victim < trial->world && failures == 0; trial->victim++) {
            for (size_t i = 0; i < sizeof names / sizeof names[0] && failures == 0; i++) {
                size_t before = n_points;

                trial->kills = kills != 0;
                trial->name = names[i];
                failures += each_call(trial, &n_points);
                if (trial->victim == 0 && n_points == before) {
                    (void)fprintf(stderr, "FAILED: no %s was tried\n", names[i]);
                    failures++;
                }
            }
        }
    }
    ckpt_folder_remove(trial->folder);
    printf("world %d, %s: %zu points\n", trial->world,
           trial->async ? "asynchronous" : "synchronous", n_points);
    return failures;
}

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 0; // NOLINT: a wrong number is 0
    struct trial trial = {.world = 2};
    int failures = 0;

    trial.shared =
        mmap(NULL, sizeof *trial.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trial.shared == MAP_FAILED || most > MAX_WORLD) {
        return 2;
    }
    for (int world = most ? 1 : 2; world <= (most ? most : 2); world++) {
        trial.world = world;
        for (int async = 0; async < 2; async++) {
            trial.async = async != 0;
            failures += world_of(&trial);
        }
    }
    return failures != 0;
}

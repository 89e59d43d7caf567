/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints as clumsy users make them: two ddps in one directory, sub-groups, a save while a step
 * is under way or gradients are accumulated, a save by some ranks only or with different configs, a
 * huge keep, a disk that is full after any number of bytes, and the end of a ddp, a fork or the end
 * of the program while a save is being written.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tally_extend.h>
#include <unistd.h>

#include "support/ckpt_run.h"

static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw"};
static char directory[200];

static int meet(tally_group *group)
{
    tally_future *future;

    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, tally_future_wait(future));
    tally_future_free(future);
    return 0;
}

static int save_with(struct ckpt_run *run, int keep, int async)
{
    tally_checkpoint_config config = ckpt_config(run);

    config.keep = keep;
    config.async = async;
    return tally_checkpoint_save(run->ddp, directory, &config);
}

/* ---- one directory ---- */

static int two_ddps_body(tally_group *group, void *user)
{
    struct ckpt_run *first = ckpt_begin(group, &setup);
    struct ckpt_run *second = ckpt_begin(group, &setup);
    char other_name[300];

    (void)user;
    CHECK(group, first && second);
    CHECK_OK(group, save_with(first, 0, 0));
    CHECK_STATUS(group, save_with(second, 0, 0), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "another ddp of this program saves into");
    (void)snprintf(other_name, sizeof other_name, "%s/../%s/.", directory,
                   strrchr(directory, '/') + 1);
    CHECK_STATUS(group, ckpt_save(second, other_name), TALLY_STATE);
    CHECK(group, ckpt_steps(second, 1) == 0);
    CHECK_OK(group, save_with(first, 0, 1));
    CHECK(group, ckpt_finish(first) == 0);
    CHECK_OK(group, save_with(second, 0, 0));
    CHECK(group, tally_group_rank(group) != 0 || ckpt_count(directory, "save-") == 3);
    return ckpt_finish(second);
}

/* Sub-groups of two ranks each: with a directory each, and with one for both. */
static int sub_groups_body(tally_group *group, void *user)
{
    int color = tally_group_rank(group) / 2;
    char own[300];
    tally_checkpoint_info info = {.size = sizeof info};
    tally_group *half;
    struct ckpt_run *run;
    int rc;

    CHECK_OK(group, tally_group_split(group, color, tally_group_rank(group), &half));
    run = ckpt_begin(half, &setup);
    CHECK(half, run);
    (void)snprintf(own, sizeof own, "%s-%d", directory, color);
    CHECK_OK(half, ckpt_save(run, own));
    CHECK_OK(half, ckpt_load(run, own, &info));
    CHECK(half, info.world == 2 && info.step == 1);
    /* The first of both to come has it; the other one is refused until the first is gone. */
    CHECK(group, meet(group) == 0);
    rc = save_with(run, 0, 0);
    CHECK(half, rc == TALLY_OK || rc == TALLY_STATE);
    CHECK(group, meet(group) == 0);
    if (tally_group_rank(half) == 0) {
        *((int *)user + color) = rc;
    }
    CHECK(half, ckpt_finish(run) == 0);
    CHECK_OK(half, tally_group_close(half));
    return 0;
}

/* ---- when ---- */

static int calls_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, tally_ddp_grad_ready(run->ddp, 4));
    CHECK_STATUS(group, save_with(run, 0, 0), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "tally_checkpoint_save: a step is under way");
    CHECK_STATUS(group, ckpt_load(run, directory, &info), TALLY_STATE);
    for (int i = 3; i >= 0; i--) {
        CHECK_OK(group, tally_ddp_grad_ready(run->ddp, i));
    }
    CHECK_OK(group, tally_ddp_wait(run->ddp));
    CHECK_OK(group, save_with(run, INT_MAX, 0));
    CHECK_OK(group, save_with(run, 0, 0));
    CHECK_STATUS(group, save_with(run, INT_MIN, 0), TALLY_ARG);
    CHECK(group, ckpt_count(directory, "save-") == 2);
    CHECK_OK(group, save_with(run, 1, 1));
    CHECK_STATUS(group, tally_ddp_grad_ready(run->ddp, 4), TALLY_OK);
    CHECK_STATUS(group, save_with(run, 1, 1), TALLY_STATE);
    for (int i = 3; i >= 0; i--) {
        CHECK_OK(group, tally_ddp_grad_ready(run->ddp, i));
    }
    CHECK_OK(group, tally_ddp_wait(run->ddp));
    CHECK_OK(group, tally_checkpoint_wait(run->ddp));
    CHECK_OK(group, tally_checkpoint_wait(run->ddp));
    CHECK(group, ckpt_count(directory, "save-") == 1);
    CHECK_STATUS(group, tally_checkpoint_wait(NULL), TALLY_ARG);
    return ckpt_finish(run);
}

/* Gradients of passes under no_sync are not in a checkpoint: they would be lost. */
static int no_sync_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, tally_ddp_no_sync_begin(run->ddp));
    CHECK_OK(group, save_with(run, 0, 0));
    if (tally_group_rank(group) == 1) {
        CHECK_OK(group, tally_ddp_grad_ready(run->ddp, 2));
    }
    CHECK_STATUS(group, save_with(run, 0, 1), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "the gradient of 'bias' was accumulated");
    CHECK_OK(group, tally_ddp_no_sync_end(run->ddp));
    CHECK_STATUS(group, save_with(run, 0, 0), TALLY_STATE);
    CHECK_OK(group, tally_ddp_zero_grad(run->ddp));
    CHECK_OK(group, save_with(run, 0, 0));
    CHECK_OK(group, tally_ddp_no_sync_begin(run->ddp));
    CHECK_OK(group, tally_ddp_grad_ready(run->ddp, 2));
    CHECK_OK(group, tally_ddp_no_sync_end(run->ddp));
    CHECK(group, ckpt_steps(run, 1) == 0);
    CHECK_OK(group, save_with(run, 0, 0));
    CHECK(group, ckpt_count(directory, "save-") == 3);
    return ckpt_finish(run);
}

/* ---- not all ranks ---- */

static int load_first(tally_group *group, unsigned long long step)
{
    tally_checkpoint_info info = {.size = sizeof info};

    CHECK_OK(group, tally_checkpoint_inspect(directory, NULL, &info, NULL, NULL));
    CHECK(group, info.step == step && ckpt_count(directory, "save-") == 1);
    return 0;
}

/* One rank saves, another one trains: both are told, and the checkpoint before stays. */
static int alone_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    int rc;

    CHECK(group, run);
    CHECK_OK(group, save_with(run, 0, 0));
    if (tally_group_rank(group) == 0) {
        rc = save_with(run, 1, *(const int *)user);
        rc = rc == TALLY_OK ? tally_checkpoint_wait(run->ddp) : rc;
    } else {
        for (int i = 4; i >= 0; i--) {
            CHECK_OK(group, tally_ddp_grad_ready(run->ddp, i));
        }
        rc = tally_ddp_wait(run->ddp);
    }
    CHECK_STATUS(group, rc, TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "tally_checkpoint_save");
    CHECK_STATUS(group, save_with(run, 0, 0), TALLY_ABORTED);
    CHECK(group, load_first(group, 1) == 0);
    return ckpt_finish(run);
}

/* Ranks that give different configs learn the first difference, and may save again. */
static int disagree_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_config config;

    (void)user;
    CHECK(group, run);
    CHECK_STATUS(group, save_with(run, tally_group_rank(group), 0), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "keep is 0 on rank 0 and 1 on rank 1");
    config = ckpt_config(run);
    run->blobs[0].name = tally_group_rank(group) == 0 ? "position" : "other";
    CHECK_STATUS(group, tally_checkpoint_save(run->ddp, directory, &config), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "blob 0 is 'position' on rank 0 and 'other' on rank 1");
    CHECK_OK(group, save_with(run, 0, 0));
    return ckpt_finish(run);
}

/* One rank has run out of input and is in tally_ddp_join; the others save. */
static int joined_body(tally_group *group, void *user)
{
    static const size_t shape[] = {8};
    float data[8] = {0};
    const tally_param param = {.size = sizeof param,
                               .name = "w",
                               .n_dims = 1,
                               .shape = shape,
                               .dtype = TALLY_F32,
                               .data = data};
    tally_ddp_config config;
    tally_ddp *ddp;
    int rc;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.join = 1;
    CHECK_OK(group, tally_ddp_create(group, &param, 1, &config, &ddp));
    CHECK_OK(group, tally_checkpoint_save(ddp, directory, NULL));
    rc = tally_group_rank(group) == 1 ? tally_ddp_join(ddp)
                                      : tally_checkpoint_save(ddp, directory, NULL);
    CHECK_STATUS(group, rc, TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "tally_ddp_join");
    CHECK(group, load_first(group, 0) == 0);
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* ---- ends while a save is being written ---- */

static int freed_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, save_with(run, 0, 1));
    CHECK(group, ckpt_finish(run) == 0);
    run = ckpt_begin(group, &setup);
    CHECK(group, run);
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, info.step == 1 && ckpt_count(directory, ".") == 0);
    return ckpt_finish(run);
}

/* A child that does nothing, and ends: neither the save nor the lock ends with it. */
static int forked_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    pid_t child;
    int status = -1;

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, save_with(run, 0, 1));
    child = fork();
    if (child == 0) {
        _exit(tally_checkpoint_wait(run->ddp) == TALLY_STATE ? 0 : 1);
    }
    CHECK(group, child > 0 && waitpid(child, &status, 0) == child);
    CHECK(group, WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_OK(group, tally_checkpoint_wait(run->ddp));
    CHECK_OK(group, save_with(run, 0, 1));
    return ckpt_finish(run);
}

/* A world of one in a new process, which ends without freeing anything. */
static int exit_while_saving(void)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0) {
        tally_group_config config;
        tally_group *group;
        struct ckpt_run *run;

        tally_group_config_init(&config, sizeof config);
        config.backend = "self";
        if (tally_group_open(&config, &group) != TALLY_OK) {
            _exit(1);
        }
        run = ckpt_begin(group, &setup);
        _exit(!run || save_with(run, 0, 0) != TALLY_OK || ckpt_steps(run, 1) != 0 ||
              save_with(run, 0, 1) != TALLY_OK);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                   WEXITSTATUS(status) == 0
               ? 0
               : 1;
}

static int after_exit_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, (info.step == 1 || info.step == 2) && info.n_skipped == 0);
    CHECK_OK(group, save_with(run, 0, 0));
    CHECK(group, ckpt_count(directory, ".") == 0);
    return ckpt_finish(run);
}

/* ---- a real disk ---- */

#define LARGE ((size_t)9 << 20)

struct disk {
    char here[32];           /* the directory */
    unsigned char *blobs[2]; /* per rank, of twice LARGE and more */
};

/* A large blob on the disk, not in memory: writes past the page cache, which need whole blocks. */
static int disk_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    const struct disk *disk = user;
    size_t bytes = LARGE + 5 + 4096 * (size_t)tally_group_rank(group);
    unsigned char *blob = disk->blobs[tally_group_rank(group)];
    tally_checkpoint_config config;

    CHECK(group, run);
    for (size_t i = 0; i < bytes; i++) {
        blob[i] = (unsigned char)(i * 31 + i / 4093);
    }
    memcpy(blob + bytes, blob, bytes);
    for (int async = 0; async < 2; async++) {
        config = ckpt_config(run);
        run->blobs[0].data = blob;
        run->blobs[0].bytes = bytes;
        config.async = async;
        config.keep = 1;
        CHECK_OK(group, tally_checkpoint_save(run->ddp, disk->here, &config));
        memset(blob, 0, bytes);
        CHECK_OK(group, tally_checkpoint_load(run->ddp, disk->here, &config, NULL));
        CHECK(group, run->blobs[0].loaded_bytes == bytes);
        CHECK(group, memcmp(blob, blob + bytes, bytes) == 0);
    }
    CHECK_OK(group, tally_checkpoint_inspect(disk->here, NULL, NULL, NULL, NULL));
    return ckpt_finish(run);
}

static int try_disk(void)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .world = 2, .lanes = 1};
    struct disk disk = {.here = "test-ckpt-XXXXXX"};
    int failures = 1;

    disk.blobs[0] = malloc(2 * LARGE + 20000);
    disk.blobs[1] = malloc(2 * LARGE + 20000);
    if (disk.blobs[0] && disk.blobs[1] && mkdtemp(disk.here)) {
        failures = ranks_run(&ranks, disk_body, &disk);
        ckpt_folder_remove(disk.here);
    }
    free(disk.blobs[0]);
    free(disk.blobs[1]);
    return failures;
}

/* ---- a full disk ---- */

/* A file ends at any byte. */
static int full_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    int n_failed = 0;
    uint64_t before;
    uint64_t after;

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, save_with(run, 0, 0));
    CHECK(group, ckpt_hash(run, &before) == 0);
    for (rlim_t most = 0;; most += (rlim_t)RANKS_REPEATS(97, 997)) {
        struct rlimit limit = {most, RLIM_INFINITY};
        int rc;

        CHECK(group, meet(group) == 0);
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        rc = save_with(run, 1, most % 2 == 1);
        rc = rc == TALLY_OK ? tally_checkpoint_wait(run->ddp) : rc;
        CHECK(group, meet(group) == 0);
        (void)setrlimit(RLIMIT_FSIZE, &all);
        if (rc == TALLY_OK) {
            break;
        }
        CHECK(group, rc == TALLY_SYSTEM);
        CHECK_TEXT(group, tally_last_error(), "File too large");
        CHECK_OK(group, ckpt_load(run, directory, &info));
        CHECK(group, strcmp(info.name, "save-000001-step-1") == 0 && info.n_skipped == 0);
        n_failed++;
    }
    CHECK(group, n_failed > 5);
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, ckpt_hash(run, &after) == 0);
    CHECK(group, before == after && strcmp(info.name, "save-000002-step-1") == 0);
    CHECK(group, ckpt_count(directory, ".") == 0);
    return ckpt_finish(run);
}

/* ---- all of them, each with a new directory ---- */

/* Their groups are given up. */
static bool gives_up(ranks_body *body)
{
    return body == alone_body || body == joined_body;
}

static int try_body(enum ranks_kind kind, int world, ranks_body *body, void *user)
{
    const struct ranks ranks = {
        .kind = kind, .world = world, .lanes = 1, .may_leak = gives_up(body)};
    const char *folder = ckpt_folder_make();
    int failures = 0;

    (void)snprintf(directory, sizeof directory, "%s/run", folder);
    if (body == after_exit_body) {
        failures += exit_while_saving();
    }
    failures += ranks_run(&ranks, body, user);
    ckpt_folder_remove(folder);
    return failures;
}

int main(void)
{
    int got[2] = {0};
    int failures = 0;

    (void)signal(SIGXFSZ, SIG_IGN);
    failures += try_body(RANKS_THREADS, 2, two_ddps_body, NULL);
    failures += try_body(RANKS_THREADS, 4, sub_groups_body, got);
    if (got[0] == got[1]) {
        (void)fprintf(stderr, "FAILED: two sub-groups in one directory get %d and %d\n", got[0],
                      got[1]);
        failures++;
    }
    failures += try_body(RANKS_THREADS, 3, calls_body, NULL);
    failures += try_body(RANKS_THREADS, 3, no_sync_body, NULL);
    for (int async = 0; async < 2; async++) {
        failures += try_body(RANKS_THREADS, 2, alone_body, &async);
    }
    failures += try_body(RANKS_THREADS, 3, disagree_body, NULL);
    failures += try_body(RANKS_THREADS, 3, joined_body, NULL);
    failures += try_body(RANKS_THREADS, 2, freed_body, NULL);
    failures += try_body(RANKS_THREADS, 2, full_body, NULL);
    failures += try_body(RANKS_THREADS, 1, after_exit_body, NULL);
    failures += try_disk();
    if (ranks_have_processes()) {
        failures += try_body(RANKS_PROCESSES, 2, two_ddps_body, NULL);
        failures += try_body(RANKS_PROCESSES, 2, freed_body, NULL);
        failures += try_body(RANKS_PROCESSES, 2, forked_body, NULL);
    }
    return failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories and names as users and administrators make them: a checkpoint in place of its
 * directory, links, files and folders where checkpoints are expected, a lock that somebody removed,
 * a parent that cannot be read, a disk that is full, names of any bytes and length.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ckpt_run.h"

static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw"};
static const char *folder;
static char directory[200];

/* folder/name, or with two names folder/name/more. */
static const char *path_of(const char *name, const char *more)
{
    static _Thread_local char path[1000];

    (void)snprintf(path, sizeof path, "%s/%s%s%s", folder, name, more ? "/" : "", more ? more : "");
    return path;
}

static void put_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);

    if (fd < 0 || close(fd) != 0) {
        abort();
    }
}

static bool exists(const char *path)
{
    struct stat about;

    return lstat(path, &about) == 0;
}

static int save_keeping(struct ckpt_run *run, int keep)
{
    tally_checkpoint_config config = ckpt_config(run);

    config.keep = keep;
    return tally_checkpoint_save(run->ddp, directory, &config);
}

static int meet(tally_group *group)
{
    tally_future *future;

    CHECK_OK(group, tally_barrier(group, &future));
    return ranks_finish(future);
}

/* On rank 0, while the other ranks wait. */
#define ON_RANK_0(group, statement)         \
    do {                                    \
        CHECK(group, meet(group) == 0);     \
        if (tally_group_rank(group) == 0) { \
            statement;                      \
        }                                   \
        CHECK(group, meet(group) == 0);     \
    } while (0)

/* ---- a checkpoint in place of its directory, and names of checkpoints ---- */

static int itself_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};
    tally_checkpoint_config config;
    const char *itself = path_of("run", "save-000001-step-1");
    const char *const names[] = {"", ".", "..", "../run", "save-000001-step-1/", ".saving-000001"};
    uint64_t before;
    uint64_t after;

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, ckpt_save(run, directory));
    CHECK(group, ckpt_hash(run, &before) == 0);
    CHECK_STATUS(group, ckpt_load(run, itself, &info), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "save-000001-step-1' is itself a checkpoint");
    CHECK_STATUS(group, ckpt_save(run, itself), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "save-000001-step-1' is itself a checkpoint");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        config = ckpt_config(run);
        config.name = names[i];
        CHECK_STATUS(group, tally_checkpoint_load(run->ddp, directory, &config, &info), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "is not the name of a checkpoint");
        CHECK_STATUS(group, tally_checkpoint_load(run->ddp, itself, &config, &info), TALLY_ARG);
    }
    CHECK(group, ckpt_hash(run, &after) == 0);
    CHECK(group, before == after && info.world == 0);
    CHECK(group, tally_checkpoint_inspect(itself, NULL, NULL, NULL, NULL) == TALLY_OK);
    CHECK_STATUS(group, tally_checkpoint_inspect("", NULL, NULL, NULL, NULL), TALLY_ARG);
    CHECK_OK(group, ckpt_save(run, directory));
    return ckpt_finish(run);
}

/* ---- other things in the directory ---- */

static void put_other_things(void)
{
    if (mkdir(path_of("mine", NULL), 0777) != 0 || mkdir(directory, 0777) != 0) {
        abort();
    }
    put_file(path_of("mine", "precious"));
    put_file(path_of("run", "save-000004-step-9"));
    put_file(path_of("run", "save-other"));
    put_file(path_of("run", "manifest"));
    put_file(path_of("run", ".deleting-000002"));
    if (symlink("../mine", path_of("run", ".saving-000005")) != 0 ||
        symlink("../mine", path_of("run", ".deleting-000001")) != 0 ||
        symlink("/nowhere", path_of("run", ".saving-000003")) != 0) {
        abort();
    }
}

/* Leftovers that are links: only the links go. Files named as checkpoints are skipped and count. */
static int things_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    CHECK(group, run);
    ON_RANK_0(group, put_other_things());
    CHECK_STATUS(group, ckpt_load(run, directory, &info), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "save-000004-step-9: its manifest cannot be read");
    CHECK_OK(group, save_keeping(run, 3));
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, strcmp(info.name, "save-000005-step-1") == 0);
    CHECK(group, exists(path_of("mine", "precious")) && ckpt_count(directory, ".") == 0);
    return ckpt_finish(run);
}

static void move_first(void)
{
    char from[1000];

    (void)snprintf(from, sizeof from, "%s", path_of("run", "save-000001-step-1"));
    if (rename(from, path_of("moved", NULL)) != 0 || symlink("../moved", from) != 0 ||
        mkdir(path_of("run", "save-000002-step-1/plots"), 0777) != 0) {
        abort();
    }
    put_file(path_of("run", "save-000002-step-1/plots/loss.png"));
    put_file(path_of("run", "save-000002-step-1/notes"));
}

/* A checkpoint that was moved to another disk, with a link to it: it loads, and keep removes the
 * link only. One with a folder of the application: keep removes the files, and saves go on. */
static int kept_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};
    tally_checkpoint_config config;

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, save_keeping(run, 0));
    CHECK_OK(group, save_keeping(run, 0));
    ON_RANK_0(group, move_first());
    config = ckpt_config(run);
    config.name = "save-000001-step-1";
    CHECK_OK(group, tally_checkpoint_load(run->ddp, directory, &config, &info));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(group, save_keeping(run, 1));
        CHECK(group, ckpt_count(directory, "save-") == 1);
    }
    CHECK(group, exists(path_of("moved", "manifest")));
    CHECK(group, exists(path_of("run", ".deleting-000002/plots/loss.png")));
    CHECK(group, !exists(path_of("run", ".deleting-000002/manifest")));
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, strcmp(info.name, "save-000005-step-1") == 0 && info.n_skipped == 0);
    return ckpt_finish(run);
}

/* ---- the lock ---- */

/* Whether this process's lock on the file holds: only another process can tell. */
static bool is_locked(const char *path)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(path, O_RDWR);

        _exit(fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_pid == getppid() ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* Another process empties the directory, or removes it, while the job runs. */
static int emptied_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};
    char aside[300];

    (void)user;
    (void)snprintf(aside, sizeof aside, "%s-aside", directory);
    CHECK(group, run);
    CHECK_OK(group, ckpt_save(run, directory));
    ON_RANK_0(group, CHECK(group, is_locked(path_of("run", "lock"))));
    ON_RANK_0(group, CHECK(group, unlink(path_of("run", "lock")) == 0));
    CHECK_OK(group, ckpt_save(run, directory));
    ON_RANK_0(group, CHECK(group, is_locked(path_of("run", "lock"))));
    ON_RANK_0(group, CHECK(group, rename(directory, aside) == 0));
    CHECK_OK(group, ckpt_save(run, directory));
    ON_RANK_0(group, CHECK(group, is_locked(path_of("run", "lock"))));
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, strcmp(info.name, "save-000001-step-1") == 0);
    CHECK_OK(group, ckpt_save(run, aside));
    return ckpt_finish(run);
}

/* ---- directories of all kinds ---- */

static int names_body(tally_group *group, void *user)
{
    static const char *const good[] = {"with blanks and \"quotes\"", "two\nlines\t", "\xc3\xbc\xff",
                                       "link", "run/../run//./"};
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};
    static _Thread_local char deep[6000];

    (void)user;
    CHECK(group, run);
    CHECK_OK(group, ckpt_save(run, directory));
    ON_RANK_0(group, CHECK(group, symlink("run", path_of("link", NULL)) == 0 &&
                                      symlink("gone", path_of("dangling", NULL)) == 0 &&
                                      symlink("loop", path_of("loop", NULL)) == 0));
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_OK(group, ckpt_save(run, path_of(good[i], NULL)));
        CHECK_OK(group, ckpt_load(run, path_of(good[i], NULL), &info));
        CHECK(group, info.world == tally_group_size(group));
    }
    CHECK_STATUS(group, ckpt_save(run, path_of("dangling", NULL)), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "dangling");
    CHECK_STATUS(group, ckpt_save(run, path_of("loop", NULL)), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "loop");
    memset(deep, 'x', 5999);
    deep[5999] = '\0';
    for (size_t n = 5999; n > 4000; n -= 1950) {
        deep[n] = '\0';
        CHECK_STATUS(group, ckpt_save(run, deep), TALLY_SYSTEM);
        CHECK_TEXT(group, tally_last_error(), "File name too long");
        CHECK_STATUS(group, ckpt_load(run, deep, &info), TALLY_SYSTEM);
    }
    CHECK(group, ckpt_steps(run, 1) == 0);
    return ckpt_finish(run);
}

/* Blobs of any name, and without bytes. */
static int blobs_body(tally_group *group, void *user)
{
    static char longest[1001];
    const char *const names[] = {"a/b",   "../../etc/passwd", ".",
                                 "/",     "manifest",         "\n\\x00 x",
                                 longest, "\xff\xfe",         "checksum 0"};
    enum { N = sizeof names / sizeof names[0] };
    tally_checkpoint_blob blobs[N + 1];
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_config config;
    int values[N];

    (void)user;
    memset(longest, 'n', 1000);
    CHECK(group, run);
    for (int i = 0; i < N; i++) {
        values[i] = 100 * tally_group_rank(group) + i;
        blobs[i] =
            (tally_checkpoint_blob){sizeof blobs[i], names[i], &values[i], sizeof values[i], 0};
    }
    blobs[N] = (tally_checkpoint_blob){sizeof blobs[N], "nothing", NULL, 0, 99};
    tally_checkpoint_config_init(&config, sizeof config);
    config.blobs = blobs;
    config.n_blobs = N + 1;
    for (config.async = 0; config.async < 2; config.async++) {
        CHECK_OK(group, tally_checkpoint_save(run->ddp, directory, &config));
        memset(values, 0, sizeof values);
        CHECK_OK(group, tally_checkpoint_load(run->ddp, directory, &config, NULL));
        for (int i = 0; i < N; i++) {
            CHECK(group, values[i] == 100 * tally_group_rank(group) + i);
            CHECK(group, blobs[i].loaded_bytes == sizeof values[i]);
        }
        CHECK(group, blobs[N].loaded_bytes == 0);
        CHECK(group, tally_checkpoint_inspect(directory, NULL, NULL, NULL, NULL) == TALLY_OK);
    }
    return ckpt_finish(run);
}

/* Names of parameters in the JSON of safetensors: always valid, and never its own. */
static int params_body(tally_group *group, void *user)
{
    static const size_t shape[] = {2};
    float data[2] = {1, 2};
    tally_param param = {.size = sizeof param,
                         .n_dims = 1,
                         .shape = shape,
                         .dtype = TALLY_F32,
                         .data = data,
                         .name = "gr\xc3\xbc\xc3 \xed\xa0\x80\xf0\x9f\x98\x80\xff"};
    char text[400] = "";
    tally_ddp *ddp;
    FILE *file;

    (void)user;
    CHECK_OK(group, tally_ddp_create(group, &param, 1, NULL, &ddp));
    CHECK_OK(group, tally_checkpoint_save(ddp, directory, NULL));
    data[0] = 0;
    CHECK_OK(group, tally_checkpoint_load(ddp, directory, NULL, NULL));
    CHECK(group, data[0] == 1);
    file = fopen(path_of("run", "save-000001-step-0/model.safetensors"), "rb");
    CHECK(group, file && fseek(file, 8, SEEK_SET) == 0 && fgets(text, sizeof text, file));
    (void)fclose(file);
    CHECK_TEXT(group, text, "\"gr\xc3\xbc\\u00c3 \\u00ed\\u00a0\\u0080\xf0\x9f\x98\x80\\u00ff\":{");
    CHECK_OK(group, tally_ddp_free(ddp));
    param.name = "__metadata__";
    CHECK_OK(group, tally_ddp_create(group, &param, 1, NULL, &ddp));
    CHECK_STATUS(group, tally_checkpoint_save(ddp, directory, NULL), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "parameter 0 has the name '__metadata__'");
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* ---- as the user of a cluster ---- */

/* The parent of the directory, such as /home, may be passed but not read. */
static int parent_body(tally_group *group, void *user)
{
    static struct ckpt_run run;
    bool is_root = geteuid() == 0;
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    ON_RANK_0(group, CHECK(group, mkdir(path_of("home", NULL), 0777) == 0 &&
                                      mkdir(path_of("home", "me"), 0777) == 0 &&
                                      chmod(path_of("home", "me"), 0777) == 0 &&
                                      chmod(path_of("home", NULL), is_root ? 0711 : 0311) == 0));
    CHECK(group, !is_root || seteuid(65534) == 0);
    CHECK(group, ckpt_start(group, &setup, &run) == 0);
    CHECK_OK(group, ckpt_save(&run, path_of("home", "me")));
    CHECK_OK(group, ckpt_load(&run, path_of("home", "me"), &info));
    CHECK(group, info.world == 2);
    CHECK_STATUS(group, ckpt_save(&run, path_of("home", "new")), is_root ? TALLY_SYSTEM : TALLY_OK);
    CHECK(group, ckpt_end(&run) == 0);
    /* A sanitizer looks at this process at its end, and may not if it is another user's. */
    CHECK(group, !is_root || (seteuid(0) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0));
    ON_RANK_0(group, CHECK(group, chmod(path_of("home", NULL), 0777) == 0));
    return 0;
}

/* A real disk that is full: a small file system in memory, where this user may make one. */
static int full_body(tally_group *group, void *user)
{
    struct ckpt_run *run = ckpt_begin(group, &setup);
    tally_checkpoint_info info = {.size = sizeof info};
    uint64_t before;
    uint64_t after;
    int n_saved = 0;
    int rc;

    (void)user;
    CHECK(group, run);
    for (rc = TALLY_OK; rc == TALLY_OK && n_saved < 100; n_saved++) {
        CHECK(group, ckpt_hash(run, &before) == 0);
        rc = ckpt_save(run, directory);
        CHECK(group, rc == TALLY_SYSTEM || ckpt_steps(run, 1) == 0);
    }
    CHECK(group, n_saved > 1);
    CHECK_STATUS(group, rc, TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "No space left on device");
    /* Often: one rank may find the disk full while the other still writes. */
    for (int i = 0; i < 200; i++) {
        CHECK_OK(group, tally_barrier(group, NULL));
        CHECK(group, ckpt_count(directory, ".") == 0);
        CHECK_OK(group, tally_barrier(group, NULL));
        CHECK_STATUS(group, ckpt_save(run, directory), TALLY_SYSTEM);
    }
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, info.step == (unsigned long long)n_saved - 1 && info.n_skipped == 0);
    ON_RANK_0(group, ckpt_folder_remove(path_of("run", "save-000001-step-1")));
    CHECK(group, ckpt_steps(run, 1) == 0);
    CHECK(group, ckpt_hash(run, &before) == 0);
    CHECK_OK(group, ckpt_save(run, directory));
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, ckpt_hash(run, &after) == 0);
    CHECK(group, before == after && info.step == (unsigned long long)n_saved);
    return ckpt_finish(run);
}

static int try_body(enum ranks_kind kind, ranks_body *body)
{
    const struct ranks ranks = {.kind = kind, .world = 2, .lanes = 1};
    bool is_full = body == full_body;
    int failures;

    folder = ckpt_folder_make();
    (void)chmod(folder, 0755);
    (void)snprintf(directory, sizeof directory, "%s/run", folder);
    if (is_full && mount("tally", folder, "tmpfs", 0, "size=128k") != 0) {
        printf("a full disk: skipped, this user may not mount one\n");
        ckpt_folder_remove(folder);
        return 0;
    }
    failures = ranks_run(&ranks, body, NULL);
    if (is_full) {
        (void)umount2(folder, MNT_DETACH);
    }
    ckpt_folder_remove(folder);
    return failures;
}

int main(void)
{
    static ranks_body *const bodies[] = {itself_body, things_body, kept_body,   emptied_body,
                                         names_body,  blobs_body,  params_body, full_body};
    int failures = 0;

    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        failures += try_body(RANKS_THREADS, bodies[i]);
    }
    if (ranks_have_processes()) {
        failures += try_body(RANKS_PROCESSES, kept_body);
        failures += try_body(RANKS_PROCESSES, parent_body);
    }
    return failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bad input to checkpoints: one clear error on all ranks, nothing changed in memory, nothing
 * damaged on the disk. Another model, damaged and missing files, flipped bits, an edited manifest,
 * two jobs in one directory, no permission, a path that is a file, ranks that disagree.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ckpt_run.h"

#define FIRST "save-000001-step-3"
#define SECOND "save-000002-step-4"

static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw:lr=0.01"};
static const char *folder;
static char run_folder[300]; /* the directory of the checkpoints, below folder */

static const char *path_of(const char *save, const char *name)
{
    static _Thread_local char path[600];

    (void)snprintf(path, sizeof path, "%s/%s/%s", run_folder, save, name);
    return path;
}

/* ---- two good checkpoints ---- */

static int save_body(tally_group *group, void *user)
{
    struct ckpt_run *run = malloc(sizeof *run);

    (void)user;
    CHECK(group, run && ckpt_start(group, &setup, run) == 0);
    CHECK(group, ckpt_steps(run, 3) == 0);
    CHECK_OK(group, ckpt_save(run, run_folder));
    CHECK(group, ckpt_steps(run, 1) == 0);
    CHECK_OK(group, ckpt_save(run, run_folder));
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

/* ---- loads ---- */

/* A load that must fail with a status and a part of the text, or succeed. */
struct load {
    int status;
    const char *text; /* of the error, or of the folders that are skipped */
    const char *name; /* config.name */
    const char *loaded;
    const char *blob;     /* the name of the application's first blob */
    size_t room;          /* of it */
    bool other_directory; /* on rank 1 */
    const char *directory;
};

static int load_body(tally_group *group, void *user)
{
    const struct load *load = user;
    struct ckpt_run *run = malloc(sizeof *run);
    tally_checkpoint_info info = {.size = sizeof info};
    tally_checkpoint_config config;
    uint64_t before;
    uint64_t after;

    CHECK(group, run && ckpt_start(group, &setup, run) == 0);
    CHECK(group, ckpt_steps(run, 2) == 0);
    CHECK(group, ckpt_hash(run, &before) == 0);
    config = ckpt_config(run);
    config.name = load->name;
    run->blobs[0].name = load->blob ? load->blob : run->blobs[0].name;
    run->blobs[0].bytes = load->room ? load->room : run->blobs[0].bytes;
    CHECK_STATUS(group,
                 tally_checkpoint_load(run->ddp,
                                       load->other_directory && tally_group_rank(group) == 1
                                           ? "/nowhere"
                                       : load->directory ? load->directory
                                                         : run_folder,
                                       &config, &info),
                 load->status);
    CHECK(group, ckpt_hash(run, &after) == 0);
    if (load->status != TALLY_OK) {
        CHECK_TEXT(group, tally_last_error(), load->text);
        CHECK(group, before == after && info.world == 0);
        CHECK(group, ckpt_steps(run, 1) == 0);
    } else {
        CHECK_TEXT(group, info.skipped, load->text);
        CHECK(group, strcmp(info.name, load->loaded) == 0);
    }
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

static int run_ranks(enum ranks_kind kind, ranks_body *body, const void *user)
{
    const struct ranks ranks = {.kind = kind, .world = 2, .lanes = 1};

    return ranks_run(&ranks, body, (void *)user);
}

static int try_load(const char *what, struct load load)
{
    int failures = run_ranks(RANKS_THREADS, load_body, &load);

    if (failures > 0) {
        (void)fprintf(stderr, "FAILED: %s\n", what);
    }
    return failures;
}

/* ---- damage, and its repair ---- */

struct kept {
    char path[600];
    char bytes[1 << 16];
    size_t n;
};

static void keep(struct kept *kept, const char *path)
{
    FILE *file = fopen(path, "rb");

    (void)snprintf(kept->path, sizeof kept->path, "%s", path);
    kept->n = file ? fread(kept->bytes, 1, sizeof kept->bytes, file) : 0;
    if (file) {
        (void)fclose(file);
    }
}

static void put_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
        abort();
    }
}

static void repair(const struct kept *kept)
{
    put_bytes(kept->path, kept->bytes, kept->n);
}

static int test_damage(void)
{
    static struct kept kept;
    static char edited[sizeof kept.bytes];
    char *at;
    int failures = 0;

    /* Not complete: the older one is loaded, and the newer one named. */
    keep(&kept, path_of(SECOND, "manifest"));
    (void)unlink(kept.path);
    failures +=
        try_load("no manifest",
                 (struct load){.text = SECOND ": its manifest cannot be read", .loaded = FIRST});
    repair(&kept);
    memcpy(edited, kept.bytes, kept.n);
    at = strstr(edited, "\nstep 4");
    at[6] = '5';
    put_bytes(kept.path, edited, kept.n);
    failures += try_load("edited manifest", (struct load){.text = "was edited", .loaded = FIRST});
    failures +=
        try_load("edited manifest by name", (struct load){TALLY_ARG, "was edited", .name = SECOND});
    repair(&kept);
    keep(&kept, path_of(SECOND, "state-00002-of-00002.tally"));
    (void)unlink(kept.path);
    failures += try_load("a missing file of a rank",
                         (struct load){.text = "state-00002-of-00002.tally", .loaded = FIRST});
    failures += try_load("a missing file of a rank, by name",
                         (struct load){TALLY_ARG, "state-00002-of-00002.tally", .name = SECOND});
    put_bytes(kept.path, kept.bytes, kept.n - 1);
    failures +=
        try_load("a file that was cut", (struct load){.text = "bytes, not", .loaded = FIRST});
    repair(&kept);

    /* Complete, but damaged. */
    kept.bytes[kept.n / 2] ^= 16;
    repair(&kept);
    failures +=
        try_load("a flipped bit",
                 (struct load){.status = TALLY_ARG, .text = "is damaged: the checksum of its "});
    failures +=
        try_load("the older one", (struct load){TALLY_OK, "", .name = FIRST, .loaded = FIRST});
    kept.bytes[kept.n / 2] ^= 16;
    repair(&kept);
    return failures + try_load("nothing is wrong", (struct load){.text = "", .loaded = SECOND});
}

static int test_calls(void)
{
    char file[300];
    int failures = 0;

    (void)snprintf(file, sizeof file, "%s/run/lock", folder);
    failures += try_load("a name that is not there",
                         (struct load){TALLY_ARG, "cannot be read", .name = "save-000009-step-9"});
    failures += try_load("a path as a name",
                         (struct load){TALLY_ARG, "is not the name", .name = "../run/" FIRST});
    failures += try_load("another blob", (struct load){TALLY_ARG, "no blob 'x'", .blob = "x"});
    failures += try_load("a small blob", (struct load){TALLY_ARG, "room for 3", .room = 3});
    failures += try_load("another directory on one rank",
                         (struct load){TALLY_MISMATCH, "directory is ", .other_directory = true});
    failures += try_load("a path that is a file",
                         (struct load){TALLY_SYSTEM, "Not a directory", .directory = file});
    return failures;
}

static void flip(char *byte, size_t bit)
{
    unsigned char flipped;

    memcpy(&flipped, byte, 1);
    flipped = (unsigned char)(flipped ^ (1u << bit));
    memcpy(byte, &flipped, 1);
}

/* Every byte of every file, a bit each: inspecting notices. */
static int flip_file(const char *name)
{
    static struct kept kept;
    int failures = 0;

    keep(&kept, path_of(SECOND, name));
    for (size_t i = 0; i < kept.n && failures == 0; i += RANKS_REPEATS(5, 41)) {
        flip(&kept.bytes[i], i % 8);
        repair(&kept);
        if (tally_checkpoint_inspect(run_folder, SECOND, NULL, NULL, NULL) != TALLY_ARG) {
            (void)fprintf(stderr, "FAILED: a flipped bit in byte %zu of %s is not noticed\n", i,
                          name);
            failures++;
        }
        flip(&kept.bytes[i], i % 8);
    }
    repair(&kept);
    return failures;
}

static int test_bits(void)
{
    DIR *all = opendir(path_of(SECOND, "."));
    const struct dirent *entry;
    int failures = 0;
    int n = 0;

    while (all && (entry = readdir(all))) { // NOLINT: one thread per DIR
        if (entry->d_name[0] != '.') {
            failures += flip_file(entry->d_name);
            n++;
        }
    }
    (void)(all && closedir(all));
    return failures + (n != 8) +
           (tally_checkpoint_inspect(run_folder, NULL, NULL, NULL, NULL) != TALLY_OK);
}

/* ---- another model ---- */

struct model {
    const char *name;
    int dtype;
    size_t shape[2];
    const char *text;
};

static int model_body(tally_group *group, void *user)
{
    const struct model *model = user;
    float data[400] = {1, 2, 3};
    float first[400];
    const tally_param param = {.size = sizeof param,
                               .name = model->name,
                               .n_dims = 2,
                               .shape = model->shape,
                               .dtype = model->dtype,
                               .data = data};
    tally_ddp *ddp;

    CHECK_OK(group, tally_ddp_create(group, &param, 1, NULL, &ddp));
    memcpy(first, data, sizeof data);
    CHECK_STATUS(group, tally_checkpoint_load(ddp, run_folder, NULL, NULL), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), model->text);
    CHECK(group, memcmp((const void *)first, (const void *)data, sizeof data) == 0);
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

static int test_models(void)
{
    static const struct model models[] = {
        {"other", TALLY_F32, {24, 16}, "parameter 0 is 'wte', and 'other' in this model"},
        {"wte", TALLY_BF16, {24, 16}, "parameter 'wte' as F32, this model as BF16"},
        {"wte", TALLY_F32, {16, 24}, "'wte' with shape (24, 16), this model with (16, 24)"},
        {"wte", TALLY_F32, {24, 16}, "it has 10 parameters, this model has 1"},
    };
    int failures = 0;

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        failures += run_ranks(RANKS_THREADS, model_body, &models[i]);
    }
    return failures;
}

/* A ddp without an optimizer takes the rest; an optimizer without a state is an error. */
static int lacking_body(tally_group *group, void *user)
{
    struct ckpt_run *run = malloc(sizeof *run);
    tally_checkpoint_config config;
    tally_checkpoint_info info = {.size = sizeof info};
    char directory[300];

    (void)user;
    (void)snprintf(directory, sizeof directory, "%s/lacking", folder);
    CHECK(group, run && ckpt_start(group, &(struct ckpt_setup){.hook = "int8"}, run) == 0);
    CHECK_OK(group, ckpt_load(run, run_folder, &info));
    CHECK(group, info.step == 4 && ckpt_steps(run, 1) == 0);
    CHECK_OK(group, ckpt_save(run, directory));
    CHECK(group, ckpt_end(run) == 0);
    CHECK(group, ckpt_start(group, &setup, run) == 0);
    CHECK_STATUS(group, ckpt_load(run, directory, &info), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "the state of the optimizer from 0 of 2 ranks");
    config = ckpt_config(run);
    config.params_only = 1;
    CHECK_OK(group, tally_checkpoint_load(run->ddp, directory, &config, &info));
    CHECK(group, info.step == 5 && run->position == 5);
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

/* ---- saves ---- */

static int check_save(struct ckpt_run *run, const char *directory, int status, const char *text)
{
    CHECK_STATUS(run->group, ckpt_save(run, directory), status);
    CHECK_TEXT(run->group, tally_last_error(), text);
    CHECK(run->group, ckpt_steps(run, 1) == 0);
    return 0;
}

static int saves_body(tally_group *group, void *user)
{
    struct ckpt_run *run = malloc(sizeof *run);
    tally_checkpoint_config config;
    tally_checkpoint_info info = {.size = sizeof info};
    char path[300];

    (void)user;
    CHECK(group, run && ckpt_start(group, &setup, run) == 0);
    CHECK(group, check_save(run, NULL, TALLY_ARG, "directory is NULL") == 0);
    CHECK(group, check_save(run, "", TALLY_ARG, "directory is empty") == 0);
    (void)snprintf(path, sizeof path, "%s/run/lock", folder);
    CHECK(group, check_save(run, path, TALLY_SYSTEM, "is a file") == 0);
    (void)snprintf(path, sizeof path, "%s/no/such", folder);
    CHECK(group, check_save(run, path, TALLY_SYSTEM, "No such file") == 0);
    config = ckpt_config(run);
    config.keep = -1;
    CHECK_STATUS(group, tally_checkpoint_save(run->ddp, run_folder, &config), TALLY_ARG);
    config = ckpt_config(run);
    run->blobs[1].name = run->blobs[0].name;
    CHECK_STATUS(group, tally_checkpoint_save(run->ddp, run_folder, &config), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "two blobs have the name 'position'");

    /* An asynchronous save fails later. */
    config = ckpt_config(run);
    config.async = 1;
    CHECK_OK(group, tally_checkpoint_save(run->ddp, path, &config));
    CHECK(group, ckpt_steps(run, 2) == 0);
    CHECK_STATUS(group, tally_checkpoint_save(run->ddp, path, &config), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "No such file");
    CHECK_OK(group, tally_checkpoint_wait(run->ddp));
    CHECK_OK(group, ckpt_load(run, run_folder, &info));
    CHECK(group, info.step == 4);
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

/* ---- with processes ---- */

/* A folder that only rank 0 sees; and one that the ranks may not write to: root becomes another
 * user, others take the permission from themselves. */
static int process_body(tally_group *group, void *user)
{
    static struct ckpt_run run;
    bool is_root = geteuid() == 0;
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    CHECK(group, ckpt_start(group, &setup, &run) == 0);
    CHECK(group, chdir(tally_group_rank(group) == 0 ? folder : "/tmp") == 0);
    CHECK_STATUS(group, ckpt_save(&run, "seen-by-one"), TALLY_SYSTEM);
    CHECK_TEXT(group, tally_last_error(), "rank 1 does not see 'seen-by-one/.saving-000001'");
    CHECK(group, tally_group_rank(group) != 0 || ckpt_count("seen-by-one", ".") == 0);
    CHECK(group, (is_root ? seteuid(65534) : chmod(run_folder, 0555)) == 0);
    CHECK(group, check_save(&run, run_folder, TALLY_SYSTEM, "Permission denied") == 0);
    CHECK_OK(group, ckpt_load(&run, run_folder, &info));
    CHECK(group, info.step == 4);
    CHECK(group, (is_root ? seteuid(0) : chmod(run_folder, 0755)) == 0);
    /* A sanitizer looks at this process at its end, and may not if it was another user's. */
    CHECK(group, prctl(PR_SET_DUMPABLE, 1) == 0);
    return ckpt_end(&run);
}

static int other_job_body(tally_group *group, void *user)
{
    static struct ckpt_run run;
    tally_checkpoint_info info = {.size = sizeof info};

    (void)user;
    CHECK(group, ckpt_start(group, &setup, &run) == 0);
    CHECK(group, check_save(&run, run_folder, TALLY_STATE, "another job (process ") == 0);
    CHECK_OK(group, ckpt_load(&run, run_folder, &info));
    return ckpt_end(&run);
}

static int hold_body(tally_group *group, void *user)
{
    static struct ckpt_run run;
    pid_t pid;

    CHECK(group, ckpt_start(group, &setup, &run) == 0);
    CHECK(group, ckpt_steps(&run, 1) == 0);
    CHECK_OK(group, ckpt_save(&run, run_folder));
    pid = getpid();
    CHECK(group, write(*(int *)user, &pid, sizeof pid) == sizeof pid);
    (void)pause();
    return 0;
}

/* Another job has saved and goes on. It is not our child: a test with ranks must have none. */
static int test_two_jobs(void)
{
    int ends[2];
    pid_t child;
    pid_t job;
    int failures;

    if (pipe(ends) != 0) {
        return 1;
    }
    child = fork();
    if (child == 0) {
        const struct ranks ranks = {.kind = RANKS_THREADS, .world = 1};

        _exit(fork() == 0 ? ranks_run(&ranks, hold_body, &ends[1]) != 0 : 0);
    }
    (void)waitpid(child, NULL, 0);
    if (read(ends[0], &job, sizeof job) != sizeof job) {
        return 1;
    }
    failures = run_ranks(RANKS_PROCESSES, other_job_body, NULL);
    (void)kill(job, SIGKILL);
    for (int n = 0; n < 5000 && kill(job, 0) == 0; n++) {
        ranks_sleep_ms(1);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    /* It is gone: so is its lock. */
    return failures + run_ranks(RANKS_PROCESSES, save_body, NULL);
}

int main(void)
{
    int failures;

    folder = ckpt_folder_make();
    (void)chmod(folder, 0755);
    (void)snprintf(run_folder, sizeof run_folder, "%s/run", folder);
    failures = run_ranks(RANKS_THREADS, save_body, NULL);
    failures += failures == 0 ? test_damage() : 0;
    failures += test_calls();
    failures += test_bits();
    failures += test_models();
    failures += run_ranks(RANKS_THREADS, lacking_body, NULL);
    failures += run_ranks(RANKS_THREADS, saves_body, NULL);
    if (ranks_have_processes()) {
        failures += run_ranks(RANKS_PROCESSES, process_body, NULL);
        failures += test_two_jobs();
    }
    ckpt_folder_remove(folder);
    return failures != 0;
}

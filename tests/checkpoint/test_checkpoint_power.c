/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A power cut at every moment of a save. The calls that change a disk are recorded; then for every
 * prefix of the record, the folders are made as they may look after the power returns, and a
 * checkpoint is loaded from them. Three kinds of disk:
 *
 *   strict    only what was synced is there: bytes of files, and names in folders
 *   eager     all names are there, but of the bytes of files only those that were synced
 *   zeroed    the same, and the missing bytes are zeros
 *
 * The newest complete checkpoint must load, with the bits of its step; once a save has returned, it
 * is the one of that save.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/ckpt_run.h"

#define MAX_OPS 2000
#define MAX_NODES 500
#define MAX_NAMES 40
#define N_SAVES 4
#define WORLD 2

/* ---- the record ---- */

enum op_kind { OP_CREATE, OP_WRITE, OP_SYNC, OP_RENAME, OP_MKDIR, OP_UNLINK, OP_RMDIR, OP_SAVED };

struct op {
    enum op_kind kind;
    char path[160];
    char to[160];
    void *bytes;
    size_t n;
};

static struct op ops[MAX_OPS];
static size_t n_ops;
static bool records;
static char fd_paths[1024][160];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void record(enum op_kind kind, const char *path, const char *to, const void *bytes, size_t n)
{
    (void)pthread_mutex_lock(&mutex);
    if (records && n_ops < MAX_OPS) {
        struct op *op = &ops[n_ops++];

        *op = (struct op){.kind = kind, .n = n, .bytes = malloc(n + 1)};
        (void)snprintf(op->path, sizeof op->path, "%s", path);
        (void)snprintf(op->to, sizeof op->to, "%s", to ? to : "");
        if (n > 0) {
            memcpy(op->bytes, bytes, n);
        }
    }
    (void)pthread_mutex_unlock(&mutex);
}

/* A descriptor that one thread has closed may be another thread's next. */
static void name_fd(int fd, const char *path)
{
    (void)pthread_mutex_lock(&mutex);
    (void)snprintf(fd_paths[fd], sizeof fd_paths[fd], "%s", path);
    (void)pthread_mutex_unlock(&mutex);
}

static void record_fd(enum op_kind kind, int fd, const void *bytes, size_t n)
{
    char path[sizeof fd_paths[0]];

    (void)pthread_mutex_lock(&mutex);
    memcpy(path, fd_paths[fd], sizeof path);
    (void)pthread_mutex_unlock(&mutex);
    if (path[0] == '/') {
        record(kind, path, NULL, bytes, n);
    }
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list args;
    int fd;

    va_start(args, flags);
    if (flags & O_CREAT) {
        mode = va_arg(args, mode_t);
    }
    va_end(args);
    fd = __real_open(path, flags, mode);
    if (fd >= 0 && fd < 1024) {
        name_fd(fd, path);
        if (flags & O_EXCL) {
            record(OP_CREATE, path, NULL, NULL, 0);
        }
    }
    return fd;
}

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    ssize_t written = __real_write(fd, bytes, n);

    if (written > 0 && fd < 1024) {
        record_fd(OP_WRITE, fd, bytes, (size_t)written);
    }
    return written;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    int rc = __real_fsync(fd);

    record_fd(OP_SYNC, fd, NULL, 0);
    return rc;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    record(OP_RENAME, from, to, NULL, 0);
    return __real_rename(from, to);
}

#define RECORD_PATH(name, kind, parameters, arguments) \
    int __real_##name parameters;                      \
    int __wrap_##name parameters;                      \
    int __wrap_##name parameters                       \
    {                                                  \
        int rc = __real_##name arguments;              \
                                                       \
        if (rc == 0) {                                 \
            record(kind, path, NULL, NULL, 0);         \
        }                                              \
        return rc;                                     \
    }
RECORD_PATH(mkdir, OP_MKDIR, (const char *path, mode_t mode), (path, mode))
RECORD_PATH(unlink, OP_UNLINK, (const char *path), (path))
RECORD_PATH(rmdir, OP_RMDIR, (const char *path), (path))

/* ---- a disk ---- */

/* A file or folder. Folders have names, now and when they were last synced. */
struct name {
    char text[80];
    int node; /* -1: free */
};

struct node {
    bool is_folder;
    unsigned char *bytes;
    size_t n;
    size_t n_synced;
    struct name names[MAX_NAMES];
    struct name synced[MAX_NAMES];
};

static struct node nodes[MAX_NODES];
static int n_nodes;

static int new_node(bool is_folder)
{
    struct node *node = &nodes[n_nodes];

    if (n_nodes == MAX_NODES) {
        abort();
    }
    *node = (struct node){.is_folder = is_folder};
    for (int k = 0; k < MAX_NAMES; k++) {
        node->names[k].node = -1;
        node->synced[k].node = -1;
    }
    return n_nodes++;
}

static struct name *find_name(struct node *folder, const char *text)
{
    for (int k = 0; k < MAX_NAMES; k++) {
        if (folder->names[k].node >= 0 && strcmp(folder->names[k].text, text) == 0) {
            return &folder->names[k];
        }
    }
    return NULL;
}

/* The folder that a path is in, and its last part. Paths begin with root. */
static struct node *folder_of(const char *root, const char *path, char *last)
{
    struct node *folder = &nodes[0];
    const char *at = path + strlen(root);

    for (;;) {
        size_t n;

        at += strspn(at, "/");
        n = strcspn(at, "/");
        (void)snprintf(last, 80, "%.*s", (int)n, at);
        if (at[n] == '\0') {
            return folder;
        }
        folder = &nodes[find_name(folder, last)->node];
        at += n;
    }
}

static void add_name(struct node *folder, const char *text, int node)
{
    for (int k = 0; k < MAX_NAMES; k++) {
        if (folder->names[k].node < 0) {
            (void)snprintf(folder->names[k].text, sizeof folder->names[k].text, "%s", text);
            folder->names[k].node = node;
            return;
        }
    }
    abort();
}

static void sync_node(struct node *node)
{
    node->n_synced = node->n;
    memcpy(node->synced, node->names, sizeof node->synced);
}

/* Applies one call. */
static void apply(const char *root, const struct op *op)
{
    char last[80];
    struct node *folder = op->kind == OP_SAVED ? NULL : folder_of(root, op->path, last);
    struct name *name = folder && last[0] ? find_name(folder, last) : NULL;
    struct node *node = name ? &nodes[name->node] : &nodes[0];

    if (op->kind == OP_CREATE || op->kind == OP_MKDIR) {
        add_name(folder, last, new_node(op->kind == OP_MKDIR));
    } else if (op->kind == OP_WRITE) {
        node->bytes = realloc(node->bytes, node->n + op->n);
        memcpy(node->bytes + node->n, op->bytes, op->n);
        node->n += op->n;
    } else if (op->kind == OP_SYNC) {
        sync_node(node);
    } else if (name && (op->kind == OP_UNLINK || op->kind == OP_RMDIR)) {
        name->node = -1;
    } else if (name && op->kind == OP_RENAME) {
        int moved = name->node;
        struct node *to = folder_of(root, op->to, last);

        name->node = -1;
        add_name(to, last, moved);
    }
}

enum disk { STRICT, EAGER, ZEROED };

/* Writes a node below path as it is after a power cut. Folders are few levels deep. */
// NOLINTNEXTLINE(misc-no-recursion)
static int materialize(const struct node *node, const char *path, enum disk disk)
{
    const struct name *names = disk == STRICT ? node->synced : node->names;
    size_t missing = node->n - node->n_synced;
    FILE *file;
    int rc = 0;

    if (!node->is_folder) {
        file = fopen(path, "wb");
        rc = !file || fwrite(node->bytes ? (const void *)node->bytes : "", 1, node->n_synced,
                             file) != node->n_synced;
        for (size_t k = 0; disk == ZEROED && k < missing; k++) {
            rc = fputc(0, file) != 0 || rc;
        }
        return (file && fclose(file) != 0) || rc;
    }
    rc = __real_mkdir(path, 0777) != 0;
    for (int k = 0; k < MAX_NAMES && rc == 0; k++) {
        char below[400];

        if (names[k].node >= 0) {
            (void)snprintf(below, sizeof below, "%.300s/%.79s", path, names[k].text);
            rc = materialize(&nodes[names[k].node], below, disk);
        }
    }
    return rc;
}

/* ---- the test ---- */

static uint64_t hashes[N_SAVES + 1]; /* of the values after each step */

struct scene {
    char directory[200];
    unsigned long long at_least; /* the step of the last save that had returned */
    unsigned long long found;
};

static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw"};

static int save_body(tally_group *group, void *user)
{
    const struct scene *scene = user;
    static struct ckpt_run runs[WORLD];
    struct ckpt_run *run = &runs[tally_group_rank(group)];

    CHECK(group, ckpt_start(group, &setup, run) == 0);
    for (int s = 1; s <= N_SAVES; s++) {
        tally_checkpoint_config config;

        CHECK(group, ckpt_steps(run, 1) == 0);
        if (tally_group_rank(group) == 0) {
            hashes[s] = ckpt_hash_values(run);
        }
        config = ckpt_config(run);
        config.keep = 2;
        CHECK_OK(group, tally_checkpoint_save(run->ddp, scene->directory, &config));
        if (tally_group_rank(group) == 0) {
            record(OP_SAVED, "", NULL, NULL, 0);
        }
    }
    return ckpt_end(run);
}

static int load_body(tally_group *group, void *user)
{
    struct scene *scene = user;
    static struct ckpt_run run;
    tally_checkpoint_info info = {.size = sizeof info};

    CHECK(group, ckpt_start(group, &setup, &run) == 0);
    CHECK_OK(group, ckpt_load(&run, scene->directory, &info));
    CHECK(group, info.step >= scene->at_least && info.step <= N_SAVES);
    CHECK(group, info.step == 0 || ckpt_hash_values(&run) == hashes[info.step]);
    CHECK(group, info.n_skipped == 0);
    scene->found = info.step;
    /* The next save works with any files left there. */
    CHECK_OK(group, ckpt_save(&run, scene->directory));
    CHECK(group, ckpt_count(scene->directory, ".") == 0);
    return ckpt_end(&run);
}

static int check_prefix(size_t n, unsigned long long at_least, const char *root)
{
    static const char *const words[] = {"strict", "eager", "zeroed"};
    int failures = 0;

    for (int disk = STRICT; disk <= ZEROED; disk++) {
        const struct ranks ranks = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};
        struct scene scene = {.at_least = at_least};
        char after[160];

        (void)snprintf(after, sizeof after, "%s-after", root);
        (void)snprintf(scene.directory, sizeof scene.directory, "%s/run", after);
        if (materialize(&nodes[0], after, (enum disk)disk) != 0 ||
            ranks_run(&ranks, load_body, &scene) != 0) {
            (void)fprintf(stderr, "FAILED: a power cut after call %zu, %s disk\n", n, words[disk]);
            failures++;
        }
        ckpt_folder_remove(after);
    }
    return failures;
}

static int replay(const char *root)
{
    unsigned long long n_saved = 0;
    int failures = 0;

    (void)new_node(true);
    for (size_t n = 0; n < n_ops && failures == 0; n++) {
        apply(root, &ops[n]);
        n_saved += ops[n].kind == OP_SAVED;
        /* Under a sanitizer some of them. */
        if (n % RANKS_REPEATS(1, 7) == 0 || ops[n].kind == OP_SAVED) {
            failures += check_prefix(n, n_saved, root);
        }
    }
    printf("%zu calls, %llu saves\n", n_ops, n_saved);
    return failures + (n_saved != N_SAVES);
}

int main(void)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .world = WORLD, .lanes = 1};
    const char *root = ckpt_folder_make();
    struct scene scene;
    int failures;

    (void)snprintf(scene.directory, sizeof scene.directory, "%s/run", root);
    records = true;
    failures = ranks_run(&ranks, save_body, &scene);
    records = false;
    failures += failures == 0 ? replay(root) : 0;
    for (size_t n = 0; n < n_ops; n++) {
        free(ops[n].bytes);
    }
    for (int k = 0; k < n_nodes; k++) {
        free(nodes[k].bytes);
    }
    ckpt_folder_remove(root);
    return failures != 0;
}

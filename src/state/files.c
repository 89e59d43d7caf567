/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and folders of checkpoints: the only calls of the system that write to a disk. Knows
 * nothing of what is written; folder_lock.c has the lock. Keeps no state; any thread enters.
 */
#include "state/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

/* Small pieces are collected in a buffer. Past the page cache all pieces are, and each write waits
 * for the disk; its sizes and addresses are multiples of a block. */
#define BUFFER_BYTES ((size_t)64 << 10)
#define DIRECT_BYTES ((size_t)4 << 20)
#define BLOCK_BYTES ((size_t)4096)

/* Bytes after which the disk is told to start writing. */
#define START_BYTES ((size_t)8 << 20)

static int fail(const char *what, const char *path)
{
    return tally__fail_errno(TALLY_SYSTEM, errno, "cannot %s '%.300s'", what, path);
}

int tally__path_join(const char *directory, const char *name, struct tally__path *path)
{
    /* cppcheck-suppress ctuuninitvar ; it is written here */
    int n = snprintf(path->text, sizeof path->text, "%s/%s", directory, name);

    return n > 0 && (size_t)n < sizeof path->text
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "the path '%.300s...' is too long", directory);
}

static int copy_path(const char *text, size_t n, struct tally__path *path)
{
    if (n >= sizeof path->text) {
        return tally__fail(TALLY_ARG, "the path '%.300s...' is too long", text);
    }
    memcpy(path->text, text, n);
    path->text[n] = '\0';
    return TALLY_OK;
}

/* ---- files ---- */

/* From now on through the page cache. */
static void leave_direct(struct tally__file_out *out)
{
    int flags = fcntl(out->fd, F_GETFL);

    (void)fcntl(out->fd, F_SETFL, flags & ~O_DIRECT);
    out->is_direct = false;
}

static int write_all(struct tally__file_out *out, const unsigned char *from, size_t n)
{
    while (n > 0) {
        ssize_t written = write(out->fd, from, n);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0 && errno == EINVAL && out->is_direct) {
            leave_direct(out);
            continue;
        }
        if (written <= 0) {
            errno = written == 0 ? EIO : errno;
            return fail("write to", out->path.text);
        }
        from += written;
        n -= (size_t)written;
        out->written += (size_t)written;
    }
    return TALLY_OK;
}

/* Only for speed: fsync follows. */
static void start(struct tally__file_out *out)
{
    if (!out->is_direct && out->written > out->started) {
        (void)sync_file_range(out->fd, (off_t)out->started, (off_t)(out->written - out->started),
                              SYNC_FILE_RANGE_WRITE);
    }
    out->started = out->written;
}

static int flush(struct tally__file_out *out)
{
    size_t blocks = out->is_direct ? out->used / BLOCK_BYTES * BLOCK_BYTES : 0;

    TRY(write_all(out, out->buffer, blocks));
    if (out->is_direct && blocks < out->used) {
        leave_direct(out);
    }
    TRY(write_all(out, out->buffer + blocks, out->used - blocks));
    out->used = 0;
    if (out->written - out->started >= START_BYTES) {
        start(out);
    }
    return TALLY_OK;
}

int tally__file_create(const char *path, bool is_past_cache, struct tally__file_out *out)
{
    *out = (struct tally__file_out){.fd = -1};
    TRY(copy_path(path, strlen(path), &out->path));
    out->room = is_past_cache ? DIRECT_BYTES : BUFFER_BYTES;
    out->buffer = tally__alloc(out->room, "the buffer of a file");
    if (!out->buffer) {
        return TALLY_NOMEM;
    }
    out->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0) {
        return fail("create", path);
    }
    out->is_direct = is_past_cache && fcntl(out->fd, F_SETFL, O_DIRECT) == 0;
    return TALLY_OK;
}

int tally__file_put(struct tally__file_out *out, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;

    while (n > 0) {
        size_t count = n < out->room - out->used ? n : out->room - out->used;

        if (!out->is_direct && n >= BUFFER_BYTES) {
            TRY(flush(out));
            return write_all(out, from, n);
        }
        memcpy(out->buffer + out->used, from, count);
        out->used += count;
        from += count;
        n -= count;
        if (out->used == out->room) {
            TRY(flush(out));
        }
    }
    return TALLY_OK;
}

int tally__file_start(struct tally__file_out *out)
{
    TRY(flush(out));
    start(out);
    tally__free(out->buffer);
    out->buffer = NULL;
    return TALLY_OK;
}

int tally__file_sync(struct tally__file_out *out)
{
    int fd = out->fd;

    if (fsync(fd) != 0) {
        return fail("write to", out->path.text);
    }
    out->fd = -1;
    return close(fd) == 0 ? TALLY_OK : fail("write to", out->path.text);
}

void tally__file_close(struct tally__file_out *out)
{
    if (out->fd >= 0) {
        (void)close(out->fd);
    }
    tally__free(out->buffer);
    *out = (struct tally__file_out){.fd = -1};
}

int tally__file_open(const char *path, size_t offset, struct tally__file_in *in)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    *in = (struct tally__file_in){.fd = fd, .path = path, .offset = offset};
    return fd >= 0 ? TALLY_OK : fail("open", path);
}

int tally__file_take(struct tally__file_in *in, void *bytes, size_t n)
{
    unsigned char *to = bytes;

    while (n > 0) {
        ssize_t got = pread(in->fd, to, n, (off_t)in->offset);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail("read", in->path);
        }
        if (got == 0) {
            return tally__fail(TALLY_SYSTEM, "cannot read '%.300s': it ends too early", in->path);
        }
        to += got;
        in->offset += (size_t)got;
        n -= (size_t)got;
    }
    return TALLY_OK;
}

void tally__file_leave(struct tally__file_in *in)
{
    (void)close(in->fd);
}

int tally__file_read_all(const char *path, size_t most, char **bytes, size_t *n)
{
    struct tally__file_in in;
    size_t size;
    char *all;
    int rc;

    if (!tally__file_size(path, &size)) {
        return fail("read", path);
    }
    if (size > most) {
        return tally__fail(TALLY_ARG, "'%.300s' has %zu bytes: too many", path, size);
    }
    all = tally__alloc(size + 1, "a file");
    if (!all) {
        return TALLY_NOMEM;
    }
    rc = tally__file_open(path, 0, &in);
    if (rc == TALLY_OK) {
        rc = tally__file_take(&in, all, size);
        tally__file_leave(&in);
    }
    if (rc != TALLY_OK) {
        tally__free(all);
        return rc;
    }
    *bytes = all;
    *n = size;
    return TALLY_OK;
}

bool tally__file_size(const char *path, size_t *n)
{
    struct stat file;

    if (stat(path, &file) != 0) {
        return false;
    }
    if (!S_ISREG(file.st_mode)) {
        errno = EISDIR;
        return false;
    }
    *n = (size_t)file.st_size;
    return true;
}

int tally__rename(const char *from, const char *to)
{
    return rename(from, to) == 0 ? TALLY_OK : fail("rename", from);
}

/* ---- folders ---- */

int tally__folder_make(const char *path)
{
    struct stat folder;

    if (mkdir(path, 0777) == 0) {
        return TALLY_OK;
    }
    if (errno != EEXIST) {
        return fail("create the folder", path);
    }
    if (stat(path, &folder) == 0 && !S_ISDIR(folder.st_mode)) {
        return tally__fail(TALLY_SYSTEM, "'%.300s' is a file: a folder is needed", path);
    }
    return TALLY_OK;
}

int tally__folder_make_new(const char *path)
{
    return mkdir(path, 0777) == 0 ? TALLY_OK : fail("create the folder", path);
}

int tally__folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = TALLY_OK;

    if (fd < 0) {
        return fail("open the folder", path);
    }
    /* Some file systems cannot sync a folder; they need not. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        rc = fail("write the folder", path);
    }
    (void)close(fd);
    return rc;
}

int tally__folder_sync_parent(const char *path)
{
    struct tally__path parent;
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    TRY(copy_path(n > 0 ? path : ".", n > 0 ? n : 1, &parent));
    /* This user may pass a parent such as /home, but not read it: then nothing can be done. */
    return faccessat(AT_FDCWD, parent.text, R_OK, AT_EACCESS) != 0 && errno == EACCES
               ? TALLY_OK
               : tally__folder_sync(parent.text);
}

int tally__folder_list(const char *path, bool *exists, int (*fn)(void *user, const char *name),
                       void *user)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int rc = TALLY_OK;

    if (exists) {
        *exists = folder || errno != ENOENT;
    }
    if (!folder) {
        return exists && !*exists ? TALLY_OK : fail("read the folder", path);
    }
    while (rc == TALLY_OK && (entry = readdir(folder))) { // NOLINT: one thread per DIR
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = fn(user, entry->d_name);
        }
    }
    (void)closedir(folder);
    return rc;
}

static int remove_entry(void *user, const char *name)
{
    struct tally__path path;

    TRY(tally__path_join(user, name, &path));
    /* A folder is not tally's: it stays, and so does the folder around it. */
    return unlink(path.text) == 0 || errno == ENOENT || errno == EISDIR ? TALLY_OK
                                                                        : fail("remove", path.text);
}

int tally__folder_remove(const char *path)
{
    struct stat about;
    bool exists;

    /* Never through a link: the folder at its end belongs to another user. */
    if (lstat(path, &about) == 0 && !S_ISDIR(about.st_mode)) {
        return unlink(path) == 0 ? TALLY_OK : fail("remove", path);
    }
    TRY(tally__folder_list(path, &exists, remove_entry, (void *)path));
    return !exists || rmdir(path) == 0 ? TALLY_OK : fail("remove the folder", path);
}

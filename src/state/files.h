/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and folders of checkpoints. No other file of src/state calls the system for a disk. Every
 * function returns TALLY_OK, or SYSTEM with the path and the words of the system.
 */
#ifndef TALLY_STATE_FILES_H
#define TALLY_STATE_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Longest path, with its NUL. */
#define TALLY__PATH_BYTES 4096

struct tally__path {
    char text[TALLY__PATH_BYTES];
};

/* directory/name, or directory/folder/name. Errors: ARG if it is too long. */
int tally__path_join(const char *directory, const char *name, struct tally__path *path);

/*
 * A file that is being written. create makes one that does not exist; put adds bytes, which may
 * stay in a buffer; start, after the last byte, lets the disk begin; sync returns when all bytes
 * are on the disk; close, also after a failure, frees everything. is_past_cache: bytes go past the
 * page cache, if the file system allows it: more time, but less of the CPU and of the memory.
 */
struct tally__file_out {
    int fd; /* -1: not open */
    struct tally__path path;
    bool is_direct;
    unsigned char *buffer;
    size_t room;
    size_t used;
    size_t written; /* bytes of the file */
    size_t started; /* of those: the disk was told */
};
int tally__file_create(const char *path, bool is_past_cache, struct tally__file_out *out);
int tally__file_put(struct tally__file_out *out, const void *bytes, size_t n);
int tally__file_start(struct tally__file_out *out);
int tally__file_sync(struct tally__file_out *out);
void tally__file_close(struct tally__file_out *out);

/* A file that is being read, from offset on; leave closes it. Errors of take: also SYSTEM if the
 * file ends before. */
struct tally__file_in {
    int fd;
    const char *path;
    size_t offset;
};
int tally__file_open(const char *path, size_t offset, struct tally__file_in *in);
int tally__file_take(struct tally__file_in *in, void *bytes, size_t n);
void tally__file_leave(struct tally__file_in *in);

/* Reads a whole file into new memory, with a NUL after it; the caller frees it. Errors: ARG if it
 * has more than most bytes; NOMEM. */
int tally__file_read_all(const char *path, size_t most, char **bytes, size_t *n);

/* Whether path is a regular file; *n is its size. */
bool tally__file_size(const char *path, size_t *n);

/* Creates a folder, or finds that it exists. */
int tally__folder_make(const char *path);
/* Creates a folder that does not exist. */
int tally__folder_make_new(const char *path);
/* Returns when the names in a folder are on the disk. */
int tally__folder_sync(const char *path);
/* Returns when the name of a folder in its parent is on the disk, if this user may read the parent.
 */
int tally__folder_sync_parent(const char *path);
/* Renames a file or folder. */
int tally__rename(const char *from, const char *to);
/* Removes a folder and the files in it, or a file or a link with this name. A folder inside is an
 * error. */
int tally__folder_remove(const char *path);

/* Calls fn for every name in a folder, except "." and "..". *exists is false if there is no such
 * folder; exists may be NULL, then that is an error too. Errors: also those of fn. */
int tally__folder_list(const char *path, bool *exists, int (*fn)(void *user, const char *name),
                       void *user);

/*
 * Holds a lock of this process on a folder: the file "lock" in it. The system takes it back when
 * the process ends. fd stays open while it is held; tally__folder_unlock closes it; -1: none.
 * Errors: STATE if another process holds it, or this one already does. On a file system without
 * locks it succeeds with -1.
 */
int tally__folder_lock(const char *path, int *fd);
void tally__folder_unlock(int fd);
/* Whether the file that fd locks is still the lock of the folder: another process may have removed
 * it. */
bool tally__folder_is_locked(const char *path, int fd);

#endif

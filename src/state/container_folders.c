/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folders of a directory of checkpoints: their names, which of them are complete, and deleting.
 * Not responsible for their contents. Only rank 0 of a run enters, in a job, or a program that
 * inspects.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "state/container.h"

#define SAVED "save-"
#define SAVING ".saving-"
#define DELETING ".deleting-"
#define MOST_MANIFEST_BYTES ((size_t)1 << 30)

/* One complete checkpoint, by its name. */
struct entry {
    uint64_t number;
    char name[TALLY__FOLDER_BYTES];
};

struct entries {
    const char *directory;
    size_t n;
    size_t room;
    struct entry *of;
};

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Whether name is that of a checkpoint; *number is its number. */
static bool read_name(const char *name, uint64_t *number)
{
    char again[TALLY__FOLDER_BYTES];
    uint64_t step;

    if (sscanf(name, SAVED "%" SCNu64 "-step-%" SCNu64, number, &step) != 2) { // NOLINT: compared
        return false;
    }
    (void)snprintf(again, sizeof again, SAVED "%06" PRIu64 "-step-%" PRIu64, *number, step);
    return strcmp(name, again) == 0;
}

static int add_entry(void *user, const char *name)
{
    struct entries *entries = user;
    uint64_t number;

    if (!read_name(name, &number)) {
        return TALLY_OK;
    }
    if (entries->n == entries->room) {
        size_t room = entries->room ? 2 * entries->room : 16;
        struct entry *more = tally__alloc_array(room, sizeof *more, "a list of checkpoints");

        if (!more) {
            return TALLY_NOMEM;
        }
        if (entries->of) {
            memcpy(more, entries->of, entries->n * sizeof *more);
        }
        tally__free(entries->of);
        entries->of = more;
        entries->room = room;
    }
    entries->of[entries->n].number = number;
    (void)snprintf(entries->of[entries->n].name, TALLY__FOLDER_BYTES, "%s", name);
    entries->n++;
    return TALLY_OK;
}

static int newer_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->number != y->number ? (x->number < y->number ? 1 : -1) : strcmp(y->name, x->name);
}

/* Lists the checkpoints, the newest first. The caller frees entries->of, also after a failure. */
static int list(const char *directory, struct entries *entries)
{
    bool exists;

    *entries = (struct entries){.directory = directory};
    TRY(tally__folder_list(directory, &exists, add_entry, entries));
    if (entries->n > 0) {
        qsort(entries->of, entries->n, sizeof *entries->of, newer_first);
    }
    return TALLY_OK;
}

bool tally__folder_is_checkpoint(const char *folder)
{
    static const char words[] = "tally checkpoint ";
    char found[sizeof words - 1];
    struct tally__file_in in;
    struct tally__path path;
    struct tally__aside before;
    size_t bytes;
    bool is_one = false;

    tally__put_aside(&before);
    if (tally__path_join(folder, TALLY__MANIFEST, &path) == TALLY_OK &&
        tally__file_size(path.text, &bytes) && bytes >= sizeof found &&
        tally__file_open(path.text, 0, &in) == TALLY_OK) {
        is_one = tally__file_take(&in, found, sizeof found) == TALLY_OK &&
                 memcmp(found, words, sizeof found) == 0;
        tally__file_leave(&in);
    }
    (void)tally__take_back(&before, TALLY_OK);
    return is_one;
}

/* The caller gave one checkpoint, and not the directory of all. */
static int refuse_checkpoint(const char *directory)
{
    return tally__folder_is_checkpoint(directory)
               ? tally__fail(TALLY_ARG,
                             "'%.300s' is itself a checkpoint: give the directory that contains it "
                             "(config.name chooses a checkpoint to load)",
                             directory)
               : TALLY_OK;
}

/* ---- saving ---- */

/* Removes what former saves left. A failure is not one of this save: the application may have put a
 * folder into a checkpoint that is being deleted. */
static int remove_leftover(void *user, const char *name)
{
    struct tally__path path;

    if (!begins(name, SAVING) && !begins(name, DELETING)) {
        return TALLY_OK;
    }
    TRY(tally__path_join(user, name, &path));
    if (tally__folder_remove(path.text) != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "checkpoint: a leftover cannot be removed: %s",
                   tally_last_error());
    }
    return TALLY_OK;
}

static int make_folder(const char *directory, uint64_t step, struct tally__folder_names *names)
{
    struct entries entries;
    struct tally__path path;
    int rc = list(directory, &entries);
    uint64_t number = rc == TALLY_OK && entries.n > 0 ? entries.of[0].number + 1 : 1;

    tally__free(entries.of);
    TRY(rc);
    (void)snprintf(names->temporary, sizeof names->temporary, SAVING "%06" PRIu64, number);
    (void)snprintf(names->final, sizeof names->final, SAVED "%06" PRIu64 "-step-%" PRIu64, number,
                   step);
    TRY(tally__path_join(directory, names->temporary, &path));
    return tally__folder_make_new(path.text);
}

int tally__folders_begin(const char *directory, uint64_t step, int *lock_fd,
                         struct tally__folder_names *names)
{
    TRY(tally__folder_make(directory));
    TRY(refuse_checkpoint(directory));
    if (!tally__folder_is_locked(directory, *lock_fd)) {
        tally__folder_unlock(*lock_fd);
        *lock_fd = -1;
        TRY(tally__folder_sync_parent(directory));
        TRY(tally__folder_lock(directory, lock_fd));
    }
    TRY(tally__folder_list(directory, NULL, remove_leftover, (void *)directory));
    return make_folder(directory, step, names);
}

int tally__folders_finish(const char *directory, const struct tally__folder_names *names)
{
    struct tally__path from;
    struct tally__path to;

    TRY(tally__path_join(directory, names->temporary, &from));
    TRY(tally__path_join(directory, names->final, &to));
    TRY(tally__folder_sync(from.text));
    TRY(tally__rename(from.text, to.text));
    return tally__folder_sync(directory);
}

/* Under another name first: a checkpoint that is half deleted must not look like one. */
static int delete_one(const char *directory, const struct entry *entry)
{
    char name[TALLY__FOLDER_BYTES];
    struct tally__path from;
    struct tally__path to;

    (void)snprintf(name, sizeof name, DELETING "%06" PRIu64, entry->number);
    TRY(tally__path_join(directory, entry->name, &from));
    TRY(tally__path_join(directory, name, &to));
    TRY(tally__rename(from.text, to.text));
    TRY(tally__folder_sync(directory));
    return tally__folder_remove(to.text);
}

static void note_not_deleted(void)
{
    tally__log(TALLY_LOG_WARN, "checkpoint: an old checkpoint cannot be deleted: %s",
               tally_last_error());
}

void tally__folders_trim(const char *directory, int keep)
{
    struct tally__aside before;
    struct entries entries;

    if (keep <= 0) {
        return;
    }
    tally__put_aside(&before);
    if (list(directory, &entries) != TALLY_OK) {
        note_not_deleted();
        entries.n = 0;
    }
    for (size_t i = (size_t)keep; i < entries.n; i++) {
        if (delete_one(directory, &entries.of[i]) != TALLY_OK) {
            note_not_deleted();
        }
    }
    tally__free(entries.of);
    (void)tally__take_back(&before, TALLY_OK);
}

void tally__folders_discard(const char *directory, const struct tally__folder_names *names)
{
    struct tally__aside error;
    struct tally__path path;

    tally__put_aside(&error);
    if (tally__path_join(directory, names->temporary, &path) == TALLY_OK) {
        (void)tally__folder_remove(path.text);
    }
    (void)tally__take_back(&error, TALLY_OK);
}

/* ---- finding ---- */

static int check_files(const char *folder, const struct tally__manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_files; i++) {
        const struct tally__manifest_file *file = &manifest->files[i];
        struct tally__path path;
        size_t bytes;

        TRY(tally__path_join(folder, file->name, &path));
        if (!tally__file_size(path.text, &bytes)) {
            return tally__fail_errno(TALLY_ARG, errno, "its file %.200s cannot be read",
                                     file->name);
        }
        if (bytes != file->bytes) {
            return tally__fail(TALLY_ARG, "its file %.200s has %zu bytes, not %zu", file->name,
                               bytes, file->bytes);
        }
    }
    return TALLY_OK;
}

int tally__folder_check(const char *folder, char **text, size_t *n_text)
{
    struct tally__manifest manifest;
    struct tally__path path;
    char *all;
    size_t n;
    int rc;

    TRY(tally__path_join(folder, TALLY__MANIFEST, &path));
    if (!tally__file_size(path.text, &n)) {
        return tally__fail_errno(TALLY_ARG, errno, "its manifest cannot be read");
    }
    TRY(tally__file_read_all(path.text, MOST_MANIFEST_BYTES, &all, &n));
    rc = tally__manifest_read(all, n, &manifest);
    if (rc == TALLY_ARG) {
        rc = tally__fail(TALLY_ARG, "its manifest is not valid: %s", tally_last_error());
    }
    if (rc == TALLY_OK) {
        rc = check_files(folder, &manifest);
        tally__manifest_free(&manifest);
    }
    if (rc != TALLY_OK) {
        tally__free(all);
        return rc;
    }
    *text = all;
    *n_text = n;
    return TALLY_OK;
}

static void note_skipped(struct tally__found *found, const char *name)
{
    size_t used = strlen(found->skipped);

    (void)snprintf(found->skipped + used, sizeof found->skipped - used, "%s%s: %s",
                   used > 0 ? "; " : "", name, tally_last_error());
    found->n_skipped++;
}

static int try_entry(const char *directory, const char *name, struct tally__found *found)
{
    struct tally__path folder;
    int rc;

    TRY(tally__path_join(directory, name, &folder));
    rc = tally__folder_check(folder.text, &found->text, &found->n_text);
    if (rc == TALLY_OK) {
        (void)snprintf(found->name, sizeof found->name, "%s", name);
    }
    return rc;
}

static int find_newest(const char *directory, const struct entries *entries,
                       struct tally__found *found)
{
    for (size_t i = 0; i < entries->n; i++) {
        int rc = try_entry(directory, entries->of[i].name, found);

        if (rc == TALLY_OK) {
            if (found->n_skipped > 0) {
                tally__log(TALLY_LOG_WARN, "checkpoint: skipped in '%.200s': %s", directory,
                           found->skipped);
            }
            return TALLY_OK;
        }
        if (rc != TALLY_ARG) {
            return rc;
        }
        note_skipped(found, entries->of[i].name);
    }
    return entries->n == 0 ? TALLY_OK
                           : tally__fail(TALLY_ARG, "'%.300s' has no complete checkpoint: %s",
                                         directory, found->skipped);
}

int tally__folders_find(const char *directory, const char *name, struct tally__found *found)
{
    struct entries entries;
    int rc;

    *found = (struct tally__found){0};
    if (name) {
        if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') ||
            strlen(name) >= sizeof found->name) {
            return tally__fail(TALLY_ARG, "'%.300s' is not the name of a checkpoint in '%.300s'",
                               name, directory);
        }
        rc = try_entry(directory, name, found);
        return rc == TALLY_ARG
                   ? tally__fail(TALLY_ARG, "checkpoint '%.300s/%s' is not complete: %s", directory,
                                 name, tally_last_error())
                   : rc;
    }
    rc = list(directory, &entries);
    if (rc == TALLY_OK && entries.n == 0) {
        rc = refuse_checkpoint(directory);
    }
    if (rc == TALLY_OK) {
        rc = find_newest(directory, &entries, found);
    }
    tally__free(entries.of);
    return rc;
}

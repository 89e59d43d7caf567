/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a checkpoint: rank 0 finds it, all ranks get its manifest; parts are read and verified.
 * Lanes enter, and the application's threads.
 */
#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/doing.h"
#include "state/container.h"

/* A chunk is verified while it is in a CPU's cache. */
#define CHUNK_BYTES ((size_t)256 << 10)

int tally__container_find(tally_lane *lane, const char *directory, const char *name,
                          struct tally__found *found)
{
    struct tally__found told = {.text = NULL};

    *found = told;
    if (tally_group_rank(tally_lane_group(lane)) == 0) {
        TRY(tally__folders_find(directory, name, found));
        told = *found;
        told.text = NULL;
    }
    TRY(tally_lane_broadcast(lane, &told, sizeof told, 0));
    if (!found->text) {
        *found = told;
        found->text = tally__alloc(found->n_text + 1, "a manifest");
    }
    return found->text ? tally_lane_broadcast(lane, found->text, found->n_text, 0) : TALLY_NOMEM;
}

int tally__container_explain(const tally_group *group, const char *folder, int rc)
{
    int rank = tally_group_rank(group);
    struct tally__aside error;
    struct tally__rank_text text;
    bool sees;

    if (rc != TALLY_SYSTEM || rank == 0) {
        return rc;
    }
    tally__put_aside(&error);
    sees = tally__folder_sync(folder) == TALLY_OK;
    (void)tally__take_back(&error, TALLY_OK);
    text = tally__rank_text(group, rank);
    return sees ? tally__fail(rc, "%s: %s", text.text, tally_last_error())
                : tally__fail(rc,
                              "%s does not see '%.300s', which rank 0 sees: the directory must be "
                              "on a file system that all ranks share",
                              text.text, folder);
}

static int damaged(const struct tally__path *path, const struct tally__part *part)
{
    return tally__fail(TALLY_ARG,
                       "'%.300s' is damaged: the checksum of its %s '%.200s' is wrong; "
                       "config.name can name an older checkpoint",
                       path->text, tally__part_kinds[part->kind].shown, part->name);
}

int tally__part_read(const char *folder, const struct tally__manifest *manifest,
                     const struct tally__part *part, void *bytes)
{
    const char *file = manifest->files[part->file].name;
    unsigned char *to = bytes;
    struct tally__file_in in;
    struct tally__wide_sum sum;
    struct tally__path path;
    int rc = TALLY_OK;

    TRY(tally__path_join(folder, file, &path));
    TRY(tally__file_open(path.text, part->offset, &in));
    tally__checksum_begin(&sum);
    for (size_t left = part->bytes; rc == TALLY_OK && left > 0;) {
        size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;

        rc = tally__file_take(&in, to, n);
        tally__checksum_add(&sum, to, rc == TALLY_OK ? n : 0);
        to += n;
        left -= n;
    }
    tally__file_leave(&in);
    TRY(rc);
    return tally__checksum_end(&sum) == part->sum ? TALLY_OK : damaged(&path, part);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Describes and verifies a checkpoint without a ddp. Keeps no state; any thread enters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "num/num.h"
#include "state/container.h"

#define CHUNK 1024

void tally__info_fill(const struct tally__found *found, const struct tally__manifest *manifest,
                      tally_checkpoint_info *info)
{
    *info = (tally_checkpoint_info){.size = sizeof *info, .n_skipped = found->n_skipped};
    (void)snprintf(info->name, sizeof info->name, "%s", found->name);
    (void)snprintf(info->skipped, sizeof info->skipped, "%s", found->skipped);
    if (manifest) {
        info->step = manifest->step;
        info->world = manifest->world;
        info->n_params = manifest->n_params;
        (void)snprintf(info->hook, sizeof info->hook, "%s", manifest->hook);
        for (size_t i = 0; i < manifest->n_files; i++) {
            info->bytes += manifest->files[i].bytes;
        }
    }
}

static double norm_of(const struct tally__part *part, const void *data)
{
    size_t n = part->bytes / tally_dtype_bytes(part->dtype);
    double sum = 0;

    for (size_t i = 0; i < n; i += CHUNK) {
        size_t count = n - i < CHUNK ? n - i : CHUNK;
        float wide[CHUNK];

        if (part->dtype == TALLY_F64) {
            for (size_t k = i; k < i + count; k++) {
                sum += ((const double *)data)[k] * ((const double *)data)[k];
            }
        } else if (part->dtype == TALLY_F32) {
            sum += tally__sqnorm_f32(count, (const float *)data + i);
        } else {
            (part->dtype == TALLY_F16 ? tally__f16_to_f32 : tally__bf16_to_f32)(
                count, (const uint16_t *)data + i, wide);
            sum += tally__sqnorm_f32(count, wide);
        }
    }
    return sqrt(sum);
}

/* The function that receives parts, and the first failure. */
struct visit {
    const char *folder;
    tally_checkpoint_part_fn fn;
    void *user;
    int rc;
    struct tally__aside error;
};

static void show_part(struct visit *visit, const struct tally__manifest *manifest,
                      const struct tally__part *part)
{
    tally_checkpoint_part shown = {.size = sizeof shown,
                                   .kind = tally__part_kinds[part->kind].shown,
                                   .name = part->name,
                                   .file = manifest->files[part->file].name,
                                   .rank = manifest->files[part->file].rank,
                                   .is_own = tally__part_kinds[part->kind].is_own,
                                   .dtype = part->dtype,
                                   .n_dims = part->n_dims,
                                   .shape = part->shape,
                                   .bytes = part->bytes};
    struct tally__aside error;
    void *data = tally__alloc_unset(part->bytes, "a part of a checkpoint");
    int rc = data ? tally__part_read(visit->folder, manifest, part, data) : TALLY_NOMEM;

    if (rc == TALLY_OK && tally__is_tensor(part->kind) && part->dtype <= TALLY_BF16) {
        shown.norm = norm_of(part, data);
    }
    if (rc != TALLY_OK) {
        tally__put_aside(&error);
        shown.damage = error.text;
        visit->error = visit->rc == TALLY_OK ? error : visit->error;
        visit->rc = visit->rc == TALLY_OK ? rc : visit->rc;
    }
    if (visit->fn) {
        visit->fn(visit->user, &shown);
    }
    tally__free(data);
}

/* The directory is the folder of a checkpoint. */
static int find_here(const char *directory, struct tally__found *found)
{
    size_t end = strlen(directory);
    size_t start;

    while (end > 1 && directory[end - 1] == '/') {
        end--;
    }
    for (start = end; start > 0 && directory[start - 1] != '/';) {
        start--;
    }
    (void)snprintf(found->name, sizeof found->name, "%.*s", (int)(end - start), directory + start);
    return tally__folder_check(directory, &found->text, &found->n_text) == TALLY_OK
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "'%.300s' is not a complete checkpoint: %s", directory,
                             tally_last_error());
}

/* Finds the checkpoint, and where it lies. */
static int find(const char *directory, const char *name, struct tally__found *found,
                struct tally__path *folder)
{
    if (!name && tally__folder_is_checkpoint(directory)) {
        TRY(find_here(directory, found));
        return tally__path_join(directory, ".", folder);
    }
    TRY(tally__folders_find(directory, name, found));
    return found->text ? tally__path_join(directory, found->name, folder)
                       : tally__fail(TALLY_ARG, "'%.300s' has no checkpoint", directory);
}

int tally_checkpoint_inspect(const char *directory, const char *name, tally_checkpoint_info *info,
                             tally_checkpoint_part_fn fn, void *user)
{
    struct tally__found found = {.n_text = 0};
    struct tally__manifest manifest;
    struct tally__path folder;
    struct visit visit = {.folder = folder.text, .fn = fn, .user = user};
    tally_checkpoint_info filled;
    int rc;

    if (!directory || directory[0] == '\0') {
        return tally__fail(TALLY_ARG, "tally_checkpoint_inspect: directory is %s",
                           directory ? "empty" : "NULL");
    }
    if (info) {
        TRY(tally__answer_check(TALLY__INFO, "tally_checkpoint_inspect", info));
    }
    TRY(find(directory, name, &found, &folder));
    rc = tally__manifest_read(found.text, found.n_text, &manifest);
    if (rc == TALLY_OK) {
        tally__info_fill(&found, &manifest, &filled);
        if (info) {
            tally__sized_write(TALLY__INFO, &filled, info);
        }
        for (size_t i = 0; i < manifest.n_parts; i++) {
            show_part(&visit, &manifest, &manifest.parts[i]);
        }
        tally__manifest_free(&manifest);
        rc = visit.rc;
    }
    tally__free(found.text);
    if (visit.rc != TALLY_OK) {
        (void)tally__take_back(&visit.error, TALLY_OK);
    }
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices: a blob that is the same on all ranks is written once, by all ranks together, and read as
 * one blob. Keeps no state. A lane enters to write, the application's thread to read.
 */
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint.h"

/* ---- writing ---- */

/* The part of a piece that lies in bytes from..to of its blob; the piece starts at byte at. */
static struct tally__bytes overlap(const struct tally__bytes *piece, size_t at, size_t from,
                                   size_t to)
{
    size_t first = at < from ? from - at : 0;
    size_t end = at < to ? to - at : 0;

    end = end < piece->n ? end : piece->n;
    return first < end
               ? (struct tally__bytes){(const unsigned char *)piece->data + first, end - first}
               : (struct tally__bytes){NULL, 0};
}

/* The first byte of slice k of n. The last slice ends with the blob. */
static size_t slice_start(size_t bytes, size_t k, size_t n)
{
    return k < n ? bytes / TALLY__CACHE_LINE / n * k * TALLY__CACHE_LINE : bytes;
}

/* The pieces of a slice; returns their number. slice may be the part's pieces. */
static size_t find_slice(const struct tally__part *part, size_t k, size_t n,
                         struct tally__bytes *slice)
{
    size_t n_pieces = 0;
    size_t at = 0;

    for (size_t p = 0; p < part->n_pieces; p++) {
        size_t bytes = part->pieces[p].n;
        struct tally__bytes found = overlap(&part->pieces[p], at, slice_start(part->bytes, k, n),
                                            slice_start(part->bytes, k + 1, n));

        if (found.n > 0) {
            slice[n_pieces++] = found;
        }
        at += bytes;
    }
    return n_pieces;
}

/* A checksum of the checksums of all slices; *own is that of this rank. */
static int sum_slices(tally_lane *lane, const struct tally__part *part, uint64_t *own,
                      uint64_t *all)
{
    size_t world = (size_t)lane->group->size;
    struct tally__bytes *slice =
        tally__alloc_array(part->n_pieces, sizeof *slice, "the slices of a state");

    if (!slice) {
        return TALLY_NOMEM;
    }
    *all = tally__checksum(0, &part->bytes, sizeof part->bytes);
    for (size_t r = 0; r < world; r++) {
        uint64_t sum = tally__pieces_sum(slice, find_slice(part, r, world, slice));

        *all = tally__checksum(*all, &sum, sizeof sum);
        *own = r == (size_t)lane->group->rank ? sum : *own;
    }
    tally__free(slice);
    return TALLY_OK;
}

/* If a blob is the same on all ranks, each writes a slice of it; otherwise it becomes one of the
 * blobs of all ranks. */
int tally__checkpoint_share(tally_lane *lane, struct tally__checkpoints *checkpoints)
{
    struct tally__part *part = &checkpoints->saving.own[checkpoints->whole];
    struct tally__bytes *pieces = (struct tally__bytes *)part->pieces;
    size_t world = (size_t)lane->group->size;
    size_t rank = (size_t)lane->group->rank;
    struct tally__blob_head head;
    uint64_t digest;
    int other = -1;

    TRY(sum_slices(lane, part, &part->sum, &digest));
    TRY(tally__agree_same(lane, digest, &other));
    if (other >= 0) {
        memcpy(&head, pieces[0].data, sizeof head);
        head.rank = (uint32_t)rank;
        head.world = (uint32_t)world;
        memcpy((void *)pieces[0].data, &head, sizeof head);
        return TALLY_OK;
    }
    (void)snprintf(checkpoints->slice_name, sizeof checkpoints->slice_name, "part %zu of %zu",
                   rank + 1, world);
    part->n_pieces = find_slice(part, rank, world, pieces);
    part->kind = TALLY__PART_SLICE;
    part->index = rank;
    part->name = checkpoints->slice_name;
    part->bytes = slice_start(part->bytes, rank + 1, world) - slice_start(part->bytes, rank, world);
    part->has_sum = true;
    return TALLY_OK;
}

/* ---- reading ---- */

static int read_all(const char *folder, const struct tally__manifest *manifest, unsigned char *to)
{
    size_t n = 0;

    for (size_t i = 0; i < manifest->n_parts; i++) {
        const struct tally__part *part = &manifest->parts[i];

        if (part->kind == TALLY__PART_SLICE) {
            if (part->index != n++) {
                break;
            }
            TRY(tally__part_read(folder, manifest, part, to));
            to += part->bytes;
        }
    }
    return n == (size_t)manifest->world
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "its manifest is not valid: a slice is missing");
}

int tally__checkpoint_slices(const char *folder, const struct tally__manifest *manifest,
                             void **blob, size_t *bytes)
{
    size_t total = 0;
    void *read;
    int rc;

    for (size_t i = 0; i < manifest->n_parts; i++) {
        total += manifest->parts[i].kind == TALLY__PART_SLICE ? manifest->parts[i].bytes : 0;
    }
    if (total == 0) {
        return TALLY_OK;
    }
    read = tally__alloc_unset(total, "a checkpoint");
    if (!read) {
        return TALLY_NOMEM;
    }
    rc = read_all(folder, manifest, read);
    if (rc != TALLY_OK) {
        tally__free(read);
        return rc;
    }
    *blob = read;
    *bytes = total;
    return TALLY_OK;
}

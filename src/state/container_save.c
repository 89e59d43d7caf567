/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a checkpoint. All ranks write their files at the same time, then tell rank 0 what they
 * wrote; rank 0 writes the manifest and gives the folder its name. Inside a job: a rank that fails
 * returns, and the job fails on all ranks. Keeps nothing from one checkpoint to the next.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "state/container.h"

#define INDEX_NAME "model.safetensors.index.json"

/* Files of a rank: two of parameters, one of state; or index and manifest. */
#define MAX_OUTS 3

/* Bytes go to the checksum and to the file in chunks that stay in a CPU's cache. */
#define CHUNK_BYTES ((size_t)256 << 10)

/* A save during training rests after WORK_NS of CPU time, RESTS times as long: its copies take
 * memory bandwidth from the steps. */
#define WORK_NS 2000000
#define RESTS 8

/* A save on this rank. */
struct save {
    tally_lane *lane;
    const struct tally__saving *saving;
    int rank;
    int world;
    struct tally__folder_names names;
    struct tally__path folder;
    bool *differs; /* per shared part */
    int *writers;  /* per shared part that does not differ: the rank that writes it */
    int n_models;  /* ranks that write some, and how many of them precede this one */
    int model;
    bool has_own;               /* a parameter differs */
    struct tally__growing list; /* lines of the manifest: this rank's files */
    struct tally__growing all;  /* on rank 0: the manifest */
    struct tally__part *parts;  /* of the file that is being written */
    uint64_t rested_ns;         /* this thread's CPU time at the last rest */
    size_t n_outs;
    struct tally__file_out outs[MAX_OUTS]; /* written, but not yet on the disk */
};

/* ---- agreement ---- */

/* Rank 0 makes the folder, and all ranks learn its name. */
static int begin(struct save *save)
{
    if (save->rank == 0) {
        TRY(tally__folders_begin(save->saving->directory, save->saving->step, save->saving->lock_fd,
                                 &save->names));
    }
    TRY(tally_lane_broadcast(save->lane, &save->names, sizeof save->names, 0));
    return tally__path_join(save->saving->directory, save->names.temporary, &save->folder);
}

/* Finds the shared parts that differ between ranks, by their checksums. */
static int compare(struct save *save)
{
    const struct tally__saving *saving = save->saving;
    size_t world = (size_t)save->world;
    uint64_t *sums;
    size_t *bytes;
    int rc;

    if (world == 1) {
        return TALLY_OK;
    }
    sums = tally__alloc_array((world + 1) * saving->n_shared, sizeof *sums, "checksums");
    bytes = tally__alloc_array(world, sizeof *bytes, "checksums");
    rc = sums && bytes ? TALLY_OK : TALLY_NOMEM;
    for (size_t i = 0; rc == TALLY_OK && i < saving->n_shared; i++) {
        saving->shared[i].sum =
            tally__pieces_sum(saving->shared[i].pieces, saving->shared[i].n_pieces);
        saving->shared[i].has_sum = true;
        sums[i] = saving->shared[i].sum;
    }
    for (size_t r = 0; rc == TALLY_OK && r < world; r++) {
        bytes[r] = saving->n_shared * sizeof *sums;
    }
    if (rc == TALLY_OK) {
        rc = tally_lane_all_gather(save->lane, sums, bytes, sums + saving->n_shared);
    }
    for (size_t i = 0; rc == TALLY_OK && i < saving->n_shared; i++) {
        for (size_t r = 1; r < world; r++) {
            save->differs[i] = save->differs[i] ||
                               sums[(r + 1) * saving->n_shared + i] != sums[saving->n_shared + i];
        }
        save->has_own = save->has_own || (i < saving->n_params && save->differs[i]);
    }
    tally__free(sums);
    tally__free(bytes);
    return rc;
}

/* Divides the parameters that do not differ among ranks: consecutive ones, by bytes. */
static void divide_params(struct save *save)
{
    const struct tally__saving *saving = save->saving;
    size_t total = 0;
    size_t before = 0;
    int last = -1;

    for (size_t i = 0; i < saving->n_params; i++) {
        total += save->differs[i] ? 0 : saving->shared[i].bytes;
    }
    for (size_t i = 0; i < saving->n_params; i++) {
        double middle = (double)before + 0.5 * (double)saving->shared[i].bytes;
        int writer = total > 0 ? (int)(middle / (double)total * save->world) : 0;

        if (save->differs[i]) {
            continue;
        }
        save->writers[i] = writer < save->world ? writer : save->world - 1;
        before += saving->shared[i].bytes;
        if (save->writers[i] != last) {
            save->n_models++;
            save->model += save->writers[i] < save->rank;
            last = save->writers[i];
        }
    }
}

/* ---- files ---- */

/* Lets training have the memory for a while, unless the application waits for this save. */
static void rest(struct save *save)
{
    uint64_t now_ns = tally__thread_ns();

    if (!save->saving->is_behind || atomic_load(save->saving->is_awaited) ||
        now_ns - save->rested_ns < WORK_NS) {
        return;
    }
    tally__sleep_ns(RESTS * (now_ns - save->rested_ns));
    save->rested_ns = now_ns;
}

/* Writes a part and computes its checksum, if it is not known. */
static int put_part(struct save *save, struct tally__file_out *out, struct tally__part *part)
{
    struct tally__wide_sum sum;

    tally__checksum_begin(&sum);
    for (size_t k = 0; k < part->n_pieces; k++) {
        const unsigned char *from = part->pieces[k].data;

        for (size_t left = part->pieces[k].n; left > 0;) {
            size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;

            if (!part->has_sum) {
                tally__checksum_add(&sum, from, n);
            }
            TRY(tally__file_put(out, from, n));
            rest(save);
            from += n;
            left -= n;
        }
    }
    part->sum = part->has_sum ? part->sum : tally__checksum_end(&sum);
    return TALLY_OK;
}

static int create(struct save *save, const char *name, struct tally__file_out **out)
{
    struct tally__path path;

    assert(save->n_outs < MAX_OUTS);
    TRY(tally__path_join(save->folder.text, name, &path));
    *out = &save->outs[save->n_outs++];
    return tally__file_create(path.text, save->saving->is_behind, *out);
}

/* Writes a file of these parts and notes it for the manifest. It is on the disk after sync_all. */
static int write_file(struct save *save, const char *name, struct tally__part *parts, size_t n)
{
    struct tally__manifest_file file = {.name = name, .rank = save->rank};
    struct tally__file_out *out;

    TRY(create(save, name, &out));
    for (size_t i = 0; i < n; i++) {
        TRY(put_part(save, out, &parts[i]));
        file.bytes += parts[i].bytes;
    }
    TRY(tally__file_start(out));
    tally__manifest_put_file(&save->list, &file);
    for (size_t i = 0; i < n; i++) {
        tally__manifest_put_part(&save->list, &parts[i]);
    }
    return save->list.is_lost ? TALLY_NOMEM : TALLY_OK;
}

static void close_all(struct save *save)
{
    for (size_t i = 0; i < save->n_outs; i++) {
        tally__file_close(&save->outs[i]);
    }
    save->n_outs = 0;
}

static int sync_all(struct save *save)
{
    for (size_t i = 0; i < save->n_outs; i++) {
        TRY(tally__file_sync(&save->outs[i]));
    }
    close_all(save);
    return TALLY_OK;
}

/* A part of one piece, the text. */
static struct tally__part text_part(const struct tally__growing *text, struct tally__bytes *piece)
{
    *piece = (struct tally__bytes){text->text, text->n};
    return (struct tally__part){.kind = TALLY__PART_HEADER,
                                .name = "",
                                .dtype = -1,
                                .bytes = text->n,
                                .pieces = piece,
                                .n_pieces = 1};
}

/* Writes the n tensors after parts[0] as a safetensors file. */
static int write_tensors(struct save *save, const char *name, size_t n)
{
    struct tally__growing head = {0};
    struct tally__bytes piece;
    int rc;

    tally__safetensors_head(&head, save->parts + 1, n, save->saving->step);
    if (head.is_lost) {
        tally__grow_free(&head);
        return TALLY_NOMEM;
    }
    save->parts[0] = text_part(&head, &piece);
    rc = write_file(save, name, save->parts, n + 1);
    tally__grow_free(&head);
    return rc;
}

static void name_model(const struct save *save, int k, char *name)
{
    if (save->n_models == 1) {
        (void)snprintf(name, TALLY__FOLDER_BYTES, "model.safetensors");
    } else {
        (void)snprintf(name, TALLY__FOLDER_BYTES, "model-%05d-of-%05d.safetensors", k + 1,
                       save->n_models);
    }
}

static void name_own(const struct save *save, const char *what, const char *ending, char *name)
{
    (void)snprintf(name, TALLY__FOLDER_BYTES, "%s-%05d-of-%05d.%s", what, save->rank + 1,
                   save->world, ending);
}

/* This rank's parameters that are written once, or those that differ between ranks. */
static int write_params(struct save *save, bool differing)
{
    const struct tally__saving *saving = save->saving;
    char name[TALLY__FOLDER_BYTES];
    size_t n = 0;

    for (size_t i = 0; i < saving->n_params; i++) {
        if (save->differs[i] == differing && (differing || save->writers[i] == save->rank)) {
            save->parts[++n] = saving->shared[i];
            save->parts[n].kind = differing ? TALLY__PART_OWN_PARAM : TALLY__PART_PARAM;
        }
    }
    if (n == 0) {
        return TALLY_OK;
    }
    if (differing) {
        name_own(save, "own", "safetensors", name);
    } else {
        name_model(save, save->model, name);
    }
    return write_tensors(save, name, n);
}

/* Blobs, and buffers: rank 0's, or where they differ those of every rank. */
static int write_state(struct save *save)
{
    const struct tally__saving *saving = save->saving;
    char name[TALLY__FOLDER_BYTES];
    size_t n = 0;

    for (size_t i = 0; i < saving->n_own; i++) {
        save->parts[n++] = saving->own[i];
    }
    for (size_t i = saving->n_params; i < saving->n_shared; i++) {
        if (save->differs[i] || save->rank == 0) {
            save->parts[n] = saving->shared[i];
            save->parts[n++].kind = save->differs[i] ? TALLY__PART_OWN_BUFFER : TALLY__PART_BUFFER;
        }
    }
    name_own(save, "state", "tally", name);
    return write_file(save, name, save->parts, n);
}

static int write_files(struct save *save)
{
    TRY(write_params(save, false));
    TRY(write_params(save, true));
    TRY(write_state(save));
    return sync_all(save);
}

/* ---- the end ---- */

/* Rank 0 gets the lists of all ranks, in rank order, after the head of the manifest. */
static int gather_lists(struct save *save)
{
    size_t world = (size_t)save->world;
    size_t *bytes = tally__alloc_array(2 * world, sizeof *bytes, "a manifest");
    struct tally__manifest head = {.step = save->saving->step,
                                   .world = save->world,
                                   .n_params = save->saving->model_params,
                                   .n_buffers = save->saving->model_buffers,
                                   .hook = save->saving->hook};
    char *lists = NULL;
    size_t total = 0;
    int rc = bytes ? TALLY_OK : TALLY_NOMEM;

    for (size_t r = 0; rc == TALLY_OK && r < world; r++) {
        bytes[world + r] = sizeof *bytes;
    }
    if (rc == TALLY_OK) {
        rc = tally_lane_all_gather(save->lane, &save->list.n, bytes + world, bytes);
    }
    for (size_t r = 0; rc == TALLY_OK && r < world; r++) {
        total += bytes[r];
    }
    if (rc == TALLY_OK) {
        lists = tally__alloc(total, "a manifest");
        rc = lists ? tally_lane_all_gather(save->lane, save->list.text, bytes, lists) : TALLY_NOMEM;
    }
    if (rc == TALLY_OK && save->rank == 0) {
        tally__manifest_put_head(&save->all, &head);
        tally__grow_bytes(&save->all, lists, total);
        rc = save->all.is_lost ? TALLY_NOMEM : TALLY_OK;
    }
    tally__free(lists);
    tally__free(bytes);
    return rc;
}

/* Tells other programs which file has which parameter. */
static int write_index(struct save *save)
{
    const struct tally__saving *saving = save->saving;
    struct tally__growing index = {0};
    char name[TALLY__FOLDER_BYTES];
    struct tally__bytes piece;
    struct tally__part part;
    size_t total = 0;
    int file = -1;
    int last = -1;
    int rc;

    for (size_t i = 0; i < saving->n_params; i++) {
        total += saving->shared[i].bytes;
    }
    tally__grow(&index, "{\"metadata\":{\"total_size\":%zu},\"weight_map\":{", total);
    for (size_t i = 0; i < saving->n_params; i++) {
        if (save->differs[i]) {
            name_own(save, "own", "safetensors", name);
        } else {
            file += save->writers[i] != last;
            last = save->writers[i];
            name_model(save, file, name);
        }
        tally__grow(&index, i == 0 ? "\n" : ",\n");
        tally__json_string(&index, saving->shared[i].name);
        tally__grow(&index, ":\"%s\"", name);
    }
    tally__grow(&index, "\n}}\n");
    if (index.is_lost) {
        tally__grow_free(&index);
        return TALLY_NOMEM;
    }
    part = text_part(&index, &piece);
    save->list.n = 0;
    rc = write_file(save, INDEX_NAME, &part, 1);
    tally__grow_free(&index);
    tally__grow_bytes(&save->all, save->list.text, save->list.n);
    return rc;
}

/* On rank 0, when all files are on the disk. */
static int finish(struct save *save)
{
    struct tally__file_out *out;
    char *text;
    size_t n;

    if (save->n_models != 1 || save->has_own) {
        TRY(write_index(save));
    }
    tally__manifest_put_end(&save->all);
    if (save->all.is_lost) {
        return TALLY_NOMEM;
    }
    TRY(create(save, TALLY__MANIFEST, &out));
    TRY(tally__file_put(out, save->all.text, save->all.n));
    TRY(tally__file_start(out));
    TRY(sync_all(save));
    /* Rank 0 sees the files of all ranks, with their sizes. */
    if (tally__folder_check(save->folder.text, &text, &n) != TALLY_OK) {
        return tally__fail(TALLY_SYSTEM,
                           "rank 0 does not see in '%.300s' what other ranks have written: %s; "
                           "the directory must be on a file system that all ranks share",
                           save->folder.text, tally_last_error());
    }
    tally__free(text);
    return tally__folders_finish(save->saving->directory, &save->names);
}

/* Waits until no rank writes any more: after a failure rank 0 deletes the folder. */
static int wait_for_writers(struct save *save, int rc)
{
    struct tally__aside error;
    int waited;

    tally__put_aside(&error);
    waited = tally_lane_barrier(save->lane);
    if (rc == TALLY_OK) {
        return waited;
    }
    (void)tally__take_back(&error, TALLY_OK);
    return rc;
}

static int run(struct save *save)
{
    size_t n = save->saving->n_shared + save->saving->n_own + 1;
    int rc;

    save->differs = tally__alloc_array(n, sizeof *save->differs, "a checkpoint");
    save->writers = tally__alloc_array(n, sizeof *save->writers, "a checkpoint");
    save->parts = tally__alloc_array(n, sizeof *save->parts, "a checkpoint");
    if (!save->differs || !save->writers || !save->parts) {
        return TALLY_NOMEM;
    }
    TRY(begin(save));
    TRY(compare(save));
    divide_params(save);
    rc = tally__container_explain(tally_lane_group(save->lane), save->folder.text,
                                  write_files(save));
    TRY(wait_for_writers(save, rc));
    TRY(gather_lists(save));
    if (save->rank == 0) {
        TRY(finish(save));
        tally__folders_trim(save->saving->directory, save->saving->keep);
    }
    return TALLY_OK;
}

int tally__container_save(tally_lane *lane, const struct tally__saving *saving)
{
    struct save *save = tally__alloc(sizeof *save, "a checkpoint");
    int rc;

    if (!save) {
        return TALLY_NOMEM;
    }
    save->lane = lane;
    save->saving = saving;
    save->rank = tally_group_rank(tally_lane_group(lane));
    save->world = tally_group_size(tally_lane_group(lane));
    save->rested_ns = tally__thread_ns();
    rc = run(save);
    close_all(save);
    if (rc != TALLY_OK && save->rank == 0 && save->names.temporary[0]) {
        tally__folders_discard(saving->directory, &save->names);
    }
    tally__grow_free(&save->list);
    tally__grow_free(&save->all);
    tally__free(save->differs);
    tally__free(save->writers);
    tally__free(save->parts);
    tally__free(save);
    return rc;
}

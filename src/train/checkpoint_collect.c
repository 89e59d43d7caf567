/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the parts of a checkpoint: parameters, buffers, the blobs of objects and of the
 * application. A part refers to the arrays where they lie, or, for an asynchronous save, to a copy.
 * Writes nothing. The application's thread enters.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint.h"

/* Memory that is given out piece by piece. Counts only, if memory is NULL. */
struct room {
    unsigned char *memory;
    size_t used;
};

static void *take_room(struct room *room, size_t bytes)
{
    void *here = room->memory ? room->memory + room->used : NULL;

    room->used += tally__to_cache_line(bytes);
    return here;
}

/* The array itself, or a copy. */
static const void *keep_array(struct room *room, bool copies, const void *data, size_t bytes)
{
    void *copy;

    if (!copies) {
        return data;
    }
    copy = take_room(room, bytes);
    if (copy && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

static const void *keep_param(struct room *room, bool copies, const struct tally__param *param)
{
    void *rows;

    if (!copies && !param->permuted) {
        return param->data;
    }
    rows = take_room(room, param->bytes);
    if (rows) {
        tally__rows_take(param, rows);
    }
    return rows;
}

/* Adds a part of one piece to a list of parts. */
static void add_part(struct tally__checkpoints *to, struct tally__part *part,
                     struct tally__part about, const void *data)
{
    struct tally__bytes *piece = &to->pieces[to->n_pieces++];

    *piece = (struct tally__bytes){data, about.bytes};
    *part = about;
    part->pieces = piece;
    part->n_pieces = 1;
}

static void add_values(struct tally__checkpoints *to, const tally_ddp *ddp, bool copies,
                       struct room *room)
{
    struct tally__saving *saving = &to->saving;

    saving->n_shared = 0;
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];
        const struct tally__part about = {.kind = TALLY__PART_PARAM,
                                          .index = i,
                                          .name = param->name,
                                          .dtype = param->dtype,
                                          .n_dims = param->n_dims,
                                          .shape = param->shape,
                                          .bytes = param->bytes};

        if (param->data || param->n == 0) {
            add_part(to, &saving->shared[saving->n_shared++], about,
                     keep_param(room, copies, param));
        }
    }
    saving->n_params = saving->n_shared;
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        const tally_buffer *buffer = &ddp->buffers[i];
        const struct tally__part about = {.kind = TALLY__PART_BUFFER,
                                          .index = i,
                                          .name = buffer->name ? buffer->name : "",
                                          .dtype = -1,
                                          .bytes = buffer->bytes};

        add_part(to, &saving->shared[saving->n_shared++], about,
                 keep_array(room, copies, buffer->data, buffer->bytes));
    }
}

/* The blob of an object, of this size. */
static void add_object(struct tally__checkpoints *to, size_t k, const struct tally__blob_size *size,
                       bool refers, struct room *room)
{
    struct tally__part *part = &to->saving.own[to->saving.n_own++];
    void *memory = take_room(room, size->copied);

    *part = (struct tally__part){.kind = to->objects.kinds[k],
                                 .name = "",
                                 .dtype = -1,
                                 .bytes = size->bytes,
                                 .pieces = to->pieces + to->n_pieces,
                                 .n_pieces = size->n_pieces};
    if (memory) {
        tally__state_write(to->objects.states[k], refers, memory, to->pieces + to->n_pieces);
    }
    to->n_pieces += size->n_pieces;
}

static void add_blobs(struct tally__checkpoints *to, const tally_checkpoint_config *config,
                      struct room *room)
{
    struct tally__saving *saving = &to->saving;
    char *names = to->names;

    for (size_t i = 0; i < config->n_blobs; i++) {
        tally_checkpoint_blob blob;
        struct tally__part about = {.kind = TALLY__PART_BLOB, .index = i, .dtype = -1};

        (void)tally__checkpoint_blob(config, i, &blob);
        memcpy(names, blob.name, strlen(blob.name) + 1);
        about.name = names;
        about.bytes = blob.bytes;
        add_part(to, &saving->own[saving->n_own++], about,
                 keep_array(room, config->async != 0, blob.data, blob.bytes));
        names += strlen(blob.name) + 1;
    }
}

static int reserve(struct tally__checkpoints *checkpoints, size_t bytes)
{
    if (bytes <= checkpoints->memory_bytes) {
        return TALLY_OK;
    }
    tally__free(checkpoints->memory);
    checkpoints->memory_bytes = 0;
    checkpoints->memory = tally__alloc(bytes, "a checkpoint");
    if (!checkpoints->memory) {
        return TALLY_NOMEM;
    }
    checkpoints->memory_bytes = bytes;
    return TALLY_OK;
}

static void end_objects(struct tally__checkpoints *checkpoints)
{
    for (size_t k = 0; k < checkpoints->n_begun; k++) {
        tally__state_end(checkpoints->objects.states[k]);
    }
    checkpoints->n_begun = 0;
}

void tally__checkpoint_release(struct tally__checkpoints *checkpoints)
{
    end_objects(checkpoints);
    tally__free(checkpoints->saving.shared);
    tally__free(checkpoints->saving.own);
    tally__free(checkpoints->pieces);
    tally__free(checkpoints->names);
    tally__free(checkpoints->hook);
    checkpoints->saving.shared = NULL;
    checkpoints->saving.own = NULL;
    checkpoints->pieces = NULL;
    checkpoints->names = NULL;
    checkpoints->hook = NULL;
}

/* n_pieces: of the objects' blobs. */
static int make_lists(struct tally__checkpoints *checkpoints, const tally_ddp *ddp,
                      const tally_checkpoint_config *config, size_t n_pieces)
{
    size_t name_bytes = 0;
    size_t hook_bytes = strlen(ddp->hook->table.name) + 1;

    for (size_t i = 0; i < config->n_blobs; i++) {
        tally_checkpoint_blob blob;

        (void)tally__checkpoint_blob(config, i, &blob);
        name_bytes += strlen(blob.name) + 1;
    }
    checkpoints->saving.shared = tally__alloc_array(
        ddp->n_params + ddp->n_buffers, sizeof *checkpoints->saving.shared, "a checkpoint");
    checkpoints->saving.own = tally__alloc_array(TALLY__MAX_OBJECTS + config->n_blobs,
                                                 sizeof *checkpoints->saving.own, "a checkpoint");
    checkpoints->pieces =
        tally__alloc_array(ddp->n_params + ddp->n_buffers + config->n_blobs + n_pieces,
                           sizeof *checkpoints->pieces, "a checkpoint");
    checkpoints->names = tally__alloc(name_bytes, "a checkpoint");
    checkpoints->hook = tally__alloc(hook_bytes, "a checkpoint");
    if (!checkpoints->saving.shared || !checkpoints->saving.own || !checkpoints->pieces ||
        !checkpoints->names || !checkpoints->hook) {
        return TALLY_NOMEM;
    }
    memcpy(checkpoints->hook, ddp->hook->table.name, hook_bytes);
    return TALLY_OK;
}

/* Once without memory, to count it, and once with it. */
static size_t fill_lists(struct tally__checkpoints *checkpoints, const tally_ddp *ddp,
                         const tally_checkpoint_config *config,
                         const struct tally__blob_size *sizes)
{
    struct room room = {.memory = checkpoints->memory};

    checkpoints->n_pieces = 0;
    checkpoints->saving.n_own = 0;
    add_values(checkpoints, ddp, config->async != 0, &room);
    for (size_t k = 0; k < checkpoints->objects.n; k++) {
        add_object(checkpoints, k, &sizes[k], !config->async, &room);
    }
    add_blobs(checkpoints, config, &room);
    return room.used;
}

int tally__checkpoint_collect(tally_ddp *ddp, const tally_checkpoint_config *config,
                              struct tally__checkpoints *checkpoints)
{
    struct tally__objects *objects = &checkpoints->objects;
    struct tally__blob_size sizes[TALLY__MAX_OBJECTS] = {{0}};
    unsigned char *memory = checkpoints->memory;
    size_t n_pieces = 0;
    size_t needed;

    tally__objects_find(ddp, true, objects);
    checkpoints->whole = objects->n;
    for (size_t k = 0; k < objects->n; k++) {
        checkpoints->n_begun = k + 1;
        TRY(tally__state_begin(objects->states[k], !config->async, &sizes[k]));
        n_pieces += sizes[k].n_pieces;
        checkpoints->whole = objects->states[k][0].is_whole ? k : checkpoints->whole;
    }
    TRY(make_lists(checkpoints, ddp, config, n_pieces));
    checkpoints->memory = NULL;
    needed = fill_lists(checkpoints, ddp, config, sizes);
    checkpoints->memory = memory;
    TRY(reserve(checkpoints, needed));
    (void)fill_lists(checkpoints, ddp, config, sizes);
    if (config->async) {
        end_objects(checkpoints);
    }
    checkpoints->saving.directory = checkpoints->directory;
    checkpoints->saving.step = ddp->step + ddp->steps_before;
    checkpoints->saving.hook = checkpoints->hook;
    checkpoints->saving.keep = config->keep;
    checkpoints->saving.model_params = ddp->n_params;
    checkpoints->saving.model_buffers = ddp->n_buffers;
    checkpoints->saving.lock_fd = &checkpoints->lock_fd;
    return TALLY_OK;
}

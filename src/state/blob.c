/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing the bytes of a saved state; see blob.h for their order. Never reads beyond
 * the end, whatever the bytes are. */
#include "state/blob.h"

#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"

uint64_t tally__blob_checksum(const void *blob, size_t bytes)
{
    struct tally__blob_head head;
    uint64_t sums[2];

    memcpy(&head, blob, sizeof head);
    head.checksum = 0;
    sums[0] = tally__checksum(&head, sizeof head);
    sums[1] = tally__checksum((const unsigned char *)blob + sizeof head, bytes - sizeof head);
    return tally__checksum(sums, sizeof sums);
}

void tally__blob_seal(void *blob, size_t bytes)
{
    struct tally__blob_head head;

    memcpy(&head, blob, sizeof head);
    head.bytes = bytes;
    memcpy(blob, &head, sizeof head);
    head.checksum = tally__blob_checksum(blob, bytes);
    memcpy(blob, &head, sizeof head);
}

static size_t padding_of(size_t n)
{
    return (8 - n % 8) % 8;
}

void tally__blob_put(struct tally__blob_writer *writer, const void *bytes, size_t n)
{
    if (writer->to && n > 0) {
        memcpy(writer->to + writer->used, bytes, n);
    }
    writer->used += n;
}

void tally__blob_put_array(struct tally__blob_writer *writer, const void *bytes, size_t n)
{
    static const unsigned char zeros[8];
    uint64_t length = n;

    tally__blob_put(writer, &length, sizeof length);
    tally__blob_put(writer, bytes, n);
    tally__blob_put(writer, zeros, padding_of(n));
}

static const void *skip(struct tally__blob_reader *reader, size_t n)
{
    const void *here = reader->from;

    if (reader->bad || n > reader->left) {
        reader->bad = 1;
        return NULL;
    }
    reader->from += n;
    reader->left -= n;
    return here;
}

void tally__blob_take(struct tally__blob_reader *reader, void *bytes, size_t n)
{
    const void *from = skip(reader, n);

    if (from) {
        memcpy(bytes, from, n);
    } else {
        memset(bytes, 0, n);
    }
}

const void *tally__blob_take_array(struct tally__blob_reader *reader, size_t *n)
{
    uint64_t length;
    const void *array;

    tally__blob_take(reader, &length, sizeof length);
    /* So that the padding cannot wrap around. */
    if (length > reader->left) {
        reader->bad = 1;
    }
    array = skip(reader, (size_t)length + padding_of((size_t)length));
    *n = array ? (size_t)length : 0;
    return array;
}

/* ---- whole blobs ---- */

static int check_head(const struct tally__blob_kind *kind, const struct tally__blob_head *head,
                      size_t n, size_t r, size_t bytes)
{
    if (head->magic != kind->magic) {
        return tally__fail(TALLY_ARG, "blob %zu is not what %s wrote on a machine like this one", r,
                           kind->writer);
    }
    if (head->version != kind->version) {
        return tally__fail(TALLY_ARG, "blob %zu has version %u, this tally reads version %u", r,
                           head->version, kind->version);
    }
    if (head->bytes != bytes) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes, but was saved with %llu", r, bytes,
                           (unsigned long long)head->bytes);
    }
    if (head->world != n || head->rank != r) {
        return tally__fail(TALLY_ARG,
                           "blob %zu of %zu is that of rank %u of %u: all ranks' are needed, in "
                           "order",
                           r, n, head->rank, head->world);
    }
    return TALLY_OK;
}

int tally__blob_open(const struct tally__blob_kind *kind, size_t n, size_t r, const void *bytes,
                     size_t n_bytes, struct tally__blob *blob)
{
    blob->reader = (struct tally__blob_reader){.from = bytes, .left = bytes ? n_bytes : 0};
    tally__blob_take(&blob->reader, &blob->head, sizeof blob->head);
    if (blob->reader.bad) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes: less than any that was saved", r,
                           bytes ? n_bytes : 0);
    }
    TRY(check_head(kind, &blob->head, n, r, n_bytes));
    if (tally__blob_checksum(bytes, n_bytes) != blob->head.checksum) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged: its checksum is wrong", r);
    }
    if ((uintptr_t)bytes % sizeof(uint64_t) != 0) {
        blob->copy = tally__alloc(n_bytes, "a saved state");
        if (!blob->copy) {
            return TALLY_NOMEM;
        }
        memcpy(blob->copy, bytes, n_bytes);
        blob->reader.from = (const unsigned char *)blob->copy + sizeof blob->head;
    }
    return TALLY_OK;
}

void tally__blob_close(struct tally__blob *blob)
{
    tally__free(blob->copy);
    blob->copy = NULL;
}

struct tally__blob_text tally__blob_show(const char *text, size_t n)
{
    struct tally__blob_text shown = {0};

    for (size_t i = 0; i < n && i < sizeof shown.text - 1; i++) {
        bool is_control = (unsigned char)text[i] < ' ' || text[i] == '\x7f';

        memcpy(&shown.text[i], is_control ? "?" : &text[i], 1);
    }
    return shown;
}

/* ---- parameters ---- */

void tally__blob_put_identity(struct tally__blob_writer *writer, const struct tally__param *param)
{
    const uint64_t numbers[] = {param->n, (uint64_t)param->dtype, param->strides};
    uint64_t shape_bytes = (uint64_t)param->n_dims * sizeof(uint64_t);

    tally__blob_put_array(writer, param->name, strlen(param->name));
    tally__blob_put(writer, &shape_bytes, sizeof shape_bytes);
    for (int d = 0; d < param->n_dims; d++) {
        uint64_t extent = param->shape[d];

        tally__blob_put(writer, &extent, sizeof extent);
    }
    tally__blob_put(writer, numbers, sizeof numbers);
}

void tally__blob_take_identity(struct tally__blob_reader *reader,
                               struct tally__blob_identity *identity)
{
    uint64_t numbers[3];
    size_t shape_bytes;

    identity->name = tally__blob_take_array(reader, &identity->name_bytes);
    identity->shape = tally__blob_take_array(reader, &shape_bytes);
    identity->n_dims = shape_bytes / sizeof *identity->shape;
    tally__blob_take(reader, numbers, sizeof numbers);
    identity->n = numbers[0];
    identity->dtype = numbers[1];
    identity->strides = numbers[2];
    if (shape_bytes % sizeof *identity->shape != 0) {
        reader->bad = 1;
    }
}

static const char *difference(const struct tally__param *param,
                              const struct tally__blob_identity *other)
{
    if (other->n != param->n || other->n_dims != (size_t)param->n_dims) {
        return "another shape";
    }
    for (int d = 0; d < param->n_dims; d++) {
        if (other->shape[d] != param->shape[d]) {
            return "another shape";
        }
    }
    if (other->dtype != (uint64_t)param->dtype) {
        return "another dtype";
    }
    return other->strides == param->strides ? NULL : "other strides";
}

int tally__blob_check_param(const struct tally__param *param,
                            const struct tally__blob_identity *identity, size_t r)
{
    const char *what = difference(param, identity);

    if (identity->name_bytes != strlen(param->name) ||
        memcmp(identity->name, param->name, identity->name_bytes) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu has parameter '%s' where this model has '%.200s'",
                           r, tally__blob_show(identity->name, identity->name_bytes).text,
                           param->name);
    }
    return what ? tally__fail(TALLY_ARG, "blob %zu has parameter '%.200s' with %s", r, param->name,
                              what)
                : TALLY_OK;
}

/* Runs of none need not be told. */
static uint64_t count_owned(const struct tally__residual *residual)
{
    uint64_t n = 0;

    for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
        n += owned->n > 0;
    }
    return n;
}

void tally__blob_put_param(struct tally__blob_writer *writer, const struct tally__param *param,
                           const struct tally__residual *residual)
{
    const uint64_t n_owned = count_owned(residual);

    tally__blob_put_identity(writer, param);
    tally__blob_put_array(writer, residual->sent,
                          residual->sent ? residual->n * sizeof *residual->sent : 0);
    tally__blob_put(writer, &n_owned, sizeof n_owned);
    for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
        const uint64_t numbers[] = {(uint64_t)owned->n_ranks, owned->first};

        if (owned->n > 0) {
            tally__blob_put(writer, numbers, sizeof numbers);
            tally__blob_put_array(writer, owned->values + (owned->is_whole ? owned->first : 0),
                                  owned->n * sizeof *owned->values);
        }
    }
}

void tally__blob_take_owned(struct tally__blob_reader *reader, struct tally__blob_owned *owned)
{
    uint64_t numbers[2];
    size_t bytes;

    tally__blob_take(reader, numbers, sizeof numbers);
    owned->n_ranks = numbers[0];
    owned->first = numbers[1];
    owned->values = tally__blob_take_array(reader, &bytes);
    owned->n = bytes / sizeof *owned->values;
    if (bytes == 0 || bytes % sizeof *owned->values != 0) {
        reader->bad = 1;
    }
}

/* Whether a run lies within its parameter, and is of more ranks than the one before. */
static bool fits(const struct tally__blob_param *param, const struct tally__blob_owned *owned,
                 uint64_t n_ranks_before)
{
    return param->is.dtype == TALLY_F32 && owned->n <= param->is.n &&
           owned->first <= param->is.n - owned->n && owned->n_ranks > n_ranks_before;
}

void tally__blob_take_param(struct tally__blob_reader *reader, struct tally__blob_param *param)
{
    struct tally__blob_owned owned = {0};
    uint64_t n_ranks = 0;
    size_t sent_bytes;

    tally__blob_take_identity(reader, &param->is);
    param->sent = tally__blob_take_array(reader, &sent_bytes);
    tally__blob_take(reader, &param->n_owned, sizeof param->n_owned);
    param->owned = *reader;
    for (uint64_t k = 0; k < param->n_owned && !reader->bad; k++) {
        tally__blob_take_owned(reader, &owned);
        reader->bad = reader->bad || !fits(param, &owned, n_ranks);
        n_ranks = owned.n_ranks;
    }
    if (sent_bytes == 0) {
        param->sent = NULL;
    } else if (param->is.dtype != TALLY_F32 || sent_bytes % sizeof *param->sent != 0 ||
               sent_bytes / sizeof *param->sent != param->is.n) {
        reader->bad = 1;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing the bytes of a saved state; see blob.h for their order. Never reads beyond
 * the end, whatever the bytes are. */
#include "ddp/blob.h"

#include <string.h>

#include "base/checksum.h"

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

void tally__blob_put_param(struct tally__blob_writer *writer, const struct tally__param *param,
                           const struct tally__residual *residual)
{
    const uint64_t numbers[] = {param->n, (uint64_t)param->dtype, param->strides,
                                residual->owned_first};
    uint64_t shape_bytes = (uint64_t)param->n_dims * sizeof(uint64_t);

    tally__blob_put_array(writer, param->name, strlen(param->name));
    tally__blob_put(writer, &shape_bytes, sizeof shape_bytes);
    for (int d = 0; d < param->n_dims; d++) {
        uint64_t extent = param->shape[d];

        tally__blob_put(writer, &extent, sizeof extent);
    }
    tally__blob_put(writer, numbers, sizeof numbers);
    tally__blob_put_array(writer, residual->sent,
                          residual->sent ? residual->n * sizeof *residual->sent : 0);
    tally__blob_put_array(writer, residual->owned, residual->owned_n * sizeof *residual->owned);
}

/* Whether what a parameter owes fits it: what is owned lies within it, whoever owns has sent, and
 * only fp32 owes. */
static bool fits(const struct tally__blob_param *param, size_t sent_bytes, size_t owned_bytes)
{
    if (sent_bytes == 0) {
        return owned_bytes == 0;
    }
    return param->dtype == TALLY_F32 && sent_bytes % sizeof *param->sent == 0 &&
           sent_bytes / sizeof *param->sent == param->n &&
           owned_bytes % sizeof *param->owned == 0 && param->owned_n <= param->n &&
           param->owned_first <= param->n - param->owned_n;
}

void tally__blob_take_param(struct tally__blob_reader *reader, struct tally__blob_param *param)
{
    uint64_t numbers[4];
    size_t shape_bytes;
    size_t sent_bytes;
    size_t owned_bytes;

    param->name = tally__blob_take_array(reader, &param->name_bytes);
    param->shape = tally__blob_take_array(reader, &shape_bytes);
    param->n_dims = shape_bytes / sizeof *param->shape;
    tally__blob_take(reader, numbers, sizeof numbers);
    param->n = numbers[0];
    param->dtype = numbers[1];
    param->strides = numbers[2];
    param->owned_first = numbers[3];
    param->sent = tally__blob_take_array(reader, &sent_bytes);
    param->owned = tally__blob_take_array(reader, &owned_bytes);
    param->owned_n = owned_bytes / sizeof *param->owned;
    if (sent_bytes == 0) {
        param->sent = NULL;
    }
    if (shape_bytes % sizeof *param->shape != 0 || !fits(param, sent_bytes, owned_bytes)) {
        reader->bad = 1;
    }
}

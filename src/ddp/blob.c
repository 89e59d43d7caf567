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

void tally__blob_put_param(struct tally__blob_writer *writer, const char *name, uint64_t n,
                           const struct tally__residual *residual)
{
    uint64_t owned_first = residual->owned_first;

    tally__blob_put_array(writer, name, strlen(name));
    tally__blob_put(writer, &n, sizeof n);
    tally__blob_put(writer, &owned_first, sizeof owned_first);
    tally__blob_put_array(writer, residual->sent,
                          residual->sent ? residual->n * sizeof *residual->sent : 0);
    tally__blob_put_array(writer, residual->owned, residual->owned_n * sizeof *residual->owned);
}

void tally__blob_take_param(struct tally__blob_reader *reader, struct tally__blob_param *param)
{
    size_t sent_bytes;
    size_t owned_bytes;

    param->name = tally__blob_take_array(reader, &param->name_bytes);
    tally__blob_take(reader, &param->n, sizeof param->n);
    tally__blob_take(reader, &param->owned_first, sizeof param->owned_first);
    param->sent = tally__blob_take_array(reader, &sent_bytes);
    param->owned = tally__blob_take_array(reader, &owned_bytes);
    param->owned_n = owned_bytes / sizeof *param->owned;
    if (sent_bytes == 0) {
        param->sent = NULL;
    }
    /* What is owned lies within the parameter, and whoever owns has sent. */
    if ((param->sent && sent_bytes != param->n * sizeof *param->sent) ||
        owned_bytes % sizeof *param->owned != 0 || param->owned_n > param->n ||
        param->owned_first > param->n - param->owned_n || (param->owned_n > 0 && !param->sent)) {
        reader->bad = 1;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the bytes of a saved state. Never reads beyond the end of a blob, however
 * damaged it is.
 */
#include "state/blob.h"

#include <stdbool.h>
#include <string.h>

#include "base/checksum.h"

/* Copying an array of this size costs more than a piece. */
#define LARGE_BYTES ((size_t)4096)

uint64_t tally__blob_checksum(const void *blob, size_t bytes)
{
    struct tally__blob_head head;
    uint64_t sums[2];

    memcpy(&head, blob, sizeof head);
    head.checksum = 0;
    sums[0] = tally__checksum(0, &head, sizeof head);
    sums[1] = tally__checksum(0, (const unsigned char *)blob + sizeof head, bytes - sizeof head);
    return tally__checksum(0, sums, sizeof sums);
}

void tally__blob_set_bytes(void *blob, size_t bytes)
{
    struct tally__blob_head head;

    memcpy(&head, blob, sizeof head);
    head.bytes = bytes;
    memcpy(blob, &head, sizeof head);
}

void tally__blob_seal(void *blob, size_t bytes)
{
    struct tally__blob_head head;

    tally__blob_set_bytes(blob, bytes);
    memcpy(&head, blob, sizeof head);
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
        memcpy(writer->to + writer->copied, bytes, n);
    }
    writer->copied += n;
    writer->used += n;
}

static void add_piece(struct tally__blob_writer *writer, const void *bytes, size_t n)
{
    if (writer->pieces) {
        writer->pieces[writer->n_pieces] = (struct tally__bytes){bytes, n};
    }
    writer->n_pieces++;
}

void tally__blob_end(struct tally__blob_writer *writer)
{
    if (writer->copied > writer->listed) {
        add_piece(writer, writer->to ? writer->to + writer->listed : NULL,
                  writer->copied - writer->listed);
        writer->listed = writer->copied;
    }
}

void tally__blob_put_number(struct tally__blob_writer *writer, uint64_t number)
{
    tally__blob_put(writer, &number, sizeof number);
}

void tally__blob_put_array(struct tally__blob_writer *writer, const void *bytes, size_t n)
{
    static const unsigned char zeros[8];

    tally__blob_put_number(writer, n);
    if (writer->refers && n >= LARGE_BYTES) {
        tally__blob_end(writer);
        add_piece(writer, bytes, n);
        writer->used += n;
    } else {
        tally__blob_put(writer, bytes, n);
    }
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

uint64_t tally__blob_take_number(struct tally__blob_reader *reader)
{
    uint64_t number;

    tally__blob_take(reader, &number, sizeof number);
    return number;
}

const void *tally__blob_take_array(struct tally__blob_reader *reader, size_t *n)
{
    uint64_t length = tally__blob_take_number(reader);
    const void *array;

    /* Checked before padding is added, which could wrap around. */
    if (length > reader->left) {
        reader->bad = 1;
    }
    array = skip(reader, (size_t)length + padding_of((size_t)length));
    *n = array ? (size_t)length : 0;
    return array;
}

const float *tally__blob_take_floats(struct tally__blob_reader *reader, uint64_t n)
{
    size_t bytes;
    const float *floats = tally__blob_take_array(reader, &bytes);

    if (bytes % sizeof *floats != 0 || bytes / sizeof *floats != n) {
        reader->bad = 1;
    }
    return n > 0 ? floats : NULL;
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a saved state. A blob is a head, then the entries that its object writes one after
 * the other. Arrays and texts have their length in bytes before them and are padded to eight bytes:
 * in a blob that starts on a multiple of eight, all arrays are aligned. Numbers have the byte order
 * of the machine; the magic number shows when that is another one. A blob may contain another
 * object's blob as an array.
 */
#ifndef TALLY_STATE_BLOB_H
#define TALLY_STATE_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally__blob_head {
    uint64_t magic;
    uint32_t version;
    uint32_t rank;
    uint32_t world;
    uint32_t n_params;
    uint64_t n_steps; /* done when it was saved */
    uint64_t bytes;   /* of the whole blob */
    uint64_t checksum;
};

/* The checksum of a whole blob, as if head.checksum were 0. bytes is at least that of a head. */
uint64_t tally__blob_checksum(const void *blob, size_t bytes);

/* Writes the size, or size and checksum, into the head of a blob that is otherwise complete. */
void tally__blob_set_bytes(void *blob, size_t bytes);
void tally__blob_seal(void *blob, size_t bytes);

/* Consecutive bytes. */
struct tally__bytes {
    const void *data;
    size_t n;
};

/* A blob is written to one memory; or small entries are written there, and large arrays are only
 * referred to. Either way the blob is a list of pieces, one after the other. */
struct tally__blob_writer {
    unsigned char *to;           /* NULL: only counts */
    struct tally__bytes *pieces; /* NULL: only counts */
    bool refers;                 /* to large arrays */
    bool seals;                  /* each blob that is complete; not if it refers */
    size_t used;                 /* bytes of the blob, */
    size_t copied;               /* of those at to, */
    size_t listed;               /* and of the latter those that pieces have */
    size_t n_pieces;
};

void tally__blob_put(struct tally__blob_writer *writer, const void *bytes, size_t n);
void tally__blob_put_number(struct tally__blob_writer *writer, uint64_t number);
void tally__blob_put_array(struct tally__blob_writer *writer, const void *bytes, size_t n);
/* Behind the last entry. */
void tally__blob_end(struct tally__blob_writer *writer);

/* After an attempt to read past the end, or once a caller has found an entry damaged, bad is set
 * and everything read is zeros. */
struct tally__blob_reader {
    const unsigned char *from;
    size_t left;
    int bad;
};

void tally__blob_take(struct tally__blob_reader *reader, void *bytes, size_t n);
uint64_t tally__blob_take_number(struct tally__blob_reader *reader);
/* Returns where the array lies in the blob, and its length in bytes. */
const void *tally__blob_take_array(struct tally__blob_reader *reader, size_t *n);
/* The same for an array of n floats; NULL for none. Any other length is bad. */
const float *tally__blob_take_floats(struct tally__blob_reader *reader, uint64_t n);

/* A text from a blob, made fit for an error's text, which is one line. */
struct tally__blob_text {
    char text[64];
};
struct tally__blob_text tally__blob_show(const char *text, size_t n);

#endif

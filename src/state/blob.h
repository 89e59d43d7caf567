/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a saved state. One rank's blob:
 *
 *   head       magic, version, rank, world, number of parameters, steps, bytes, checksum
 *   hook       its name; flags; the name of the hook inside that has the state
 *   order      the parameters in the order of the buckets, if they were arranged by ready order
 *   parameter  name, shape, dtype, what it owes: sent (all elements or none), and how many runs are
 *              owned, of means of more and more ranks: ranks, first element, elements
 *   state      what the hook itself saved
 *
 * Texts and arrays have their length in bytes before them and are padded to eight bytes: in a blob
 * that starts on a multiple of eight, all arrays are aligned. Numbers have the byte order of the
 * machine; the magic number tells when that is another one.
 */
#ifndef TALLY_STATE_BLOB_H
#define TALLY_STATE_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "ddp/ddp.h"

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

#define TALLY__BLOB_MAGIC UINT64_C(0x31656b6f6c6c6154)
#define TALLY__BLOB_VERSION 2

/* Of a hook: the one that has the state is tally's own; it ran on the rank that saved. */
#define TALLY__BLOB_HOOK_OWN 1u
#define TALLY__BLOB_HOOK_RAN 2u

/* Of a whole blob, its head counted as if its checksum were 0. bytes is at least that of a head. */
uint64_t tally__blob_checksum(const void *blob, size_t bytes);

/* Writes size and checksum into the head of a blob that is otherwise complete. */
void tally__blob_seal(void *blob, size_t bytes);

/* Puts things one after the other; without room only counts. */
struct tally__blob_writer {
    unsigned char *to; /* NULL: only counts */
    size_t used;
};

void tally__blob_put(struct tally__blob_writer *writer, const void *bytes, size_t n);
void tally__blob_put_array(struct tally__blob_writer *writer, const void *bytes, size_t n);

/* Takes things one after the other. Past the end, and after that, it only says bad. */
struct tally__blob_reader {
    const unsigned char *from;
    size_t left;
    int bad;
};

void tally__blob_take(struct tally__blob_reader *reader, void *bytes, size_t n);
/* An array with its length in bytes: where it lies in the blob. */
const void *tally__blob_take_array(struct tally__blob_reader *reader, size_t *n);

/* ---- whole blobs ---- */

/* Who writes them, and which version of them this tally reads. */
struct tally__blob_kind {
    uint64_t magic;
    uint32_t version;
    const char *writer;
};

/* One rank's blob, opened. */
struct tally__blob {
    struct tally__blob_head head;
    struct tally__blob_reader reader; /* of what follows the head */
    void *copy;                       /* of a blob that is not aligned; else NULL */
};

/* Reads the head of blob r of n and checks the blob as a whole. Errors: ARG naming the blob; NOMEM.
 */
int tally__blob_open(const struct tally__blob_kind *kind, size_t n, size_t r, const void *bytes,
                     size_t n_bytes, struct tally__blob *blob);
void tally__blob_close(struct tally__blob *blob);

/* After each rank has looked at all blobs, with this status and a digest of them: whether all ranks
 * are content, and have been given the same. Collective. Errors: the first rank's; MISMATCH. */
int tally__load_agree(tally_ddp *ddp, const char *call, int status, uint64_t digest);

/* A text from a blob, for an error's text, which is one line. */
struct tally__blob_text {
    char text[64];
};
struct tally__blob_text tally__blob_show(const char *text, size_t n);

/* ---- parameters ---- */

/* Which parameter it is, as a blob says it; the arrays lie in the blob. */
struct tally__blob_identity {
    const char *name;
    size_t name_bytes;
    const uint64_t *shape;
    size_t n_dims;
    uint64_t n;       /* elements */
    uint64_t dtype;   /* of tally_dtype */
    uint64_t strides; /* as in struct tally__param */
};

void tally__blob_put_identity(struct tally__blob_writer *writer, const struct tally__param *param);
void tally__blob_take_identity(struct tally__blob_reader *reader,
                               struct tally__blob_identity *identity);

/* Whether it is this parameter. Errors: ARG naming blob r, the parameter, and what differs. */
int tally__blob_check_param(const struct tally__param *param,
                            const struct tally__blob_identity *identity, size_t r);

/* One parameter and what it owes. */
struct tally__blob_param {
    struct tally__blob_identity is;
    const float *sent; /* NULL: none */
    uint64_t n_owned;
    struct tally__blob_reader owned; /* of the first of them */
};

/* One run that is owned. */
struct tally__blob_owned {
    uint64_t n_ranks;
    uint64_t first;
    const float *values;
    size_t n;
};

void tally__blob_put_param(struct tally__blob_writer *writer, const struct tally__param *param,
                           const struct tally__residual *residual);
/* What it owes fits the number of its elements; the rest is not compared with anything. */
void tally__blob_take_param(struct tally__blob_reader *reader, struct tally__blob_param *param);
/* The run at the reader, which goes on to the next. */
void tally__blob_take_owned(struct tally__blob_reader *reader, struct tally__blob_owned *owned);

#endif

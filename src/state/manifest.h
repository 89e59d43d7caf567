/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of a checkpoint: a text that lists its files, and in each file the parts, one after
 * the other, with their sizes and checksums. It is written last. The lines, with one blank between
 * the words:
 *
 *   tally checkpoint 1             the version of the format
 *   library VERSION                the version of tally that wrote it
 *   step N                         steps of the ddp
 *   world N                        ranks that saved
 *   params N                       parameters of the model
 *   buffers N                      buffers of the model
 *   hook NAME                      the hook of the ddp
 *   file RANK BYTES NAME           a file, and the rank that wrote it; its parts follow:
 *   KIND INDEX DTYPE SHAPE BYTES CHECKSUM NAME
 *   checksum CHECKSUM              of all bytes before this line
 *
 * KIND is one of the list below, INDEX the number of a parameter, buffer, blob, or slice of a state
 * that is the same on all ranks. DTYPE and SHAPE are those of a parameter, such as "F32 3x4" or
 * "BF16 scalar", else "- -". A NAME is the rest of the line, in which a backslash and control
 * characters are written as \xHH. A CHECKSUM is tally__checksum_wide in 16 hexadecimal digits.
 */
#ifndef TALLY_STATE_MANIFEST_H
#define TALLY_STATE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/blob.h"
#include "state/growing_text.h"

#define TALLY__MANIFEST "manifest"

/* Kinds of parts: enum, word in the manifest, word for the user, whether each rank has its own.
 * Tensors come first. */
#define TALLY__PART_LIST(X)                      \
    X(PARAM, "param", "parameter", false)        \
    X(OWN_PARAM, "own-param", "parameter", true) \
    X(HEADER, "header", "header", false)         \
    X(BUFFER, "buffer", "buffer", false)         \
    X(OWN_BUFFER, "own-buffer", "buffer", true)  \
    X(DDP, "ddp", "ddp", true)                   \
    X(OPTIMIZER, "optimizer", "optimizer", true) \
    X(SLICE, "slice", "optimizer", false)        \
    X(AVERAGER, "averager", "averager", true)    \
    X(BLOB, "blob", "blob", true)

enum tally__part_kind {
#define TALLY__PART_ENUM(name, word, shown, own) TALLY__PART_##name,
    TALLY__PART_LIST(TALLY__PART_ENUM)
#undef TALLY__PART_ENUM
        TALLY__N_PART_KINDS
};

struct tally__part_kind_row {
    const char *word;
    const char *shown;
    bool is_own;
};
extern const struct tally__part_kind_row tally__part_kinds[TALLY__N_PART_KINDS];

/* A part, to be written or as it was read. */
struct tally__part {
    enum tally__part_kind kind;
    size_t index;
    const char *name;
    int dtype; /* of a parameter; else -1 */
    int n_dims;
    const size_t *shape;
    size_t bytes;
    uint64_t sum;
    /* To be written. */
    const struct tally__bytes *pieces;
    size_t n_pieces;
    bool has_sum; /* sum is known before */
    /* As it was read. */
    size_t file;
    size_t offset;
};

struct tally__manifest_file {
    const char *name;
    int rank;
    size_t bytes;
};

struct tally__manifest {
    uint64_t step;
    int world;
    size_t n_params;
    size_t n_buffers;
    const char *hook;
    const char *library;
    size_t n_files;
    struct tally__manifest_file *files;
    size_t n_parts;
    struct tally__part *parts;
    size_t *shapes; /* the memory of all shapes */
    char *text;     /* the memory of all names */
};

/* The checksum of bytes in pieces, one after the other. */
uint64_t tally__pieces_sum(const struct tally__bytes *pieces, size_t n);

/* The name of a dtype as in safetensors; NULL: none. */
const char *tally__dtype_word(int dtype);
bool tally__is_tensor(enum tally__part_kind kind);

/* ---- writing ---- */

void tally__manifest_put_head(struct tally__growing *to, const struct tally__manifest *manifest);
void tally__manifest_put_file(struct tally__growing *to, const struct tally__manifest_file *file);
void tally__manifest_put_part(struct tally__growing *to, const struct tally__part *part);
void tally__manifest_put_end(struct tally__growing *to);

/* ---- reading ---- */

/* Reads any n bytes. Errors: ARG saying what is wrong; NOMEM. */
int tally__manifest_read(const char *text, size_t n, struct tally__manifest *manifest);
void tally__manifest_free(struct tally__manifest *manifest);

#endif

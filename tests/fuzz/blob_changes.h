/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs of the fuzzers of saved states. An input is what to do to a state that a small run has
 * saved, so that it need not know how states look: a byte of flags and then changes of four bytes
 * each; or, by a flag, a state itself.
 */
#ifndef TALLY_TESTS_BLOB_CHANGES_H
#define TALLY_TESTS_BLOB_CHANGES_H

#include <stddef.h>
#include <stdint.h>

#include "fuzz/fuzz.h"

/* The flags. */
enum {
    BLOB_SEALED = 1,  /* the checksum is right */
    BLOB_VARIANT = 2, /* the fuzzer's own */
    BLOB_OTHERS = 4,  /* the state comes from two ranks; else from one */
    BLOB_ITSELF = 8   /* the input is the state; else changes */
};

struct blob_tried {
    size_t bytes;
    uint64_t room[2 * FUZZ_MAX_INPUT / sizeof(uint64_t)];
};

/* Makes what was saved into what is tried, by the input behind its flags. */
void blob_make(struct blob_tried *blob, const uint8_t *data, size_t n, unsigned flags);

/* Says which rank of which world it is from, and puts size and checksum right. */
void blob_seal(struct blob_tried *blob, uint32_t rank, uint32_t world);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzzers of saved states share. A small run saves its state; the input changes it, or
 * replaces it (blob_changes.h); and it is loaded. What is refused is answered with one line and
 * changes nothing; what is accepted can be saved, loaded again to the same bytes, and gone on from.
 * Nothing leaks.
 */
#ifndef TALLY_TESTS_BLOB_FUZZ_H
#define TALLY_TESTS_BLOB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What saves and loads. A model is the fuzzer's own; all but load must succeed. */
struct blob_subject {
    void *models[2]; /* room for two: one that loads, and a fresh one */
    void (*start)(void *model, bool variant);
    void (*run)(void *model); /* some steps, before it saves */
    void (*save)(void *model, void *blob, size_t *bytes);
    int (*load)(void *model, const void *const *blobs, const size_t *bytes, size_t n);
    void (*go_on)(void *model, bool variant); /* from what was accepted; its numbers may be none */
    void (*end)(void *model);
};

/* One input. Returns 0. */
int blob_fuzz(const struct blob_subject *subject, const uint8_t *data, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by the fuzzers of saved states. A small run saves its state; the input changes or
 * replaces it (blob_changes.h); and it is loaded. A refused state gives a text of one line and
 * changes nothing; an accepted state can be saved, loaded again to the same bytes, and continued
 * from. Nothing leaks.
 */
#ifndef TALLY_TESTS_BLOB_FUZZ_H
#define TALLY_TESTS_BLOB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The object that saves and loads. The fuzzer defines the model; all functions except load must
 * succeed.
 */
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

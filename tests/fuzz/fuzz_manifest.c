/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as the manifest of a checkpoint, with the right checksum behind it: what is read is what
 * would be written, to the byte; what is not is answered with one line; nothing leaks. One thread.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "state/manifest.h"
#include "support/counting_memory.h"
#include "tally.h"

/* Writes what was read. */
static void write_again(const struct tally__manifest *manifest, struct tally__growing *text)
{
    size_t part = 0;

    tally__manifest_put_head(text, manifest);
    for (size_t f = 0; f < manifest->n_files; f++) {
        tally__manifest_put_file(text, &manifest->files[f]);
        for (; part < manifest->n_parts && manifest->parts[part].file == f; part++) {
            tally__manifest_put_part(text, &manifest->parts[part]);
        }
    }
    FUZZ_CHECK(part == manifest->n_parts);
    tally__manifest_put_end(text);
}

int fuzz_one(const uint8_t *data, size_t n)
{
    size_t live = counting_memory_live();
    struct tally__growing text = {0};
    struct tally__growing again = {0};
    struct tally__manifest manifest;

    tally__grow_bytes(&text, (const char *)data, n);
    tally__manifest_put_end(&text);
    if (tally__manifest_read(text.text, text.n, &manifest) == TALLY_OK) {
        write_again(&manifest, &again);
        if (strcmp(manifest.library, tally_version()) == 0) {
            FUZZ_CHECK(again.n == text.n && memcmp(again.text, text.text, text.n) == 0);
        }
        tally__manifest_free(&manifest);
    } else {
        FUZZ_CHECK(tally_last_error()[0] != '\0' && !strchr(tally_last_error(), '\n'));
    }
    /* Without the checksum it is never read. */
    FUZZ_CHECK(tally__manifest_read((const char *)data, n, &manifest) != TALLY_OK || n > 200);
    if (manifest.text) {
        tally__manifest_free(&manifest);
    }
    tally__grow_free(&text);
    tally__grow_free(&again);
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}

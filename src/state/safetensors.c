/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the head of a safetensors file: eight bytes with the length of what follows, then JSON
 * with name, dtype, shape and offsets of every tensor, padded with blanks to a multiple of eight.
 * The tensors follow, row-major and little-endian, without gaps. Keeps no state; any thread enters.
 */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "state/container.h"

/* A byte that is not part of UTF-8 becomes the character with its number: readers refuse a file
 * with anything else. */
void tally__json_string(struct tally__growing *to, const char *text)
{
    tally__grow_bytes(to, "\"", 1);
    while (*text) {
        unsigned char first = (unsigned char)*text;
        size_t n = tally__utf8_bytes(text);

        if (first == '"' || first == '\\') {
            tally__grow(to, "\\%c", *text);
        } else if (first < ' ' || n == 0) {
            tally__grow(to, "\\u%04x", (unsigned)first);
        } else {
            tally__grow_bytes(to, text, n);
        }
        text += n > 0 ? n : 1;
    }
    tally__grow_bytes(to, "\"", 1);
}

static void put_tensor(struct tally__growing *to, const struct tally__part *tensor, size_t offset)
{
    tally__json_string(to, tensor->name);
    tally__grow(to, ":{\"dtype\":\"%s\",\"shape\":[", tally__dtype_word(tensor->dtype));
    for (int d = 0; d < tensor->n_dims; d++) {
        tally__grow(to, "%s%zu", d == 0 ? "" : ",", tensor->shape[d]);
    }
    tally__grow(to, "],\"data_offsets\":[%zu,%zu]}", offset, offset + tensor->bytes);
}

void tally__safetensors_head(struct tally__growing *to, const struct tally__part *tensors, size_t n,
                             uint64_t step)
{
    char length[8] = {0};
    size_t offset = 0;

    tally__grow_bytes(to, length, sizeof length);
    tally__grow(to, "{\"" TALLY__METADATA_NAME "\":{\"format\":\"pt\",\"step\":\"%" PRIu64 "\"}",
                step);
    for (size_t i = 0; i < n; i++) {
        tally__grow_bytes(to, ",", 1);
        put_tensor(to, &tensors[i], offset);
        offset += tensors[i].bytes;
    }
    tally__grow_bytes(to, "}", 1);
    while (!to->is_lost && to->n % sizeof length != 0) {
        tally__grow_bytes(to, " ", 1);
    }
    for (size_t k = 0; k < sizeof length && !to->is_lost; k++) {
        to->text[k] = (char)((to->n - sizeof length) >> 8 * k & 0xff);
    }
}

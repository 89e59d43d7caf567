/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to saved states. One thread. */
#include "fuzz/blob_changes.h"

#include <string.h>

#include "state/blob.h"

enum { SET, FLIP, ADD, CUT, N_CHANGES };

static void change(struct blob_tried *blob, const uint8_t *four)
{
    unsigned char *bytes = (unsigned char *)blob->room;
    size_t at = ((size_t)four[1] | (size_t)four[2] << 8) % (blob->bytes + 1);
    uint64_t number;

    if (four[0] % N_CHANGES == CUT) {
        /* Or made longer, by what was there before, or zeros. */
        blob->bytes = at + four[3] <= sizeof blob->room ? at + four[3] : at;
    } else if (at == blob->bytes) {
        return;
    } else if (four[0] % N_CHANGES == ADD) {
        at = at / sizeof number;
        number = blob->room[at] + (uint64_t)(int64_t)(int8_t)four[3];
        blob->room[at] = number;
    } else {
        bytes[at] = four[0] % N_CHANGES == SET ? four[3] : bytes[at] ^ four[3];
    }
}

void blob_seal(struct blob_tried *blob, uint32_t rank, uint32_t world)
{
    struct tally__blob_head head;

    if (blob->bytes < sizeof head) {
        return;
    }
    memcpy(&head, blob->room, sizeof head);
    head.rank = rank;
    head.world = world;
    head.bytes = blob->bytes;
    memcpy(blob->room, &head, sizeof head);
    head.checksum = tally__blob_checksum(blob->room, blob->bytes);
    memcpy(blob->room, &head, sizeof head);
}

void blob_make(struct blob_tried *blob, const uint8_t *data, size_t n, unsigned flags)
{
    if (flags & BLOB_ITSELF) {
        blob->bytes = n;
        memcpy(blob->room, data, n);
    }
    for (size_t i = 0; i + 4 <= n && !(flags & BLOB_ITSELF); i += 4) {
        change(blob, data + i);
    }
    if (flags & BLOB_SEALED) {
        blob_seal(blob, flags & BLOB_OTHERS ? 1 : 0, flags & BLOB_OTHERS ? 2 : 1);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum: each group of eight bytes goes through a bijective mix. Any thread enters. */
#include "base/checksum.h"

#include <string.h>

static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 32;
}

uint64_t tally__checksum(uint64_t before, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    uint64_t sum = mix(UINT64_C(0x7461) ^ before, n);
    uint64_t word;

    for (; n >= sizeof word; n -= sizeof word, from += sizeof word) {
        memcpy(&word, from, sizeof word);
        sum = mix(sum, word);
    }
    word = 0;
    memcpy(&word, from, n);
    return mix(sum, word);
}

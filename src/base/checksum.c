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

void tally__checksum_begin(struct tally__wide_sum *sum)
{
    *sum = (struct tally__wide_sum){.chains = {1, 2, 3, 4}};
}

/* Whole groups; returns how many bytes they have. */
static size_t add_groups(struct tally__wide_sum *sum, const unsigned char *from, size_t n)
{
    uint64_t a = sum->chains[0], b = sum->chains[1], c = sum->chains[2], d = sum->chains[3];
    size_t left = n;

    for (; left >= sizeof sum->rest; left -= sizeof sum->rest, from += sizeof sum->rest) {
        uint64_t words[4];

        memcpy(words, from, sizeof words);
        a = mix(a, words[0]);
        b = mix(b, words[1]);
        c = mix(c, words[2]);
        d = mix(d, words[3]);
    }
    sum->chains[0] = a;
    sum->chains[1] = b;
    sum->chains[2] = c;
    sum->chains[3] = d;
    return n - left;
}

void tally__checksum_add(struct tally__wide_sum *sum, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    size_t done;

    if (n == 0) {
        return;
    }
    if (sum->n_rest > 0) {
        done = sizeof sum->rest - sum->n_rest;
        done = n < done ? n : done;
        memcpy(sum->rest + sum->n_rest, from, done);
        sum->n_rest += done;
        from += done;
        n -= done;
        if (sum->n_rest < sizeof sum->rest) {
            return;
        }
        (void)add_groups(sum, sum->rest, sizeof sum->rest);
        sum->n_rest = 0;
    }
    done = add_groups(sum, from, n);
    sum->n_rest = n - done;
    memcpy(sum->rest, from + done, sum->n_rest);
}

uint64_t tally__checksum_end(const struct tally__wide_sum *sum)
{
    return tally__checksum(tally__checksum(0, sum->chains, sizeof sum->chains), sum->rest,
                           sum->n_rest);
}

uint64_t tally__checksum_wide(const void *bytes, size_t n)
{
    struct tally__wide_sum sum;

    tally__checksum_begin(&sum);
    tally__checksum_add(&sum, bytes, n);
    return tally__checksum_end(&sum);
}

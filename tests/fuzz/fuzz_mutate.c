/* SPDX-License-Identifier: Apache-2.0 */
/* Changes inputs at random, knowing nothing of what they mean. One thread. */
#include "fuzz/fuzz_mutate.h"

#include <string.h>

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* 0..n-1; 0 for n = 0. */
static size_t below(uint64_t *random, size_t n)
{
    return n ? (size_t)(next_random(random) % n) : 0;
}

/* Puts n bytes in at a place, as far as there is room. */
static void insert(struct fuzz_input *input, size_t at, const uint8_t *bytes, size_t n)
{
    if (n > FUZZ_MAX_INPUT - input->n) {
        n = FUZZ_MAX_INPUT - input->n;
    }
    memmove(input->data + at + n, input->data + at, input->n - at);
    memcpy(input->data + at, bytes, n);
    input->n += n;
}

static void change_byte(const struct fuzz_corpus *corpus, uint64_t *random,
                        struct fuzz_input *input)
{
    (void)corpus;
    if (input->n > 0) {
        input->data[below(random, input->n)] = (uint8_t)next_random(random);
    }
}

static void change_bit(const struct fuzz_corpus *corpus, uint64_t *random, struct fuzz_input *input)
{
    (void)corpus;
    if (input->n > 0) {
        input->data[below(random, input->n)] ^= (uint8_t)(1u << below(random, 8));
    }
}

static void insert_printable(const struct fuzz_corpus *corpus, uint64_t *random,
                             struct fuzz_input *input)
{
    uint8_t byte = (uint8_t)(' ' + below(random, '~' - ' ' + 1));

    (void)corpus;
    insert(input, below(random, input->n + 1), &byte, 1);
}

static void remove_piece(const struct fuzz_corpus *corpus, uint64_t *random,
                         struct fuzz_input *input)
{
    size_t at = below(random, input->n);
    size_t n = below(random, (input->n - at < 16 ? input->n - at : 16) + 1);

    (void)corpus;
    memmove(input->data + at, input->data + at + n, input->n - at - n);
    input->n -= n;
}

static void cut_off(const struct fuzz_corpus *corpus, uint64_t *random, struct fuzz_input *input)
{
    (void)corpus;
    input->n = below(random, input->n + 1);
}

/* A piece of another input, which may be this one's own seed. */
static void insert_piece(const struct fuzz_corpus *corpus, uint64_t *random,
                         struct fuzz_input *input)
{
    const struct fuzz_input *other = &corpus->inputs[below(random, corpus->n)];
    size_t from = below(random, other->n);
    size_t n = below(random, (other->n - from < 32 ? other->n - from : 32) + 1);

    insert(input, below(random, input->n + 1), other->data + from, n);
}

void fuzz_mutate(const struct fuzz_corpus *corpus, uint64_t *random, struct fuzz_input *input)
{
    static void (*const changes[])(const struct fuzz_corpus *, uint64_t *, struct fuzz_input *) = {
        change_byte, change_bit, insert_printable, remove_piece, cut_off, insert_piece};
    const struct fuzz_input *seed = &corpus->inputs[below(random, corpus->n)];

    input->n = seed->n;
    memcpy(input->data, seed->data, seed->n);
    do {
        changes[below(random, sizeof changes / sizeof changes[0])](corpus, random, input);
    } while (below(random, 4) != 0);
}

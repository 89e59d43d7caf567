/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks find out that they were not given the same. */
#ifndef TALLY_DDP_COMPARE_H
#define TALLY_DDP_COMPARE_H

#include <stddef.h>
#include <stdint.h>

#include "tally.h"

/* What ranks compare: words for people, and a hash for what does not fit in them. Two of them fit
 * in the text of a job that failed. */
struct tally__description {
    uint64_t hash;
    char words[208];
};

uint64_t tally__hash(uint64_t before, const void *bytes, size_t n);

/* Appends "[1,2,3]" behind the words used so far. */
void tally__describe_list(struct tally__description *about, size_t used, size_t n,
                          const size_t *list);

/* A list of things that must be the same on all ranks; about is zeros when describe is called. */
struct tally__compared {
    size_t n;
    const void *of;
    void (*describe)(const void *of, size_t i, struct tally__description *about);
};

/* In a job. MISMATCH on all ranks for the first difference, with the words of both. */
int tally__compare(tally_lane *lane, const struct tally__compared *compared);

#endif

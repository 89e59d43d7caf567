/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what ranks were given. */
#ifndef TALLY_DDP_COMPARE_H
#define TALLY_DDP_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tally_extend.h"

/* A thing that ranks compare, as text: its fields, "name=value" each with a newline after it. A
 * value that is too long to show is cut, and a checksum of all of it stands for the rest. */
struct tally__description {
    char thing[48]; /* "parameter 3", "config" */
    char name[144]; /* "'weight'" with its quotes; empty: the thing has none */
    char fields[760];
    size_t used; /* of fields */
};

/* Fill in a description: without printf where it can be, since there may be many. */
void tally__describe_thing(struct tally__description *about, const char *thing);
void tally__describe_numbered(struct tally__description *about, const char *thing, size_t i);
/* The name is quoted, and cut where it is long. */
void tally__describe_name(struct tally__description *about, const char *name);
void tally__describe_field(struct tally__description *about, const char *field, const char *value);
void tally__describe_number(struct tally__description *about, const char *field, long long value);
void tally__describe_real(struct tally__description *about, const char *field, double value);
/* A field that is a text: in quotes, cut where it is long. */
void tally__describe_text(struct tally__description *about, const char *field, const char *text);
/* A field that is a list: "[1,2,3]". */
void tally__describe_list(struct tally__description *about, const char *field, size_t n,
                          const size_t *list);

/* A list of things with a digest each. */
struct tally__digests {
    size_t n;
    const void *of;
    uint64_t (*digest)(const void *of, size_t i);
};

#define TALLY__NO_DIFFERENCE SIZE_MAX

/* In a job: *first is the number of the first thing that is not the same on all ranks, or missing
 * on some, or TALLY__NO_DIFFERENCE. One agreement where there is none; otherwise O(log n). */
int tally__find_difference(tally_lane *lane, const struct tally__digests *digests, size_t *first);

/* Things of one kind that must be the same on all ranks, and as many; about is zeros when describe
 * is called. */
struct tally__compared {
    const char *plural; /* "parameters" */
    size_t n;
    const void *of;
    void (*describe)(const void *of, size_t i, struct tally__description *about);
};

/* In a job. MISMATCH on all ranks for the first difference in the n_kinds lists: names the field
 * and both ranks' values. One agreement where there is no difference. */
int tally__compare(tally_lane *lane, const struct tally__compared *compared, size_t n_kinds);

#endif

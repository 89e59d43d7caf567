/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is to parse: every hook of tally's own is one row, a const table with its name, its
 * options and how to make it. The rows are listed in hook/kinds.c; hook_text.c reads their text.
 */
#ifndef TALLY_HOOK_KIND_H
#define TALLY_HOOK_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "tally.h"

struct tally__hook_kind {
    struct tally__row row; /* first */
    bool wraps;            /* takes a hook in brackets */
    /*
     * Makes the hook; name is its canonical text, values are in the order of options, inner is NULL
     * unless it wraps. Takes a hold of inner on success, none on failure. Errors: ARG where values
     * do not go together (the caller puts the name in front of the text), NOMEM.
     */
    int (*make)(const char *name, const double *values, tally_hook *inner, tally_hook **hook);
};

extern const struct tally__hook_kind tally__hook_kind_all_reduce;
extern const struct tally__hook_kind tally__hook_kind_fp16;
extern const struct tally__hook_kind tally__hook_kind_bf16;
extern const struct tally__hook_kind tally__hook_kind_int8;
extern const struct tally__hook_kind tally__hook_kind_per_tensor;
extern const struct tally__hook_kind tally__hook_kind_per_channel;
extern const struct tally__hook_kind tally__hook_kind_power;
extern const struct tally__hook_kind tally__hook_kind_batched_power;
extern const struct tally__hook_kind tally__hook_kind_hosts;
extern const struct tally__hook_kind tally__hook_kind_post_local;
extern const struct tally__hook_kind tally__hook_kind_noop;

/* All of them; every list of hooks has the rows of such kinds. */
extern const struct tally__rows tally__hook_kinds;

/* The kind that a row is the first member of. */
const struct tally__hook_kind *tally__hook_kind_of(const struct tally__row *row);

#endif

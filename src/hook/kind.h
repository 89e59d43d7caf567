/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every hook of tally is one row: a const table with its name, its options and its constructor.
 * hook/kinds.c lists the rows; hook_text.c reads their text.
 */
#ifndef TALLY_HOOK_KIND_H
#define TALLY_HOOK_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "tally.h"

struct tally__hook_kind {
    struct tally__row row; /* first member */
    bool wraps;            /* takes a hook in brackets */
    /*
     * Makes the hook; name is its canonical text, values are in the order of options, inner is NULL
     * unless it wraps. Takes a hold of inner on success, none on failure. Errors: ARG for
     * incompatible values (the caller prefixes the name), NOMEM.
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

/* The list of all hooks; every list of hooks has rows of such kinds. */
extern const struct tally__rows tally__hook_kinds;

/* The kind whose first member is row. */
const struct tally__hook_kind *tally__hook_kind_of(const struct tally__row *row);

#endif

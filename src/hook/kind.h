/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every hook of tally is one row: a const table with its name, its options and its constructor.
 * TALLY__HOOK_LIST has them all; hook_text.c reads their text.
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
     * Makes the hook; name is its canonical text, setting has the values, in the order of options,
     * inner is NULL unless it wraps. Takes a hold of inner on success, none on failure. Errors: ARG
     * for incompatible values (the caller prefixes the name), NOMEM.
     */
    int (*make)(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook);
};

/* Every hook, in the order of `tally hooks`. */
#define TALLY__HOOK_LIST(X) \
    X(all_reduce)           \
    X(fp16)                 \
    X(bf16)                 \
    X(int8)                 \
    X(per_tensor)           \
    X(per_channel)          \
    X(power)                \
    X(batched_power)        \
    X(hosts)                \
    X(post_local)           \
    X(auto_choice)          \
    X(noop)

#define TALLY__HOOK_DECLARE(name) extern const struct tally__hook_kind tally__hook_kind_##name;
TALLY__HOOK_LIST(TALLY__HOOK_DECLARE)
#undef TALLY__HOOK_DECLARE

/* The list of all hooks; every list of hooks has rows of such kinds. */
extern const struct tally__rows tally__hook_kinds;

/* The kind whose first member is row. */
const struct tally__hook_kind *tally__hook_kind_of(const struct tally__row *row);

/* hook_text.c: tally_hook_parse and tally_hook_wrap with a given list of hooks, and the longest
 * chain of them. */
#define TALLY__MAX_HOOK_DEPTH 8
int tally__hook_parse_in(const struct tally__rows *rows, const char *text, tally_hook **hook);
int tally__hook_wrap_in(const struct tally__rows *rows, const char *text, tally_hook *inner,
                        tally_hook **hook);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is to parse: every hook of tally's own is one row, a const table with its name, its
 * options and how to make it. The rows are listed in hook/kinds.c; text.h reads the text form.
 */
#ifndef TALLY_HOOK_KIND_H
#define TALLY_HOOK_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "tally.h"

/*
 * An option. Its value is a double: the number itself, or the place of the word in accepts.
 * COUNT takes whole numbers, REAL any, both within min..max; unit, if not 0, is what a COUNT must
 * be a multiple of. CHOICE takes one word of accepts, "two_phase|gather".
 */
enum tally__hook_option_type {
    TALLY__HOOK_OPTION_COUNT,
    TALLY__HOOK_OPTION_REAL,
    TALLY__HOOK_OPTION_CHOICE
};

struct tally__hook_option {
    const char *name;
    enum tally__hook_option_type type;
    double min;
    double max;
    double unit;
    const char *accepts;  /* what tally_hook_option says: the words, or range and unit in words */
    const char *fallback; /* one of the values accepted */
    const char *help;
};

#define TALLY__MAX_HOOK_OPTIONS 12

struct tally__hook_kind {
    const char *name;
    const char *help;
    bool wraps;
    size_t n_options;
    const struct tally__hook_option *options;
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
extern const struct tally__hook_kind tally__hook_kind_noop;

/* All of them. */
extern const struct tally__hook_kind *const tally__hook_kinds[];
extern const size_t tally__n_hook_kinds;

#endif

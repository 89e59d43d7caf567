/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of kinds for the tests of the text form: every type of option, wrappers, and hooks that
 * cannot be made. Their reduce does nothing. The arguments of the last make are kept.
 */
#ifndef TALLY_TESTS_HOOK_KINDS_H
#define TALLY_TESTS_HOOK_KINDS_H

#include "hook/kind.h"

/*
 * allreduce, noop   no options
 * leaf              count=1..9007199254740992 (4), real=-1e300..1e300 (0.5), half=0..1 (0),
 *                   step=64..4096 in multiples of 64 (512), mode=slow|fast|slower (slow)
 * wrap, cover       wrappers; wrap has flag=0|1 (0) and scale=0..10 (1)
 * picky             a=0|1 (0), b=0|1 (0): both at once cannot be made
 */
extern const struct tally__rows hook_kinds;

/* The arguments of the last make; without an inner hook: "". */
struct hook_record {
    int n_makes; /* since the start */
    char name[256];
    double values[TALLY__MAX_OPTIONS];
    char inner[256];
};
extern struct hook_record hook_record;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* tally_hook_parse and tally_hook_wrap with a given list of hooks. */
#ifndef TALLY_HOOK_HOOK_TEXT_H
#define TALLY_HOOK_HOOK_TEXT_H

#include "hook/kind.h"

/* The longest chain of hooks. */
#define TALLY__MAX_HOOK_DEPTH 8

int tally__hook_parse_in(const struct tally__rows *rows, const char *text, tally_hook **hook);
int tally__hook_wrap_in(const struct tally__rows *rows, const char *text, tally_hook *inner,
                        tally_hook **hook);

#endif

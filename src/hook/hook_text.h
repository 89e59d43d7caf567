/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks by text, with the list given: what tally_hook_parse and tally_hook_wrap do. */
#ifndef TALLY_HOOK_HOOK_TEXT_H
#define TALLY_HOOK_HOOK_TEXT_H

#include "hook/kind.h"

/* Most hooks inside one another. */
#define TALLY__MAX_HOOK_DEPTH 8

int tally__hook_parse_in(const struct tally__rows *rows, const char *text, tally_hook **hook);
int tally__hook_wrap_in(const struct tally__rows *rows, const char *text, tally_hook *inner,
                        tally_hook **hook);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the text form of hooks, with the kinds of hook_kinds.h. They fail the cmocka test. */
#ifndef TALLY_TESTS_HOOK_CHECKS_H
#define TALLY_TESTS_HOOK_CHECKS_H

#include "hook/kind.h"
#include "support/hook_kinds.h"

int hook_parse(const char *text, tally_hook **hook);

/* text parses to the canonical name given, which parses to itself; nothing leaks. */
void check_hook_name(const char *text, const char *name);

/* text is refused with exactly this message; no hook is made, nothing leaks. */
void check_hook_error(const char *text, const char *message);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks by text: parsing, canonical names, and what there is to parse. Any thread enters. */
#include <string.h>

#include "base/status.h"
#include "hook/kind.h"

int tally_hook_parse(const char *text, tally_hook **hook)
{
    for (size_t k = 0; k < tally__n_hook_kinds; k++) {
        if (strcmp(tally__hook_kinds[k]->name, text) == 0) {
            return tally__hook_kinds[k]->make(text, NULL, NULL, hook);
        }
    }
    return tally__fail(TALLY_ARG, "there is no hook '%s'", text);
}

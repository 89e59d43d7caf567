/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only door to the environment. Variables are declared in env_list.h; every getter reads the
 * environment anew, checks the text against what the variable accepts, and fails with ARG naming
 * variable, value and accepted values.
 */
#ifndef TALLY_BASE_ENV_H
#define TALLY_BASE_ENV_H

#include <stdbool.h>

#include "base/env_list.h"

enum tally__env_id {
#define TALLY__ENV_ID(id, name, kind, accepts, fallback, help) TALLY__ENV_##id,
    TALLY__ENV_LIST(TALLY__ENV_ID)
#undef TALLY__ENV_ID
        TALLY__ENV_COUNT
};

/* True when the variable is in the environment and not empty. */
bool tally__env_is_set(enum tally__env_id id);

/* For kind CHOICE: the word, and its position in the accepted list, 0 for the first. */
int tally__env_choice(enum tally__env_id id, const char **word);
int tally__env_choice_index(enum tally__env_id id, int *index);

#endif

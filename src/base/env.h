/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the environment; no other file reads it. Variables are declared in env_list.h. Every
 * getter reads the environment anew, checks the text against the accepted values, and fails with
 * ARG naming the variable, its value and the accepted values.
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

/* For kind COUNT: 0 or more. Only for variables that are set or have a fallback. */
int tally__env_count(enum tally__env_id id, int *count);

/* For kind SECONDS: above 0, at most TALLY__SECONDS_MAX. */
#define TALLY__SECONDS_MAX 1e8
int tally__env_seconds(enum tally__env_id id, double *seconds);

/* For kind TEXT: the text, or the fallback. */
const char *tally__env_text(enum tally__env_id id);

#endif

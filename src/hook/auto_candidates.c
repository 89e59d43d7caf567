/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the candidates of the hook auto from their text, and makes them. Any thread enters, with a
 * hook that is being made. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "hook/auto.h"

/* The hooks of the list that are not for auto, and why. */
static const char *reason_against(const tally_hook *hook)
{
    if (hook->private.follows_steps) {
        return "auto cannot be inside auto";
    }
    if (hook->private.sends_nothing || tally__hook_local(hook)) {
        return "it leaves ranks with different gradients";
    }
    return hook->private.divides ? "it divides the ranks into groups" : NULL;
}

/* Compression that would begin after many steps could not be measured: in a candidate it begins at
 * once, unless its text says otherwise. Whether the text, which is that of a hook, has changed. */
static bool start_at_once(char *text, size_t room)
{
    const char *name = strstr(text, "powersgd");
    char rest[TALLY__MAX_TEXT + 1];
    char *at;

    if (!name || strstr(text, "start=")) {
        return false;
    }
    at = text + (name - text) + strlen("powersgd");
    (void)snprintf(rest, sizeof rest, "%s", *at == ':' ? at + 1 : at);
    (void)snprintf(at, room - (size_t)(at - text), ":start=0%s%s",
                   rest[0] != '\0' && rest[0] != ')' ? "," : "", rest);
    return true;
}

static int add_candidate(struct tally__auto *self, const char *from, size_t length)
{
    char text[TALLY__MAX_TEXT + 16];
    const char *against;

    if (self->n == TALLY__MOST_CANDIDATES) {
        return tally__fail(TALLY_ARG, "more than %d candidates", TALLY__MOST_CANDIDATES);
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)length, from);
    for (char *c = strchr(text, ';'); c; c = strchr(c, ';')) {
        *c = ',';
    }
    /* As it was given, so that a mistake is told in the user's words. */
    TRY(tally_hook_parse(text, &self->candidates[self->n]));
    self->n++;
    if (start_at_once(text, sizeof text)) {
        tally_hook_free(self->candidates[self->n - 1]);
        self->candidates[self->n - 1] = NULL;
        TRY(tally_hook_parse(text, &self->candidates[self->n - 1]));
    }
    TRY(tally_hook_parse(text, &self->probers[self->n - 1]));
    against = reason_against(self->candidates[self->n - 1]);
    if (against) {
        return tally__fail(TALLY_ARG, "candidate '%s': %s", text, against);
    }
    for (size_t h = 0; h + 1 < self->n; h++) {
        if (strcmp(self->candidates[h]->table.name, self->candidates[self->n - 1]->table.name) ==
            0) {
            return tally__fail(TALLY_ARG, "candidate '%s' is given twice", text);
        }
    }
    return TALLY_OK;
}

int tally__auto_read_candidates(struct tally__auto *self, const char *text)
{
    const char *from = text;
    int depth = 0;

    for (const char *c = text;; c++) {
        depth += (*c == '(') - (*c == ')');
        if (*c == '\0' || (*c == '+' && depth == 0)) {
            TRY(add_candidate(self, from, (size_t)(c - from)));
            from = c + 1;
        }
        if (*c == '\0') {
            break;
        }
    }
    if (!self->candidates[0]->private.is_exact) {
        return tally__fail(TALLY_ARG,
                           "the first candidate is '%s': it must be allreduce, from which the "
                           "others are measured",
                           self->candidates[0]->table.name);
    }
    if (self->n == 1) {
        return tally__fail(TALLY_ARG, "one candidate leaves nothing to choose: use the hook '%s'",
                           self->candidates[0]->table.name);
    }
    return TALLY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a hook: what parses has a name that parses to itself; what does not is answered with
 * one line; nothing leaks, whichever allocation fails. One thread.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "fuzz/fuzz_text.h"
#include "hook/hook.h"
#include "hook/kind.h"
#include "support/counting_memory.h"
#include "support/hook_kinds.h"

static int parse(const struct tally__rows *list, const char *text, tally_hook **hook)
{
    return tally__hook_parse_in(list, text, hook);
}

/* The name of the hook made last gives the same name and, as far as they are known, the same
 * settings. */
static void check_name(const struct tally__rows *list, const tally_hook *hook)
{
    const struct hook_record before = hook_record;
    char name[TALLY__MAX_TEXT + 1];
    tally_hook *again = NULL;

    FUZZ_CHECK(strlen(hook->table.name) <= TALLY__MAX_TEXT);
    memcpy(name, hook->table.name, strlen(hook->table.name) + 1);
    FUZZ_CHECK(parse(list, name, &again) == TALLY_OK);
    FUZZ_CHECK(strcmp(again->table.name, name) == 0);
    for (size_t i = 0; i < TALLY__MAX_OPTIONS; i++) {
        FUZZ_CHECK(hook_record.values[i] == before.values[i]);
    }
    tally_hook_free(again);
}

/* Parses a text that is known to be good, with each allocation failing in turn. */
static void check_memory(const struct tally__rows *list, const char *text, size_t n_allocations)
{
    for (size_t k = 1; k <= n_allocations; k++) {
        size_t live = counting_memory_live();
        tally_hook *hook = NULL;

        counting_memory_fail_nth(k);
        FUZZ_CHECK(parse(list, text, &hook) == TALLY_NOMEM && !hook);
        counting_memory_fail_nth(0);
        FUZZ_CHECK(counting_memory_live() == live);
    }
}

static void check_parse(const struct tally__rows *list, const char *text)
{
    size_t n_before = counting_memory_calls();
    tally_hook *hook = NULL;
    int rc = parse(list, text, &hook);
    size_t n_allocations = counting_memory_calls() - n_before;

    if (rc != TALLY_OK) {
        FUZZ_CHECK(!hook);
        fuzz_check_refusal(rc);
        return;
    }
    check_name(list, hook);
    tally_hook_free(hook);
    check_memory(list, text, n_allocations);
}

/* Wraps the text around another hook: accepted only if it is a wrapper, and parses alone. */
static void check_wrap(const struct tally__rows *list, const char *text)
{
    tally_hook *inner = NULL;
    tally_hook *hook = NULL;
    tally_hook *alone = NULL;
    int rc;

    FUZZ_CHECK(parse(list, "noop", &inner) == TALLY_OK);
    rc = tally__hook_wrap_in(list, text, inner, &hook);
    tally_hook_free(inner);
    if (rc != TALLY_OK) {
        FUZZ_CHECK(!hook);
        fuzz_check_refusal(rc);
        return;
    }
    check_name(list, hook);
    FUZZ_CHECK(parse(list, text, &alone) == TALLY_OK);
    FUZZ_CHECK(strncmp(hook->table.name, alone->table.name, strlen(alone->table.name)) == 0);
    tally_hook_free(alone);
    tally_hook_free(hook);
}

int fuzz_one(const uint8_t *data, size_t n)
{
    const struct tally__rows *const lists[] = {&hook_kinds, &tally__hook_kinds};
    char text[FUZZ_MAX_INPUT + 1];
    size_t live = counting_memory_live();

    memcpy(text, data, n);
    text[n] = '\0';
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        check_parse(lists[k], text);
        check_wrap(lists[k], text);
        FUZZ_CHECK(counting_memory_live() == live);
    }
    return 0;
}

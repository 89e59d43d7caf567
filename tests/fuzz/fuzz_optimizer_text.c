/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as an optimizer: what parses has a name that parses to itself and takes the same step;
 * what does not is answered with one line; nothing leaks, whichever allocation fails. One thread.
 */
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_text.h"
#include "optim/moments.h"
#include "support/counting_memory.h"

#define N 5

/* The result of two steps with the rule, from the same start for all. */
static void train(const struct tally__rule *rule, uint32_t *bits)
{
    float data[N];
    float gradient[N] = {1.0f, -0.5f, 0.0f, 2.5f, -3.0f};
    const tally_step_param param = {
        .name = "p", .data = data, .gradient = gradient, .lr = rule->lr};
    struct tally__moments moments;

    for (size_t i = 0; i < N; i++) {
        data[i] = (float)i - 1.5f;
    }
    FUZZ_CHECK(tally__moments_cover(&moments, rule->table.n_states, 0, N) == TALLY_OK);
    for (int t = 0; t < 2; t++) {
        FUZZ_CHECK(tally__moments_step(&moments, rule, &param, 0.5f, false) == TALLY_OK);
    }
    tally__moments_clear(&moments);
    memcpy(bits, data, sizeof data);
}

static void check_name(const struct tally__rule *rule)
{
    struct tally__rule *again = NULL;
    uint32_t bits[N];
    uint32_t bits_again[N];

    FUZZ_CHECK(strlen(rule->name) <= TALLY__MAX_TEXT);
    FUZZ_CHECK(tally__rule_parse(rule->name, &again) == TALLY_OK);
    FUZZ_CHECK(strcmp(again->name, rule->name) == 0);
    train(rule, bits);
    train(again, bits_again);
    FUZZ_CHECK(memcmp(bits, bits_again, sizeof bits) == 0);
    tally__rule_free(again);
}

/* Parses a text that is known to be good, with each allocation failing in turn. */
static void check_memory(const char *text, size_t n_allocations)
{
    for (size_t k = 1; k <= n_allocations; k++) {
        size_t live = counting_memory_live();
        struct tally__rule *rule = NULL;

        counting_memory_fail_nth(k);
        FUZZ_CHECK(tally__rule_parse(text, &rule) == TALLY_NOMEM && !rule);
        counting_memory_fail_nth(0);
        FUZZ_CHECK(counting_memory_live() == live);
    }
}

int fuzz_one(const uint8_t *data, size_t n)
{
    char text[FUZZ_MAX_INPUT + 1];
    size_t live = counting_memory_live();
    size_t n_before = counting_memory_calls();
    struct tally__rule *rule = NULL;
    size_t n_allocations;
    int rc;

    memcpy(text, data, n);
    text[n] = '\0';
    rc = tally__rule_parse(text, &rule);
    n_allocations = counting_memory_calls() - n_before;
    if (rc != TALLY_OK) {
        FUZZ_CHECK(!rule);
        fuzz_check_refusal(rc);
    } else {
        check_name(rule);
        tally__rule_free(rule);
        check_memory(text, n_allocations);
    }
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}

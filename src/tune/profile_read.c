/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a profile. Strict: every key is there, once, in the order in which profile.c writes them,
 * and every number is within sensible limits. Anything else is one line that names the place. No
 * state; any thread.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "tune/profile.h"
#include "tune/replay.h"

/* Limits of counts, of times, of rates other than 0, and of everything else. */
#define MOST_RANKS 1e6
#define MOST_SECONDS 1e6
#define LEAST_GBIT 1e-6
#define MOST 1e15

struct reader {
    const char *name; /* of the file */
    const char *text;
    size_t n;
    size_t at;
};

static int line_of(const struct reader *reader)
{
    int line = 1;

    for (size_t i = 0; i < reader->at && i < reader->n; i++) {
        line += reader->text[i] == '\n';
    }
    return line;
}

static int refuse(const struct reader *reader, const char *expected)
{
    return tally__fail(TALLY_ARG, "%s, line %d: not a profile of tally: expected %s", reader->name,
                       line_of(reader), expected);
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->n && isspace((unsigned char)reader->text[reader->at])) {
        reader->at++;
    }
}

/* Reads a mark such as '{'. */
static int read_mark(struct reader *reader, char mark)
{
    const char expected[] = {'\'', mark, '\'', '\0'};

    skip_blanks(reader);
    if (reader->at == reader->n || reader->text[reader->at] != mark) {
        return refuse(reader, expected);
    }
    reader->at++;
    return TALLY_OK;
}

/* Reads a text without escapes. */
static int read_text(struct reader *reader, const char *expected, char *text, size_t most)
{
    size_t n = 0;

    TRY(read_mark(reader, '"'));
    while (reader->at + n < reader->n && reader->text[reader->at + n] != '"') {
        char c = reader->text[reader->at + n];

        if (c < ' ' || c > '~' || c == '\\' || n == most) {
            return refuse(reader, expected);
        }
        text[n++] = c;
    }
    text[n] = '\0';
    reader->at += n;
    return n > 0 ? read_mark(reader, '"') : refuse(reader, expected);
}

static int read_key(struct reader *reader, char before, const char *key)
{
    char quoted[40];
    size_t length = (size_t)snprintf(quoted, sizeof quoted, "\"%s\"", key);

    TRY(read_mark(reader, before));
    skip_blanks(reader);
    if (reader->n - reader->at < length || memcmp(reader->text + reader->at, quoted, length) != 0) {
        return refuse(reader, quoted);
    }
    reader->at += length;
    return read_mark(reader, ':');
}

/* A member of an object: before is '{' for the first one, ',' for the others. */
static int read_number(struct reader *reader, char before, struct tally__option number, double *to)
{
    char digits[TALLY__MAX_OPTION_VALUE];
    size_t n = 0;

    TRY(read_key(reader, before, number.name));
    skip_blanks(reader);
    while (reader->at + n < reader->n && n + 1 < sizeof digits &&
           strchr("+-.0123456789Ee", reader->text[reader->at + n]) &&
           reader->text[reader->at + n] != '\0') {
        digits[n] = reader->text[reader->at + n];
        n++;
    }
    digits[n] = '\0';
    if (!tally__option_read(&number, digits, to)) {
        char expected[120];

        (void)snprintf(expected, sizeof expected, "a number from %g to %g as \"%s\"", number.min,
                       number.max, number.name);
        return refuse(reader, expected);
    }
    reader->at += n;
    return TALLY_OK;
}

#define COUNT(key, least, most) \
    ((struct tally__option){    \
        .name = (key), .type = TALLY__OPTION_COUNT, .min = (least), .max = (most)})
#define REAL(key, most) \
    ((struct tally__option){.name = (key), .type = TALLY__OPTION_REAL, .min = 0, .max = (most)})

static int read_link(struct reader *reader, const char *key, struct tally__link *link)
{
    TRY(read_key(reader, ',', key));
    TRY(read_number(reader, '{', REAL("latency_s", MOST_SECONDS), &link->latency_s));
    TRY(read_number(reader, ',', REAL("message_s", MOST_SECONDS), &link->message_s));
    TRY(read_number(reader, ',', REAL("gbit", 1e9), &link->gbit));
    if (link->gbit > 0 && link->gbit < LEAST_GBIT) {
        return refuse(reader, "a rate of 0 or at least 1e-06 Gbit/s");
    }
    return read_mark(reader, '}');
}

static int read_head(struct reader *reader, struct tally__profile *profile)
{
    double version = 0;

    TRY(read_number(reader, '{', COUNT("tally_profile", 1, 1e6), &version));
    if (version != TALLY__PROFILE_VERSION) {
        return tally__fail(TALLY_ARG,
                           "%s is a profile of version %.0f; this tally reads version %d",
                           reader->name, version, TALLY__PROFILE_VERSION);
    }
    TRY(read_key(reader, ',', "library"));
    TRY(read_text(reader, "the version of tally", profile->library, TALLY__PROFILE_WORD));
    TRY(read_key(reader, ',', "source"));
    TRY(read_text(reader, "the name of a program", profile->source, TALLY__PROFILE_WORD));
    TRY(read_number(reader, ',', COUNT("hosts", 1, MOST_RANKS), &profile->hosts));
    TRY(read_number(reader, ',', COUNT("ranks_per_host", 1, MOST_RANKS), &profile->ranks_per_host));
    TRY(read_number(reader, ',', COUNT("lanes", 1, TALLY__REPLAY_MOST_LANES), &profile->lanes));
    TRY(read_number(reader, ',', REAL("forward_s", MOST_SECONDS), &profile->forward_s));
    TRY(read_number(reader, ',', REAL("backward_s", MOST_SECONDS), &profile->backward_s));
    TRY(read_number(reader, ',', REAL("spread_s", MOST_SECONDS), &profile->spread_s));
    TRY(read_number(reader, ',', REAL("cpu_share", 1), &profile->cpu_share));
    TRY(read_number(reader, ',', REAL("cpu_s_per_byte", 1), &profile->cpu_s_per_byte));
    TRY(read_link(reader, "link", &profile->link));
    return read_link(reader, "memory", &profile->memory);
}

/* The buckets and hooks that the file announces fit into it, so that damage asks for no memory. */
static int read_counts(struct reader *reader, double *n_buckets, double *n_hooks)
{
    struct reader ahead = *reader;

    TRY(read_number(reader, ',', COUNT("n_buckets", 1, (double)reader->n), n_buckets));
    ahead = *reader;
    while (ahead.at < ahead.n && ahead.text[ahead.at] != ']') {
        ahead.at++;
    }
    if (ahead.at == ahead.n) {
        return refuse(&ahead, "']'");
    }
    ahead.at++;
    return read_number(&ahead, ',', COUNT("n_hooks", 1, (double)reader->n / *n_buckets), n_hooks);
}

static int read_buckets(struct reader *reader, struct tally__profile *profile)
{
    TRY(read_key(reader, ',', "buckets"));
    for (size_t b = 0; b < profile->n_buckets; b++) {
        struct tally__profile_bucket *bucket = &profile->buckets[b];

        TRY(read_mark(reader, b == 0 ? '[' : ','));
        TRY(read_number(reader, '{', REAL("bytes", MOST), &bucket->bytes));
        TRY(read_number(reader, ',', REAL("ready_s", MOST_SECONDS), &bucket->ready_s));
        TRY(read_mark(reader, '}'));
    }
    return read_mark(reader, ']');
}

static int read_hook(struct reader *reader, struct tally__profile *profile, size_t h)
{
    struct tally__profile_hook *hook = &profile->hooks[h];

    TRY(read_key(reader, '{', "name"));
    TRY(read_text(reader, "the name of a hook", hook->name, TALLY__PROFILE_NAME));
    if (tally__profile_hook(profile, hook->name) != hook) {
        return tally__fail(TALLY_ARG, "%s, line %d: the hook '%s' is there twice", reader->name,
                           line_of(reader), hook->name);
    }
    TRY(read_number(reader, ',', COUNT("exchanges", 1, 1000), &hook->exchanges));
    TRY(read_number(reader, ',', REAL("error", MOST), &hook->error));
    TRY(read_key(reader, ',', "coding"));
    for (size_t b = 0; b < profile->n_buckets; b++) {
        TRY(read_mark(reader, b == 0 ? '[' : ','));
        TRY(read_number(reader, '{', REAL("bytes", MOST), &hook->coding[b].bytes));
        TRY(read_number(reader, ',', REAL("code_s", MOST_SECONDS), &hook->coding[b].code_s));
        TRY(read_mark(reader, '}'));
    }
    TRY(read_mark(reader, ']'));
    return read_mark(reader, '}');
}

/* Its options do not matter. */
static bool is_allreduce(const char *name)
{
    static const char word[] = "allreduce";
    size_t n = sizeof word - 1;

    return strncmp(name, word, n) == 0 && (name[n] == '\0' || name[n] == ':');
}

static int read_lists(struct reader *reader, struct tally__profile *profile)
{
    double n_hooks = 0;

    TRY(read_buckets(reader, profile));
    TRY(read_number(reader, ',', COUNT("n_hooks", 1, (double)reader->n), &n_hooks));
    TRY(read_key(reader, ',', "hooks"));
    for (size_t h = 0; h < profile->n_hooks; h++) {
        TRY(read_mark(reader, h == 0 ? '[' : ','));
        TRY(read_hook(reader, profile, h));
    }
    TRY(read_mark(reader, ']'));
    TRY(read_mark(reader, '}'));
    skip_blanks(reader);
    if (reader->at != reader->n) {
        return refuse(reader, "the end");
    }
    if (!is_allreduce(profile->hooks[0].name)) {
        return tally__fail(TALLY_ARG, "%s: the first hook of a profile is allreduce, not '%s'",
                           reader->name, profile->hooks[0].name);
    }
    return TALLY_OK;
}

int tally__profile_read(const char *name, const char *text, size_t n,
                        struct tally__profile *profile)
{
    struct reader reader = {name, text, n, 0};
    struct tally__profile head = {.n_buckets = 0};
    struct tally__profile made;
    double n_buckets = 0;
    double n_hooks = 0;
    int rc;

    TRY(read_head(&reader, &head));
    TRY(read_counts(&reader, &n_buckets, &n_hooks));
    TRY(tally__profile_make((size_t)n_buckets, (size_t)n_hooks, &made));
    head.n_buckets = made.n_buckets;
    head.buckets = made.buckets;
    head.n_hooks = made.n_hooks;
    head.hooks = made.hooks;
    rc = read_lists(&reader, &head);
    if (rc != TALLY_OK) {
        tally__profile_free(&head);
        return rc;
    }
    *profile = head;
    return TALLY_OK;
}

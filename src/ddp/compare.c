/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares what ranks were given. Ranks agree on one digest of everything. If it differs, they
 * search for the first difference by digests of ranges, and only then do descriptions travel.
 * Inside jobs.
 */
#include "ddp/compare.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/doing.h"

/* Longer values are cut. */
#define SHOWN_BYTES 100

/* ---- describing ---- */

/* Appends text to what has used of its room; what does not fit is cut. */
static size_t append(char *to, size_t used, size_t room, const char *text)
{
    size_t n = strlen(text);

    n = n < room - used ? n : room - used - 1;
    memcpy(to + used, text, n);
    to[used + n] = '\0';
    return used + n;
}

/* The digits of a number, at the end of a buffer of N_DIGITS. */
#define N_DIGITS 24
static const char *digits(char *buffer, bool negative, unsigned long long value)
{
    size_t at = N_DIGITS - 1;

    buffer[at] = '\0';
    do {
        buffer[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    if (negative) {
        buffer[--at] = '-';
    }
    return &buffer[at];
}

/* A text in quotes; where it is cut, a checksum tells it from others that begin alike. */
static void quote(const char *text, char *quoted, size_t room)
{
    size_t n = strlen(text);
    size_t used = append(quoted, 0, room, "'");

    if (n > SHOWN_BYTES) {
        (void)snprintf(quoted, room, "'%.*s...' (%zu characters, checksum %08x)", SHOWN_BYTES - 40,
                       text, n, (unsigned)tally__checksum(0, text, n));
        return;
    }
    used = append(quoted, used, room, text);
    (void)append(quoted, used, room, "'");
}

void tally__describe_thing(struct tally__description *about, const char *thing)
{
    (void)append(about->thing, 0, sizeof about->thing, thing);
}

void tally__describe_numbered(struct tally__description *about, const char *thing, size_t i)
{
    char buffer[N_DIGITS];
    size_t used = append(about->thing, 0, sizeof about->thing, thing);

    used = append(about->thing, used, sizeof about->thing, " ");
    (void)append(about->thing, used, sizeof about->thing, digits(buffer, false, i));
}

void tally__describe_name(struct tally__description *about, const char *name)
{
    quote(name, about->name, sizeof about->name);
}

void tally__describe_field(struct tally__description *about, const char *field, const char *value)
{
    const char *const parts[] = {field, "=", value, "\n"};

    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        about->used = append(about->fields, about->used, sizeof about->fields, parts[k]);
    }
}

void tally__describe_number(struct tally__description *about, const char *field, long long value)
{
    char buffer[N_DIGITS];
    unsigned long long magnitude = (unsigned long long)value;

    tally__describe_field(about, field,
                          digits(buffer, value < 0, value < 0 ? 0 - magnitude : magnitude));
}

void tally__describe_real(struct tally__description *about, const char *field, double value)
{
    char text[40];

    (void)snprintf(text, sizeof text, "%.17g", value);
    tally__describe_field(about, field, text);
}

void tally__describe_text(struct tally__description *about, const char *field, const char *text)
{
    char quoted[SHOWN_BYTES + 40];

    quote(text, quoted, sizeof quoted);
    tally__describe_field(about, field, quoted);
}

void tally__describe_list(struct tally__description *about, const char *field, size_t n,
                          const size_t *list)
{
    char shown[SHOWN_BYTES + 80];
    char buffer[N_DIGITS];
    size_t used = append(shown, 0, sizeof shown, "[");
    size_t i;

    for (i = 0; i < n && used < SHOWN_BYTES - 20; i++) {
        used = append(shown, used, sizeof shown, i ? "," : "");
        used = append(shown, used, sizeof shown, digits(buffer, false, list[i]));
    }
    if (i < n) {
        used +=
            (size_t)snprintf(shown + used, sizeof shown - used, ",... (%zu entries, checksum %08x)",
                             n, (unsigned)tally__checksum(0, list, n * sizeof *list));
    }
    (void)append(shown, used, sizeof shown, "]");
    tally__describe_field(about, field, shown);
}

static void describe(const struct tally__compared *compared, size_t i,
                     struct tally__description *about)
{
    memset(about, 0, sizeof *about);
    if (i < compared->n) {
        compared->describe(compared->of, i, about);
    }
}

static uint64_t digest_of(const void *of, size_t i)
{
    struct tally__description about;
    uint64_t digest;

    describe(of, i, &about);
    digest = tally__checksum(0, about.name, strlen(about.name));
    return tally__checksum(digest, about.fields, strlen(about.fields));
}

/* ---- finding the difference ---- */

/* The digest of things start to end - 1, as far as this rank has them. */
static uint64_t digest_range(const struct tally__digests *digests, size_t start, size_t end)
{
    uint64_t range = 0;

    for (size_t i = start; i < end && i < digests->n; i++) {
        uint64_t digest = digests->digest(digests->of, i);

        range = tally__checksum(range, &digest, sizeof digest);
    }
    return range;
}

static int is_same(tally_lane *lane, const struct tally__digests *digests, size_t start, size_t end,
                   bool *same)
{
    int other = -1;

    TRY(tally__agree_same(lane, digest_range(digests, start, end), &other));
    *same = other < 0;
    return TALLY_OK;
}

int tally__find_difference(tally_lane *lane, const struct tally__digests *digests, size_t *first)
{
    size_t start = 0;
    size_t end = 1;
    bool same;

    TRY(is_same(lane, digests, 0, SIZE_MAX, &same));
    /* Ranges of 1, 1, 2, 4, ... things: no rank needs to know how many the others have. */
    while (!same) {
        TRY(is_same(lane, digests, start, end, &same));
        if (!same) {
            break;
        }
        same = end > SIZE_MAX / 2;
        start = end;
        end *= 2;
    }
    if (same) {
        *first = TALLY__NO_DIFFERENCE;
        return TALLY_OK;
    }
    while (end - start > 1) {
        size_t middle = start + (end - start) / 2;

        TRY(is_same(lane, digests, start, middle, &same));
        *(same ? &start : &end) = middle;
    }
    *first = start;
    return TALLY_OK;
}

/* One rank's values where ranks differ. */
struct side {
    uint64_t n; /* things of the kind */
    struct tally__description about;
};

/* The first field of two descriptions that differs: where it begins in both, or NULL. */
static const char *differing_field(const char *zero, const char *other, const char **in_other)
{
    while (*zero != '\0' && *other != '\0') {
        size_t n_zero = strcspn(zero, "\n");
        size_t n_other = strcspn(other, "\n");

        if (n_zero != n_other || memcmp(zero, other, n_zero) != 0) {
            *in_other = other;
            return zero;
        }
        zero += n_zero + (zero[n_zero] != '\0');
        other += n_other + (other[n_other] != '\0');
    }
    return NULL;
}

static int value_bytes(const char *value)
{
    return (int)strcspn(value, "\n");
}

/* Describes the difference in thing number i between rank 0 and the rank that differs. */
static void tell(const struct side *zero, const struct side *other,
                 const struct tally__rank_text *ranks, size_t i, char *text, size_t room)
{
    const char *in_other = NULL;
    const char *in_zero;

    if (i >= other->n || i >= zero->n) {
        bool zero_has = i < zero->n;
        const struct tally__description *about = zero_has ? &zero->about : &other->about;

        (void)snprintf(text, room, "%s %s is on %s only", about->thing, about->name,
                       zero_has ? ranks[0].text : ranks[1].text);
    } else if (strcmp(zero->about.name, other->about.name) != 0) {
        (void)snprintf(text, room, "%s is %s on %s and %s on %s", zero->about.thing,
                       zero->about.name, ranks[0].text, other->about.name, ranks[1].text);
    } else {
        in_zero = differing_field(zero->about.fields, other->about.fields, &in_other);
        if (in_zero) {
            int n_field = (int)strcspn(in_zero, "=");

            (void)snprintf(
                text, room, "%s%s%s: %.*s is %.*s on %s and %.*s on %s", zero->about.thing,
                zero->about.name[0] ? " " : "", zero->about.name, n_field, in_zero,
                value_bytes(in_zero + n_field + 1), in_zero + n_field + 1, ranks[0].text,
                value_bytes(in_other + n_field + 1), in_other + n_field + 1, ranks[1].text);
        }
    }
}

/* Fails on all ranks; describes thing number i of rank 0 and of the lowest rank that differs. */
static int report(tally_lane *lane, const struct tally__compared *compared, size_t i)
{
    struct side zero;
    struct side own = {.n = compared->n};
    char text[700] = "";
    char counts[200] = "";
    const tally_group *group = tally_lane_group(lane);
    struct tally__rank_text ranks[2];
    int other = -1;

    describe(compared, i, &own.about);
    zero = own;
    TRY(tally__agree_same(lane, tally__checksum(0, &own, sizeof own), &other));
    TRY(tally_lane_broadcast(lane, &zero, sizeof zero, 0));
    TRY(tally_lane_broadcast(lane, &own, sizeof own, other));
    ranks[0] = tally__rank_text(group, 0);
    ranks[1] = tally__rank_text(group, other);
    tell(&zero, &own, ranks, i, text, sizeof text);
    if (zero.n != own.n) {
        (void)snprintf(counts, sizeof counts, "%s has %llu %s and %s has %llu; ", ranks[0].text,
                       (unsigned long long)zero.n, compared->plural, ranks[1].text,
                       (unsigned long long)own.n);
    }
    return tally__fail(TALLY_MISMATCH, "%s%s; all ranks must give the same", counts, text);
}

int tally__compare(tally_lane *lane, const struct tally__compared *compared, size_t n_kinds)
{
    uint64_t all = 0;
    int other = -1;

    for (size_t k = 0; k < n_kinds; k++) {
        const struct tally__digests digests = {compared[k].n, &compared[k], digest_of};
        uint64_t digest = digest_range(&digests, 0, digests.n);

        all = tally__checksum(all, &digest, sizeof digest);
    }
    TRY(tally__agree_same(lane, all, &other));
    for (size_t k = 0; k < n_kinds && other >= 0; k++) {
        const struct tally__digests digests = {compared[k].n, &compared[k], digest_of};
        size_t first;

        TRY(tally__find_difference(lane, &digests, &first));
        if (first != TALLY__NO_DIFFERENCE) {
            return report(lane, &compared[k], first);
        }
    }
    return TALLY_OK;
}

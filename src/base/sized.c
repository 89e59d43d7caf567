/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that begin with their size; see sized.h. Stateless. Any thread enters. */
#include "base/sized.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* All these structs begin with a size_t, and the compiler pads them to a multiple of its size. */
static size_t size_of(const void *given)
{
    size_t size;

    memcpy(&size, given, sizeof size);
    return size;
}

/* Later versions append less than this. A larger size is one that the program never set. */
#define LARGEST_GROWTH ((size_t)4096)

static size_t known_bytes(const struct tally__sized *kind, size_t size)
{
    return size < kind->whole ? size : kind->whole;
}

/* Checks that a struct of this size can be read or written. */
static int check_size(const struct tally__sized *kind, const char *what, size_t size)
{
    size_t n = strlen(kind->type);
    const char *end = "_config";
    bool is_config = n > strlen(end) && strcmp(kind->type + n - strlen(end), end) == 0;

    if (size >= kind->first && size <= kind->whole + LARGEST_GROWTH && size % sizeof(size_t) == 0) {
        return TALLY_OK;
    }
    if (is_config) {
        return tally__fail(TALLY_ARG,
                           "%s: size is %zu, expected sizeof(%s), %zu here: fill it in with "
                           "%s_init(&config, sizeof config) first",
                           what, size, kind->type, kind->whole, kind->type);
    }
    return tally__fail(TALLY_ARG, "%s: size is %zu, expected sizeof(%s), %zu here", what, size,
                       kind->type, kind->whole);
}

/* Fields that this library does not know must be zero, which is "not set". */
static int check_unknown(const struct tally__sized *kind, const char *what, const void *given)
{
    const unsigned char *bytes = given;
    size_t size = size_of(given);

    for (size_t i = kind->whole; i < size; i++) {
        if (bytes[i] != 0) {
            return tally__fail(TALLY_UNSUPPORTED,
                               "%s: the field at byte %zu of %s is set, but libtally %s knows only "
                               "the first %zu bytes: the library is older than the tally.h that "
                               "the program was built with. Use a newer library, or leave the "
                               "field unset",
                               what, i - i % sizeof(int), kind->type, tally_version(), kind->whole);
        }
    }
    return TALLY_OK;
}

int tally__sized_read(const struct tally__sized *kind, const char *what, const void *given,
                      void *copy)
{
    size_t size = size_of(given);

    TRY(check_size(kind, what, size));
    TRY(check_unknown(kind, what, given));
    memcpy(copy, given, known_bytes(kind, size));
    memcpy(copy, &kind->whole, sizeof kind->whole);
    return TALLY_OK;
}

int tally__sized_read_entry(const struct tally__sized *kind, const char *noun, const void *array,
                            size_t i, void *copy)
{
    const void *given = tally__sized_at(array, i);
    size_t size = size_of(given);
    char what[40];

    /* The usual case, without the cost of a text: there may be many entries. */
    if (size == kind->whole && size == size_of(array)) {
        memcpy(copy, given, size);
        return TALLY_OK;
    }
    (void)snprintf(what, sizeof what, "%s %zu", noun, i);
    TRY(check_size(kind, what, size));
    if (size != size_of(array)) {
        return tally__fail(TALLY_ARG,
                           "%s: size is %zu, but that of %s 0 is %zu: all entries need "
                           "sizeof(%s)",
                           what, size, noun, size_of(array), kind->type);
    }
    return tally__sized_read(kind, what, given, copy);
}

int tally__answer_check(const struct tally__sized *kind, const char *function, const void *answer)
{
    return answer ? check_size(kind, function, size_of(answer))
                  : tally__fail(TALLY_ARG, "%s: the pointer to the answer is NULL", function);
}

void tally__sized_write(const struct tally__sized *kind, const void *answer, void *given)
{
    size_t size = size_of(given);
    size_t known = known_bytes(kind, size);

    assert(size >= kind->first);
    memcpy((unsigned char *)given + sizeof size, (const unsigned char *)answer + sizeof size,
           known - sizeof size);
    memset((unsigned char *)given + known, 0, size - known);
}

void tally__sized_init(const struct tally__sized *kind, const void *unset, void *config,
                       size_t size)
{
    if (!config || size < sizeof size) {
        return;
    }
    memset(config, 0, size);
    memcpy(config, unset, known_bytes(kind, size));
    memcpy(config, &size, sizeof size);
}

const void *tally__sized_at(const void *array, size_t i)
{
    return (const unsigned char *)array + i * size_of(array);
}

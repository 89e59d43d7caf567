/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that begin with their size; see sized.h. Stateless. Any thread enters. */
#include "base/sized.h"

#include <string.h>

#include "base/status.h"

/* All these structs begin with a size_t, and the compiler pads them to a multiple of its size. */
static size_t size_of(const void *given)
{
    size_t size;

    memcpy(&size, given, sizeof size);
    return size;
}

static size_t known_bytes(const struct tally__sized *kind, size_t size)
{
    return size < kind->whole ? size : kind->whole;
}

int tally__sized_check(const struct tally__sized *kind, const char *what, size_t size)
{
    size_t n = strlen(kind->type);
    const char *end = "_config";
    bool is_config = n > strlen(end) && strcmp(kind->type + n - strlen(end), end) == 0;

    if (size >= kind->first && size % sizeof(size_t) == 0) {
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

int tally__sized_read(const struct tally__sized *kind, const char *what, const void *given,
                      void *own)
{
    size_t size = size_of(given);

    TRY(tally__sized_check(kind, what, size));
    memcpy(own, given, known_bytes(kind, size));
    memcpy(own, &kind->whole, sizeof kind->whole);
    return TALLY_OK;
}

int tally__answer_check(const struct tally__sized *kind, const char *function, const void *answer)
{
    return answer ? tally__sized_check(kind, function, size_of(answer))
                  : tally__fail(TALLY_ARG, "%s: the pointer to the answer is NULL", function);
}

void tally__sized_write(const struct tally__sized *kind, const void *own, void *given)
{
    memcpy((unsigned char *)given + sizeof(size_t), (const unsigned char *)own + sizeof(size_t),
           known_bytes(kind, size_of(given)) - sizeof(size_t));
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

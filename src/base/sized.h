/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of the public header that begin with their size. A program built with an older tally.h
 * has a smaller struct: of what it gives, only that many bytes are read, and the rest is "not set";
 * of an answer, only that many bytes are written. A program built with a newer one has a larger
 * struct: of that, what this library knows is read or written. A later version only appends fields.
 */
#ifndef TALLY_BASE_SIZED_H
#define TALLY_BASE_SIZED_H

#include <stddef.h>

/* A struct: its name, the end of its last field in its first version, and its size today. */
struct tally__sized {
    const char *type;
    size_t first;
    size_t whole;
};

#define TALLY__SIZED(type, last_of_first_version)                                    \
    (&(const struct tally__sized){#type,                                             \
                                  offsetof(type, last_of_first_version) +            \
                                      sizeof(((type *)NULL)->last_of_first_version), \
                                  sizeof(type)})

/* Whether a struct of this size can be read or written: ARG naming what has it, and what it should
 * be. The name in front says what the struct is: "config", "parameter 3". */
int tally__sized_check(const struct tally__sized *kind, const char *what, size_t size);

/* Copies what the application gave to own, which is "not set" throughout before. Errors: ARG. */
int tally__sized_read(const struct tally__sized *kind, const char *what, const void *given,
                      void *own);

/* Whether there is a place for an answer, of a size that can be written. Errors: ARG. */
int tally__answer_check(const struct tally__sized *kind, const char *function, const void *answer);

/* Copies an answer to the application's struct, whose size was checked, and stays as it is. */
void tally__sized_write(const struct tally__sized *kind, const void *own, void *given);

/* Fills the application's config of so many bytes with "not set". */
void tally__sized_init(const struct tally__sized *kind, const void *unset, void *config,
                       size_t size);

/* Entry i of an array whose first entry says how far it is to the next. */
const void *tally__sized_at(const void *array, size_t i);

#endif

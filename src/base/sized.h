/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of the public headers that begin with their size.
 *
 * A program built with older headers has a smaller struct. tally reads only that many bytes and
 * takes the missing fields as "not set"; of an answer it writes only that many bytes.
 *
 * A program built with newer headers has a larger struct. Fields that this library does not know
 * must be zero, which is "not set"; otherwise the call fails with UNSUPPORTED. In an answer they
 * are set to zero.
 *
 * To add a field, append it. Zero must mean "not set", and the field must begin at or after the old
 * sizeof, not in the padding at its end: an int there would be garbage in an older program's
 * struct, and tests/unit/test_sized_0_1_0.c would fail.
 */
#ifndef TALLY_BASE_SIZED_H
#define TALLY_BASE_SIZED_H

#include <stddef.h>

/* A struct type: its name, the end of its last field in its first version, and its size today. */
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

/* Copies the application's struct to copy, in which the caller has left every field "not set". what
 * names the struct in messages: "config", "parameter 3". Errors: ARG for the size, UNSUPPORTED for
 * a field that this library does not know. */
int tally__sized_read(const struct tally__sized *kind, const char *what, const void *given,
                      void *copy);

/* The same for entry i of an array, all of whose entries have the size of the first. Messages name
 * the entry by noun and number. */
int tally__sized_read_entry(const struct tally__sized *kind, const char *noun, const void *array,
                            size_t i, void *copy);

/* Checks the pointer and the size of a struct for an answer. Errors: ARG. */
int tally__answer_check(const struct tally__sized *kind, const char *function, const void *answer);

/* Copies an answer to the application's struct. Its size has been checked, and is kept. */
void tally__sized_write(const struct tally__sized *kind, const void *answer, void *given);

/* Fills the application's config of size bytes with "not set". */
void tally__sized_init(const struct tally__sized *kind, const void *unset, void *config,
                       size_t size);

/* Entry i of an array; the first entry's size is the stride. */
const void *tally__sized_at(const void *array, size_t i);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of the public header that begin with their size. A program built with an older tally.h
 * passes a smaller struct: only that many bytes are read, the other fields are "not set", and only
 * that many bytes of an answer are written. A program built with a newer tally.h passes a larger
 * struct: the fields this library knows are read or written. A later version only appends fields.
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

/* Checks that a struct of this size can be read or written. what names the struct in the message:
 * "config", "parameter 3". Errors: ARG. */
int tally__sized_check(const struct tally__sized *kind, const char *what, size_t size);

/* Copies the application's struct to own, whose fields were all "not set". Errors: ARG. */
int tally__sized_read(const struct tally__sized *kind, const char *what, const void *given,
                      void *own);

/* Checks the pointer and the size of a struct for an answer. Errors: ARG. */
int tally__answer_check(const struct tally__sized *kind, const char *function, const void *answer);

/* Copies an answer to the application's struct. Its size was checked and does not change. */
void tally__sized_write(const struct tally__sized *kind, const void *own, void *given);

/* Fills the application's config of size bytes with "not set". */
void tally__sized_init(const struct tally__sized *kind, const void *unset, void *config,
                       size_t size);

/* Entry i of an array; the first entry's size is the stride. */
const void *tally__sized_at(const void *array, size_t i);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the calling thread's error text. */
#ifndef TALLY_BASE_STATUS_H
#define TALLY_BASE_STATUS_H

#include <stdbool.h>

#include "tally.h"

/* Longest error text, with its NUL. Longer texts are truncated. */
#define TALLY__ERROR_BYTES 1024

/* Whether a number is one of TALLY_STATUS_LIST. */
bool tally__is_status(int status);

/*
 * Records the text of an error and returns status: `return tally__fail(TALLY_ARG, "rank %d is not
 * in 0..%d", rank, last);`. Arguments may point into the text recorded before, so that a caller can
 * prefix it: "in step 3: <old text>".
 */
int tally__fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As tally__fail, with the text of the errno value error appended: "cannot open x: No such file".
 */
int tally__fail_errno(int status, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Around a callback of the application: saves the thread's error text before it and restores it
 * after a success, so that a success leaves no trace. tally__take_back is false when the callback
 * failed without a text. Also around clean-up after a failure, with rc TALLY_OK: the failure's text
 * stays.
 */
struct tally__aside {
    char text[TALLY__ERROR_BYTES];
};
void tally__put_aside(struct tally__aside *aside);
bool tally__take_back(const struct tally__aside *aside, int rc);

/* A status and, if it is not TALLY_OK, its text: kept, to be returned later or on another thread.
 */
struct tally__outcome {
    int status;
    char text[TALLY__ERROR_BYTES];
};

/* Keep a status, with the calling thread's error text; the first writes no byte after the text. */
void tally__outcome_set(struct tally__outcome *outcome, int status);
struct tally__outcome tally__outcome_of(int status);

/* Returns the status, and makes its text the calling thread's error text. */
int tally__outcome_return(const struct tally__outcome *outcome);

/* Returns a failure to the caller. Nothing else in tally hides control flow. */
#define TRY(expression)                 \
    do {                                \
        int try_status_ = (expression); \
        if (try_status_ != TALLY_OK) {  \
            return try_status_;         \
        }                               \
    } while (0)

#endif

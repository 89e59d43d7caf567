/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes, their names, and the error text of each thread. Not responsible for logging. Any
 * thread enters; the text is thread-local, so nothing here needs a lock.
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[TALLY__ERROR_BYTES];

const char *tally_status_name(int status)
{
    switch (status) {
#define STATUS_NAME(name, value, text) \
    case (value):                      \
        return #name;
        TALLY_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "UNKNOWN";
    }
}

const char *tally_status_text(int status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text) \
    case (value):                      \
        return text;
        TALLY_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

bool tally__is_status(int status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) case (value):
        TALLY_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
        return true;
    default:
        return false;
    }
}

const char *tally_last_error(void)
{
    return last_error;
}

int tally__fail(int status, const char *format, ...)
{
    char text[TALLY__ERROR_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_error, text, strlen(text) + 1);
    return status;
}

int tally__fail_errno(int status, int error, const char *format, ...)
{
    char words[128];
    char text[TALLY__ERROR_BYTES - sizeof words - sizeof ": "];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* The XSI form of strerror_r; the GNU one is not declared without _GNU_SOURCE. */
    if (strerror_r(error, words, sizeof words) != 0) {
        (void)snprintf(words, sizeof words, "error %d", error);
    }
    (void)snprintf(last_error, sizeof last_error, "%s: %s", text, words);
    return status;
}

void tally__put_aside(struct tally__aside *aside)
{
    memcpy(aside->text, last_error, strlen(last_error) + 1);
    last_error[0] = '\0';
}

bool tally__take_back(const struct tally__aside *aside, int rc)
{
    if (rc != TALLY_OK) {
        return last_error[0] != '\0';
    }
    memcpy(last_error, aside->text, strlen(aside->text) + 1);
    return true;
}

void tally__outcome_set(struct tally__outcome *outcome, int status)
{
    outcome->status = status;
    outcome->text[0] = '\0';
    if (status != TALLY_OK) {
        memcpy(outcome->text, last_error, strlen(last_error) + 1);
    }
}

struct tally__outcome tally__outcome_of(int status)
{
    struct tally__outcome outcome = {0};

    tally__outcome_set(&outcome, status);
    return outcome;
}

int tally__outcome_return(const struct tally__outcome *outcome)
{
    return outcome->status == TALLY_OK ? TALLY_OK
                                       : tally__fail(outcome->status, "%s", outcome->text);
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *tally_version(void)
{
    return TEXT(TALLY_VERSION_MAJOR) "." TEXT(TALLY_VERSION_MINOR) "." TEXT(TALLY_VERSION_PATCH);
}

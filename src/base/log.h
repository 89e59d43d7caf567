/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to the application's log callback. */
#ifndef TALLY_BASE_LOG_H
#define TALLY_BASE_LOG_H

#include "tally.h"

/* Sends one line to the callback, or to stderr where there is none and TALLY_LOG is set, if the
 * level is wanted. Keeps errno and the thread's error text. */
void tally__log(tally_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The launcher's number of this process, which is put before its lines on stderr. Any thread. */
void tally__log_set_rank(int rank);

/* The same for what the user has asked to be told: to stderr where neither a callback nor TALLY_LOG
 * says anything else. */
void tally__log_asked(tally_log_level level, const char *text);

#endif

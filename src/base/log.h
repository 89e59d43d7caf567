/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to the application's log callback. */
#ifndef TALLY_BASE_LOG_H
#define TALLY_BASE_LOG_H

#include "tally.h"

/* Sends one line to the callback, or to stderr where there is no callback and TALLY_LOG is set, if
 * its level is enabled. Preserves errno and the thread's error text. */
void tally__log(tally_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets the launcher's number of this process, which precedes its lines on stderr. Any thread. */
void tally__log_set_rank(int rank);

/* As tally__log, for messages that the user requested (TALLY_CHECK): without a callback and without
 * TALLY_LOG they go to stderr. */
void tally__log_asked(tally_log_level level, const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to the application's log callback. */
#ifndef TALLY_BASE_LOG_H
#define TALLY_BASE_LOG_H

#include "tally.h"

/* Sends one line to the callback, if there is one and it wants this level. Keeps errno. */
void tally__log(tally_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

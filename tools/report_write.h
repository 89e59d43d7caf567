/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the page of a report. */
#ifndef TALLY_TOOLS_REPORT_WRITE_H
#define TALLY_TOOLS_REPORT_WRITE_H

#include "tools/report_advice.h"

/* headline is NULL if the run has no complete step. */
void report_write(const struct report_run *run, const struct headline *headline, FILE *to);

/* The part about failures: ',"post":[...]'. */
void report_write_failures(const struct report_run *run, FILE *to);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of a report: the straggler, where the time goes, what would help. */
#ifndef TALLY_TOOLS_REPORT_ADVICE_H
#define TALLY_TOOLS_REPORT_ADVICE_H

#include "tools/report_steps.h"

#define ADVICE_MAX 6

struct advice {
    const char *kind; /* "straggler" or "" */
    char text[320];
};

/* Returns the number of sentences in advice, the most important first. */
size_t report_advise(const struct report_run *run, const struct headline *headline,
                     struct advice advice[ADVICE_MAX]);

/* Time as text: "1.23 ms". */
const char *report_time(double ns, char text[24]);

#endif

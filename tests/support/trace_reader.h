/* SPDX-License-Identifier: Apache-2.0 */
/* Reads trace files and reports, for tests: checks their structure, and walks through the records.
 */
#ifndef TALLY_TESTS_TRACE_READER_H
#define TALLY_TESTS_TRACE_READER_H

#include "support/ranks.h"
#include "trace/trace_format.h"

struct trace {
    unsigned char *bytes;
    size_t n_bytes;
    struct tally__trace_head head;
};

/* 0, or not after a failed CHECK. The caller frees trace->bytes. */
int trace_read(tally_group *group, const char *path, struct trace *trace);

/* Called for each record, in the order of writing. Not 0: stop. */
typedef int trace_fn(tally_group *group, const struct tally__trace_record *record,
                     const unsigned char *payload, void *user);
int trace_each(tally_group *group, const struct trace *trace, trace_fn *fn, void *user);

/* Removes the folder of tests of which some failed. Returns the exit code of the program. */
int trace_end_in(const char *folder, int n_failed);

#endif

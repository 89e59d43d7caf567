/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that a rank writes when it fails: a trace file with one segment (trace_format.h).
 * Allocates nothing: memory may be what failed. One thread at a time.
 */
#ifndef TALLY_TRACE_REPORT_FILE_H
#define TALLY_TRACE_REPORT_FILE_H

#include "trace/tracer.h"

/* The last events of each thread that are written. */
#define TALLY__REPORT_EVENTS 2000

struct tally__report {
    int fd;
    bool has_failed;
    struct tally__trace_segment segment;
    char path[512];
};

/* Begins the report of a rank, once: false if it is not asked for (TALLY_REPORT_DIR), if it was
 * written before, or if its file cannot be created. A log line says how to get one, or why there is
 * none. */
bool tally__report_begin(struct tally__tracer *tracer, struct tally__report *report);

/* Begins a record of this many bytes, a multiple of 8; and appends to it. */
void tally__report_record(struct tally__report *report, uint32_t kind, size_t bytes);
void tally__report_append(struct tally__report *report, const void *data, size_t bytes);

/* Writes the last events of all threads of the rank. */
void tally__report_events(struct tally__report *report, struct tally__tracer *tracer);

/* Ends the file; a log line names it. */
void tally__report_end(struct tally__report *report);

#endif

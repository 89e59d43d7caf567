/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of failures: one file per rank, written once, without allocating. Records are written one
 * after the other; then the head of the segment counts them. It is written before the events, too:
 * if the disk is full, the report has at least what comes before them. The thread whose call failed
 * enters; other threads of the rank may go on putting events.
 */
#include "trace/report_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/shared_folder.h"
#include "tally.h"

/* Events that are copied at once, on the stack. */
#define N_EVENTS 128
/* The one segment of a report: more than it can need, and a multiple of 8 like every segment. */
#define MOST_BYTES ((uint64_t)1 << 32)

static void fail(struct tally__report *report)
{
    if (!report->has_failed) {
        report->has_failed = true;
        tally__log(TALLY_LOG_WARN, "the report %s is not complete: %s", report->path,
                   strerror(errno));
    }
}

static void write_all(struct tally__report *report, const void *data, size_t bytes)
{
    const unsigned char *from = data;

    while (bytes > 0 && !report->has_failed) {
        ssize_t n = write(report->fd, from, bytes);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            fail(report);
            return;
        }
        from += n;
        bytes -= (size_t)n;
    }
}

/* Whether this is the rank's first failure. */
static bool is_first(struct tally__tracer *tracer)
{
    return !atomic_exchange_explicit(&tracer->has_reported, true, memory_order_relaxed);
}

/* Counts the records: from now on a reader sees them. */
static void count_records(struct tally__report *report)
{
    if (!report->has_failed &&
        pwrite(report->fd, &report->segment, sizeof report->segment,
               sizeof(struct tally__trace_head)) != (ssize_t)sizeof report->segment) {
        fail(report);
    }
}

/* False after a log line. */
static bool create(const struct tally__tracer *tracer, struct tally__report *report)
{
    int n = snprintf(report->path, sizeof report->path, "%s/tally-%ld.%d",
                     tally__env_text(TALLY__ENV_REPORT_DIR), (long)getpid(), tracer->words.rank);

    if (n < 0 || (size_t)n >= sizeof report->path) {
        errno = ENAMETOOLONG;
        report->fd = -1;
    } else {
        report->fd = tally__create_in_shared_folder(report->path);
    }
    if (report->fd < 0) {
        tally__log(TALLY_LOG_WARN, "TALLY_REPORT_DIR: cannot create %s: %s", report->path,
                   strerror(errno));
    }
    return report->fd >= 0;
}

bool tally__report_begin(struct tally__tracer *tracer, struct tally__report *report)
{
    struct tally__trace_head head;

    if (!is_first(tracer)) {
        return false;
    }
    if (!tally__env_is_set(TALLY__ENV_REPORT_DIR)) {
        tally__log(TALLY_LOG_INFO,
                   "for a report of the last events before a failure, set TALLY_REPORT_DIR to a "
                   "folder; `tally report` reads it");
        return false;
    }
    memset(report, 0, sizeof *report);
    if (!create(tracer, report)) {
        return false;
    }
    tally__trace_head_fill(&tracer->words, 1, MOST_BYTES, &head);
    head.is_report = 1;
    report->segment.sequence = 1;
    write_all(report, &head, sizeof head);
    write_all(report, &report->segment, sizeof report->segment);
    return true;
}

void tally__report_append(struct tally__report *report, const void *data, size_t bytes)
{
    write_all(report, data, bytes);
    report->segment.used_bytes += bytes;
}

void tally__report_record(struct tally__report *report, uint32_t kind, size_t bytes)
{
    const struct tally__trace_record record = {kind, (uint32_t)bytes};

    tally__report_append(report, &record, sizeof record);
}

static void write_ring(struct tally__report *report, const struct tally__ring *ring)
{
    struct tally__trace_event events[N_EVENTS];
    struct tally__trace_thread thread = {0};
    uint64_t next = tally__ring_back(ring, TALLY__REPORT_EVENTS);
    size_t n;

    tally__ring_thread(ring, &thread);
    while ((n = tally__ring_copy(ring, &next, N_EVENTS, events)) > 0) {
        tally__report_record(report, TALLY__RECORD_THREAD, sizeof thread + n * sizeof *events);
        tally__report_append(report, &thread, sizeof thread);
        tally__report_append(report, events, n * sizeof *events);
    }
}

void tally__report_events(struct tally__report *report, struct tally__tracer *tracer)
{
    const struct tally__ring *ring = NULL;

    count_records(report);
    while ((ring = tally__ring_next(tracer->id, ring)) != NULL) {
        write_ring(report, ring);
    }
}

void tally__report_end(struct tally__report *report)
{
    count_records(report);
    (void)close(report->fd);
    if (!report->has_failed) {
        tally__log(TALLY_LOG_WARN, "wrote a report of the failure: %s", report->path);
    }
}

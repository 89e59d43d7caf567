/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a rank's status page (status_page.h). An entry may be NULL: then nothing is written.
 * Functions that write texts (set, fail, take, leave) are called by one thread at a time per entry;
 * the others by any thread.
 */
#ifndef TALLY_TRACE_STATUS_ENTRY_H
#define TALLY_TRACE_STATUS_ENTRY_H

#include <stddef.h>

#include "trace/status_page.h"
#include "trace/trace_file.h"

struct tally__status {
    struct tally__status_head *head; /* NULL: not opened, or not possible */
    size_t bytes;
    int fd;
};

/* Opens the page, unless it is open. A failure costs the page only. */
void tally__status_open(struct tally__status *page, const struct tally__trace_rank_words *of);
void tally__status_close(struct tally__status *page);

/* An entry for a ddp; NULL: there is no page, or it is full. */
struct tally__status_entry *tally__status_take(struct tally__status *page, uint8_t ddp);
/* The ddp is freed. */
void tally__status_leave(struct tally__status_entry *entry);

/* The application's thread is in this state, inside a call, or in none: "". */
void tally__status_set(struct tally__status_entry *entry, enum tally__status_state state,
                       const char *call);
void tally__status_fail(struct tally__status_entry *entry, const char *error);
/* A call other than wait has ended. */
void tally__status_call_over(struct tally__status_entry *entry);
void tally__status_hook(struct tally__status_entry *entry, const char *hook);

/* A gradient was announced, the n-th; a bucket begins; it is reduced. */
void tally__status_ready(struct tally__status_entry *entry, uint32_t n, uint64_t now_ns);
void tally__status_bucket(struct tally__status_entry *entry, int bucket, uint64_t now_ns);
void tally__status_bucket_done(struct tally__status_entry *entry, uint64_t now_ns);

/* A step has ended; the counters are totals, ns is of this step, and the fields of lateness are as
 * on the page. */
struct tally__status_step {
    uint64_t n_steps;
    uint32_t n_buckets;
    uint32_t n_params;
    uint64_t ns;
    uint64_t exposed_ns;
    uint64_t wire_bytes;
    uint64_t late_ns;
    uint64_t late_step_ns;
    uint32_t n_late_steps;
    uint32_t late_cause;
    uint64_t now_ns;
};
void tally__status_step(struct tally__status_entry *entry, const struct tally__status_step *step);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the bytes of a status page (trace/status_page.h). The page belongs to a process that may
 * write to it meanwhile, or put anything into it: nothing in it is trusted.
 */
#ifndef TALLY_TOOLS_TOP_PAGE_H
#define TALLY_TOOLS_TOP_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/status_page.h"

/* Larger pages are not read. */
#define TOP_PAGE_BYTES_MAX ((size_t)1 << 20)

/* One ddp of a rank: a copy, without atomics. Texts end, and have no control characters. */
struct top_entry {
    enum tally__status_state state;
    uint32_t ddp;
    uint64_t state_since_ns;
    uint64_t heartbeat_ns;
    uint64_t n_steps;
    uint32_t n_buckets;
    uint32_t n_params;
    int32_t bucket;
    int32_t waits_for;
    uint64_t waits_since_ns;
    uint32_t n_reduced;
    uint32_t n_ready;
    uint64_t step_ns;
    uint64_t total_ns;
    uint64_t exposed_ns;
    uint64_t wire_bytes;
    uint64_t late_ns;
    uint64_t late_step_ns;
    uint32_t n_late_steps;
    uint32_t late_cause;
    char hook[64];
    char call[64];
    char error[256];
};

#define TOP_ENTRIES_MAX 16

struct top_page {
    struct tally__status_head head;
    struct top_entry entries[TOP_ENTRIES_MAX]; /* those that are used; more are left out */
    size_t n_entries;
};

/*
 * Takes a page apart: first and second are its bytes, read one after the other, so that a text that
 * was being written is noticed and left empty. False if it cannot be read; why says it, as the end
 * of a sentence about the process.
 */
bool top_page_parse(const unsigned char *first, const unsigned char *second, size_t bytes,
                    struct top_page *page, char *why, size_t room);

#endif

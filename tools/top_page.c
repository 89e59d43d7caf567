/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the bytes of a status page apart. One thread; no state. */
#include "tools/top_page.h"

#include <stdio.h>
#include <string.h>
#include <tally.h>

/* Ends a text and replaces what would move the cursor of a terminal. */
static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f || ((unsigned char)*c >= 0x80)) {
            *c = '?';
        }
    }
}

static uint32_t word(const void *entry, size_t offset)
{
    uint32_t value;

    memcpy(&value, (const char *)entry + offset, sizeof value);
    return value;
}

static uint64_t number(const void *entry, size_t offset)
{
    uint64_t value;

    memcpy(&value, (const char *)entry + offset, sizeof value);
    return value;
}

#define WORD(entry, field) word(entry, offsetof(struct tally__status_entry, field))
#define NUMBER(entry, field) number(entry, offsetof(struct tally__status_entry, field))

static void copy_texts(struct top_entry *to, const unsigned char *entry)
{
    memcpy(to->hook, entry + offsetof(struct tally__status_entry, hook), sizeof to->hook);
    memcpy(to->call, entry + offsetof(struct tally__status_entry, call), sizeof to->call);
    memcpy(to->error, entry + offsetof(struct tally__status_entry, error), sizeof to->error);
    make_printable(to->hook, sizeof to->hook);
    make_printable(to->call, sizeof to->call);
    make_printable(to->error, sizeof to->error);
}

static void copy_entry(struct top_entry *to, const unsigned char *first,
                       const unsigned char *second)
{
    uint32_t state = WORD(first, state);

    *to = (struct top_entry){
        .state =
            state <= TALLY__STATE_FAILED ? (enum tally__status_state)state : TALLY__STATE_COMPUTING,
        .ddp = WORD(first, ddp),
        .state_since_ns = NUMBER(first, state_since_ns),
        .heartbeat_ns = NUMBER(first, heartbeat_ns),
        .n_steps = NUMBER(first, n_steps),
        .n_buckets = WORD(first, n_buckets),
        .n_params = WORD(first, n_params),
        .bucket = (int32_t)WORD(first, bucket),
        .waits_for = (int32_t)WORD(first, waits_for),
        .waits_since_ns = NUMBER(first, waits_since_ns),
        .n_reduced = WORD(first, n_reduced),
        .n_ready = WORD(first, n_ready),
        .step_ns = NUMBER(first, step_ns),
        .total_ns = NUMBER(first, total_ns),
        .exposed_ns = NUMBER(first, exposed_ns),
        .wire_bytes = NUMBER(first, wire_bytes),
        .late_ns = NUMBER(first, late_ns),
        .late_step_ns = NUMBER(first, late_step_ns),
        .n_late_steps = WORD(first, n_late_steps),
        .late_cause = WORD(first, late_cause),
    };
    if (WORD(first, text_sequence) % 2 == 0 &&
        WORD(first, text_sequence) == WORD(second, text_sequence)) {
        copy_texts(to, first);
    }
}

static bool check_head(struct tally__status_head *head, size_t bytes, char *why, size_t room)
{
    make_printable(head->backend, sizeof head->backend);
    make_printable(head->host, sizeof head->host);
    make_printable(head->tally_version, sizeof head->tally_version);
    make_printable(head->job, sizeof head->job);
    make_printable(head->program, sizeof head->program);
    if (head->version != TALLY__STATUS_VERSION) {
        (void)snprintf(why, room,
                       "runs tally %s, whose status page has version %u; this is tally %s, which "
                       "reads version %d",
                       head->tally_version, head->version, tally_version(), TALLY__STATUS_VERSION);
        return false;
    }
    if (head->head_bytes != sizeof *head ||
        head->entry_bytes != sizeof(struct tally__status_entry) ||
        head->n_entries > (bytes - sizeof *head) / sizeof(struct tally__status_entry) ||
        head->world < 1 || head->rank < 0 || head->rank >= head->world) {
        (void)snprintf(why, room, "has a status page that makes no sense");
        return false;
    }
    return true;
}

bool top_page_parse(const unsigned char *first, const unsigned char *second, size_t bytes,
                    struct top_page *page, char *why, size_t room)
{
    memset(page, 0, sizeof *page);
    if (bytes < sizeof page->head ||
        memcmp(first, TALLY__STATUS_MAGIC, sizeof page->head.magic) != 0) {
        (void)snprintf(why, room, "has a status page that makes no sense");
        return false;
    }
    memcpy(&page->head, first, sizeof page->head);
    if (!check_head(&page->head, bytes, why, room)) {
        return false;
    }
    for (uint32_t i = 0; i < page->head.n_entries && page->n_entries < TOP_ENTRIES_MAX; i++) {
        size_t at = sizeof page->head + i * sizeof(struct tally__status_entry);

        if (WORD(first + at, state) != TALLY__STATE_UNUSED) {
            copy_entry(&page->entries[page->n_entries++], first + at, second + at);
        }
    }
    return true;
}

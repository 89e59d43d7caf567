/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_status [KEY=VALUE...]: a process with a status page that no library wrote, for tests of
 * `tally top`. Prints "ready" and waits for the end of its input. Keys: version, rank, world, pid,
 * entries (that the head says), bytes (of the file), state, bucket, waits_for, sequence, job, hook,
 * error, file (write the page twice to this file, and end).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "trace/status_page.h"

struct page {
    struct tally__status_head head;
    struct tally__status_entry entry;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void fill(struct page *page)
{
    memcpy(page->head.magic, TALLY__STATUS_MAGIC, sizeof page->head.magic);
    page->head.version = TALLY__STATUS_VERSION;
    page->head.head_bytes = sizeof page->head;
    page->head.entry_bytes = sizeof page->entry;
    page->head.n_entries = 1;
    page->head.pid = getpid();
    page->head.world = 1;
    page->head.started_ns = now_ns();
    (void)snprintf(page->head.backend, sizeof page->head.backend, "shm");
    (void)snprintf(page->head.host, sizeof page->head.host, "here");
    (void)snprintf(page->head.tally_version, sizeof page->head.tally_version, "99.1");
    (void)snprintf(page->head.job, sizeof page->head.job, "test");
    (void)snprintf(page->head.program, sizeof page->head.program, "make_status");
    page->entry.state = TALLY__STATE_COMPUTING;
    page->entry.ddp = 1;
    page->entry.state_since_ns = page->entry.heartbeat_ns = page->entry.waits_since_ns = now_ns();
    page->entry.n_steps = 1000;
    page->entry.n_buckets = 20;
    page->entry.n_params = 60;
    page->entry.bucket = -1;
    page->entry.waits_for = -1;
    page->entry.step_ns = 25000000;
    page->entry.total_ns = UINT64_C(25000000000);
    page->entry.exposed_ns = UINT64_C(5000000000);
    page->entry.wire_bytes = UINT64_C(4000000000);
    (void)snprintf(page->entry.hook, sizeof page->entry.hook, "bf16");
}

/* False for a key that is not a text. */
static int set_text(struct page *page, const char *key, const char *value)
{
    if (strcmp(key, "job") == 0) {
        (void)snprintf(page->head.job, sizeof page->head.job, "%s", value);
    } else if (strcmp(key, "hook") == 0) {
        (void)snprintf(page->entry.hook, sizeof page->entry.hook, "%s", value);
    } else if (strcmp(key, "error") == 0) {
        (void)snprintf(page->entry.error, sizeof page->entry.error, "%s", value);
    } else {
        return 0;
    }
    return 1;
}

static void set_number(struct page *page, const char *key, long value)
{
    if (strcmp(key, "version") == 0) {
        page->head.version = (uint32_t)value;
    } else if (strcmp(key, "rank") == 0) {
        page->head.rank = (int32_t)value;
    } else if (strcmp(key, "world") == 0) {
        page->head.world = (int32_t)value;
    } else if (strcmp(key, "pid") == 0) {
        page->head.pid = value;
    } else if (strcmp(key, "entries") == 0) {
        page->head.n_entries = (uint32_t)value;
    } else if (strcmp(key, "state") == 0) {
        page->entry.state = (uint32_t)value;
    } else if (strcmp(key, "bucket") == 0) {
        page->entry.bucket = (int32_t)value;
    } else if (strcmp(key, "waits_for") == 0) {
        page->entry.waits_for = (int32_t)value;
    } else if (strcmp(key, "sequence") == 0) {
        page->entry.text_sequence = (uint32_t)value;
    } else {
        (void)fprintf(stderr, "make_status: unknown key '%s'\n", key);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct page page;
    size_t bytes = sizeof page;
    const char *file = NULL;
    int fd;

    fill(&page);
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');

        if (!value) {
            return 2;
        }
        *value++ = '\0';
        if (strcmp(argv[i], "file") == 0) {
            file = value;
        } else if (strcmp(argv[i], "bytes") == 0) {
            bytes = (size_t)strtol(value, NULL, 10);
        } else if (!set_text(&page, argv[i], value)) {
            set_number(&page, argv[i], strtol(value, NULL, 10));
        }
    }
    if (file) {
        FILE *to = fopen(file, "wb");

        return !to || fwrite(&page, sizeof page, 1, to) != 1 ||
               fwrite(&page, sizeof page, 1, to) != 1 || fclose(to) != 0;
    }
    fd = memfd_create(TALLY__STATUS_NAME, MFD_CLOEXEC);
    if (fd < 0 || write(fd, &page, sizeof page) != (ssize_t)sizeof page ||
        ftruncate(fd, (off_t)bytes) != 0) {
        return 1;
    }
    (void)puts("ready");
    (void)fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

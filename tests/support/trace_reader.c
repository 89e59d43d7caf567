/* SPDX-License-Identifier: Apache-2.0 */
/* Reads trace files; see trace_reader.h. */
#include "support/trace_reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int trace_read(tally_group *group, const char *path, struct trace *trace)
{
    int fd = open(path, O_RDONLY);
    struct stat info;

    CHECK(group, fd >= 0 && fstat(fd, &info) == 0);
    trace->n_bytes = (size_t)info.st_size;
    trace->bytes = malloc(trace->n_bytes);
    CHECK(group, trace->bytes && read(fd, trace->bytes, trace->n_bytes) == info.st_size);
    (void)close(fd);
    CHECK(group, trace->n_bytes >= sizeof trace->head);
    memcpy(&trace->head, trace->bytes, sizeof trace->head);
    CHECK(group, memcmp(trace->head.magic, TALLY__TRACE_MAGIC, 8) == 0);
    CHECK(group, trace->head.version == TALLY__TRACE_VERSION);
    CHECK(group, trace->head.head_bytes == sizeof trace->head);
    return 0;
}

/* The segment with this sequence number; its head is zeroed if there is none. */
static const unsigned char *segment_of(const struct trace *trace, uint64_t sequence,
                                       struct tally__trace_segment *segment)
{
    memset(segment, 0, sizeof *segment);
    for (uint32_t i = 0; i < trace->head.n_segments; i++) {
        size_t at = sizeof trace->head + i * trace->head.segment_bytes;

        if (at + sizeof *segment <= trace->n_bytes) {
            memcpy(segment, trace->bytes + at, sizeof *segment);
            if (segment->sequence == sequence) {
                return trace->bytes + at + sizeof *segment;
            }
        }
    }
    memset(segment, 0, sizeof *segment);
    return NULL;
}

int trace_each(tally_group *group, const struct trace *trace, trace_fn *fn, void *user)
{
    struct tally__trace_segment segment;
    uint64_t sequence = 1;

    /* The oldest that is left. */
    while (!segment_of(trace, sequence, &segment)) {
        CHECK(group, ++sequence < 1000000);
    }
    for (const unsigned char *at; (at = segment_of(trace, sequence, &segment)); sequence++) {
        const unsigned char *end = at + segment.used_bytes;

        CHECK(group, end <= trace->bytes + trace->n_bytes);
        while (at < end) {
            struct tally__trace_record record;

            memcpy(&record, at, sizeof record);
            at += sizeof record;
            CHECK(group, record.bytes % 8 == 0 && record.bytes <= (size_t)(end - at));
            CHECK_OK(group, fn(group, &record, at, user));
            at += record.bytes;
        }
    }
    return 0;
}

int trace_end_in(const char *folder, int n_failed)
{
    char command[64];

    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? n_failed : 1; // NOLINT: the name is ours
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace files: segments in a ring, and a buffer in front of them. The data of a segment is written
 * before the head that counts it, so a reader never sees half a record, whenever the process dies.
 * One thread at a time enters with a file.
 */
#include "trace/trace_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"

#define BUFFER_BYTES ((size_t)64 << 10)
#define LEAST_SEGMENT ((uint64_t)64 << 10)
#define MOST_SEGMENT ((uint64_t)4 << 20)
#define N_SEGMENTS 16
#define FLUSH_NS (TALLY__NS_PER_SECOND / 4)
/* Numbers that are appended to the name of a file. */
#define N_NAMES 1000

/* A record that every segment begins with. */
struct kept {
    struct kept *next;
    uint32_t kind;
    uint64_t key;
    size_t bytes;
    unsigned char payload[];
};

struct tally__trace_file {
    int fd;
    bool has_failed;
    struct tally__trace_head head;
    struct tally__trace_segment segment; /* under way */
    uint64_t n_flushed;                  /* of its used_bytes */
    uint64_t flushed_ns;
    struct kept *kept;
    size_t n_buffered;
    unsigned char buffer[BUFFER_BYTES];
    char path[PATH_MAX];
};

/* ---- opening ---- */

/* The name of the running program's file. */
static void program_name(char *name, size_t bytes)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *last;

    path[n > 0 ? n : 0] = '\0';
    last = strrchr(path, '/');
    (void)snprintf(name, bytes, "%.60s", last ? last + 1 : path);
}

static int64_t realtime_minus_monotonic(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * (int64_t)TALLY__NS_PER_SECOND + now.tv_nsec -
           (int64_t)tally__now_ns();
}

void tally__trace_head_fill(const struct tally__trace_rank_words *of, uint32_t n_segments,
                            uint64_t segment_bytes, struct tally__trace_head *head)
{
    struct tally__machine machine;

    memset(head, 0, sizeof *head);
    memcpy(head->magic, TALLY__TRACE_MAGIC, sizeof head->magic);
    head->version = TALLY__TRACE_VERSION;
    head->head_bytes = sizeof *head;
    head->segment_head_bytes = sizeof(struct tally__trace_segment);
    head->event_bytes = sizeof(struct tally__trace_event);
    head->segment_bytes = segment_bytes;
    head->n_segments = n_segments;
    head->rank = of->rank;
    head->world = of->world;
    head->pid = getpid();
    head->realtime_minus_monotonic_ns = realtime_minus_monotonic();
    head->opened_ns = tally__now_ns();
    tally__machine_here(&machine);
    (void)snprintf(head->host, sizeof head->host, "%s", machine.host);
    (void)snprintf(head->boot_id, sizeof head->boot_id, "%.36s", machine.boot_id);
    (void)snprintf(head->backend, sizeof head->backend, "%s", of->backend);
    (void)snprintf(head->tally_version, sizeof head->tally_version, "%s", tally_version());
    program_name(head->program, sizeof head->program);
}

/* The name of a rank's file: "%r" in name becomes the rank; without it, ".RANK" is appended. A
 * name of a folder, or a result that is too long, is an error: ARG. */
static int find_path(const char *name, int rank, char *path, size_t bytes)
{
    const char *mark = strstr(name, "%r");
    size_t length = strlen(name);
    int n = mark ? snprintf(path, bytes, "%.*s%d%s", (int)(mark - name), name, rank, mark + 2)
                 : snprintf(path, bytes, "%s.%d", name, rank);

    if (length > 0 && name[length - 1] == '/') {
        return tally__fail(TALLY_ARG, "'%s' is a folder; give the name of a file in it", name);
    }
    return n >= 0 && (size_t)n < bytes
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "the name of the file is too long: '%.60s...'", name);
}

/* When this process, or the one it was forked from, opened its first file; 0: not yet. Relaxed:
 * only the value counts, and it was stored before any file of this process was written. */
static _Atomic uint64_t first_opened_ns;

static void note_opened(uint64_t ns)
{
    uint64_t known = atomic_load_explicit(&first_opened_ns, memory_order_relaxed);

    while ((known == 0 || ns < known) &&
           !atomic_compare_exchange_weak_explicit(&first_opened_ns, &known, ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Whether this process, or the one it was forked from, wrote the file. In a container, the process
 * of the run before may have had the same number. */
static bool is_ours(const char *path, const struct tally__trace_head *own)
{
    struct tally__trace_head head;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, &head, sizeof head) == (ssize_t)sizeof head &&
              memcmp(head.magic, TALLY__TRACE_MAGIC, sizeof head.magic) == 0 &&
              (head.pid == own->pid || head.pid == getppid()) &&
              memcmp(head.boot_id, own->boot_id, sizeof head.boot_id) == 0 &&
              head.opened_ns >= atomic_load_explicit(&first_opened_ns, memory_order_relaxed);

    if (fd >= 0) {
        (void)close(fd);
    }
    return is;
}

/* A lock of an open file, since a process may write several: it goes with the last descriptor.
 * On a file system without locks no file counts as locked. */
static bool is_locked(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Opens file->path and empties it. False, with errno EEXIST: somebody writes it, or this process
 * wrote it. */
static bool open_free(struct tally__trace_file *file)
{
    /* Without O_NONBLOCK a FIFO would wait for a reader. */
    int fd = open(file->path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat about;

    if (fd < 0) {
        return false;
    }
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
        (is_locked(fd) || is_ours(file->path, &file->head) || ftruncate(fd, 0) != 0)) {
        (void)close(fd);
        errno = EEXIST;
        return false;
    }
    file->fd = fd;
    return true;
}

/* Opens the file and writes its head: a full disk is an error here, and a line of the log later. */
static int open_path(struct tally__trace_file *file, const char *name, int rank)
{
    char path[PATH_MAX - 8];
    ssize_t n;

    TRY(find_path(name, rank, path, sizeof path));
    (void)snprintf(file->path, sizeof file->path, "%s", path);
    note_opened(file->head.opened_ns);
    for (unsigned i = 2; !open_free(file); i++) {
        if (errno != EEXIST || i == N_NAMES) {
            return tally__fail_errno(TALLY_SYSTEM, errno, "cannot create the trace file %s",
                                     file->path);
        }
        (void)snprintf(file->path, sizeof file->path, "%s.%u", path, i);
    }
    n = pwrite(file->fd, &file->head, sizeof file->head, 0);
    return n == (ssize_t)sizeof file->head
               ? TALLY_OK
               : tally__fail_errno(TALLY_SYSTEM, n < 0 ? errno : ENOSPC,
                                   "cannot write the trace file %s", file->path);
}

/* ---- writing ---- */

static void fail(struct tally__trace_file *file, int error)
{
    file->has_failed = true;
    tally__log(TALLY_LOG_WARN, "the trace ends here: cannot write %s: %s", file->path,
               strerror(error));
}

static bool write_at(struct tally__trace_file *file, const void *data, size_t bytes, uint64_t at)
{
    const unsigned char *from = data;

    while (bytes > 0 && !file->has_failed) {
        ssize_t n = pwrite(file->fd, from, bytes, (off_t)at);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            fail(file, n < 0 ? errno : ENOSPC);
            break;
        }
        from += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return !file->has_failed;
}

static uint64_t segment_offset(const struct tally__trace_file *file)
{
    return sizeof file->head +
           (file->segment.sequence - 1) % file->head.n_segments * file->head.segment_bytes;
}

static bool write_segment_head(struct tally__trace_file *file)
{
    return write_at(file, &file->segment, sizeof file->segment, segment_offset(file));
}

bool tally__trace_file_flush(struct tally__trace_file *file, bool now)
{
    uint64_t at;

    if (file->has_failed || file->n_buffered == 0) {
        return !file->has_failed;
    }
    if (!now && tally__now_ns() - file->flushed_ns < FLUSH_NS) {
        return true;
    }
    at = segment_offset(file) + sizeof file->segment + file->n_flushed;
    if (write_at(file, file->buffer, file->n_buffered, at)) {
        file->n_flushed += file->n_buffered;
        file->n_buffered = 0;
        file->flushed_ns = tally__now_ns();
        assert(file->n_flushed == file->segment.used_bytes);
        (void)write_segment_head(file);
    }
    return !file->has_failed;
}

static uint64_t room(const struct tally__trace_file *file)
{
    return file->head.segment_bytes - sizeof file->segment - file->segment.used_bytes;
}

/* Pieces of a record: the segment has room. */
static void append(struct tally__trace_file *file, const void *data, size_t bytes)
{
    const unsigned char *from = data;

    while (bytes > 0 && !file->has_failed) {
        size_t n = BUFFER_BYTES - file->n_buffered;

        n = n < bytes ? n : bytes;
        memcpy(file->buffer + file->n_buffered, from, n);
        file->n_buffered += n;
        file->segment.used_bytes += n;
        from += n;
        bytes -= n;
        /* Before the record is whole: the head on disk still counts those before it. */
        if (file->n_buffered == BUFFER_BYTES) {
            uint64_t at = segment_offset(file) + sizeof file->segment + file->n_flushed;

            if (write_at(file, file->buffer, file->n_buffered, at)) {
                file->n_flushed += file->n_buffered;
                file->n_buffered = 0;
            }
        }
    }
}

static void append_record(struct tally__trace_file *file, uint32_t kind,
                          const struct tally__trace_payload *payload)
{
    static const unsigned char zeros[8];
    size_t bytes = payload->head_bytes + payload->tail_bytes;
    size_t padded = (bytes + 7) / 8 * 8;
    struct tally__trace_record record = {kind, (uint32_t)padded};

    append(file, &record, sizeof record);
    append(file, payload->head, payload->head_bytes);
    append(file, payload->tail, payload->tail_bytes);
    append(file, zeros, padded - bytes);
}

/* The next segment, which may replace the oldest. */
static void next_segment(struct tally__trace_file *file)
{
    if (file->segment.sequence > 0) {
        (void)tally__trace_file_flush(file, true);
    }
    file->segment = (struct tally__trace_segment){.sequence = file->segment.sequence + 1};
    file->n_flushed = 0;
    file->n_buffered = 0;
    (void)write_segment_head(file);
    for (const struct kept *kept = file->kept; kept; kept = kept->next) {
        if (sizeof(struct tally__trace_record) + kept->bytes + 8 <= room(file)) {
            append_record(
                file, kept->kind,
                &(struct tally__trace_payload){.head = kept->payload, .head_bytes = kept->bytes});
        }
    }
}

void tally__trace_file_put(struct tally__trace_file *file, uint32_t kind,
                           const struct tally__trace_payload *payload)
{
    size_t bytes =
        sizeof(struct tally__trace_record) + payload->head_bytes + payload->tail_bytes + 8;

    if (file->has_failed) {
        return;
    }
    if (bytes > room(file)) {
        next_segment(file);
    }
    if (bytes <= room(file)) {
        append_record(file, kind, payload);
    }
}

void tally__trace_file_note_step(struct tally__trace_file *file, uint64_t step)
{
    if (file->segment.first_step == 0) {
        file->segment.first_step = step;
    }
    file->segment.last_step = step;
}

int tally__trace_file_keep(struct tally__trace_file *file, uint32_t kind, uint64_t key,
                           const void *payload, size_t bytes)
{
    struct kept *made = tally__alloc(sizeof *made + bytes, "a record of the trace");
    struct kept **link = &file->kept;

    if (!made) {
        return TALLY_NOMEM;
    }
    *made = (struct kept){.kind = kind, .key = key, .bytes = bytes};
    memcpy(made->payload, payload, bytes);
    while (*link && ((*link)->kind != kind || (*link)->key != key)) {
        link = &(*link)->next;
    }
    if (*link) {
        struct kept *old = *link;

        made->next = old->next;
        tally__free(old);
    }
    *link = made;
    tally__trace_file_put(file, kind,
                          &(struct tally__trace_payload){.head = payload, .head_bytes = bytes});
    return TALLY_OK;
}

static void free_file(struct tally__trace_file *file)
{
    while (file->kept) {
        struct kept *next = file->kept->next;

        tally__free(file->kept);
        file->kept = next;
    }
    if (file->fd >= 0) {
        (void)flock(file->fd, LOCK_UN); /* a forked child may keep a descriptor of it */
        (void)close(file->fd);
    }
    tally__free(file);
}

int tally__trace_file_open(const struct tally__trace_rank_words *of, const char *name,
                           uint64_t most_bytes, struct tally__trace_file **file)
{
    uint64_t segment_bytes = (most_bytes - sizeof(struct tally__trace_head)) / N_SEGMENTS / 8 * 8;
    struct tally__trace_file *made;
    uint64_t n_segments;
    int rc;

    if (most_bytes < TALLY__TRACE_LEAST) {
        return tally__fail(TALLY_ARG, "a trace file of %llu bytes is too small: it needs %llu",
                           (unsigned long long)most_bytes, (unsigned long long)TALLY__TRACE_LEAST);
    }
    made = tally__alloc(sizeof *made, "a trace file");
    if (!made) {
        return TALLY_NOMEM;
    }
    segment_bytes = segment_bytes > LEAST_SEGMENT ? segment_bytes : LEAST_SEGMENT;
    segment_bytes = segment_bytes < MOST_SEGMENT ? segment_bytes : MOST_SEGMENT;
    n_segments = (most_bytes - sizeof made->head) / segment_bytes;
    n_segments = n_segments < TALLY__TRACE_SEGMENTS ? n_segments : TALLY__TRACE_SEGMENTS;
    tally__trace_head_fill(of, (uint32_t)n_segments, segment_bytes, &made->head);
    made->fd = -1;
    rc = open_path(made, name, of->rank);
    if (rc != TALLY_OK) {
        free_file(made);
        return rc;
    }
    next_segment(made);
    *file = made;
    return TALLY_OK;
}

void tally__trace_file_close(struct tally__trace_file *file)
{
    if (file) {
        (void)tally__trace_file_flush(file, true);
        free_file(file);
    }
}

const char *tally__trace_file_path(const struct tally__trace_file *file)
{
    return file->path;
}

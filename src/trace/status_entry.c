/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status page of a rank: an unnamed file that other processes of the user map. Nothing here
 * waits for a reader. Every number is a relaxed atomic store: readers expect numbers of several
 * moments.
 */
#include "trace/status_entry.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "tally.h"

#define N_ENTRIES 16
/* A step counts for a sixteenth of the average. */
#define AVERAGE_PART 16

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static void store_32(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* ---- the page ---- */

/* The ranks of a job have one rendezvous, or one parent: the launcher. */
static void name_job(const struct tally__trace_rank_words *of, char *job, size_t bytes)
{
    const char *rendezvous = tally__env_text(TALLY__ENV_RENDEZVOUS);

    if (strcmp(of->backend, "self") == 0 || strcmp(of->backend, "thread") == 0) {
        (void)snprintf(job, bytes, "process %ld", (long)getpid());
    } else if (*rendezvous) {
        (void)snprintf(job, bytes, "%s", rendezvous);
    } else {
        (void)snprintf(job, bytes, "launched by process %ld", (long)getppid());
    }
}

static void fill_head(struct tally__status_head *head, const struct tally__trace_rank_words *of)
{
    struct tally__trace_head facts;

    tally__trace_head_fill(of, 0, 0, &facts);
    head->version = TALLY__STATUS_VERSION;
    head->head_bytes = sizeof *head;
    head->entry_bytes = sizeof(struct tally__status_entry);
    head->n_entries = N_ENTRIES;
    head->pid = facts.pid;
    head->rank = facts.rank;
    head->world = facts.world;
    head->started_ns = facts.opened_ns;
    head->realtime_minus_monotonic_ns = facts.realtime_minus_monotonic_ns;
    (void)snprintf(head->backend, sizeof head->backend, "%s", facts.backend);
    (void)snprintf(head->host, sizeof head->host, "%s", facts.host);
    (void)snprintf(head->tally_version, sizeof head->tally_version, "%s", facts.tally_version);
    (void)snprintf(head->program, sizeof head->program, "%s", facts.program);
    name_job(of, head->job, sizeof head->job);
    /* Last: a page without it is not ready. */
    memcpy(head->magic, TALLY__STATUS_MAGIC, sizeof head->magic);
}

void tally__status_open(struct tally__status *page, const struct tally__trace_rank_words *of)
{
    size_t bytes =
        sizeof(struct tally__status_head) + N_ENTRIES * sizeof(struct tally__status_entry);
    void *memory;
    int fd;

    if (page->head) {
        return;
    }
    fd = memfd_create(TALLY__STATUS_NAME, MFD_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        (void)close(fd);
        return;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        (void)close(fd);
        return;
    }
    *page = (struct tally__status){.head = memory, .bytes = bytes, .fd = fd};
    fill_head(page->head, of);
}

void tally__status_close(struct tally__status *page)
{
    if (page->head) {
        (void)munmap(page->head, page->bytes);
        (void)close(page->fd);
        page->head = NULL;
    }
}

/* ---- texts ---- */

static void set_text(struct tally__status_entry *entry, char *text, size_t bytes, const char *to)
{
    uint32_t sequence = atomic_load_explicit(&entry->text_sequence, memory_order_relaxed);

    if (strncmp(text, to, bytes - 1) == 0) {
        return;
    }
    /* Partner: the reader's loads, in another process. */
    atomic_store_explicit(&entry->text_sequence, sequence + 1, memory_order_seq_cst);
    (void)snprintf(text, bytes, "%s", to);
    atomic_store_explicit(&entry->text_sequence, sequence + 2, memory_order_release);
}

struct tally__status_entry *tally__status_take(struct tally__status *page, uint8_t ddp)
{
    struct tally__status_entry *entries;

    if (!page->head) {
        return NULL;
    }
    entries = (struct tally__status_entry *)(page->head + 1);
    for (int i = 0; i < N_ENTRIES; i++) {
        struct tally__status_entry *entry = &entries[i];
        uint32_t state = atomic_load_explicit(&entry->state, memory_order_relaxed);

        if (state == TALLY__STATE_UNUSED || state == TALLY__STATE_DONE) {
            memset(entry, 0, sizeof *entry);
            store_32(&entry->ddp, ddp);
            atomic_store_explicit(&entry->bucket, -1, memory_order_relaxed);
            atomic_store_explicit(&entry->waits_for, -1, memory_order_relaxed);
            tally__status_set(entry, TALLY__STATE_COLLECTIVE, "tally_ddp_create");
            return entry;
        }
    }
    return NULL;
}

void tally__status_leave(struct tally__status_entry *entry)
{
    tally__status_set(entry, TALLY__STATE_DONE, "");
}

void tally__status_set(struct tally__status_entry *entry, enum tally__status_state state,
                       const char *call)
{
    uint64_t now_ns;

    if (!entry) {
        return;
    }
    now_ns = tally__now_ns();
    set_text(entry, entry->call, sizeof entry->call, call);
    store(&entry->state_since_ns, now_ns);
    store(&entry->heartbeat_ns, now_ns);
    store_32(&entry->state, state);
}

void tally__status_fail(struct tally__status_entry *entry, const char *error)
{
    if (entry) {
        set_text(entry, entry->error, sizeof entry->error, error);
        store(&entry->state_since_ns, tally__now_ns());
        store_32(&entry->state, TALLY__STATE_FAILED);
    }
}

void tally__status_call_over(struct tally__status_entry *entry)
{
    uint32_t state;

    if (!entry) {
        return;
    }
    state = atomic_load_explicit(&entry->state, memory_order_relaxed);
    if (state == TALLY__STATE_COLLECTIVE || state == TALLY__STATE_CHECKPOINT ||
        state == TALLY__STATE_UPDATE) {
        store(&entry->state_since_ns, tally__now_ns());
        store_32(&entry->state, TALLY__STATE_COMPUTING);
    }
}

void tally__status_hook(struct tally__status_entry *entry, const char *hook)
{
    if (entry) {
        set_text(entry, entry->hook, sizeof entry->hook, hook);
    }
}

/* ---- numbers ---- */

void tally__status_ready(struct tally__status_entry *entry, uint32_t n, uint64_t now_ns)
{
    if (entry) {
        store_32(&entry->n_ready, n);
        store(&entry->heartbeat_ns, now_ns);
    }
}

void tally__status_bucket(struct tally__status_entry *entry, int bucket, uint64_t now_ns)
{
    if (entry) {
        atomic_store_explicit(&entry->bucket, bucket, memory_order_relaxed);
        store(&entry->heartbeat_ns, now_ns);
    }
}

void tally__status_bucket_done(struct tally__status_entry *entry, uint64_t now_ns)
{
    if (entry) {
        atomic_fetch_add_explicit(&entry->n_reduced, 1, memory_order_relaxed);
        atomic_store_explicit(&entry->bucket, -1, memory_order_relaxed);
        store(&entry->heartbeat_ns, now_ns);
    }
}

void tally__status_step(struct tally__status_entry *entry, const struct tally__status_step *step)
{
    uint64_t average_ns;

    if (!entry) {
        return;
    }
    average_ns = load(&entry->step_ns);
    average_ns = average_ns == 0 ? step->ns
                                 : average_ns - average_ns / AVERAGE_PART + step->ns / AVERAGE_PART;
    store(&entry->step_ns, average_ns);
    store(&entry->total_ns, load(&entry->total_ns) + step->ns);
    store(&entry->n_steps, step->n_steps);
    store(&entry->exposed_ns, step->exposed_ns);
    store(&entry->wire_bytes, step->wire_bytes);
    store(&entry->late_ns, step->late_ns);
    store(&entry->late_step_ns, step->late_step_ns);
    store_32(&entry->n_late_steps, step->n_late_steps);
    store_32(&entry->late_cause, step->late_cause);
    store_32(&entry->n_buckets, step->n_buckets);
    store_32(&entry->n_params, step->n_params);
    store_32(&entry->n_ready, 0);
    store_32(&entry->n_reduced, 0);
    store(&entry->state_since_ns, step->now_ns);
    store(&entry->heartbeat_ns, step->now_ns);
    store_32(&entry->state, TALLY__STATE_COMPUTING);
}

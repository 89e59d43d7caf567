/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of an MPI domain. Lane threads and application threads enter. A request keeps its memory
 * until MPI has finished it: after a failure its entry stays, and only the end of the messenger
 * cancels it. mpi_end.c has the end of messengers.
 */
#include "comm/mpi/mpi_messenger.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/group_config.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_end.h"

/* Tag 0 is for lines; channel c has tag c + 1. */
#define LINES_TAG 0

static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;

void tally__mpi_lock(void)
{
    (void)pthread_mutex_lock(&mpi_lock);
}

void tally__mpi_unlock(void)
{
    (void)pthread_mutex_unlock(&mpi_lock);
}

static int break_down(struct tally__messenger *messenger, const char *why)
{
    if (!messenger->is_broken) {
        messenger->is_broken = true;
        (void)snprintf(messenger->why, sizeof messenger->why, "%s", why);
    }
    return tally__fail(TALLY_SYSTEM, "%s: %s", messenger->api->name, messenger->why);
}

static int check(struct tally__messenger *messenger)
{
    if (tally__mpi_has_ended()) {
        return tally__fail(TALLY_SYSTEM, "MPI was finalized while a group was open");
    }
    return messenger->is_broken ? break_down(messenger, "") : TALLY_OK;
}

/* ---- requests under way ---- */

/* Checks the messenger, and makes room for n more requests. */
static int prepare(struct tally__messenger *messenger, int n)
{
    int room = 2 * messenger->room + TALLY__MPI_MOST_AT_ONCE + n;
    struct tally__mpi_handle *requests;
    struct tally__under_way *under_way;

    TRY(check(messenger));
    if (messenger->n_under_way + n <= messenger->room) {
        return TALLY_OK;
    }
    requests = tally__alloc_array((size_t)room, sizeof *requests, "messages");
    under_way = tally__alloc_array((size_t)room, sizeof *under_way, "messages");
    if (!requests || !under_way) {
        tally__free(requests);
        tally__free(under_way);
        return TALLY_NOMEM;
    }
    if (messenger->room > 0) {
        memcpy(requests, messenger->requests, (size_t)messenger->room * sizeof *requests);
        memcpy(under_way, messenger->under_way, (size_t)messenger->room * sizeof *under_way);
    }
    tally__free(messenger->requests);
    tally__free(messenger->under_way);
    messenger->requests = requests;
    messenger->under_way = under_way;
    messenger->room = room;
    return TALLY_OK;
}

static void finish(const struct tally__under_way *done)
{
    tally__free(done->buffer);
    if (done->pending) {
        /* Partner: the load in has_come, wait.c. Received data is visible with it. */
        atomic_fetch_sub_explicit(done->pending, 1, memory_order_release);
    }
}

static void note_busy(struct tally__messenger *messenger)
{
    /* Partner: the load in tally__messenger_is_busy. A thread that misses a change looks again. */
    atomic_store_explicit(&messenger->is_busy, messenger->n_under_way > 0, memory_order_relaxed);
}

/* The new request is at index n_under_way. */
static void add_request(struct tally__messenger *messenger, const struct tally__under_way *added)
{
    if (added->pending) {
        atomic_fetch_add_explicit(added->pending, 1, memory_order_relaxed);
    }
    messenger->under_way[messenger->n_under_way++] = *added;
    note_busy(messenger);
}

/* MPI finishes most short messages at once. */
static int test_last(struct tally__messenger *messenger)
{
    struct tally__mpi_status status = {0};
    int last = messenger->n_under_way - 1;

    if (messenger->api->test(&messenger->requests[last], &status) != 0) {
        return break_down(messenger, messenger->api->error());
    }
    if (status.is_done) {
        messenger->n_under_way = last;
        note_busy(messenger);
        finish(&messenger->under_way[last]);
    }
    return TALLY_OK;
}

/* Adds a request that MPI has begun, or reports that it has not. */
static int begin(struct tally__messenger *messenger, int failed,
                 const struct tally__under_way *added)
{
    if (failed) {
        return break_down(messenger, messenger->api->error());
    }
    add_request(messenger, added);
    return TALLY_OK;
}

static struct tally__mpi_handle *next_request(const struct tally__messenger *messenger)
{
    return &messenger->requests[messenger->n_under_way];
}

/* Finishes the requests [first, first + n). Whatever takes their place comes from behind. */
static int test_some(struct tally__messenger *messenger, int first, int n, size_t *moved)
{
    int done[TALLY__MPI_MOST_AT_ONCE];
    bool is_done[TALLY__MPI_MOST_AT_ONCE] = {false};
    int n_done = 0;

    if (messenger->api->test_some(n, &messenger->requests[first], &n_done, done) != 0) {
        return break_down(messenger, messenger->api->error());
    }
    for (int i = 0; i < n_done; i++) {
        is_done[done[i]] = true;
    }
    for (int i = n - 1; n_done > 0 && i >= 0; i--) {
        if (is_done[i]) {
            int at = first + i;
            int last = --messenger->n_under_way;

            *moved += messenger->under_way[at].bytes;
            finish(&messenger->under_way[at]);
            messenger->under_way[at] = messenger->under_way[last];
            messenger->requests[at] = messenger->requests[last];
        }
    }
    note_busy(messenger);
    return TALLY_OK;
}

static int finish_requests(struct tally__messenger *messenger, size_t *moved)
{
    int first = (messenger->n_under_way - 1) / TALLY__MPI_MOST_AT_ONCE * TALLY__MPI_MOST_AT_ONCE;

    /* From the end: a request that moves to a free place was looked at. */
    for (; messenger->n_under_way > 0 && first >= 0; first -= TALLY__MPI_MOST_AT_ONCE) {
        int n = messenger->n_under_way - first;

        TRY(test_some(messenger, first, n < TALLY__MPI_MOST_AT_ONCE ? n : TALLY__MPI_MOST_AT_ONCE,
                      moved));
    }
    return TALLY_OK;
}

int tally__messenger_send(struct tally__messenger *messenger, int rank, uint32_t channel,
                          const void *data, size_t bytes, atomic_int *pending)
{
    const struct tally__under_way added = {.pending = pending, .bytes = bytes};
    int rc;

    tally__mpi_lock();
    rc = prepare(messenger, 1);
    if (rc == TALLY_OK) {
        rc = begin(messenger,
                   messenger->api->send(&messenger->comm, rank, (int)channel + 1, data, bytes,
                                        next_request(messenger)),
                   &added);
    }
    tally__mpi_unlock();
    return rc;
}

int tally__messenger_receive(struct tally__messenger *messenger, int rank, uint32_t channel,
                             void *data, size_t bytes, atomic_int *pending)
{
    const struct tally__under_way added = {.pending = pending, .bytes = bytes, .is_receive = true};
    int rc;

    tally__mpi_lock();
    rc = prepare(messenger, 1);
    if (rc == TALLY_OK) {
        rc = begin(messenger,
                   messenger->api->receive(&messenger->comm, rank, (int)channel + 1, data, bytes,
                                           next_request(messenger)),
                   &added);
    }
    tally__mpi_unlock();
    return rc;
}

int tally__messenger_put_lines(struct tally__messenger *messenger, int rank, void *message,
                               size_t bytes, atomic_int *pending)
{
    const struct tally__under_way added = {
        .pending = pending, .buffer = pending ? NULL : message, .bytes = bytes};
    int rc = prepare(messenger, 1);

    if (rc == TALLY_OK) {
        rc = begin(messenger,
                   messenger->api->send(&messenger->comm, rank, LINES_TAG, message, bytes,
                                        next_request(messenger)),
                   &added);
    }
    if (rc != TALLY_OK) {
        tally__free(added.buffer);
        return rc;
    }
    return test_last(messenger);
}

int tally__messenger_send_lines(struct tally__messenger *messenger, int rank,
                                const struct tally__lines *lines, atomic_int *pending)
{
    size_t part = lines->bytes - lines->more;
    int rc;

    assert(part > 0);
    tally__mpi_lock();
    /* After the first part no lack of memory may keep back the others. */
    rc = prepare(messenger, (int)(lines->more / part) + 2);
    for (size_t at = 0; rc == TALLY_OK && at < lines->bytes; at += part) {
        size_t left = lines->bytes - at;

        rc = tally__messenger_put_lines(messenger, rank, lines->data + at,
                                        left < part ? left : part, pending);
    }
    tally__mpi_unlock();
    return rc;
}

/* ---- lines ---- */

static int post_receive(struct tally__messenger *messenger, int i)
{
    return messenger->api->receive(&messenger->comm, TALLY__MPI_ANY, LINES_TAG, messenger->in[i],
                                   TALLY__LINES_BYTES, &messenger->in_requests[i]) == 0
               ? TALLY_OK
               : break_down(messenger, messenger->api->error());
}

/*
 * Receives form a ring, and messages match them in order: to test only the first keeps the order.
 * In a round each far rank sends one line, and a test that finds nothing costs time: one call takes
 * that many lines at most.
 */
static int receive_lines(struct tally__messenger *messenger, size_t *moved)
{
    int most = messenger->domain->n_ranks - 1;

    for (int i = 0, n = 0; n < most && i < TALLY__N_RECEIVES; i++) {
        int at = messenger->next_in;
        struct tally__mpi_status status;

        if (messenger->api->test(&messenger->in_requests[at], &status) != 0) {
            return break_down(messenger, messenger->api->error());
        }
        if (!status.is_done) {
            break;
        }
        *moved += (size_t)status.bytes;
        if (!tally__deliver(messenger, status.source, &messenger->in[at], (size_t)status.bytes)) {
            return break_down(messenger, "a message arrived that this version of tally did not "
                                         "send");
        }
        n += messenger->parts[status.source].left == 0;
        TRY(post_receive(messenger, at));
        messenger->next_in = (at + 1) % TALLY__N_RECEIVES;
    }
    return TALLY_OK;
}

int tally__messenger_look(struct tally__messenger *messenger, size_t *moved)
{
    TRY(check(messenger));
    if (messenger->n_under_way > 0) {
        TRY(finish_requests(messenger, moved));
    }
    return receive_lines(messenger, moved);
}

int tally__messenger_finish(struct tally__messenger *messenger, size_t *moved)
{
    int rc;

    tally__mpi_lock();
    rc = check(messenger);
    if (rc == TALLY_OK && messenger->n_under_way > 0) {
        rc = finish_requests(messenger, moved);
    }
    tally__mpi_unlock();
    return rc;
}

int tally__messenger_progress(struct tally__messenger *messenger, size_t *moved)
{
    int rc;

    tally__mpi_lock();
    rc = tally__messenger_look(messenger, moved);
    tally__mpi_unlock();
    return rc;
}

bool tally__messenger_is_busy(struct tally__messenger *messenger)
{
    bool is_busy;

    if (!atomic_load_explicit(&messenger->is_busy, memory_order_relaxed)) {
        return false;
    }
    tally__mpi_lock();
    is_busy = !tally__mpi_has_ended() && messenger->n_under_way > 0;
    tally__mpi_unlock();
    return is_busy;
}

/* ---- groups ---- */

uint32_t tally__messenger_new_channel(struct tally__messenger *messenger, int n)
{
    uint32_t first = (uint32_t)messenger->domain->rank * messenger->channel_span;
    uint32_t next =
        atomic_fetch_add_explicit(&messenger->next_channel, (uint32_t)n, memory_order_relaxed);
    uint32_t room = messenger->channel_span - 2 * TALLY__MAX_LANES;

    /* The first channels are the spanning group's. After very many groups, numbers return. */
    return first + TALLY__MAX_LANES + next % room;
}

void tally__messenger_add(struct tally__messenger *messenger, tally_group *group)
{
    tally__mpi_lock();
    group->far->next = messenger->groups;
    messenger->groups = group;
    tally__mpi_unlock();
}

static bool is_in(const tally_group *group, const atomic_int *pending)
{
    return pending >= group->far->pending && pending < group->far->pending + group->far->n_pending;
}

void tally__messenger_remove(struct tally__messenger *messenger, tally_group *group)
{
    tally_group **link = &messenger->groups;

    tally__mpi_lock();
    while (*link && *link != group) {
        link = &(*link)->far->next;
    }
    if (*link) {
        *link = group->far->next;
    }
    tally__drop_parts(messenger, group);
    for (int i = 0; i < messenger->n_under_way; i++) {
        if (is_in(group, messenger->under_way[i].pending)) {
            messenger->under_way[i].pending = NULL;
        }
    }
    tally__mpi_unlock();
}

int tally__messenger_sum(struct tally__messenger *messenger, int lane, float *data, size_t n,
                         const atomic_int **pending)
{
    struct tally__mpi_lane *of = &messenger->lanes[lane];
    const struct tally__under_way added = {.pending = &of->pending, .bytes = n * sizeof *data};
    int rc;

    tally__mpi_lock();
    rc = prepare(messenger, 1);
    if (rc == TALLY_OK) {
        rc = begin(messenger, messenger->api->sum(&of->comm, data, n, next_request(messenger)),
                   &added);
    }
    tally__mpi_unlock();
    *pending = &of->pending;
    return rc;
}

/* ---- beginning and end ---- */

int tally__messenger_begin(struct tally__messenger *messenger, struct tally__domain *domain)
{
    messenger->domain = domain;
    messenger->has_left =
        tally__alloc_array((size_t)domain->n_ranks, sizeof *messenger->has_left, "MPI's ranks");
    messenger->parts =
        tally__alloc_array((size_t)domain->n_ranks, sizeof *messenger->parts, "MPI's ranks");
    if (!messenger->has_left || !messenger->parts) {
        return TALLY_NOMEM;
    }
    for (int i = 0; domain->n_ranks > 1 && i < TALLY__N_RECEIVES; i++) {
        messenger->in[i] = tally__alloc(TALLY__LINES_BYTES, "a message");
        if (!messenger->in[i]) {
            return TALLY_NOMEM;
        }
        if (post_receive(messenger, i) != TALLY_OK) {
            tally__free(messenger->in[i]);
            messenger->in[i] = NULL;
            return TALLY_SYSTEM;
        }
    }
    return TALLY_OK;
}

void tally__messenger_end(struct tally__messenger *messenger)
{
    int n_left = 0;

    for (int i = 0; i < TALLY__N_RECEIVES; i++) {
        if (messenger->in[i] && !messenger->is_broken &&
            messenger->api->cancel(&messenger->in_requests[i]) == 0) {
            tally__free(messenger->in[i]);
        }
        messenger->in[i] = NULL;
    }
    for (int i = 0; i < messenger->n_under_way; i++) {
        bool is_over = messenger->under_way[i].is_receive && !messenger->is_broken &&
                       messenger->api->cancel(&messenger->requests[i]) == 0;

        if (!is_over) {
            messenger->under_way[n_left] = messenger->under_way[i];
            messenger->requests[n_left++] = messenger->requests[i];
        }
    }
    messenger->n_under_way = n_left;
}

void tally__messenger_free(struct tally__messenger *messenger)
{
    tally__free(messenger->requests);
    tally__free(messenger->under_way);
    tally__free(messenger->has_left);
    tally__free(messenger->parts);
    tally__free(messenger->processes);
    tally__free(messenger->lanes);
    tally__free(messenger);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous: rank 0 listens; the others connect and send a hello with the descriptors of their
 * memory and of their sign of life; when all have, rank 0 sends every rank the descriptors of all
 * others. Rank 0 polls all connections: a silent one delays no other. Both sides check that the
 * other process belongs to the same user. All waits share one deadline. The thread that opens the
 * group enters; stateless.
 */
#include "comm/shm/rendezvous.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sheet.h"
#include "base/status.h"

#define MAGIC 0x74616c79u /* "taly" */
#define PROTOCOL 2u
/* Connections without a hello that rank 0 keeps beyond the number of ranks. */
#define MAX_STRANGERS 64
/* A rank waits this much longer than its own deadline for rank 0's answer, which names the missing
 * ranks: rank 0 may have started later. */
#define VERDICT_NS TALLY__NS_PER_SECOND

/* From a rank to rank 0, with its descriptors. */
struct hello {
    uint32_t magic;
    uint32_t protocol;
    int32_t rank;
    int32_t world;
    int32_t lanes;
    int32_t padding;
    uint64_t first_slot;
};

/* From rank 0: one per other rank, with its descriptors; or one with a failure and none. */
struct welcome {
    int32_t status;
    int32_t rank;
    uint64_t first_slot;
    char text[256];
};

struct meeting {
    const struct tally__settings *settings;
    struct tally__arrival *arrivals;
    uint64_t deadline_ns;
    /* Of rank 0 alone: */
    int *connection; /* per rank, -1 until it has said hello */
    struct tally__unix_listener listener;
    struct pollfd *polls; /* the listener's, then those of connections without a hello, by age */
    size_t n_polls;
    size_t max_polls;
};

static void close_connections(struct meeting *meeting)
{
    for (int r = 0; r < meeting->settings->world; r++) {
        if (meeting->connection[r] >= 0) {
            (void)close(meeting->connection[r]);
        }
    }
    for (size_t i = 1; i < meeting->n_polls; i++) {
        (void)close(meeting->polls[i].fd);
    }
}

/* Tells one rank, if it is still connected, why there will be no group. Keeps the thread's error
 * text. */
static void send_failure(int connection, int status, const char *reason)
{
    struct welcome welcome = {.status = status};

    (void)snprintf(welcome.text, sizeof welcome.text, "%.*s", (int)sizeof welcome.text - 1, reason);
    /* One attempt: a rank that does not read it has its own deadline. */
    (void)tally__unix_send(connection, &welcome, sizeof welcome, NULL, 0);
    (void)tally__fail(status, "%s", reason);
}

/* Removes a connection from the silent ones. */
static int remove_poll(struct meeting *meeting, size_t i)
{
    int connection = meeting->polls[i].fd;

    meeting->n_polls--;
    memmove(&meeting->polls[i], &meeting->polls[i + 1],
            (meeting->n_polls - i) * sizeof *meeting->polls);
    return connection;
}

/* Accepts one connection, if there is one. Refuses other users. */
static int take_connection(struct meeting *meeting, bool *is_one)
{
    int connection;

    TRY(tally__unix_accept(&meeting->listener, &connection));
    *is_one = connection >= 0;
    if (*is_one && !tally__unix_same_user(connection)) {
        tally__log(TALLY_LOG_WARN, "another user's process was refused at %s",
                   meeting->settings->rendezvous);
        (void)close(connection);
        return TALLY_OK;
    }
    if (*is_one && meeting->n_polls == meeting->max_polls) {
        tally__log(TALLY_LOG_WARN, "too many connections at %s: the oldest silent one is closed",
                   meeting->settings->rendezvous);
        (void)close(remove_poll(meeting, 1));
    }
    if (*is_one) {
        meeting->polls[meeting->n_polls++] = (struct pollfd){.fd = connection, .events = POLLIN};
    }
    return TALLY_OK;
}

/* Tells all connected ranks the reason, also those without a hello. */
static void send_failures(struct meeting *meeting, int status)
{
    char reason[TALLY__ERROR_BYTES];
    bool is_one = true;

    (void)snprintf(reason, sizeof reason, "%s", tally_last_error());
    for (size_t i = 0; is_one && i < meeting->max_polls; i++) {
        is_one = take_connection(meeting, &is_one) == TALLY_OK && is_one;
    }
    for (size_t i = 1; i < meeting->n_polls; i++) {
        send_failure(meeting->polls[i].fd, status, reason);
    }
    for (int r = 0; r < meeting->settings->world; r++) {
        if (meeting->connection[r] >= 0) {
            send_failure(meeting->connection[r], status, reason);
        }
    }
    (void)tally__fail(status, "%s", reason);
}

/* Ranks of one process are threads, and share the resources of one shm rank: descriptors, limits,
 * the end of the process. */
static int refuse_same_process(void)
{
    return tally__fail(TALLY_ARG,
                       "two ranks of backend shm in one process: for ranks as threads use "
                       "tally_group_open_threads");
}

static int check_hello(const struct meeting *meeting, const struct hello *hello)
{
    const struct tally__settings *settings = meeting->settings;

    if (hello->magic != MAGIC || hello->protocol != PROTOCOL) {
        return tally__fail(TALLY_MISMATCH, "a rank runs another version of tally than rank 0 (%s)",
                           tally_version());
    }
    if (hello->world != settings->world) {
        return tally__fail(TALLY_MISMATCH, "rank %d says %d ranks, rank 0 says %d",
                           (int)hello->rank, (int)hello->world, settings->world);
    }
    if (hello->lanes != settings->lanes) {
        return tally__fail(TALLY_MISMATCH, "rank %d has %d lanes, rank 0 has %d", (int)hello->rank,
                           (int)hello->lanes, settings->lanes);
    }
    if (hello->rank <= 0 || hello->rank >= settings->world) {
        return tally__fail(TALLY_MISMATCH, "a process claims to be rank %d of %d", (int)hello->rank,
                           settings->world);
    }
    if (meeting->connection[hello->rank] >= 0) {
        return tally__fail(TALLY_MISMATCH, "two processes claim to be rank %d", (int)hello->rank);
    }
    return TALLY_OK;
}

/* A connection is readable. One that closed or sent garbage is ignored; a rank that contradicts us,
 * and a failure of our own, end the rendezvous. */
static int receive_hello(struct meeting *meeting, int connection)
{
    struct hello hello = {0};
    int fds[TALLY__UNIX_FDS] = {-1, -1};
    int rc = tally__unix_receive(connection, &hello, sizeof hello, fds, 0);

    if (rc != TALLY_SYSTEM && (rc != TALLY_OK || fds[0] < 0)) {
        tally__log(TALLY_LOG_WARN, "a process connected to %s and left without a message",
                   meeting->settings->rendezvous);
        (void)close(connection);
        return TALLY_OK;
    }
    if (rc == TALLY_OK) {
        rc = tally__unix_same_process(connection) ? refuse_same_process()
                                                  : check_hello(meeting, &hello);
    }
    if (rc != TALLY_OK) {
        char reason[TALLY__ERROR_BYTES];

        (void)snprintf(reason, sizeof reason, "%s", tally_last_error());
        send_failure(connection, rc, reason);
        tally__unix_close_fds(fds);
        (void)close(connection);
        return rc;
    }
    meeting->connection[hello.rank] = connection;
    meeting->arrivals[hello.rank] = (struct tally__arrival){{fds[0], fds[1]}, hello.first_slot};
    return TALLY_OK;
}

static int report_missing(const struct meeting *meeting)
{
    char list[160] = "";

    for (int r = 1; r < meeting->settings->world; r++) {
        if (meeting->connection[r] < 0) {
            tally__list_add(list, sizeof list, "%d", r);
        }
    }
    return tally__fail(TALLY_TIMEOUT, "rank %s of %d did not come to %s within %g s", list,
                       meeting->settings->world, meeting->settings->rendezvous,
                       meeting->settings->open_timeout_s);
}

/* Sends one rank the descriptors of all others. */
static int welcome_rank(const struct meeting *meeting, int to)
{
    for (int r = 0; r < meeting->settings->world; r++) {
        struct welcome welcome = {.rank = r, .first_slot = meeting->arrivals[r].first_slot};

        if (r != to) {
            TRY(tally__unix_send(meeting->connection[to], &welcome, sizeof welcome,
                                 meeting->arrivals[r].fds, meeting->deadline_ns));
        }
    }
    return TALLY_OK;
}

static int hand_out(struct meeting *meeting)
{
    for (int to = 1; to < meeting->settings->world; to++) {
        int rc = welcome_rank(meeting, to);

        if (rc == TALLY_TIMEOUT) {
            return tally__fail(rc, "rank %d stopped while the group was being opened", to);
        }
        if (rc == TALLY_PEER) {
            return tally__fail(rc, "rank %d left while the group was being opened", to);
        }
        TRY(rc);
    }
    return TALLY_OK;
}

static bool is_complete(const struct meeting *meeting)
{
    for (int r = 1; r < meeting->settings->world; r++) {
        if (meeting->connection[r] < 0) {
            return false;
        }
    }
    return true;
}

static int gather(struct meeting *meeting)
{
    while (!is_complete(meeting)) {
        bool is_one;
        size_t i = 1;

        if (!tally__unix_wait(meeting->polls, meeting->n_polls, meeting->deadline_ns)) {
            return report_missing(meeting);
        }
        while (i < meeting->n_polls) {
            if (meeting->polls[i].revents != 0) {
                TRY(receive_hello(meeting, remove_poll(meeting, i)));
            } else {
                i++;
            }
        }
        if (meeting->polls[0].revents != 0) {
            TRY(take_connection(meeting, &is_one));
        }
    }
    return TALLY_OK;
}

/* The rendezvous on rank 0, which listens. */
static int host_at(struct meeting *meeting)
{
    const struct tally__settings *settings = meeting->settings;
    int rc;

    TRY(tally__unix_listen(settings->rendezvous, settings->world, &meeting->listener));
    meeting->polls[0] = (struct pollfd){.fd = meeting->listener.fd, .events = POLLIN};
    meeting->n_polls = 1;
    rc = gather(meeting);
    if (rc != TALLY_OK) {
        send_failures(meeting, rc);
    }
    /* Remove the name: late connectors fail immediately. */
    tally__unix_close_listener(&meeting->listener);
    if (rc == TALLY_OK) {
        rc = hand_out(meeting);
        if (rc != TALLY_OK) {
            send_failures(meeting, rc);
        }
    }
    return rc;
}

static int host(struct meeting *meeting)
{
    const size_t n = (size_t)meeting->settings->world;
    int rc = TALLY_NOMEM;

    meeting->max_polls = 1 + n + MAX_STRANGERS;
    meeting->connection = tally__alloc_array(n, sizeof *meeting->connection, "connections");
    meeting->polls = tally__alloc_array(meeting->max_polls, sizeof *meeting->polls, "connections");
    for (size_t r = 0; meeting->connection && r < n; r++) {
        meeting->connection[r] = -1;
    }
    if (meeting->connection && meeting->polls) {
        rc = host_at(meeting);
        close_connections(meeting);
    }
    tally__free(meeting->connection);
    tally__free(meeting->polls);
    return rc;
}

/* The next message from rank 0, or why there is none. */
static int receive_welcome(const struct meeting *meeting, int connection, struct welcome *welcome,
                           int *fds)
{
    const struct tally__settings *settings = meeting->settings;
    int rc = tally__unix_receive(connection, welcome, sizeof *welcome, fds,
                                 meeting->deadline_ns + VERDICT_NS);
    int stopped;

    if (rc == TALLY_PEER) {
        return tally__fail(rc, "rank 0 left while the group was being opened at %s",
                           settings->rendezvous);
    }
    if (rc != TALLY_TIMEOUT) {
        return rc;
    }
    stopped = tally__unix_stopped_peer(connection);
    if (stopped > 0) {
        return tally__fail(rc,
                           "rank 0 is stopped (process %d): it did not complete the group at %s "
                           "within %g s",
                           stopped, settings->rendezvous, settings->open_timeout_s);
    }
    return tally__fail(rc,
                       "rank 0 did not complete the group of %d ranks at %s within %g s: it came "
                       "later than this rank, and still waits for another",
                       settings->world, settings->rendezvous, settings->open_timeout_s);
}

static int receive_welcomes(struct meeting *meeting, int connection)
{
    const struct tally__settings *settings = meeting->settings;

    for (int i = 0; i < settings->world - 1; i++) {
        struct welcome welcome = {0};
        int fds[TALLY__UNIX_FDS] = {-1, -1};

        TRY(receive_welcome(meeting, connection, &welcome, fds));
        welcome.text[sizeof welcome.text - 1] = '\0';
        if (welcome.status != TALLY_OK) {
            return tally__fail(welcome.status, "%s", welcome.text);
        }
        if (fds[0] < 0 || welcome.rank < 0 || welcome.rank >= settings->world ||
            meeting->arrivals[welcome.rank].fds[0] >= 0) {
            tally__unix_close_fds(fds);
            return tally__fail(TALLY_INTERNAL, "rank 0 sent an invalid welcome");
        }
        meeting->arrivals[welcome.rank] =
            (struct tally__arrival){{fds[0], fds[1]}, welcome.first_slot};
    }
    return TALLY_OK;
}

static int visit(struct meeting *meeting)
{
    const struct tally__settings *settings = meeting->settings;
    const struct tally__arrival *own = &meeting->arrivals[settings->rank];
    struct hello hello = {MAGIC,           PROTOCOL, settings->rank, settings->world,
                          settings->lanes, 0,        own->first_slot};
    int connection;
    int rc;

    TRY(tally__unix_connect(settings->rendezvous, meeting->deadline_ns, &connection));
    if (!tally__unix_same_user(connection)) {
        (void)close(connection);
        return tally__fail(TALLY_SYSTEM, "rendezvous %s belongs to another user",
                           settings->rendezvous);
    }
    rc = tally__unix_send(connection, &hello, sizeof hello, own->fds, meeting->deadline_ns);
    if (rc == TALLY_PEER) {
        rc = tally__fail(rc, "rank 0 left while the group was being opened at %s",
                         settings->rendezvous);
    }
    if (rc == TALLY_OK) {
        rc = receive_welcomes(meeting, connection);
    }
    (void)close(connection);
    if (rc == TALLY_PEER) {
        tally__unix_remove_left(settings->rendezvous);
    }
    return rc;
}

int tally__meet(const struct tally__settings *settings, struct tally__arrival *arrivals)
{
    struct meeting meeting = {.settings = settings, .arrivals = arrivals};
    int rc;

    meeting.deadline_ns =
        tally__now_ns() + (uint64_t)(settings->open_timeout_s * (double)TALLY__NS_PER_SECOND);
    rc = settings->rank == 0 ? host(&meeting) : visit(&meeting);
    for (int r = 0; rc != TALLY_OK && r < settings->world; r++) {
        if (r != settings->rank) {
            tally__unix_close_fds(arrivals[r].fds);
        }
    }
    return rc;
}

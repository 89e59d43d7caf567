/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting: rank 0 listens, the others connect and say hello with the descriptor of their
 * memory; when all are there, rank 0 hands every rank the descriptors of all others. Both sides
 * check that the other process belongs to the same user. Every wait has the one deadline. The
 * thread that opens the group enters; no state remains.
 */
#include "comm/shm/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/shm/unix_socket.h"

#define MAGIC 0x74616c79u /* "taly" */
#define PROTOCOL 1u
#define HELLO_NS (UINT64_C(2) * TALLY__NS_PER_SECOND)
/* How much longer than its own deadline a rank waits for rank 0's verdict, which names the missing:
 * rank 0 may have begun to wait a little later. */
#define VERDICT_NS TALLY__NS_PER_SECOND

/* From a rank to rank 0, with the descriptor of its memory. */
struct hello {
    uint32_t magic;
    uint32_t protocol;
    int32_t rank;
    int32_t world;
    int32_t lanes;
    int32_t padding;
    uint64_t first_slot;
};

/* From rank 0: one per other rank, with its descriptor; or one with a failure and no descriptor. */
struct welcome {
    int32_t status;
    int32_t rank;
    uint64_t first_slot;
    char text[256];
};

struct meeting {
    const struct tally__place *place;
    struct tally__arrival *arrivals;
    int *connection; /* rank 0: per rank, -1 until it has come */
    uint64_t deadline_ns;
};

static void close_connections(struct meeting *meeting)
{
    for (int r = 0; r < meeting->place->world; r++) {
        if (meeting->connection[r] >= 0) {
            (void)close(meeting->connection[r]);
        }
    }
}

/* Tells one rank, if it is still there, why there will be no group. The reason stays ours. */
static void send_failure(int connection, int status, const char *reason)
{
    struct welcome welcome = {.status = status};

    (void)snprintf(welcome.text, sizeof welcome.text, "%.*s", (int)sizeof welcome.text - 1, reason);
    /* Once is enough: whoever does not listen to this has a deadline of its own. */
    (void)tally__unix_send(connection, &welcome, sizeof welcome, -1, 0);
    (void)tally__fail(status, "%s", reason);
}

/* Tells everybody who has come. */
static void send_failures(struct meeting *meeting, int status)
{
    char reason[TALLY__ERROR_BYTES];

    (void)snprintf(reason, sizeof reason, "%s", tally_last_error());
    for (int r = 0; r < meeting->place->world; r++) {
        if (meeting->connection[r] >= 0) {
            send_failure(meeting->connection[r], status, reason);
        }
    }
}

/* A process cannot see its own lock: its ranks would take each other for dead. */
static int refuse_same_process(void)
{
    return tally__fail(TALLY_ARG,
                       "two ranks of backend shm in one process: for ranks as threads use "
                       "tally_group_open_threads");
}

static int check_hello(const struct meeting *meeting, const struct hello *hello)
{
    const struct tally__place *place = meeting->place;

    if (hello->magic != MAGIC || hello->protocol != PROTOCOL) {
        return tally__fail(TALLY_MISMATCH, "a rank runs another version of tally than rank 0 (%s)",
                           tally_version());
    }
    if (hello->world != place->world) {
        return tally__fail(TALLY_MISMATCH, "rank %d says %d ranks, rank 0 says %d",
                           (int)hello->rank, (int)hello->world, place->world);
    }
    if (hello->lanes != place->lanes) {
        return tally__fail(TALLY_MISMATCH, "rank %d has %d lanes, rank 0 has %d", (int)hello->rank,
                           (int)hello->lanes, place->lanes);
    }
    if (hello->rank <= 0 || hello->rank >= place->world) {
        return tally__fail(TALLY_MISMATCH, "somebody claims to be rank %d of %d", (int)hello->rank,
                           place->world);
    }
    if (meeting->connection[hello->rank] >= 0) {
        return tally__fail(TALLY_MISMATCH, "two processes claim to be rank %d", (int)hello->rank);
    }
    return TALLY_OK;
}

/* One more has connected. A stranger is sent away; a rank that contradicts us ends the meeting. */
static int receive_hello(struct meeting *meeting, int connection)
{
    struct hello hello = {0};
    uint64_t hello_ns;
    int fd = -1;
    int rc;

    if (!tally__unix_same_user(connection)) {
        tally__log(TALLY_LOG_WARN, "another user's process was refused at %s",
                   meeting->place->rendezvous);
        (void)close(connection);
        return TALLY_OK;
    }
    /* Who connects has its hello ready: one that is silent must not hold up the others. */
    hello_ns = tally__now_ns() + HELLO_NS;
    rc = tally__unix_receive(connection, &hello, sizeof hello, &fd,
                             hello_ns < meeting->deadline_ns ? hello_ns : meeting->deadline_ns);
    /* Our own trouble is everybody's; a caller that went away or talks nonsense is not. */
    if (rc != TALLY_SYSTEM && (rc != TALLY_OK || fd < 0)) {
        tally__log(TALLY_LOG_WARN, "somebody left %s without a word", meeting->place->rendezvous);
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
        if (fd >= 0) {
            (void)close(fd);
        }
        (void)close(connection);
        return rc;
    }
    meeting->connection[hello.rank] = connection;
    meeting->arrivals[hello.rank] = (struct tally__arrival){fd, hello.first_slot};
    return TALLY_OK;
}

static int report_missing(const struct meeting *meeting)
{
    char list[160] = "";
    size_t used = 0;

    for (int r = 1; r < meeting->place->world; r++) {
        if (meeting->connection[r] < 0 && used + 16 < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", r);
        }
    }
    return tally__fail(TALLY_TIMEOUT, "rank %s of %d did not come to %s within %g s", list,
                       meeting->place->world, meeting->place->rendezvous,
                       meeting->place->open_timeout_s);
}

/* Hands one rank everybody's descriptors. */
static int welcome_rank(const struct meeting *meeting, int to)
{
    for (int r = 0; r < meeting->place->world; r++) {
        struct welcome welcome = {.rank = r, .first_slot = meeting->arrivals[r].first_slot};

        /* Never its own: closing a second descriptor of a file drops the process's lock on it. */
        if (r != to) {
            TRY(tally__unix_send(meeting->connection[to], &welcome, sizeof welcome,
                                 meeting->arrivals[r].fd, meeting->deadline_ns));
        }
    }
    return TALLY_OK;
}

static int hand_out(struct meeting *meeting)
{
    for (int to = 1; to < meeting->place->world; to++) {
        int rc = welcome_rank(meeting, to);

        if (rc == TALLY_TIMEOUT) {
            return tally__fail(rc, "rank %d stopped while the group was being opened", to);
        }
        if (rc != TALLY_OK) {
            return tally__fail(rc, "rank %d left while the group was being opened", to);
        }
    }
    return TALLY_OK;
}

static int gather(struct meeting *meeting, int listener)
{
    int n_missing = meeting->place->world - 1;

    while (n_missing > 0) {
        int connection;

        TRY(tally__unix_accept(listener, meeting->deadline_ns, &connection));
        if (connection < 0) {
            return report_missing(meeting);
        }
        TRY(receive_hello(meeting, connection));
        n_missing = 0;
        for (int r = 1; r < meeting->place->world; r++) {
            n_missing += meeting->connection[r] < 0;
        }
    }
    return TALLY_OK;
}

static int host(struct meeting *meeting)
{
    const struct tally__place *place = meeting->place;
    int listener;
    int rc;

    TRY(tally__unix_listen(place->rendezvous, place->world, &listener));
    rc = gather(meeting, listener);
    /* Who knocks from now on is told at once, by a name that is not there. */
    tally__unix_close_listener(place->rendezvous, listener);
    if (rc == TALLY_OK) {
        rc = hand_out(meeting);
    }
    if (rc != TALLY_OK) {
        send_failures(meeting, rc);
    }
    return rc;
}

/* The next word from rank 0, or why there was none. */
static int receive_welcome(const struct meeting *meeting, int connection, struct welcome *welcome,
                           int *fd)
{
    const struct tally__place *place = meeting->place;
    int rc = tally__unix_receive(connection, welcome, sizeof *welcome, fd,
                                 meeting->deadline_ns + VERDICT_NS);

    if (rc == TALLY_PEER) {
        return tally__fail(rc, "rank 0 left while the group was being opened at %s",
                           place->rendezvous);
    }
    if (rc == TALLY_TIMEOUT) {
        return tally__fail(rc, "the group did not become complete at %s within %g s",
                           place->rendezvous, place->open_timeout_s);
    }
    return rc;
}

static int receive_welcomes(struct meeting *meeting, int connection)
{
    const struct tally__place *place = meeting->place;

    for (int i = 0; i < place->world - 1; i++) {
        struct welcome welcome = {0};
        int fd = -1;

        TRY(receive_welcome(meeting, connection, &welcome, &fd));
        welcome.text[sizeof welcome.text - 1] = '\0';
        if (welcome.status != TALLY_OK) {
            return tally__fail(welcome.status, "%s", welcome.text);
        }
        if (fd < 0 || welcome.rank < 0 || welcome.rank >= place->world ||
            meeting->arrivals[welcome.rank].fd >= 0) {
            if (fd >= 0) {
                (void)close(fd);
            }
            return tally__fail(TALLY_INTERNAL, "a welcome from rank 0 makes no sense");
        }
        meeting->arrivals[welcome.rank] = (struct tally__arrival){fd, welcome.first_slot};
    }
    return TALLY_OK;
}

static int visit(struct meeting *meeting)
{
    const struct tally__place *place = meeting->place;
    const struct tally__arrival *own = &meeting->arrivals[place->rank];
    struct hello hello = {MAGIC,        PROTOCOL, place->rank,    place->world,
                          place->lanes, 0,        own->first_slot};
    int connection;
    int rc;

    TRY(tally__unix_connect(place->rendezvous, meeting->deadline_ns, &connection));
    if (!tally__unix_same_user(connection)) {
        (void)close(connection);
        return tally__fail(TALLY_SYSTEM, "rendezvous %s belongs to another user",
                           place->rendezvous);
    }
    rc = tally__unix_send(connection, &hello, sizeof hello, own->fd, meeting->deadline_ns);
    if (rc == TALLY_PEER) {
        rc = tally__fail(rc, "rank 0 left while the group was being opened at %s",
                         place->rendezvous);
    }
    if (rc == TALLY_OK) {
        rc = receive_welcomes(meeting, connection);
    }
    (void)close(connection);
    return rc;
}

int tally__meet(const struct tally__place *place, struct tally__arrival *arrivals)
{
    struct meeting meeting = {.place = place, .arrivals = arrivals};
    int rc;

    meeting.deadline_ns =
        tally__now_ns() + (uint64_t)(place->open_timeout_s * (double)TALLY__NS_PER_SECOND);
    meeting.connection =
        tally__alloc_array((size_t)place->world, sizeof *meeting.connection, "connections");
    if (!meeting.connection) {
        return TALLY_NOMEM;
    }
    for (int r = 0; r < place->world; r++) {
        meeting.connection[r] = -1;
    }
    rc = place->rank == 0 ? host(&meeting) : visit(&meeting);
    close_connections(&meeting);
    tally__free(meeting.connection);
    for (int r = 0; rc != TALLY_OK && r < place->world; r++) {
        if (r != place->rank && arrivals[r].fd >= 0) {
            (void)close(arrivals[r].fd);
            arrivals[r].fd = -1;
        }
    }
    return rc;
}

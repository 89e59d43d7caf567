/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting by asking the carrier. The reasons why a rank is late are those of wait.c. */
#include "comm/ask.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"

/*
 * How long the carrier is asked without a pause after something has moved, the bounds of a
 * pause, and how often we look why nothing comes. Pauses leave the CPU to those who compute, but
 * waking up has a price too. So a pause is a part of the time that we have waited already; and
 * while bytes move in a row, the time that the line takes for ROW_BYTES, which are few enough that
 * it has more to do meanwhile. MPI may need a second look to go on.
 */
#define ASK_NS 50000u
#define PAUSE_NS 50000u
#define MAX_PAUSE_NS 1000000u
#define PAUSE_PART 8
#define ROW_BYTES ((size_t)96 << 10)
#define LINE_BYTES ((size_t)2 << 20)
#define N_EMPTY 2
#define LOOK_NS 2000000u
/* Messages behind a round that are taken at once; more is the next round's. */
#define N_LOOKS 4

static struct tally__asking begin_asking(struct tally__waited waited)
{
    uint64_t now = tally__now_ns();

    return (struct tally__asking){
        .waited = waited,
        .moved_ns = now,
        .next_look_ns = now + LOOK_NS,
        .next_alive_ns = now + TALLY__ALIVE_NS,
        .next_taker_ns = now + TALLY__ALIVE_NS,
    };
}

static void note_moved(struct tally__asking *asking, size_t bytes, uint64_t now)
{
    asking->moved_ns = now;
    asking->moved_bytes += bytes;
    asking->n_empty = 0;
}

/* The line was all that we waited for: learns how fast it is, from what it did last. */
static void note_line(tally_lane *lane, size_t bytes, uint64_t ns)
{
    lane->line.bytes += bytes;
    lane->line.ns += ns;
    if (lane->line.bytes > LINE_BYTES) {
        lane->line.bytes /= 2;
        lane->line.ns /= 2;
    }
}

/* The time that the line takes for ROW_BYTES, as far as known. */
static uint64_t row_ns(const tally_lane *lane)
{
    return lane->line.bytes > 0 ? lane->line.ns * ROW_BYTES / lane->line.bytes : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t tally__pause_ns(uint64_t waited_ns)
{
    uint64_t pause_ns = larger(PAUSE_NS, waited_ns / PAUSE_PART);

    return pause_ns < MAX_PAUSE_NS ? pause_ns : MAX_PAUSE_NS;
}

/* Nothing has moved for so long. */
static void rest(const tally_lane *lane, struct tally__asking *asking, uint64_t waited_ns)
{
    uint64_t pause_ns = asking->moved_bytes >= ROW_BYTES ? row_ns(lane) : 0;
    struct timespec pause = {0};

    if (pause_ns >= PAUSE_NS && asking->n_empty++ < N_EMPTY) {
        return;
    }
    asking->n_empty = 0;
    if (pause_ns < PAUSE_NS && waited_ns < ASK_NS) {
        (void)sched_yield();
        return;
    }
    pause_ns = larger(pause_ns, tally__pause_ns(waited_ns));
    pause.tv_nsec = (long)(pause_ns < MAX_PAUSE_NS ? pause_ns : MAX_PAUSE_NS);
    (void)nanosleep(&pause, NULL);
}

/* Asks once; if nothing has moved, looks why, or pauses. */
static int ask(tally_lane *lane, int rank, struct tally__asking *asking, struct tally__late *late)
{
    struct tally__domain *domain = lane->group->domain;
    size_t moved = 0;
    int rc = domain->carrier->progress(domain, &moved);
    uint64_t now = tally__now_ns();
    uint64_t waited_ns = tally__count_waited(&asking->waited, now);

    if (rc != TALLY_OK) {
        late->why = TALLY__LATE_BROKEN;
        return rc;
    }
    if (moved > 0) {
        note_moved(asking, moved, now);
        return TALLY_OK;
    }
    if (now >= asking->next_look_ns) {
        asking->next_look_ns = now + LOOK_NS;
        if (tally__find_reason(lane, late, &asking->next_alive_ns)) {
            return TALLY_PEER;
        }
        if (waited_ns > lane->group->timeout_ns) {
            late->why = TALLY__LATE_TIMEOUT;
            late->who = rank;
            return TALLY_TIMEOUT;
        }
    }
    rest(lane, asking, now - asking->moved_ns);
    return TALLY_OK;
}

int tally__ask_for(tally_lane *lane, int rank, struct tally__late *late)
{
    struct tally__asking asking = begin_asking(lane->round.waited);
    int rc = TALLY_OK;

    while (rc == TALLY_OK && !tally__has_arrived(lane, rank)) {
        rc = ask(lane, rank, &asking, late);
    }
    lane->round.waited = asking.waited;
    return rc;
}

/* A rank that has arrived at this round may have died since, before it received the data of the
 * next. */
static bool has_died(const tally_lane *lane, int rank, struct tally__asking *asking)
{
    const tally_group *group = lane->group;
    uint64_t now = tally__now_ns();

    if (now < asking->next_taker_ns) {
        return false;
    }
    asking->next_taker_ns = now + TALLY__ALIVE_NS;
    return !group->domain->ops->alive(group->domain, group->domain_rank[rank]) &&
           !tally__has_left(group, rank);
}

int tally__ask_for_room(tally_lane *lane, int rank, struct tally__asking *asking,
                        struct tally__late *late)
{
    uint64_t moved_ns;
    size_t moved_bytes;
    int rc;

    if (asking->moved_ns == 0) {
        *asking = begin_asking((struct tally__waited){0});
        asking->moved_bytes = ROW_BYTES;
    }
    /* A rank that has left receives nothing any more. */
    if (tally__has_left(lane->group, rank)) {
        late->why = TALLY__LATE_CLOSED;
        late->who = rank;
        return tally__is_given_up(lane, late) ? TALLY_ABORTED : TALLY_PEER;
    }
    if (has_died(lane, rank, asking)) {
        late->why = TALLY__LATE_DIED;
        late->who = rank;
        return TALLY_PEER;
    }
    moved_ns = asking->moved_ns;
    moved_bytes = asking->moved_bytes;
    rc = ask(lane, rank, asking, late);
    note_line(lane, asking->moved_bytes - moved_bytes, asking->moved_ns - moved_ns);
    return rc;
}

void tally__look_again(tally_lane *lane)
{
    struct tally__domain *domain = lane->group->domain;

    for (int i = 0; i < N_LOOKS; i++) {
        size_t moved = 0;

        /* A failure shows in the next round. */
        if (domain->carrier->progress(domain, &moved) != TALLY_OK || moved == 0) {
            break;
        }
    }
}

static bool is_busy(const tally_group *group)
{
    struct tally__domain *domain = group->domain;

    for (int r = 0; r < group->size; r++) {
        if (domain->carrier->is_busy(domain, group->domain_rank[r])) {
            return true;
        }
    }
    return false;
}

void tally__ask_until_idle(tally_lane *lane)
{
    struct tally__asking asking = begin_asking((struct tally__waited){0});
    struct tally__late late;

    /* The next round, if there is one, finds the reason why a rank does not receive. */
    while (tally__is_alive(lane->group) && is_busy(lane->group) &&
           ask(lane, lane->group->rank, &asking, &late) == TALLY_OK) {
    }
}

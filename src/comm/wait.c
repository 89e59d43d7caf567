/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for another rank. The common case is in round.c and wait.h: one load. Here is what
 * follows when the other is late: a short spin where there is a CPU for every rank, some yields,
 * then sleep on the futex in the other's line, in slices short enough to notice in time that it has
 * died. Where memory is mirrored nothing comes by itself: there waiting is asking the carrier. Only
 * the thread that runs a lane's jobs enters with that lane.
 */
#include "comm/wait.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/relax.h"
#include "base/status.h"

/* Looks before the clock is asked for the first time: some 20 us. */
#define N_SPINS 1000
/* Longer than it takes to wake a sleeper: otherwise one late rank puts the next one to sleep, which
 * is then late itself, and so on. */
#define YIELD_NS 400000u
#define SLEEP_NS 20000000u
/* How often the operating system is asked who is still alive. */
#define ALIVE_NS 100000000u
/* Of the carrier: how long it is asked without a pause after something has moved, how long a pause
 * is, and how often we look why nothing comes. Pauses leave the CPU to those who compute; at 1
 * Gbit/s, 6 KiB come in one. */
#define ASK_NS 50000u
#define PAUSE_NS 50000
#define LOOK_NS 2000000u
/* Of the carrier: messages behind a round that are taken at once; more is the next round's. */
#define N_LOOKS 4

static bool spin(const tally_lane *lane, int rank, int n)
{
    for (int i = 0; i < n; i++) {
        if (tally__has_arrived(lane, rank)) {
            return true;
        }
        tally__cpu_relax();
    }
    return false;
}

/* Looks again and again, and lets others run in between: on a CPU that nobody else wants, yielding
 * is spinning. */
static bool watch(const tally_lane *lane, int rank, uint64_t end_ns)
{
    do {
        if (spin(lane, rank, 64)) {
            return true;
        }
        (void)sched_yield();
    } while (tally__now_ns() < end_ns);
    return false;
}

/* Sleeps until rank arrives or a slice of time has passed. */
static void sleep_on(tally_lane *lane, int rank)
{
    struct tally__slot *own = lane->slots[lane->group->rank];
    struct tally__line *line = &lane->slots[rank]->line[lane->round % 2];
    uint32_t seen;

    /* Either the other sees that we sleep, after its store, or we see its store, before we sleep:
     * both sides are sequentially consistent. Partner: tally__wake_sleepers. */
    atomic_store_explicit(&own->asleep, (uint32_t)rank + 1, memory_order_seq_cst);
    seen = atomic_load_explicit(&line->round, memory_order_seq_cst);
    if ((int32_t)(seen - (uint32_t)lane->round) < 0) {
        tally__futex_wait(&line->round, seen, SLEEP_NS);
    }
    atomic_store_explicit(&own->asleep, 0, memory_order_relaxed);
}

void tally__wake_sleepers(const tally_lane *lane, struct tally__line *line)
{
    uint32_t me = (uint32_t)lane->group->rank + 1;

    for (int r = 0; r < lane->group->size; r++) {
        /* Partner: the store in sleep_on. */
        if (atomic_load_explicit(&lane->slots[r]->asleep, memory_order_seq_cst) == me) {
            tally__futex_wake(&line->round);
            return;
        }
    }
}

/* Whether rank has closed the group or given it up. Lane 0's slot speaks for the group. */
static bool has_left(const tally_group *group, int rank)
{
    /* Partner: the store in publish_leaving, group.c. */
    return atomic_load_explicit(&group->lanes[0].slots[rank]->given_up, memory_order_acquire) != 0;
}

bool tally__is_given_up(const tally_lane *lane, struct tally__late *late)
{
    for (const tally_group *group = lane->group; group; group = group->parent) {
        for (int r = 0; r < group->size; r++) {
            const struct tally__slot *slot = group->lanes[0].slots[r];

            if (has_left(group, r) && slot->given_up_status != TALLY_OK) {
                late->why = TALLY__LATE_GIVEN_UP;
                late->said = slot;
                return true;
            }
        }
    }
    return false;
}

/* Whether a rank has closed the group in good order without arriving here: it never will. */
static bool is_closed(const tally_lane *lane, struct tally__late *late)
{
    for (int r = 0; r < lane->group->size; r++) {
        /* In this order: what it did before it closed is visible once it has closed. */
        if (has_left(lane->group, r) && !tally__has_arrived(lane, r)) {
            late->why = TALLY__LATE_CLOSED;
            late->who = r;
            return true;
        }
    }
    return false;
}

/* Whether a rank has died without arriving here or leaving: asks the operating system. */
static bool has_died(const tally_lane *lane, struct tally__late *late)
{
    const tally_group *group = lane->group;

    for (int r = 0; r < group->size; r++) {
        /* The second look is the one that counts: it may have arrived, or left, before it died. */
        if (!tally__has_arrived(lane, r) &&
            !group->domain->ops->alive(group->domain, group->domain_rank[r]) &&
            !tally__has_arrived(lane, r) && !has_left(lane->group, r)) {
            late->why = TALLY__LATE_DIED;
            late->who = r;
            return true;
        }
    }
    return false;
}

/* Whether the rank with this number in the domain is one of this lane's that has not arrived. */
static bool is_missing(const tally_lane *lane, int domain_rank)
{
    for (int r = 0; r < lane->group->size; r++) {
        if (lane->group->domain_rank[r] == domain_rank) {
            return !tally__has_arrived(lane, r);
        }
    }
    return false;
}

/* Whether a missing rank stands in the next round of the lane that borrowed this one, with a
 * status: its job has failed, and it will not come here any more. */
static bool has_host_failed(const tally_lane *lane, struct tally__late *late)
{
    const tally_lane *host = lane->host;

    for (int h = 0; host && h < host->group->size; h++) {
        const struct tally__slot *slot = host->slots[h];
        uint64_t next = host->round + 1;
        const struct tally__line *line = &slot->line[next % 2];
        /* Partner: the store in arrive(), round.c. */
        uint32_t round = atomic_load_explicit(&line->round, memory_order_acquire);

        if (round == (uint32_t)next && line->call.job == host->job &&
            line->call.status != TALLY_OK && is_missing(lane, host->group->domain_rank[h])) {
            late->why = TALLY__LATE_HOST_FAILED;
            late->who = h;
            return true;
        }
    }
    return false;
}

/* Looks for a reason why the round will never be complete. */
static bool find_reason(const tally_lane *lane, struct tally__late *late, uint64_t *next_alive_ns)
{
    bool closed;

    if (tally__is_given_up(lane, late) || has_host_failed(lane, late)) {
        return true;
    }
    closed = is_closed(lane, late);
    if (!closed && tally__now_ns() < *next_alive_ns) {
        return false;
    }
    *next_alive_ns = tally__now_ns() + ALIVE_NS;
    /* A death explains a close, not the other way round. */
    return has_died(lane, late) || closed;
}

static bool has_settled(const tally_lane *lane, int rank)
{
    /* Partner: the carrier's store. */
    uint32_t round = atomic_load_explicit(&lane->slots[rank]->settled, memory_order_acquire);

    return (int32_t)(round - (uint32_t)lane->round) >= 0;
}

static struct tally__asking begin_asking(uint64_t since_ns)
{
    uint64_t now = tally__now_ns();

    return (struct tally__asking){since_ns ? since_ns : now, now, now + LOOK_NS, now + ALIVE_NS};
}

/* Asks once; if nothing has moved, looks why, or pauses. */
static int ask(tally_lane *lane, int rank, struct tally__asking *asking, struct tally__late *late)
{
    const struct timespec pause = {0, PAUSE_NS};
    struct tally__domain *domain = lane->group->domain;
    bool moved = false;
    int rc = domain->carrier->progress(domain, &moved);
    uint64_t now = tally__now_ns();

    if (rc != TALLY_OK) {
        late->why = TALLY__LATE_BROKEN;
        return rc;
    }
    if (moved) {
        asking->moved_ns = now;
        return TALLY_OK;
    }
    if (now >= asking->next_look_ns) {
        asking->next_look_ns = now + LOOK_NS;
        if (find_reason(lane, late, &asking->next_alive_ns)) {
            return TALLY_PEER;
        }
        if (now - asking->since_ns > lane->group->timeout_ns) {
            late->why = TALLY__LATE_TIMEOUT;
            late->who = rank;
            return TALLY_TIMEOUT;
        }
    }
    if (now - asking->moved_ns < ASK_NS) {
        (void)sched_yield();
    } else {
        (void)nanosleep(&pause, NULL);
    }
    return TALLY_OK;
}

static int ask_for(tally_lane *lane, int rank, struct tally__late *late)
{
    struct tally__asking asking = begin_asking(lane->waits_since_ns);

    lane->waits_since_ns = asking.since_ns;
    while (!tally__has_arrived(lane, rank)) {
        TRY(ask(lane, rank, &asking, late));
    }
    return TALLY_OK;
}

int tally__ask_for_room(tally_lane *lane, int rank, struct tally__asking *asking,
                        struct tally__late *late)
{
    if (asking->since_ns == 0) {
        *asking = begin_asking(0);
    }
    /* Who has left takes nothing any more. */
    if (has_left(lane->group, rank)) {
        late->why = TALLY__LATE_CLOSED;
        late->who = rank;
        return tally__is_given_up(lane, late) ? TALLY_ABORTED : TALLY_PEER;
    }
    return ask(lane, rank, asking, late);
}

void tally__look_again(tally_lane *lane)
{
    struct tally__domain *domain = lane->group->domain;

    for (int i = 0; i < N_LOOKS; i++) {
        bool moved = false;

        /* What is broken shows in the next round. */
        if (domain->carrier->progress(domain, &moved) != TALLY_OK || !moved) {
            break;
        }
    }
}

int tally__wait_settled(tally_lane *lane, struct tally__late *late)
{
    struct tally__asking asking = begin_asking(0);

    for (int r = 0; r < lane->group->size; r++) {
        while (r != lane->group->rank && !has_settled(lane, r)) {
            /* Who has closed the group had all there was. */
            if (has_left(lane->group, r)) {
                break;
            }
            TRY(ask(lane, r, &asking, late));
        }
    }
    return TALLY_OK;
}

int tally__wait_for(tally_lane *lane, int rank, struct tally__late *late)
{
    uint64_t now;
    uint64_t next_alive_ns;

    if (lane->group->domain->carrier) {
        return ask_for(lane, rank, late);
    }
    if (lane->group->spins && spin(lane, rank, N_SPINS)) {
        return TALLY_OK;
    }
    now = tally__now_ns();
    next_alive_ns = now + ALIVE_NS;
    /* One deadline for the whole round, however many ranks are late. */
    if (lane->waits_since_ns == 0) {
        lane->waits_since_ns = now;
    }
    if (watch(lane, rank, now + YIELD_NS)) {
        return TALLY_OK;
    }
    while (!tally__has_arrived(lane, rank)) {
        sleep_on(lane, rank);
        if (tally__has_arrived(lane, rank)) {
            break;
        }
        if (find_reason(lane, late, &next_alive_ns)) {
            return TALLY_PEER;
        }
        if (tally__now_ns() - lane->waits_since_ns > lane->group->timeout_ns) {
            late->why = TALLY__LATE_TIMEOUT;
            late->who = rank;
            return TALLY_TIMEOUT;
        }
    }
    return TALLY_OK;
}

/* Who is missing, by the numbers that the launcher knows: "rank 2", "ranks 1, 3". */
static void list_missing(const tally_lane *lane, int rank, char *text, size_t bytes)
{
    const tally_group *group = lane->group;
    size_t used = 0;
    int n = 0;

    for (int r = 0; r < group->size && used + 16 < bytes; r++) {
        if (r == rank || !tally__has_arrived(lane, r)) {
            n++;
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", n > 1 ? ", " : "",
                                     group->domain_rank[r]);
        }
    }
}

int tally__give_up_late(tally_lane *lane, int rank, const struct tally__late *late,
                        const char *waiting_at)
{
    tally_group *group = lane->group;
    unsigned long long job = (unsigned long long)lane->job;
    const char *part = group->parent ? " of a sub-group" : "";
    char missing[128];

    switch (late->why) {
    case TALLY__LATE_DIED:
        return tally__give_up(group, TALLY_PEER,
                              "rank %d died; waited for it at %s, job %llu of lane %d%s",
                              group->domain_rank[late->who], waiting_at, job, lane->index, part);
    case TALLY__LATE_CLOSED:
        return tally__give_up(
            group, TALLY_PEER,
            "rank %d closed the group; waited for it at %s, job %llu of lane %d%s",
            group->domain_rank[late->who], waiting_at, job, lane->index, part);
    case TALLY__LATE_GIVEN_UP:
        return tally__give_up(group, late->said->given_up_status, "%.*s", TALLY__TEXT_BYTES - 1,
                              late->said->given_up_text);
    case TALLY__LATE_HOST_FAILED: {
        const struct tally__slot *slot = lane->host->slots[late->who];
        uint64_t next = lane->host->round + 1;

        return tally__give_up(group, slot->line[next % 2].call.status,
                              "rank %d: %.*s (its job ended while others were in a sub-group)",
                              late->who, TALLY__TEXT_BYTES - 128, slot->text[next % 2]);
    }
    case TALLY__LATE_BROKEN:
        return tally__give_up(group, TALLY_SYSTEM, "%s; at %s, job %llu of lane %d%s",
                              tally_last_error(), waiting_at, job, lane->index, part);
    default:
        list_missing(lane, rank, missing, sizeof missing);
        return tally__give_up(group, TALLY_TIMEOUT,
                              "rank%s %s did not arrive within %g s at %s, job %llu of lane %d%s",
                              strchr(missing, ',') ? "s" : "", missing,
                              (double)group->timeout_ns / (double)TALLY__NS_PER_SECOND, waiting_at,
                              job, lane->index, part);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for another rank. The common case is one load, in round.c and wait.h. This file handles a
 * late rank: a short spin where every rank has a CPU, some yields, then sleep on the futex in the
 * other rank's line, in slices short enough to detect its death in time. If memory is mirrored,
 * waiting drives the carrier (ask.h). Only the thread that runs a lane's jobs enters with that
 * lane.
 */
#include "comm/wait.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/futex.h"
#include "base/status.h"
#include "comm/ask.h"
#include "comm/doing.h"
#include "comm/ending.h"
#include "comm/parcel.h"
#include "comm/threads.h"

/* Spins before the first reading of the clock: about 20 us. */
#define N_SPINS 1000
/* Longer than the wake-up of a sleeper: otherwise one late rank puts the next one to sleep, which
 * is then late itself, and so on. */
#define YIELD_NS 400000u
#define SLEEP_NS 20000000u

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

/* Spins and yields: on a CPU that no other thread wants, yielding is spinning. */
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
    struct tally__line *line = &lane->slots[rank]->line[lane->round.number % 2];
    uint32_t seen;

    /* Either the other rank sees, after its store, that we sleep, or we see its store before we
     * sleep: both sides are sequentially consistent. Partner: tally__wake_sleepers. */
    assert(rank != lane->group->rank);
    atomic_store_explicit(&own->asleep, (uint32_t)rank + 1, memory_order_seq_cst);
    seen = atomic_load_explicit(&line->round, memory_order_seq_cst);
    if ((int32_t)(seen - (uint32_t)lane->round.number) < 0) {
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

/* Lane 0's slot holds the state of the whole group. */
bool tally__has_left(const tally_group *group, int rank)
{
    /* Partner: the store in publish_leaving, group.c. */
    return atomic_load_explicit(&group->lanes[0].slots[rank]->given_up, memory_order_acquire) != 0;
}

bool tally__is_given_up(const tally_lane *lane, struct tally__late *late)
{
    for (const tally_group *group = lane->group; group; group = group->parent) {
        for (int r = 0; r < group->size; r++) {
            const struct tally__slot *slot = group->lanes[0].slots[r];

            if (tally__has_left(group, r) && slot->given_up_status != TALLY_OK) {
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
        /* In this order: a closed rank's earlier writes are visible. */
        if (tally__has_left(lane->group, r) && !tally__has_arrived(lane, r)) {
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
        /* Only the second check counts: the rank may have arrived or left before it died. */
        if (!tally__has_arrived(lane, r) &&
            !group->domain->ops->alive(group->domain, group->domain_rank[r]) &&
            !tally__has_arrived(lane, r) && !tally__has_left(lane->group, r)) {
            late->why = TALLY__LATE_DIED;
            late->who = r;
            return true;
        }
    }
    return false;
}

/* Whether the rank with this launcher's number belongs to this lane's group and has not arrived. */
static bool is_missing(const tally_lane *lane, int number)
{
    for (int r = 0; r < lane->group->size; r++) {
        if (tally__number_of(lane->group, r) == number) {
            return !tally__has_arrived(lane, r);
        }
    }
    return false;
}

/* Whether a missing rank has arrived at the next round of the lane that borrowed this one, with a
 * status: its job has failed, and it will not arrive here. */
static bool has_host_failed(const tally_lane *lane, struct tally__late *late)
{
    const tally_lane *runner = lane->loan.borrower;

    for (int h = 0; runner && h < runner->group->size; h++) {
        const struct tally__slot *slot = runner->slots[h];
        uint64_t next = runner->round.number + 1;
        const struct tally__line *line = &slot->line[next % 2];
        /* Partner: the store in arrive(), round.c. */
        uint32_t round = atomic_load_explicit(&line->round, memory_order_acquire);

        if (round == (uint32_t)next && line->call.job == runner->job.number &&
            line->call.status != TALLY_OK && is_missing(lane, tally__number_of(runner->group, h))) {
            late->why = TALLY__LATE_HOST_FAILED;
            late->who = h;
            return true;
        }
    }
    return false;
}

bool tally__find_reason(const tally_lane *lane, struct tally__late *late, uint64_t *next_alive_ns)
{
    bool closed;

    if (tally__is_given_up(lane, late) || has_host_failed(lane, late)) {
        return true;
    }
    closed = is_closed(lane, late);
    if (!closed && tally__now_ns() < *next_alive_ns) {
        return false;
    }
    *next_alive_ns = tally__now_ns() + TALLY__ALIVE_NS;
    /* A death explains a close; a close does not explain a death. */
    return has_died(lane, late) || closed;
}

int tally__wait_for(tally_lane *lane, int rank, struct tally__late *late)
{
    uint64_t now;
    uint64_t next_alive_ns;

    if (lane->group->domain->carrier) {
        return tally__ask_for(lane, rank, late);
    }
    if (lane->group->spins && spin(lane, rank, N_SPINS)) {
        return TALLY_OK;
    }
    now = tally__now_ns();
    next_alive_ns = now + TALLY__ALIVE_NS;
    /* One deadline for the whole round, however many ranks are late. */
    (void)tally__count_waited(&lane->round.waited, now);
    if (watch(lane, rank, now + YIELD_NS)) {
        return TALLY_OK;
    }
    while (!tally__has_arrived(lane, rank)) {
        sleep_on(lane, rank);
        if (tally__has_arrived(lane, rank)) {
            break;
        }
        /* News of the job's own group may arrive only when this rank drives the carrier. */
        if (lane->loan.borrower && tally__carries(lane->loan.borrower)) {
            tally__look_again(lane->loan.borrower);
        }
        if (tally__find_reason(lane, late, &next_alive_ns)) {
            return TALLY_PEER;
        }
        if (tally__count_waited(&lane->round.waited, tally__now_ns()) > lane->group->timeout_ns) {
            late->why = TALLY__LATE_TIMEOUT;
            late->who = rank;
            return TALLY_TIMEOUT;
        }
    }
    return TALLY_OK;
}

static void list_missing(const tally_lane *lane, int rank, struct tally__rank_list *list)
{
    const tally_group *group = lane->group;

    for (int r = 0; r < group->size; r++) {
        if (r != group->rank && (r == rank || !tally__has_arrived(lane, r))) {
            tally__rank_list_add(list, group, r);
        }
    }
}

/* Gives up the lane's group for a lost rank; and, if the lane is borrowed, also the group of the
 * job, if it has that rank too: it would only wait for the same rank until another deadline. */
static int give_up_lost(tally_lane *lane, int rank, int status, const char *text)
{
    tally_group *around = lane->loan.borrower ? lane->loan.borrower->group : NULL;

    for (int h = 0; around && h < around->size; h++) {
        if (tally__number_of(around, h) == tally__number_of(lane->group, rank)) {
            (void)tally__give_up(around, status, "%s", text);
        }
    }
    return tally__give_up(lane->group, status, "%s", text);
}

/* Advice: ranks of a group with several ddps may wait for each other in two of them. */
static const char *order_hint(const tally_lane *lane)
{
    const tally_lane *runner = lane->loan.borrower ? lane->loan.borrower : lane;

    return tally__has_siblings(runner->group)
               ? " (if ranks wait for their ddps in different orders, see tally_ddp_create)"
               : "";
}

int tally__give_up_late(tally_lane *lane, int rank, const struct tally__late *late,
                        const char *place)
{
    tally_group *group = lane->group;
    const struct tally__rank_text own = tally__rank_text(group, group->rank);
    struct tally__rank_list missing = {0};
    char text[TALLY__TEXT_BYTES];

    switch (late->why) {
    case TALLY__LATE_DIED:
        (void)snprintf(text, sizeof text, "%s %s; %s waited for it in %s",
                       tally__rank_text(group, late->who).text,
                       tally__ending_text(group->domain, group->domain_rank[late->who]), own.text,
                       place);
        return give_up_lost(lane, late->who, TALLY_PEER, text);
    case TALLY__LATE_CLOSED:
        return tally__give_up_closed(lane, late->who);
    case TALLY__LATE_GIVEN_UP:
        return tally__give_up(group, late->said->given_up_status, "%.*s", TALLY__TEXT_BYTES - 1,
                              late->said->given_up_text);
    case TALLY__LATE_HOST_FAILED: {
        const struct tally__slot *slot = lane->loan.borrower->slots[late->who];
        uint64_t next = lane->loan.borrower->round.number + 1;
        const char *said = slot->text[next % 2];

        if (tally__culprit_length(said) > 0) {
            return tally__give_up(group, slot->line[next % 2].call.status, "%.*s",
                                  TALLY__TEXT_BYTES - 1, said);
        }
        return tally__give_up(group, slot->line[next % 2].call.status, "%s: %.*s",
                              tally__rank_text(lane->loan.borrower->group, late->who).text,
                              TALLY__TEXT_BYTES - 64, said);
    }
    case TALLY__LATE_BROKEN:
        return tally__give_up(group, TALLY_SYSTEM, "%s; in %s", tally_last_error(), place);
    default:
        list_missing(lane, rank, &missing);
        (void)snprintf(text, sizeof text, "%s did not arrive within %g s; %s waited for %s in %s%s",
                       missing.text, (double)group->timeout_ns / (double)TALLY__NS_PER_SECOND,
                       own.text, missing.n > 1 ? "them" : "it", place, order_hint(lane));
        return give_up_lost(lane, rank, TALLY_TIMEOUT, text);
    }
}

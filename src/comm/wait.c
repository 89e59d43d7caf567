/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for another rank. The common case is one load, in round.c and wait.h. This file handles a
 * late rank. For a near rank: a short spin where every rank has a CPU, some yields, then sleep on
 * the futex in the other rank's line, in slices short enough to detect its death in time. For a far
 * rank nothing arrives unless this rank calls MPI: it polls, and pauses only where other threads
 * want its CPU. Only the thread that runs a lane's jobs enters with that lane.
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
#include "comm/doing.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/threads.h"
#include "trace/ring.h"

/* Spins before the first reading of the clock: about 20 us. */
#define N_SPINS 1000
/* Longer than the wake-up of a sleeper: otherwise one late rank puts the next one to sleep, which
 * is then late itself, and so on. */
#define YIELD_NS 400000u
#define SLEEP_NS 20000000u
/*
 * Polling: a thread polls without a pause for POLL_NS after something has moved, and for as long as
 * its CPU is free: a yield that takes longer than BUSY_NS has let another thread run. A pause
 * leaves the CPU to threads that compute, but waking up has a cost too, so a pause is a part of the
 * time waited so far; and while bytes stream in, the time that the messenger takes for ROW_BYTES,
 * few enough that it has more to do meanwhile. MPI may need a second call to continue.
 */
#define N_BRIEF 4
#define N_POLLS 200
#define POLL_NS 50000u
#define BUSY_NS 15000u
#define PAUSE_NS 50000u
#define MAX_PAUSE_NS 1000000u
#define PAUSE_PART 8
#define ROW_BYTES ((size_t)96 << 10)
#define RATE_BYTES ((size_t)2 << 20)
#define N_EMPTY 2
/* While transfers are awaited, lines are not urgent: every so many polls look for them, too. */
#define LINES_EVERY 8
#define LOOK_NS 2000000u
#define ALIVE_NS 100000000u /* between checks that the other processes are alive */
/* After this time far ranks are told directly where this rank is. */
#define TELL_NS 100000000u
/* Messages after a round that are received at once. */
#define N_LOOKS 4

/* A wait, and the clock readings it depends on. */
struct pace {
    struct tally__waited waited;
    uint64_t begin_ns; /* 0: the clock has not been read */
    uint64_t now_ns;
    uint64_t moved_ns; /* something moved last */
    uint64_t next_look_ns;
    uint64_t next_alive_ns;
    size_t moved_bytes;
    int n_polls;
    int n_empty;  /* polls in which nothing moved, since something did or this thread paused */
    bool is_busy; /* other threads want this CPU */
};

static bool has_come(const tally_lane *lane, const struct tally__awaited *what)
{
    if (!what->transfers) {
        return tally__has_arrived(lane, what->rank);
    }
    /* Partner: the decrement in finish, mpi_messenger.c. */
    return atomic_load_explicit(what->transfers, memory_order_acquire) == 0;
}

static bool spin(const tally_lane *lane, const struct tally__awaited *what, int n)
{
    for (int i = 0; i < n; i++) {
        if (has_come(lane, what)) {
            return true;
        }
        tally__cpu_relax();
    }
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
        if (tally__has_left(lane->group, r) && !tally__has_arrived(lane, r) &&
            !tally__is_passed_on(lane, r)) {
            late->why = TALLY__LATE_CLOSED;
            late->who = r;
            return true;
        }
    }
    return false;
}

/* Whether the awaited thing may still need this rank: any may have to pass a spread line on. */
static bool is_needed(const tally_lane *lane, const struct tally__awaited *what, int rank)
{
    return what->transfers || tally__n_spread_steps(lane) > 0 || !tally__has_arrived(lane, rank);
}

bool tally__is_rank_alive(const tally_group *group, int rank)
{
    struct tally__domain *domain = group->domain;
    int number = group->domain_rank[rank];

    return tally__is_near(group, rank)
               ? domain->ops->alive(domain, number)
               : !tally__process_has_ended(domain->messenger->processes[number]);
}

/* Whether a rank that is needed has died without leaving: asks the operating system. */
static bool has_died(const tally_lane *lane, const struct tally__awaited *what,
                     struct tally__late *late)
{
    for (int r = 0; r < lane->group->size; r++) {
        /* Only the second check counts: the rank may have arrived or left before it died. */
        if (is_needed(lane, what, r) && !tally__is_rank_alive(lane->group, r) &&
            is_needed(lane, what, r) && !tally__has_left(lane->group, r)) {
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

/* Looks for a reason why the awaited thing cannot come. Checks at *next_alive_ns which ranks are
 * alive, and sets the time of the next check. */
static bool find_reason(const tally_lane *lane, const struct tally__awaited *what,
                        struct tally__late *late, uint64_t *next_alive_ns)
{
    bool closed;

    if (tally__is_given_up(lane, late) || has_host_failed(lane, late)) {
        return true;
    }
    closed = !what->transfers && is_closed(lane, late);
    if (!closed && tally__now_ns() < *next_alive_ns) {
        return false;
    }
    *next_alive_ns = tally__now_ns() + ALIVE_NS;
    /* A death explains a close; a close does not explain a death. */
    return has_died(lane, what, late) || closed;
}

/* ---- polling the messenger ---- */

/* Learns how fast messages come, from waits for nothing else. */
static void note_rate(tally_lane *lane, size_t bytes, uint64_t ns)
{
    lane->rate.bytes += bytes;
    lane->rate.ns += ns;
    if (lane->rate.bytes > RATE_BYTES) {
        lane->rate.bytes /= 2;
        lane->rate.ns /= 2;
    }
}

/* The time that ROW_BYTES take, as far as known. */
static uint64_t row_ns(const tally_lane *lane)
{
    return lane->rate.bytes > 0 ? lane->rate.ns * ROW_BYTES / lane->rate.bytes : 0;
}

uint64_t tally__pause_ns(uint64_t waited_ns)
{
    uint64_t pause_ns = tally__larger_ns(PAUSE_NS, waited_ns / PAUSE_PART);

    return pause_ns < MAX_PAUSE_NS ? pause_ns : MAX_PAUSE_NS;
}

/* Lets other threads run, and notices whether one wanted to. */
static void yield_cpu(struct pace *pace)
{
    (void)sched_yield();
    if (tally__now_ns() - pace->now_ns > BUSY_NS) {
        pace->is_busy = true;
    }
}

/* Nothing has moved: yields, or pauses if the CPU is wanted. */
static void rest_polling(const tally_lane *lane, struct pace *pace)
{
    uint64_t waited_ns = pace->now_ns - pace->moved_ns;
    uint64_t pause_ns = pace->moved_bytes >= ROW_BYTES ? row_ns(lane) : 0;

    if (!pace->is_busy || (pause_ns < PAUSE_NS && waited_ns < POLL_NS)) {
        yield_cpu(pace);
        return;
    }
    if (pause_ns >= PAUSE_NS && pace->n_empty++ < N_EMPTY) {
        return;
    }
    pace->n_empty = 0;
    pause_ns = tally__larger_ns(pause_ns, tally__pause_ns(waited_ns));
    tally__sleep_ns(pause_ns < MAX_PAUSE_NS ? pause_ns : MAX_PAUSE_NS);
    pace->is_busy = false;
}

/* Calls MPI once. */
static int poll(tally_lane *lane, const struct tally__awaited *what, struct pace *pace,
                struct tally__late *late)
{
    struct tally__messenger *messenger = lane->group->domain->messenger;
    size_t moved = 0;
    int rc = what->transfers && pace->n_polls++ % LINES_EVERY != 0
                 ? tally__messenger_finish(messenger, &moved)
                 : tally__messenger_progress(messenger, &moved);

    if (rc != TALLY_OK) {
        late->why = TALLY__LATE_BROKEN;
        return rc;
    }
    if (moved > 0 && pace->begin_ns > 0) {
        uint64_t now = tally__now_ns();

        if (what->transfers) {
            note_rate(lane, moved, now - pace->moved_ns);
            pace->waited = (struct tally__waited){0};
        }
        pace->moved_ns = now;
    }
    pace->moved_bytes += moved;
    pace->n_empty = moved > 0 ? 0 : pace->n_empty;
    return TALLY_OK;
}

static void start_clock(struct pace *pace)
{
    pace->begin_ns = pace->now_ns = pace->moved_ns = tally__now_ns();
}

/* ---- the wait ---- */

/* Rests for a moment. */
static int rest(tally_lane *lane, const struct tally__awaited *what, struct pace *pace,
                struct tally__late *late)
{
    if (lane->group->far || what->transfers) {
        uint64_t moved_ns = pace->moved_ns;

        TRY(poll(lane, what, pace, late));
        if (!has_come(lane, what) && pace->moved_ns == moved_ns) {
            rest_polling(lane, pace);
        }
    } else if (pace->now_ns - pace->begin_ns < YIELD_NS) {
        /* On a CPU that no other thread wants, yielding is spinning. */
        if (!spin(lane, what, 64)) {
            (void)sched_yield();
        }
    } else {
        sleep_on(lane, what->rank);
        pace->next_look_ns = 0;
        /* News of groups around this one may arrive only when this rank calls MPI. */
        if (lane->group->domain->messenger && !has_come(lane, what)) {
            TRY(poll(lane, what, pace, late));
        }
    }
    return TALLY_OK;
}

/* Looks whether waiting still makes sense. */
static int look(tally_lane *lane, const struct tally__awaited *what, struct pace *pace,
                struct tally__late *late)
{
    uint64_t waited_ns = tally__count_waited(&pace->waited, pace->now_ns);

    if (pace->now_ns < pace->next_look_ns) {
        return TALLY_OK;
    }
    pace->next_look_ns = pace->now_ns + LOOK_NS;
    if (find_reason(lane, what, late, &pace->next_alive_ns)) {
        return TALLY_PEER;
    }
    if (waited_ns > lane->group->timeout_ns) {
        late->why = TALLY__LATE_TIMEOUT;
        late->who = what->rank;
        return TALLY_TIMEOUT;
    }
    if (lane->group->far && !what->transfers && pace->now_ns - pace->begin_ns > TELL_NS) {
        tally__tell_all(lane);
    }
    return TALLY_OK;
}

int tally__wait_until(tally_lane *lane, const struct tally__awaited *what, struct tally__late *late)
{
    struct pace pace = {0};
    int rc = TALLY_OK;

    if (lane->group->spins && !lane->group->far && spin(lane, what, N_SPINS)) {
        return TALLY_OK;
    }
    if (what->transfers) {
        start_clock(&pace);
    }
    for (int i = 0; lane->group->spins && lane->group->far && i < N_POLLS; i++) {
        TRY(poll(lane, what, &pace, late));
        lane->round.is_fresh = lane->round.is_fresh && (i > 0 || pace.moved_bytes == 0);
        if (has_come(lane, what)) {
            return TALLY_OK;
        }
    }
    lane->round.is_fresh = false;
    start_clock(&pace);
    pace.next_look_ns = pace.now_ns + LOOK_NS;
    pace.next_alive_ns = pace.now_ns + ALIVE_NS;
    pace.moved_bytes = what->transfers ? ROW_BYTES : 0;
    /* One deadline for the whole round, however many ranks are late. */
    pace.waited = what->transfers ? pace.waited : lane->round.waited;
    (void)tally__count_waited(&pace.waited, pace.now_ns);
    while (rc == TALLY_OK && !has_come(lane, what)) {
        rc = rest(lane, what, &pace, late);
        if (rc == TALLY_OK && !has_come(lane, what)) {
            pace.now_ns = tally__now_ns();
            rc = look(lane, what, &pace, late);
        }
    }
    if (!what->transfers) {
        lane->round.waited = pace.waited;
    }
    return rc;
}

void tally__look_behind(const tally_lane *lane)
{
    size_t moved = 1;

    /* A failure shows in the next round, and so do messages that are still to come. */
    for (int i = 0; lane->group->far && moved > 0 && i < N_LOOKS; i++) {
        moved = 0;
        (void)tally__messenger_progress(lane->group->domain->messenger, &moved);
    }
}

/* Most lines come within a few polls: for these no clock is read, unless the waits of the job are
 * added up. A failure shows again in the wait itself. */
static bool comes_at_once(tally_lane *lane, const struct tally__awaited *what)
{
    bool may = lane->group->spins && lane->group->far && !what->transfers;

    for (int i = 0; may && i < N_BRIEF; i++) {
        size_t moved = 0;

        if (tally__messenger_progress(lane->group->domain->messenger, &moved) != TALLY_OK) {
            return false;
        }
        lane->round.is_fresh = lane->round.is_fresh && (i > 0 || moved == 0);
        if (has_come(lane, what)) {
            return true;
        }
    }
    return false;
}

int tally__await(tally_lane *lane, const struct tally__awaited *what)
{
    struct tally__arrivals *arrivals = tally__arrivals_of(lane);
    struct tally__phase_wait wait;
    struct tally__late late;
    uint64_t waited_ns;
    int rc;

    if (!arrivals && comes_at_once(lane, what)) {
        return TALLY_OK;
    }
    wait = tally__phase_wait_begin(what->rank < 0 ? TALLY__NO_PEER
                                                  : tally__number_of(lane->group, what->rank));
    rc = tally__wait_until(lane, what, &late);
    waited_ns = tally__phase_wait_end(&wait);
    if (rc != TALLY_OK) {
        return tally__give_up_late(lane, what->rank, &late);
    }
    if (arrivals) {
        tally__arrivals_waited(arrivals, what->reason, wait.rank, waited_ns);
    }
    return TALLY_OK;
}

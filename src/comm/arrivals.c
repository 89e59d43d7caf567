/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrivals at the rounds of buckets: stamping this rank's lines, and finding the rank that came
 * last. ddp/lateness.c adds up what is noted here. Only the thread that runs a lane's jobs enters
 * with that lane.
 *
 * A rank that waited for another one inside an exchange, for its data or in a round of another
 * group, comes late through no fault of its own: its line says how long it waited, and that time
 * is taken off. Its line also says for whose data it waited longest. If all other ranks name the
 * same rank, that one is late.
 */
#include "comm/arrivals.h"

#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/messages.h"
#include "comm/round.h"

/* Arrivals that are closer together are simultaneous. */
#define LATE_NS 20000
/* A line has 32 bits for its stamp: enough for half an hour. */
#define STAMP_SHIFT 9
#define NS_PER_US 1000
#define NOBODY (-1)
/* Clocks that drift by 20 us in a second are wrong by 0.1 ms after this time. */
#define PERIOD_NS (5 * TALLY__NS_PER_SECOND)

/* ---- making ---- */

void tally__arrivals_unmake(struct tally__arrivals *arrivals)
{
    tally__free(arrivals->called_ns);
    tally__free(arrivals->transfer_ns);
    tally__free(arrivals->one_way);
}

int tally__arrivals_make(int n_ranks, const _Atomic uint64_t *called_here_ns,
                         struct tally__arrivals *arrivals)
{
    size_t n = (size_t)n_ranks;

    arrivals->n_ranks = n_ranks;
    arrivals->called_here_ns = called_here_ns;
    arrivals->called_ns = tally__alloc_array(n, sizeof *arrivals->called_ns, "arrivals of ranks");
    arrivals->transfer_ns =
        tally__alloc_array(n, sizeof *arrivals->transfer_ns, "arrivals of ranks");
    arrivals->one_way = tally__alloc_array(n, sizeof *arrivals->one_way, "arrivals of ranks");
    if (!arrivals->called_ns || !arrivals->transfer_ns || !arrivals->one_way) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < n; r++) {
        arrivals->one_way[r] =
            (struct tally__one_way){.least_ns = {INT64_MAX, INT64_MAX}, .back_ns = INT64_MAX};
    }
    return TALLY_OK;
}

void tally__arrivals_begin(tally_lane *lane, struct tally__arrivals *arrivals, uint64_t launch_ns,
                           bool is_last)
{
    lane->job.arrivals = arrivals;
    arrivals->launch_ns = launch_ns;
    arrivals->is_last = is_last;
    arrivals->waited_before_ns = arrivals->waited_ns;
}

void tally__arrivals_reset(struct tally__arrivals *arrivals)
{
    arrivals->n_rounds = 0;
    arrivals->n_late = 0;
    arrivals->has_called = false;
}

/* ---- clocks of far ranks ---- */

static int64_t least_of(const struct tally__one_way *way)
{
    return way->least_ns[0] < way->least_ns[1] ? way->least_ns[0] : way->least_ns[1];
}

static void learn(struct tally__one_way *way, uint64_t seen_ns, uint64_t sent_ns)
{
    int64_t ns = (int64_t)(seen_ns - sent_ns);

    if (seen_ns >= way->until_ns) {
        way->least_ns[1] = way->until_ns ? way->least_ns[0] : INT64_MAX;
        way->least_ns[0] = INT64_MAX;
        way->until_ns = seen_ns + PERIOD_NS;
    }
    if (ns < way->least_ns[0]) {
        way->least_ns[0] = ns;
    }
}

/* Reads the clocks of far ranks from their lines of this round. */
static void learn_clocks(const tally_lane *lane, struct tally__arrivals *arrivals)
{
    const tally_group *group = lane->group;
    int own = tally__number_of(group, group->rank);

    for (int r = 0; r < group->size; r++) {
        const struct tally__line *line = &lane->slots[r]->line[lane->round.number % 2];
        struct tally__one_way *way = &arrivals->one_way[tally__number_of(group, r)];

        if (!tally__is_near(group, r) && line->stamps.arrived_ns > 0) {
            learn(way, line->seen_ns, line->stamps.arrived_ns);
            if (line->stamps.about == own) {
                way->back_ns = line->stamps.one_way_ns;
            }
        }
    }
}

bool tally__arrivals_offset(const struct tally__arrivals *arrivals, int rank, int64_t *offset_ns,
                            uint64_t *uncertainty_ns)
{
    const struct tally__one_way *way = &arrivals->one_way[rank];
    int64_t there_ns = least_of(way);

    if (there_ns == INT64_MAX || way->back_ns == INT64_MAX || there_ns + way->back_ns < 0) {
        return false;
    }
    /* there = d - offset and back = d' + offset, where d and d' are not below 0. */
    *offset_ns = (way->back_ns - there_ns) / 2;
    *uncertainty_ns = (uint64_t)(there_ns + way->back_ns) / 2;
    return true;
}

/* ---- stamping ---- */

static uint32_t shorten(uint64_t ns)
{
    return (uint32_t)(ns >> STAMP_SHIFT);
}

static uint32_t to_us(uint64_t ns)
{
    return ns / NS_PER_US < UINT32_MAX ? (uint32_t)(ns / NS_PER_US) : UINT32_MAX;
}

/* The rank for whose data this rank waited longest since the last round. */
static void stamp_blame(struct tally__arrivals *arrivals, struct tally__stamps *stamps)
{
    uint64_t most_ns = 0;

    stamps->blamed = NOBODY;
    for (int r = 0; arrivals->has_transfers && r < arrivals->n_ranks; r++) {
        if (arrivals->transfer_ns[r] > most_ns) {
            most_ns = arrivals->transfer_ns[r];
            stamps->blamed = r;
        }
        arrivals->transfer_ns[r] = 0;
    }
    arrivals->has_transfers = false;
    stamps->blamed_us = to_us(most_ns);
}

void tally__arrivals_stamp(const tally_lane *lane, struct tally__arrivals *arrivals,
                           struct tally__line *line)
{
    struct tally__stamps *stamps = &line->stamps;
    uint64_t before_ns = tally__larger_ns(lane->round.waited_ns, arrivals->waited_before_ns);
    /* Another job may have left a later mark on a borrowed lane. */
    uint64_t excused_ns = arrivals->waited_ns > before_ns ? arrivals->waited_ns - before_ns : 0;
    uint32_t excused_us = to_us(excused_ns);
    uint64_t called_ns = atomic_load_explicit(arrivals->called_here_ns, memory_order_relaxed);

    arrivals->arrived_ns = tally__now_ns();
    line->arrived = shorten(arrivals->arrived_ns);
    /* The others read this part of the line only if a rank is late: it is written only if it
     * changes. */
    if (stamps->launch_ns != arrivals->launch_ns) {
        stamps->launch_ns = arrivals->launch_ns;
    }
    if (stamps->called_ns != called_ns) {
        stamps->called_ns = called_ns;
    }
    if (stamps->excused_us != excused_us) {
        stamps->excused_us = excused_us;
    }
    if (lane->group->far) {
        stamp_blame(arrivals, stamps);
        stamps->arrived_ns = arrivals->arrived_ns;
        stamps->about = arrivals->about;
        stamps->one_way_ns = least_of(&arrivals->one_way[arrivals->about]);
        arrivals->about = (arrivals->about + 1) % arrivals->n_ranks;
    }
}

void tally__arrivals_waited(struct tally__arrivals *arrivals, enum tally__waited_for what, int rank,
                            uint64_t ns)
{
    arrivals->waited_ns += ns;
    if (what == TALLY__FOR_TRANSFER) {
        arrivals->transfer_ns[rank] += ns;
        arrivals->has_transfers = true;
    }
}

/* ---- finding the last rank ---- */

static const struct tally__line *line_of(const tally_lane *lane, int rank)
{
    return &lane->slots[rank]->line[lane->round.number % 2];
}

static const struct tally__one_way *one_way_of(const tally_lane *lane,
                                               const struct tally__arrivals *arrivals, int rank)
{
    return &arrivals->one_way[tally__number_of(lane->group, rank)];
}

/* The way of looking at arrivals. */
struct sight {
    bool is_near; /* of near ranks only */
    bool excuses; /* without the time that ranks waited elsewhere */
    bool delays;  /* with the delay of messages */
};

/* The time at which the line of a far rank was here: when it was seen, or when it would have been
 * without a delay. A line that came before this rank arrived was not seen until then, and one that
 * others have passed on says nothing about its way. */
static uint64_t far_arrival_of(const tally_lane *lane, const struct tally__arrivals *arrivals,
                               int rank, bool delays)
{
    const struct tally__line *line = line_of(lane, rank);
    uint64_t undelayed_ns =
        line->stamps.arrived_ns + (uint64_t)least_of(one_way_of(lane, arrivals, rank));

    return delays && !tally__is_spread(lane->group) &&
                   line->seen_ns > arrivals->arrived_ns + LATE_NS
               ? line->seen_ns
               : undelayed_ns;
}

/* The time at which rank arrived, in this rank's clock. */
static uint64_t arrival_of(const tally_lane *lane, const struct tally__arrivals *arrivals, int rank,
                           bool delays)
{
    const struct tally__line *line = line_of(lane, rank);

    if (!tally__is_near(lane->group, rank)) {
        return far_arrival_of(lane, arrivals, rank, delays);
    }
    return arrivals->arrived_ns +
           ((uint64_t)(int64_t)(int32_t)(line->arrived - shorten(arrivals->arrived_ns))
            << STAMP_SHIFT);
}

struct last {
    int rank;           /* NOBODY: there is only one */
    uint64_t at_ns;     /* the time at which it arrived, */
    uint64_t before_ns; /* and at which the last of the others did */
};

static struct last find_last(const tally_lane *lane, const struct tally__arrivals *arrivals,
                             const struct sight *sight)
{
    const tally_group *group = lane->group;
    struct last last = {.rank = NOBODY};

    for (int r = 0; r < group->size; r++) {
        uint64_t at_ns;

        if (sight->is_near && !tally__is_near(group, r)) {
            continue;
        }
        at_ns = arrival_of(lane, arrivals, r, sight->delays);
        if (sight->excuses) {
            at_ns -= (uint64_t)line_of(lane, r)->stamps.excused_us * NS_PER_US;
        }
        if (at_ns > last.at_ns || last.rank == NOBODY) {
            last.before_ns = last.at_ns;
            last.at_ns = at_ns;
            last.rank = r;
        } else if (at_ns > last.before_ns) {
            last.before_ns = at_ns;
        }
    }
    return last;
}

static bool is_late(const struct last *last)
{
    return last->before_ns > 0 && last->at_ns > last->before_ns + LATE_NS;
}

/* The last of a round with far ranks. If this rank is late itself, it sees the lines of the others
 * only after that, and some of them a little later: MPI may want to be called twice. That must not
 * hide how long they waited for it, so the longer of both waits counts. */
static struct last find_last_of_all(const tally_lane *lane, const struct tally__arrivals *arrivals)
{
    struct last sent = find_last(lane, arrivals, &(struct sight){.excuses = true});
    struct last seen = find_last(lane, arrivals, &(struct sight){.excuses = true, .delays = true});

    return sent.rank == lane->group->rank && is_late(&sent) &&
                   sent.at_ns - sent.before_ns > seen.at_ns - seen.before_ns
               ? sent
               : seen;
}

static void add_late(struct tally__arrivals *arrivals, const struct tally__late_round *late)
{
    if (arrivals->n_late < TALLY__MOST_LATE_ROUNDS) {
        arrivals->late[arrivals->n_late++] = *late;
    }
}

/* The line of a rank came last. */
static void note_line(const tally_lane *lane, struct tally__arrivals *arrivals,
                      const struct last *last)
{
    const struct tally__stamps *stamps = &line_of(lane, last->rank)->stamps;
    struct tally__late_round late = {.rank = tally__number_of(lane->group, last->rank),
                                     .from_ns = last->before_ns,
                                     .launched_ns = stamps->launch_ns,
                                     .sent_ns = last->at_ns,
                                     .to_ns = last->at_ns};

    if (!tally__is_near(lane->group, last->rank)) {
        uint64_t here_ns = (uint64_t)least_of(one_way_of(lane, arrivals, last->rank));

        late.launched_ns += here_ns;
        late.sent_ns = stamps->arrived_ns + here_ns - (uint64_t)stamps->excused_us * NS_PER_US;
    }
    add_late(arrivals, &late);
}

/* The time that all ranks except the accused waited for its data in this exchange; *until_ns is its
 * end. */
static uint64_t agreed_blame(const tally_lane *lane, const struct tally__arrivals *arrivals,
                             int accused, uint64_t *until_ns)
{
    const tally_group *group = lane->group;
    uint64_t least_us = UINT64_MAX;

    *until_ns = 0;
    for (int r = 0; r < group->size; r++) {
        const struct tally__stamps *stamps = &line_of(lane, r)->stamps;

        if (r == accused) {
            continue;
        }
        if (stamps->blamed != tally__number_of(group, accused)) {
            return 0;
        }
        least_us = stamps->blamed_us < least_us ? stamps->blamed_us : least_us;
        *until_ns = tally__larger_ns(*until_ns, arrival_of(lane, arrivals, r, true));
    }
    return group->size > 1 ? least_us * NS_PER_US : 0;
}

static int rank_of(const tally_group *group, int number)
{
    for (int r = 0; r < group->size; r++) {
        if (tally__number_of(group, r) == number) {
            return r;
        }
    }
    return NOBODY;
}

/* All ranks except one waited for its data. Two ranks that waited for each other share a line, and
 * neither is the late one. */
static void note_transfers(const tally_lane *lane, struct tally__arrivals *arrivals)
{
    int accused[2] = {rank_of(lane->group, line_of(lane, 0)->stamps.blamed), 0};
    uint64_t until_ns[2] = {0};
    uint64_t ns[2] = {0};

    for (int i = 0; i < 2; i++) {
        ns[i] = accused[i] == NOBODY ? 0 : agreed_blame(lane, arrivals, accused[i], &until_ns[i]);
    }
    for (int i = 0; i < 2; i++) {
        uint64_t net_ns = ns[i] > ns[1 - i] ? ns[i] - ns[1 - i] : 0;

        if (net_ns > LATE_NS) {
            uint64_t own_ns = (uint64_t)line_of(lane, accused[i])->stamps.excused_us * NS_PER_US;
            struct tally__late_round late = {.rank = tally__number_of(lane->group, accused[i]),
                                             .from_ns = until_ns[i] - net_ns,
                                             .launched_ns = until_ns[i] - net_ns,
                                             .sent_ns = until_ns[i],
                                             .to_ns = until_ns[i]};

            /* A rank that waited, too, was not kept from sending. */
            if (own_ns > net_ns / 2) {
                late.sent_ns = late.launched_ns;
            }
            add_late(arrivals, &late);
        }
    }
}

/* Notes the times at which the applications began to wait for the step, as far as the lines say. */
static void note_called(const tally_lane *lane, struct tally__arrivals *arrivals)
{
    const tally_group *group = lane->group;

    for (int r = 0; r < group->size; r++) {
        uint64_t called_ns = line_of(lane, r)->stamps.called_ns;
        uint64_t here_ns =
            tally__is_near(group, r) ? 0 : (uint64_t)least_of(one_way_of(lane, arrivals, r));

        arrivals->called_ns[tally__number_of(group, r)] =
            called_ns > 0 ? called_ns + here_ns : UINT64_MAX;
    }
    arrivals->has_called = true;
}

void tally__arrivals_note(tally_lane *lane, struct tally__arrivals *arrivals, bool is_near)
{
    const struct sight sight = {.is_near = is_near, .excuses = lane->group->far != NULL};
    bool has_far = lane->group->far && !is_near;
    struct last last;

    arrivals->n_rounds++;
    if (has_far) {
        learn_clocks(lane, arrivals);
    }
    last = has_far ? find_last_of_all(lane, arrivals) : find_last(lane, arrivals, &sight);
    /* Among near ranks the excuses are in another cache line. */
    if (!lane->group->far && is_late(&last)) {
        last = find_last(lane, arrivals, &(struct sight){.excuses = true});
    }
    if (is_late(&last)) {
        note_line(lane, arrivals, &last);
    }
    if (has_far) {
        note_transfers(lane, arrivals);
    }
    if (arrivals->is_last && !is_near && !lane->loan.borrower) {
        note_called(lane, arrivals);
    }
    lane->round.waited_ns = arrivals->waited_ns;
}

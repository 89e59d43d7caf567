/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lateness: adds up, step by step, how long the ranks waited for one of them and why, and names a
 * straggler. comm/arrivals.c notes the rounds. A wait counts only while the applications of all
 * other ranks wait for the step: before, it costs them nothing. The thread that waits enters; any
 * thread may read.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "comm/doing.h"
#include "comm/messages.h"
#include "ddp/ddp.h"

/* A straggler is late by more than 1 / PART of a step, in N_STEPS steps in a row, except for one of
 * them: a program that takes a rank's CPU leaves it alone for a step now and then. */
#define PART 10
#define N_STEPS 10
/* Steps before the log names the same rank again. */
#define N_SILENT 1000
/* Ranks per step in a trace file: with more ranks not every step has a record. */
#define TOLD_RANKS 16

void tally__lateness_free(struct tally__lateness *lateness)
{
    for (int i = 0; lateness->arrivals && i < lateness->n_lanes; i++) {
        tally__arrivals_unmake(&lateness->arrivals[i]);
    }
    tally__free(lateness->arrivals);
    tally__free(lateness->ranks);
    tally__free(lateness->told);
    memset(lateness, 0, sizeof *lateness);
}

int tally__lateness_make(struct tally__lateness *lateness, const tally_group *group)
{
    lateness->ranks =
        tally__alloc_array((size_t)group->size, sizeof *lateness->ranks, "lateness of ranks");
    lateness->arrivals =
        tally__alloc_array((size_t)group->n_lanes, sizeof *lateness->arrivals, "lateness of ranks");
    lateness->told =
        tally__alloc_array((size_t)group->size, sizeof *lateness->told, "lateness of ranks");
    if (!lateness->ranks || !lateness->arrivals || !lateness->told) {
        return TALLY_NOMEM;
    }
    lateness->n_lanes = group->n_lanes;
    for (int i = 0; i < group->n_lanes; i++) {
        TRY(tally__arrivals_make(group->domain->n_ranks, &lateness->called_ns,
                                 &lateness->arrivals[i]));
    }
    return TALLY_OK;
}

/* ---- a step ---- */

/* The times at which the applications of the last two ranks began to wait; UINT64_MAX: not before
 * the last round was over. */
struct called {
    int last;
    uint64_t last_ns;
    uint64_t others_ns; /* the last of all except last */
};

static struct called find_called(const tally_ddp *ddp)
{
    struct called called = {.last = -1};

    for (int i = 0; i < ddp->lateness.n_lanes; i++) {
        const struct tally__arrivals *arrivals = &ddp->lateness.arrivals[i];

        for (int r = 0; arrivals->has_called && r < ddp->group->size; r++) {
            uint64_t ns = arrivals->called_ns[tally__number_of(ddp->group, r)];

            if (ns > called.last_ns) {
                called.others_ns = called.last_ns;
                called.last_ns = ns;
                called.last = tally__number_of(ddp->group, r);
            } else if (ns > called.others_ns) {
                called.others_ns = ns;
            }
        }
    }
    return called;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds the exposed part of a wait, cause by cause. */
static void add_wait(const struct tally__late_round *late, const struct called *called,
                     uint64_t *ns)
{
    uint64_t from_ns = tally__larger_ns(
        late->from_ns, called->last == late->rank ? called->others_ns : called->last_ns);
    uint64_t launched_ns = smaller(tally__larger_ns(late->launched_ns, from_ns), late->to_ns);
    uint64_t sent_ns = smaller(tally__larger_ns(late->sent_ns, launched_ns), late->to_ns);

    ns[TALLY_LATE_COMPUTES - 1] += tally__ns_between(from_ns, launched_ns);
    ns[TALLY_LATE_LANE - 1] += tally__ns_between(tally__larger_ns(from_ns, launched_ns), sent_ns);
    ns[TALLY_LATE_LINK - 1] += tally__ns_between(tally__larger_ns(from_ns, sent_ns), late->to_ns);
}

uint64_t tally__late_ns(const uint64_t *ns)
{
    uint64_t sum = 0;

    for (int c = 0; c < TALLY__N_LATE_CAUSES; c++) {
        sum += ns[c];
    }
    return sum;
}

/* Sets ns to the times that the others waited for a rank in this step. Lanes wait at the same time:
 * the one that waited longest counts. */
static void step_waits(tally_ddp *ddp, int rank, const struct called *called, uint64_t *ns)
{
    int number = tally__number_of(ddp->group, rank);

    memset(ns, 0, TALLY__N_LATE_CAUSES * sizeof *ns);
    for (int i = 0; i < ddp->lateness.n_lanes; i++) {
        const struct tally__arrivals *arrivals = &ddp->lateness.arrivals[i];
        uint64_t lane_ns[TALLY__N_LATE_CAUSES] = {0};

        for (size_t k = 0; k < arrivals->n_late; k++) {
            if (arrivals->late[k].rank == number) {
                ddp->lateness.ranks[rank].n_last++;
                add_wait(&arrivals->late[k], called, lane_ns);
            }
        }
        if (tally__late_ns(lane_ns) > tally__late_ns(ns)) {
            memcpy(ns, lane_ns, sizeof lane_ns);
        }
    }
}

static void add_waits(struct tally__rank_lateness *rank, const uint64_t *ns)
{
    rank->step_ns = tally__late_ns(ns);
    for (int c = 0; c < TALLY__N_LATE_CAUSES; c++) {
        rank->last_ns[c] = ns[c];
        rank->ns[c] += ns[c];
    }
}

static void add_to_row(struct tally__late_row *row, uint64_t step_ns, const uint64_t *ns)
{
    row->n++;
    row->steps_ns += step_ns;
    for (int c = 0; c < TALLY__N_LATE_CAUSES; c++) {
        row->ns[c] += ns[c];
    }
}

/* The longest that ranks waited for another rank in this step. */
static uint64_t longest_of_others(const tally_ddp *ddp, int rank)
{
    uint64_t ns = 0;

    for (int r = 0; r < ddp->group->size; r++) {
        ns = r == rank ? ns : tally__larger_ns(ns, ddp->lateness.ranks[r].step_ns);
    }
    return ns;
}

/* A rank is late in a step of step_ns if the others wait for it longer than for any other rank, by
 * more than a part of the step: where several ranks lack CPUs, none is the late one. */
static bool is_late(const tally_ddp *ddp, int rank, uint64_t step_ns)
{
    return ddp->lateness.ranks[rank].step_ns > longest_of_others(ddp, rank) + step_ns / PART;
}

void tally__lateness_count(struct tally__rank_lateness *rank, bool late, uint64_t step_ns)
{
    if (late) {
        add_to_row(&rank->row, step_ns, rank->last_ns);
        add_to_row(&rank->since, step_ns, rank->last_ns);
        return;
    }
    /* The second step in time of the last N_STEPS: the row begins after the first. */
    if (rank->since.n < rank->row.n && rank->since.n + 1 < N_STEPS) {
        rank->row = rank->since;
    }
    if (rank->row.n > 0) {
        add_to_row(&rank->row, step_ns, rank->last_ns);
    }
    memset(&rank->since, 0, sizeof rank->since);
}

/* Lane 0 has seen lines of all ranks. */
static bool clock_of(const tally_ddp *ddp, int rank, int64_t *offset_ns, uint64_t *uncertainty_ns)
{
    const tally_group *group = ddp->group;

    *offset_ns = 0;
    *uncertainty_ns = 0;
    return tally__is_near(group, rank) ||
           tally__arrivals_offset(&ddp->lateness.arrivals[0], tally__number_of(group, rank),
                                  offset_ns, uncertainty_ns);
}

static struct tally__trace_rank told_rank(const tally_ddp *ddp, int r)
{
    const struct tally__rank_lateness *rank = &ddp->lateness.ranks[r];
    struct tally__trace_rank told = {.rank = tally__number_of(ddp->group, r),
                                     .is_far = !tally__is_near(ddp->group, r),
                                     .n_last = rank->n_last,
                                     .computes_ns = rank->ns[TALLY_LATE_COMPUTES - 1],
                                     .lane_ns = rank->ns[TALLY_LATE_LANE - 1],
                                     .link_ns = rank->ns[TALLY_LATE_LINK - 1]};

    if (!clock_of(ddp, r, &told.offset_ns, &told.uncertainty_ns)) {
        told.uncertainty_ns = UINT64_MAX;
    }
    return told;
}

void tally__lateness_step(tally_ddp *ddp)
{
    uint64_t step_ns = tally__step_ns(ddp);
    const struct called called = find_called(ddp);
    uint64_t ns[TALLY__N_LATE_CAUSES];

    for (int i = 0; i < ddp->lateness.n_lanes; i++) {
        ddp->lateness.n_rounds += ddp->lateness.arrivals[i].n_rounds;
    }
    ddp->lateness.n_steps++;
    for (int r = 0; r < ddp->group->size; r++) {
        step_waits(ddp, r, &called, ns);
        add_waits(&ddp->lateness.ranks[r], ns);
        ddp->lateness.told[r] = told_rank(ddp, r);
    }
    for (int r = 0; r < ddp->group->size; r++) {
        struct tally__rank_lateness *rank = &ddp->lateness.ranks[r];

        if (rank->step_ns > 0 || rank->row.n > 0) {
            tally__lateness_count(rank, is_late(ddp, r, step_ns), step_ns);
        }
    }
}

/* ---- naming it ---- */

enum tally_late_cause tally__late_cause(const struct tally__rank_lateness *rank)
{
    int most = 0;

    for (int c = 1; c < TALLY__N_LATE_CAUSES; c++) {
        most = rank->row.ns[c] > rank->row.ns[most] ? c : most;
    }
    return rank->row.n > 0 ? (enum tally_late_cause)(most + 1) : TALLY_LATE_NOT;
}

void tally__lateness_log(tally_ddp *ddp)
{
    static const char *const causes[] = {
        "", "it announces its gradients later than the others",
        "its gradients are announced in time, but its lane comes late: it lacks CPU time",
        "its messages are sent in time, but come late: its network link is slow"};

    for (int r = 0; ddp->group->rank == 0 && r < ddp->group->size; r++) {
        struct tally__rank_lateness *rank = &ddp->lateness.ranks[r];
        uint64_t now = ddp->lateness.n_steps;

        if (rank->row.n == N_STEPS && (rank->named == 0 || now - rank->named >= N_SILENT)) {
            rank->named = now;
            tally__log(
                TALLY_LOG_INFO,
                "%s makes the others wait for %.3g of %.3g ms per step, in the last %d steps: "
                "%s",
                tally__rank_text(ddp->group, r).text,
                (double)tally__late_ns(rank->row.ns) / N_STEPS / 1e6,
                (double)rank->row.steps_ns / N_STEPS / 1e6, N_STEPS,
                causes[tally__late_cause(rank)]);
        }
    }
}

/* ---- telling it ---- */

void tally__lateness_trace(tally_ddp *ddp)
{
    const struct tally__trace_ranks head = {.ddp = ddp->trace.number,
                                            .n = (uint32_t)ddp->group->size,
                                            .n_steps = ddp->lateness.n_steps};

    if (ddp->lateness.n_steps % (head.n / TOLD_RANKS + 1) == 0) {
        tally__tracer_put(
            ddp->trace.tracer, TALLY__RECORD_RANKS,
            &(struct tally__trace_payload){.head = &head,
                                           .head_bytes = sizeof head,
                                           .tail = ddp->lateness.told,
                                           .tail_bytes = head.n * sizeof *ddp->lateness.told});
    }
}

int tally_ddp_get_rank_stats(tally_ddp *ddp, int rank, tally_rank_stats *stats)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_rank_stats, clock_uncertainty_s);
    const struct tally__rank_lateness *from;
    const struct tally__trace_rank *told;
    tally_rank_stats answer = {0};

    TRY(tally__check_ddp(ddp, "tally_ddp_get_rank_stats"));
    TRY(tally__answer_check(kind, "tally_ddp_get_rank_stats", stats));
    if (rank < 0 || rank >= ddp->group->size) {
        return tally__fail(TALLY_ARG,
                           "tally_ddp_get_rank_stats: there is no rank %d: they are 0..%d", rank,
                           ddp->group->size - 1);
    }
    from = &ddp->lateness.ranks[rank];
    told = &ddp->lateness.told[rank];
    (void)pthread_mutex_lock(&ddp->mutex);
    answer.n_rounds = ddp->lateness.n_rounds;
    answer.n_last = from->n_last;
    answer.waited_s = tally__seconds(tally__late_ns(from->ns));
    answer.computes_s = tally__seconds(from->ns[TALLY_LATE_COMPUTES - 1]);
    answer.lane_s = tally__seconds(from->ns[TALLY_LATE_LANE - 1]);
    answer.link_s = tally__seconds(from->ns[TALLY_LATE_LINK - 1]);
    answer.step_waited_s = tally__seconds(from->step_ns);
    answer.n_late_steps = from->row.n;
    answer.cause = tally__late_cause(from);
    answer.clock_known = told->uncertainty_ns < UINT64_MAX && ddp->lateness.n_steps > 0;
    if (answer.clock_known) {
        answer.clock_offset_s = (double)told->offset_ns / (double)TALLY__NS_PER_SECOND;
        answer.clock_uncertainty_s = tally__seconds(told->uncertainty_ns);
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
    tally__sized_write(kind, &answer, stats);
    return TALLY_OK;
}

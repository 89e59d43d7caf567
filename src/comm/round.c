/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: arriving, waiting, comparing the calls. Only the thread that runs a lane's jobs enters
 * with that lane. Maintains the rules of comm/shared_layout.h about which rank writes which word.
 */
#include "comm/round.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/arrivals.h"
#include "comm/doing.h"
#include "comm/messages.h"
#include "comm/wait.h"

static bool agree(const struct tally__call *a, const struct tally__call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->job == b->job && a->count == b->count && a->detail == b->detail;
}

static struct tally__line *line_of(const tally_lane *lane, int rank, uint64_t round)
{
    assert(rank >= 0 && rank < lane->group->size);
    return &lane->slots[rank]->line[round % 2];
}

const struct tally__call *tally__said(const tally_lane *lane, int rank)
{
    return &line_of(lane, rank, lane->round.number)->call;
}

const struct tally__doing *tally__doing_of(const tally_lane *lane, int rank)
{
    return &line_of(lane, rank, lane->round.number)->doing;
}

const struct tally__stamps *tally__stamps_of(const tally_lane *lane, int rank)
{
    return &line_of(lane, rank, lane->round.number)->stamps;
}

unsigned char *tally__stage_of(const tally_lane *lane, int rank, uint64_t round)
{
    const tally_group *group = lane->group;

    assert(rank >= 0 && rank < group->size);
    if (!tally__is_near(group, rank)) {
        assert(round == lane->round.number);
        return tally__inbox_of(lane, rank, round);
    }
    /* A stage is reused after three rounds, and written one round ahead. */
    assert(round <= lane->round.number + 1 && round + TALLY__N_STAGES > lane->round.number);
    return lane->slots[rank]->stages + TALLY__HEAD_BYTES +
           round % TALLY__N_STAGES * (TALLY__HEAD_BYTES + TALLY__STAGE_BYTES);
}

size_t tally__payload_bytes(const tally_group *group)
{
    return group->far ? group->far->payload_bytes : TALLY__STAGE_BYTES;
}

size_t tally__rider_bytes(const tally_group *group)
{
    return group->far && group->far->n <= TALLY__MOST_DIRECT ? group->far->inbox_bytes : 0;
}

unsigned char *tally__next_stage(const tally_lane *lane)
{
    return tally__stage_of(lane, lane->group->rank, lane->round.number + 1);
}

uint64_t tally__offset_for_peers(const tally_group *group, const void *data, size_t bytes)
{
    if (!group->domain->ops->shares(group->domain, data, bytes)) {
        return TALLY__NOT_SHARED;
    }
    return tally__offset_of(group->domain, data);
}

unsigned char *tally__peer_data(const tally_lane *lane, int rank)
{
    const tally_group *group = lane->group;

    return tally__at(group->domain, group->domain_rank[rank], tally__said(lane, rank)->offset);
}

bool tally__reads(const tally_lane *lane, int rank)
{
    return tally__is_near(lane->group, rank) &&
           tally__said(lane, rank)->offset != TALLY__NOT_SHARED;
}

bool tally__reads_all(const tally_lane *lane)
{
    for (int r = 0; r < lane->group->size; r++) {
        if (!tally__reads(lane, r)) {
            return false;
        }
    }
    return true;
}

void tally__count_sent(tally_lane *lane, uint64_t bytes)
{
    lane->job.bytes_sent += bytes;
    if (lane->loan.borrower && lane->group->is_host) {
        lane->loan.borrower->job.host_bytes += bytes;
    } else if (lane->loan.borrower) {
        lane->loan.borrower->job.bytes_sent += bytes;
    }
    atomic_fetch_add_explicit(&lane->group->bytes_sent, bytes, memory_order_relaxed);
}

/* Whether every rank reports the same failure: the message then names no rank. */
static bool is_on_all_ranks(const tally_lane *lane)
{
    const tally_group *group = lane->group;
    size_t line = lane->round.number % 2;

    for (int r = 0; r < group->size; r++) {
        if (tally__said(lane, r)->status == TALLY_OK ||
            strncmp(lane->slots[r]->text[line], lane->slots[0]->text[line], TALLY__TEXT_BYTES) !=
                0) {
            return false;
        }
    }
    return group->size > 1;
}

/* Records the failure of rank, so that the rest of the job fails at once. */
static int fail_job(tally_lane *lane, int rank)
{
    int status = tally__said(lane, rank)->status;
    const char *text = lane->slots[rank]->text[lane->round.number % 2];

    if (tally__culprit_length(text) > 0 || is_on_all_ranks(lane)) {
        (void)snprintf(lane->job.text, sizeof lane->job.text, "%.*s", TALLY__TEXT_BYTES - 1, text);
    } else {
        (void)snprintf(lane->job.text, sizeof lane->job.text, "%s: %.*s",
                       tally__rank_text(lane->group, rank).text, TALLY__TEXT_BYTES - 64, text);
    }
    assert(lane->job.status == TALLY_OK);
    lane->job.status = status;
    return tally__fail(status, "%s", lane->job.text);
}

/* Whether rank takes part in a round of all ranks, or of the near ones. */
static bool is_in(const tally_lane *lane, int rank, bool is_near)
{
    return !is_near || tally__is_near(lane->group, rank);
}

/* All ranks of the round have arrived: checks that all are well and make the same call. */
static int inspect(tally_lane *lane, bool is_near)
{
    tally_group *group = lane->group;
    const struct tally__call *first = tally__said(lane, is_near ? group->rank : 0);

    for (int r = 0; r < group->size; r++) {
        if (is_in(lane, r, is_near) && tally__said(lane, r)->status != TALLY_OK) {
            return fail_job(lane, r);
        }
    }
    for (int r = 0; r < group->size; r++) {
        if (is_in(lane, r, is_near) && !agree(first, tally__said(lane, r))) {
            return tally__give_up_mismatch(lane, r);
        }
    }
    return TALLY_OK;
}

/* Writes into the line what the job does for the application, unless it is there already. */
static void say_doing(tally_lane *lane, struct tally__line *line)
{
    const tally_lane *runner = lane->loan.borrower ? lane->loan.borrower : lane;
    uint64_t *said = &lane->round.said_serial[lane->round.number % 2];

    if (*said != runner->job.serial) {
        *said = runner->job.serial;
        if (runner->job.doing.what == TALLY__DOING_NOTHING) {
            line->doing.what = TALLY__DOING_NOTHING;
        } else {
            line->doing = runner->job.doing;
        }
    }
}

/* Writes this rank's line, which near ranks see. */
static int arrive(tally_lane *lane, const struct tally__call *call, const char *text)
{
    tally_group *group = lane->group;
    struct tally__slot *own = lane->slots[group->rank];
    struct tally__arrivals *arrivals = tally__arrivals_of(lane);
    struct tally__line *line;

    TRY(tally__check_alive(group));
    if (lane->job.status != TALLY_OK) {
        return tally__fail(lane->job.status, "%s", lane->job.text);
    }
    assert(call->kind < TALLY__N_KINDS);
    lane->round.number++;
    lane->round.waited = (struct tally__waited){0};
    line = line_of(lane, group->rank, lane->round.number);
    /* Only this rank writes its line, every second round. */
    assert(atomic_load_explicit(&line->round, memory_order_relaxed) ==
           (uint32_t)(lane->round.number > 2 ? lane->round.number - 2 : 0));
    line->call = *call;
    line->call.job = lane->job.number;
    say_doing(lane, line);
    if (call->status != TALLY_OK) {
        (void)snprintf(own->text[lane->round.number % 2], TALLY__TEXT_BYTES, "%s", text);
    }
    if (arrivals) {
        tally__arrivals_stamp(lane, arrivals, line);
    }
    /* Partner: the load in tally__has_arrived. Sequentially consistent because the look at the
     * sleepers below must not come before it (partner: sleep_on, wait.c). */
    atomic_store_explicit(&line->round, (uint32_t)lane->round.number, memory_order_seq_cst);
    tally__wake_sleepers(lane, line);
    return TALLY_OK;
}

/* Whether a rank has continued to the next round: then this round succeeded, also if a later one
 * failed.
 */
static bool has_continued(const tally_lane *lane)
{
    uint32_t next = (uint32_t)lane->round.number + 1;

    for (int r = 0; r < lane->group->size; r++) {
        /* Partner: the store in arrive(). */
        if (atomic_load_explicit(&line_of(lane, r, lane->round.number + 1)->round,
                                 memory_order_acquire) == next) {
            return true;
        }
    }
    return false;
}

/* Waits for the line of a rank. */
static int await_line(tally_lane *lane, int rank)
{
    const struct tally__awaited line = {.rank = rank, .reason = TALLY__FOR_LINE};

    return tally__has_arrived(lane, rank) ? TALLY_OK : tally__await(lane, &line);
}

/* Sends this rank's line to far ranks, and passes on the lines of others. */
static int exchange_lines(tally_lane *lane)
{
    tally_group *group = lane->group;

    TRY(tally__send_line(lane));
    for (int step = 1; step < tally__n_spread_steps(lane); step++) {
        for (int i = 0; i < 1 << step; i++) {
            TRY(await_line(lane, (group->rank - i + group->size) % group->size));
        }
        TRY(tally__spread_step(lane, step));
    }
    return TALLY_OK;
}

/* Until MPI has sent the lines, other ranks may need this rank to call MPI. */
static int await_sent(tally_lane *lane)
{
    const struct tally__far *far = lane->group->far;

    return far ? tally__await_counter(lane, -1, far->lanes[lane->index].sending) : TALLY_OK;
}

/* Whether the line of a far rank is here before this rank has looked for it, or may be because
 * lines are spread. */
static bool has_far_come(const tally_lane *lane)
{
    const tally_group *group = lane->group;

    for (int r = 0; r < group->size; r++) {
        if (!tally__is_near(group, r) && tally__has_arrived(lane, r)) {
            return true;
        }
    }
    return tally__is_spread(group);
}

static int await(tally_lane *lane, bool is_near)
{
    tally_group *group = lane->group;
    struct tally__arrivals *arrivals = tally__arrivals_of(lane);
    struct tally__late late;

    lane->round.is_fresh = !is_near && group->far && !has_far_come(lane);
    for (int r = 0; r < group->size; r++) {
        TRY(is_in(lane, r, is_near) ? await_line(lane, r) : TALLY_OK);
    }
    TRY(is_near ? TALLY_OK : await_sent(lane));
    /* A rank may have given up after its line; not yet if the line has come just now. */
    if (!lane->round.is_fresh) {
        tally__look_behind(lane);
    }
    /* A rank that has given up may have arrived here earlier, in a job that failed. */
    if (tally__is_given_up(lane, &late) && !has_continued(lane)) {
        return tally__give_up_late(lane, group->rank, &late);
    }
    TRY(inspect(lane, is_near));
    if (arrivals) {
        tally__arrivals_note(lane, arrivals, is_near);
    }
    return TALLY_OK;
}

int tally__round_with(tally_lane *lane, const struct tally__call *call, size_t bytes)
{
    struct tally__call with_payload = *call;

    assert(bytes <= tally__payload_bytes(lane->group));
    with_payload.payload = (uint32_t)bytes;
    TRY(arrive(lane, &with_payload, ""));
    TRY(lane->group->far ? exchange_lines(lane) : TALLY_OK);
    return await(lane, false);
}

int tally__round_each(tally_lane *lane, const struct tally__call *call,
                      const struct tally__stream *riders)
{
    TRY(arrive(lane, call, ""));
    TRY(tally__send_line_each(lane, riders));
    return await(lane, false);
}

int tally__round(tally_lane *lane, const struct tally__call *call)
{
    return tally__round_with(lane, call, 0);
}

int tally__round_near(tally_lane *lane, const struct tally__call *call)
{
    TRY(arrive(lane, call, ""));
    return await(lane, true);
}

int tally__refuse(tally_lane *lane, enum tally__kind kind, int status)
{
    struct tally__call call = {.kind = (uint16_t)kind, .status = status};
    char text[TALLY__TEXT_BYTES];

    (void)snprintf(text, sizeof text, "%.*s", TALLY__TEXT_BYTES - 1,
                   *tally_last_error() ? tally_last_error() : tally_status_text(status));
    TRY(arrive(lane, &call, text));
    TRY(lane->group->far ? exchange_lines(lane) : TALLY_OK);
    return await(lane, false);
}

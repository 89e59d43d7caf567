/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a failure that ended the ddp's group: the error, what every rank's lines say, and
 * the last events. The thread whose call failed enters, when no job of the ddp runs any more.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "comm/doing.h"
#include "comm/wait.h"
#include "ddp/ddp.h"
#include "trace/report_file.h"

_Static_assert(sizeof((struct tally__trace_line *)NULL)->doing >= TALLY__DOING_BYTES,
               "a description fits");

static bool is_reported(const tally_ddp *ddp, int status)
{
    return (status == TALLY_TIMEOUT || status == TALLY_PEER || status == TALLY_MISMATCH) &&
           !tally__is_alive(ddp->group);
}

static void report_error(struct tally__report *report, const tally_ddp *ddp, int status)
{
    struct tally__trace_error error = {.status = status,
                                       .ddp = ddp->trace.number,
                                       .step = ddp->step + ddp->steps_before,
                                       .at_ns = tally__now_ns()};

    (void)snprintf(error.text, sizeof error.text, "%.*s", (int)sizeof error.text - 1,
                   tally_last_error());
    tally__report_record(report, TALLY__RECORD_ERROR, sizeof error);
    tally__report_append(report, &error, sizeof error);
}

/* A rank that has arrived stays in its line: the group was given up. One that has not keeps its
 * line of the round before. */
static struct tally__trace_line line_of(const tally_lane *lane, int rank)
{
    const struct tally__slot *slot = lane->slots[rank];
    bool has_arrived = lane->round.number > 0 && tally__has_arrived(lane, rank);
    uint64_t round = lane->round.number - (lane->round.number > 0 && !has_arrived);
    struct tally__trace_line line = {.rank = tally__number_of(lane->group, rank),
                                     .state = TALLY__ARRIVAL_MISSING,
                                     .round = round};

    if (has_arrived) {
        line.state = TALLY__ARRIVAL_ARRIVED;
    } else if (!tally__is_rank_alive(lane->group, rank)) {
        line.state = TALLY__ARRIVAL_DEAD;
    } else if (tally__has_left(lane->group, rank)) {
        line.state = TALLY__ARRIVAL_LEFT;
    }
    if (round > 0) {
        tally__describe_line(lane->group, &slot->line[round % 2], line.doing);
    }
    return line;
}

static void report_lines(struct tally__report *report, const tally_ddp *ddp, const tally_lane *lane)
{
    const struct tally__trace_lines head = {
        .ddp = ddp->trace.number, .n = (uint32_t)lane->group->size, .round = lane->round.number};

    tally__report_record(report, TALLY__RECORD_LINES,
                         sizeof head + head.n * sizeof(struct tally__trace_line));
    tally__report_append(report, &head, sizeof head);
    for (int r = 0; r < lane->group->size; r++) {
        const struct tally__trace_line line = line_of(lane, r);

        tally__report_append(report, &line, sizeof line);
    }
}

void tally__ddp_report(tally_ddp *ddp, int status)
{
    struct tally__report report;

    if (!is_reported(ddp, status) || !tally__report_begin(ddp->trace.tracer, &report)) {
        return;
    }
    report_error(&report, ddp, status);
    for (int i = 0; i < ddp->group->n_lanes; i++) {
        report_lines(&report, ddp, &ddp->group->lanes[i]);
    }
    tally__report_events(&report, ddp->trace.tracer);
    tally__report_end(&report);
}

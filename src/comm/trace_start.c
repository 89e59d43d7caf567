/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls that begin and end the trace of a rank. Any thread enters. */
#include "base/env.h"
#include "base/status.h"
#include "comm/group.h"
#include "trace/tracer.h"

static int check(const tally_group *group, const char *call)
{
    return group ? tally__check_creator(&group->creator)
                 : tally__fail(TALLY_ARG, "%s: group is NULL", call);
}

int tally_trace_start(tally_group *group, const char *file, unsigned long long bytes)
{
    int most_bytes = 0;

    TRY(check(group, "tally_trace_start"));
    if (!file || !*file) {
        return tally__fail(TALLY_ARG, "tally_trace_start: file is %s", file ? "empty" : "NULL");
    }
    TRY(tally__env_count(TALLY__ENV_TRACE_BYTES, &most_bytes));
    return tally__tracer_start(group->tracer, file, bytes ? (uint64_t)bytes : (uint64_t)most_bytes);
}

int tally_trace_write(tally_group *group)
{
    TRY(check(group, "tally_trace_write"));
    return tally__tracer_write(group->tracer);
}

int tally_trace_stop(tally_group *group)
{
    TRY(check(group, "tally_trace_stop"));
    return tally__tracer_stop(group->tracer);
}

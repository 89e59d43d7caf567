/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapper hosts, for several ranks on each of several machines: the ranks of a host add their
 * gradients in rank order; one of them, the leader, exchanges the sum with the other leaders by the
 * inner hook and distributes the result on its host. Network traffic does not grow with the number
 * of ranks per host. The order of summation is: within hosts, then over hosts.
 *
 * Reduces on lane 0; application threads enter between steps. Serves one ddp at a time. The leaders
 * have the state of the inner hook, residuals included.
 */
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/doing.h"
#include "comm/threads.h"
#include "exchange/reduction.h"
#include "exchange/two_phase.h"
#include "hook/kind.h"
#include "hook/wrapper.h"

struct hosts {
    struct tally__wrapper wrapper;
    int host_size; /* 0: the ranks of each machine */
    struct tally__division division;
};

/* The ranks of this host. */
static tally_group *local_of(const struct hosts *hosts)
{
    return hosts->division.groups[0];
}

/* The leaders; NULL on other ranks. */
static tally_group *leaders_of(const struct hosts *hosts)
{
    return hosts->division.groups[1];
}

/* ---- hosts and their ranks ---- */

/* Waits for the collective that a call has begun. */
static int finish(int rc, tally_future *const *future)
{
    if (rc == TALLY_OK) {
        rc = tally_future_wait(*future);
        tally_future_free(*future);
    }
    return rc;
}

/* The lowest rank on this rank's machine. */
static int find_first(tally_group *all, int *first)
{
    size_t size = (size_t)tally_group_size(all);
    struct tally__machine *machines = tally__alloc_array(size, sizeof *machines, "names of hosts");
    size_t *bytes = tally__alloc_array(size, sizeof *bytes, "names of hosts");
    struct tally__machine own;
    tally_future *future;
    int rc = machines && bytes ? TALLY_OK : TALLY_NOMEM;

    tally__machine_here(&own);
    for (size_t r = 0; rc == TALLY_OK && r < size; r++) {
        bytes[r] = sizeof own;
    }
    if (rc == TALLY_OK) {
        rc = finish(tally_all_gather(all, &own, bytes, machines, &future), &future);
    }
    for (int r = tally_group_rank(all); rc == TALLY_OK && r >= 0; r--) {
        if (tally__machine_is_same(&machines[r], &own)) {
            *first = r;
        }
    }
    tally__free(machines);
    tally__free(bytes);
    return rc;
}

static int open_groups(int host_size, tally_group *all, tally_group *made[2])
{
    int rank = tally_group_rank(all);
    int first = rank;

    if (host_size > 0) {
        first = rank / host_size * host_size;
    } else {
        TRY(find_first(all, &first));
    }
    TRY(tally_group_split(all, first, rank, &made[0]));
    made[0]->is_host = true;
    return tally_group_split(all, rank == first ? 0 : -1, rank, &made[1]);
}

static int enter(void *state, tally_ddp *ddp)
{
    struct hosts *hosts = state;
    tally_group *made[2] = {NULL, NULL};
    int rc = open_groups(hosts->host_size, tally_ddp_group(ddp), made);

    return tally__division_enter(&hosts->division, ddp, "hosts", made, rc);
}

static void leave(void *state)
{
    struct hosts *hosts = state;

    tally__division_leave(&hosts->division);
}

/* ---- reducing ---- */

/* Leaders have the residuals: other ranks add theirs to their gradients. Their residuals of means
 * that a leader owns now are copies. */
static int give_up_residuals(const tally_bucket *bucket)
{
    struct tally__residuals *residuals = tally__reduction_here()->residuals;

    for (int k = 0; k < bucket->n_params; k++) {
        tally__residual_disown(&residuals->params[bucket->params[k].index], bucket->n_ranks);
    }
    return tally__residuals_deliver(residuals, bucket);
}

/* Sums the bucket among the ranks of this host. Within a host, fp32 always travels as fp32. */
static int add_within(tally_lane *within, const tally_bucket *bucket)
{
    const struct tally__call call = {
        .kind = TALLY__KIND_ALL_REDUCE, .dtype = (uint8_t)bucket->dtype, .op = TALLY_SUM};
    struct tally__codec codec = tally__codec_plain(bucket->dtype, TALLY_SUM);

    return tally__exchange(within, &codec, call, bucket->data, bucket->n);
}

/* A value that the hook refuses may come from any rank of the host: the message says so after the
 * rank that it names, or after this rank if it names none. */
static int fail_numeric(const tally_lane *lane)
{
    const char *text = tally_last_error();
    int length = (int)tally__culprit_length(text);

    if (length > 0 && text[length] == ':') {
        return tally__fail(TALLY_NUMERIC, "%.*s, or another rank of its host%s", length, text,
                           text + length);
    }
    return tally__fail(TALLY_NUMERIC, "%s, or another rank of its host: %s",
                       tally__rank_text(lane->group, lane->group->rank).text, text);
}

/* The leaders' exchange; the host's sum is in the bucket. A leader that has run out of input sends
 * the sum of the other ranks. */
static int exchange(const struct hosts *hosts, tally_lane *lane, const tally_bucket *bucket)
{
    tally_bucket of_host = *bucket;
    int rc;

    if (tally_group_size(local_of(hosts)) > 1) {
        of_host.shadows = 0;
    }
    rc = tally__hook_reduce_in_subgroup(hosts->wrapper.inner, lane, leaders_of(hosts),
                                        TALLY__DIVISOR_STAYS, &of_host);
    return rc == TALLY_NUMERIC ? fail_numeric(lane) : rc;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct hosts *hosts = state;
    bool alone = tally_group_size(local_of(hosts)) == 1;
    struct tally__outcome exchanged = {.status = TALLY_OK};
    tally_lane *within = tally_lane_for(lane, local_of(hosts));

    if (!leaders_of(hosts)) {
        TRY(give_up_residuals(bucket));
    }
    if (!alone) {
        TRY(add_within(within, bucket));
    }
    if (leaders_of(hosts)) {
        exchanged = tally__outcome_of(exchange(hosts, lane, bucket));
    }
    TRY(tally__agree_status(within, &exchanged));
    return alone ? TALLY_OK
                 : tally_lane_broadcast(within, bucket->data,
                                        bucket->n * tally_dtype_bytes(bucket->dtype), 0);
}

static bool runs_here(const void *state)
{
    return leaders_of(state) != NULL;
}

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const double *values = setting->values;
    struct tally__wrapper_table table = tally__wrapper_table(name, inner);
    struct hosts *hosts;

    TRY(tally__wrapper_divide(&table, inner));
    hosts = tally__alloc(sizeof *hosts, "a hook");
    if (!hosts) {
        return TALLY_NOMEM;
    }
    hosts->host_size = (int)values[0];
    table.table.reduce = reduce;
    table.table.concurrent = 0;
    table.private.is_exact = inner->private.is_exact;
    table.private.is_led = true;
    table.private.enter = enter;
    table.private.leave = leave;
    table.private.runs_here = runs_here;
    return tally__wrapper_make(&table, &hosts->wrapper, inner, hook);
}

static const struct tally__option options[] = {
    TALLY__COUNT_OPTION("size", 0, 1e6, "0 or more", "0",
                        "consecutive ranks that count as one host; 0: those on one machine"),
};

const struct tally__hook_kind tally__hook_kind_hosts = {
    .row.name = "hosts",
    .row.help = "adds up within each machine first; one exchange per machine crosses "
                "the network",
    .wraps = true,
    .row.n_options = sizeof options / sizeof options[0],
    .row.options = options,
    .make = make,
};

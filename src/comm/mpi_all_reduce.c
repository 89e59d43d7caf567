/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by the carrier: ranks agree on them in a round, and detect that they will not end. */
#include "comm/mpi_all_reduce.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/doing.h"
#include "comm/wait.h"

/* Carriers count elements in ints. */
#define MOST_AT_ONCE ((size_t)1 << 30)
#define ASK_NS 50000u
#define PAUSE_NS 50000

/* Differs from the detail of every codec. */
#define NATIVE_DETAIL UINT64_C(0xffff)

bool tally__has_mpi_all_reduce(const tally_lane *lane)
{
    const struct tally__domain *domain = lane->group->domain;

    return domain->carrier && domain->carrier->sum_begin && lane->group->size == domain->n_ranks &&
           atomic_load_explicit(&domain->sums_of, memory_order_relaxed) ==
               (uintptr_t)lane->group->threads;
}

/* Gives the group up when a rank has died or given it up, or the deadline has passed. */
static int check_others(tally_lane *lane, struct tally__waited *waited, uint64_t *next_alive_ns)
{
    tally_group *group = lane->group;
    uint64_t now = tally__now_ns();
    struct tally__late late;
    size_t moved = 0;
    /* News from other ranks arrives only when this rank drives the carrier. */
    int rc = group->domain->carrier->progress(group->domain, &moved);

    if (rc != TALLY_OK) {
        return tally__give_up(group, rc, "%s", tally_last_error());
    }
    if (tally__is_given_up(lane, &late)) {
        return tally__give_up_late(lane, group->rank, &late, "an all-reduce of MPI");
    }
    if (now >= *next_alive_ns) {
        *next_alive_ns = now + TALLY__ALIVE_NS;
        for (int r = 0; r < group->size; r++) {
            if (!group->domain->ops->alive(group->domain, group->domain_rank[r])) {
                return tally__give_up(group, TALLY_PEER, "%s died in an all-reduce of %s",
                                      tally__rank_text(group, r).text, group->domain->ops->name);
            }
        }
    }
    if (tally__count_waited(waited, now) > group->timeout_ns) {
        char place[TALLY__DOING_BYTES];

        tally__describe_doing(lane, place);
        return tally__give_up(group, TALLY_TIMEOUT,
                              "an all-reduce of %s was not done within %g s in %s",
                              group->domain->ops->name,
                              (double)group->timeout_ns / (double)TALLY__NS_PER_SECOND, place);
    }
    return TALLY_OK;
}

static int wait_sum(tally_lane *lane)
{
    const struct timespec pause = {0, PAUSE_NS};
    struct tally__domain *domain = lane->group->domain;
    struct tally__waited waited = {0};
    uint64_t next_alive_ns = tally__now_ns() + TALLY__ALIVE_NS;

    for (;;) {
        bool is_done = false;
        int rc = domain->carrier->sum_is_done(domain, lane->index, &is_done);

        if (rc != TALLY_OK) {
            return tally__give_up(lane->group, rc, "%s", tally_last_error());
        }
        if (is_done) {
            return TALLY_OK;
        }
        TRY(check_others(lane, &waited, &next_alive_ns));
        if (waited.sum_ns < ASK_NS) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&pause, NULL);
        }
    }
}

int tally__mpi_all_reduce(tally_lane *lane, float *data, size_t n)
{
    const struct tally__call call = {.kind = TALLY__KIND_ALL_REDUCE,
                                     .dtype = TALLY_F32,
                                     .op = TALLY_SUM,
                                     .count = n,
                                     .detail = NATIVE_DETAIL};
    struct tally__domain *domain = lane->group->domain;
    uint64_t size = (uint64_t)lane->group->size;

    TRY(tally__round(lane, &call));
    for (size_t done = 0; done < n;) {
        size_t part = n - done < MOST_AT_ONCE ? n - done : MOST_AT_ONCE;
        int rc = domain->carrier->sum_begin(domain, lane->index, data + done, part);

        if (rc != TALLY_OK) {
            return tally__give_up(lane->group, rc, "%s", tally_last_error());
        }
        TRY(wait_sum(lane));
        done += part;
    }
    /* An estimate, which tally.h documents: MPI does not tell how many bytes it sends. */
    tally__count_sent(lane, 2 * n * sizeof(float) * (size - 1) / size);
    return TALLY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by MPI: ranks agree on them in a round, and detect that they will not end. */
#include "comm/mpi_all_reduce.h"

#include "base/clock.h"
#include "base/status.h"
#include "comm/doing.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"
#include "comm/wait.h"

/* MPI counts elements in ints. */
#define MOST_AT_ONCE ((size_t)1 << 30)

/* Differs from the detail of every codec. */
#define NATIVE_DETAIL UINT64_C(0xffff)

bool tally__has_mpi_all_reduce(const tally_lane *lane)
{
    const struct tally__domain *domain = lane->group->domain;

    return domain->messenger && lane->group->size == domain->n_ranks &&
           atomic_load_explicit(&domain->sums_of, memory_order_relaxed) ==
               (uintptr_t)lane->group->threads;
}

static int wait_sum(tally_lane *lane, const atomic_int *pending)
{
    const struct tally__awaited what = {.rank = -1, .transfers = pending};
    tally_group *group = lane->group;
    struct tally__late late;
    char doing[TALLY__DOING_BYTES];

    if (tally__wait_until(lane, &what, &late) == TALLY_OK) {
        return TALLY_OK;
    }
    if (late.why == TALLY__LATE_TIMEOUT) {
        tally__describe_doing(lane, doing);
        return tally__give_up(
            group, TALLY_TIMEOUT, "an all-reduce of %s was not done within %g s in %s",
            group->domain->medium, (double)group->timeout_ns / (double)TALLY__NS_PER_SECOND, doing);
    }
    return tally__give_up_late(lane, group->rank, &late);
}

int tally__mpi_all_reduce(tally_lane *lane, float *data, size_t n)
{
    const struct tally__call call = {.kind = TALLY__KIND_ALL_REDUCE,
                                     .dtype = TALLY_F32,
                                     .op = TALLY_SUM,
                                     .count = n,
                                     .detail = NATIVE_DETAIL};
    uint64_t size = (uint64_t)lane->group->size;

    TRY(tally__round(lane, &call));
    for (size_t done = 0; done < n;) {
        size_t part = n - done < MOST_AT_ONCE ? n - done : MOST_AT_ONCE;
        const atomic_int *pending;
        int rc = tally__messenger_sum(lane->group->domain->messenger, lane->index, data + done,
                                      part, &pending);

        if (rc != TALLY_OK) {
            return tally__give_up(lane->group, rc, "%s", tally_last_error());
        }
        TRY(wait_sum(lane, pending));
        done += part;
    }
    /* An estimate, which tally.h documents: MPI does not tell how many bytes it sends. */
    tally__count_sent(lane, 2 * n * sizeof(float) * (size - 1) / size);
    return TALLY_OK;
}

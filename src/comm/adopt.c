/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adopted groups: the ranks of a group over MPI that run on one machine meet in shared memory too,
 * and jobs of the first group borrow lanes of the second. Its lanes then have the threads, the
 * deadline and the end of the group that adopts it. Application threads enter, between jobs.
 */
#include "base/status.h"
#include "comm/group.h"
#include "comm/threads.h"

void tally__group_adopt(tally_group *group, tally_group *parent)
{
    tally__threads_stop(group->threads);
    group->threads = parent->threads;
    group->parent = parent;
    group->is_adopted = true;
    group->timeout_ns = parent->timeout_ns;
    atomic_fetch_add_explicit(&parent->n_children, 1, memory_order_relaxed);
}

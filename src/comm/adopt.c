/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adopted groups: the ranks of an MPI group that run on one machine also meet in shared memory, and
 * jobs of the first group borrow lanes of the second. The adopted group gets the threads, the
 * deadline and the lifetime of its parent. Application threads enter, between jobs.
 */
#include <assert.h>

#include "base/status.h"
#include "comm/group.h"
#include "comm/threads.h"

void tally__group_adopt(tally_group *group, tally_group *parent)
{
    assert(!group->parent && group->size == parent->size && group->rank == parent->rank);
    tally__threads_stop(group->threads);
    group->threads = parent->threads;
    group->parent = parent;
    group->is_adopted = true;
    group->timeout_ns = parent->timeout_ns;
    atomic_fetch_add_explicit(&parent->n_children, 1, memory_order_relaxed);
}

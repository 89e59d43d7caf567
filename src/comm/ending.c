/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks at the end of the process. A mark counts only once the process is gone: a program may still
 * close its group in a later exit handler or a destructor. Application threads enter, and the
 * thread that calls exit. Keeps one list of open groups.
 */
#include "comm/ending.h"

#include <pthread.h>
#include <stdlib.h>

#include "comm/messages.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static tally_group *open_groups; /* guarded by the mutex */

static void lock(void)
{
    (void)pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&mutex);
}

static void mark_all(void)
{
    lock();
    for (tally_group *group = open_groups; group; group = group->next_open) {
        /* A forked child has the list of its parent, which does not end here. */
        if (tally__is_creator(&group->creator)) {
            /* Partner: the load in tally__ending_text. */
            atomic_store_explicit(&group->lanes[0].slots[group->rank]->ended_open, 1,
                                  memory_order_release);
        }
    }
    unlock();
}

/* Without the exit handler an end counts as a death. A forked child must not find the mutex locked
 * by a thread that it does not have. */
static void install(void)
{
    (void)pthread_atfork(lock, unlock, unlock);
    (void)atexit(mark_all);
}

void tally__ending_watch(tally_group *group)
{
    (void)pthread_once(&once, install);
    lock();
    group->next_open = open_groups;
    open_groups = group;
    unlock();
}

void tally__ending_forget(tally_group *group)
{
    tally_group **link = &open_groups;

    lock();
    while (*link && *link != group) {
        link = &(*link)->next_open;
    }
    if (*link) {
        *link = group->next_open;
    }
    unlock();
}

const char *tally__ending_text(const tally_group *group, int rank)
{
    const struct tally__domain *domain = group->domain;
    int number = group->domain_rank[rank];
    const struct tally__slot *slot;

    if (!tally__is_near(group, rank)) {
        return "died"; /* a far rank that ends in good order says so in a message */
    }
    slot = tally__at(domain, number, domain->first_slot[number]);
    /* Partner: the store in mark_all. */
    return atomic_load_explicit(&slot->ended_open, memory_order_acquire) ? TALLY__ENDED_OPEN
                                                                         : "died";
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of messengers. A messenger that is left stays in a list until all ranks have said that
 * they have left, because until then messages may arrive. The list is checked whenever a messenger
 * is made or left, and when MPI ends. The failures that the process has met by then decide how long
 * it may wait for the other ranks. Application threads enter, and the thread that ends the process;
 * the lock is that of mpi_messenger.c.
 */
#include "comm/mpi/mpi_end.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/ending.h"
#include "comm/messages.h"

/* The end of a group waits this long for its last messages. Short messages are on their way as soon
 * as MPI is called; long ones may wait for ranks that do not receive them. */
#define CLOSE_NS UINT64_C(50000000)
/* The end of the process waits this long for all ranks, if one may be lost. */
#define LOST_NS UINT64_C(2000000000)
#define PAUSE_NS 100000u

/* Guarded by the lock. */
static struct tally__messenger *all_messengers;
static bool has_ended;
static bool is_half_duplicated;
static bool is_spread;
static uint64_t most_ns = TALLY__MPI_FOREVER; /* as note_outlook; of messengers that are gone too */

bool tally__mpi_has_ended(void)
{
    return has_ended;
}

static bool have_all_left(const struct tally__messenger *messenger)
{
    const struct tally__domain *domain = messenger->domain;

    for (int r = 0; r < domain->n_ranks; r++) {
        if (tally__is_far(domain, r)) {
            if (!messenger->has_left[r]) {
                return false;
            }
        } else if (r != domain->rank) {
            const struct tally__slot *slot = tally__at(domain, r, domain->first_slot[r]);

            /* Partner: the store in publish_leaving, group.c. */
            if (atomic_load_explicit(&slot->given_up, memory_order_acquire) == 0) {
                return false;
            }
        }
    }
    return true;
}

/* Whether nothing more will arrive, and nothing is on its way. With the lock held. */
static bool is_quiet(struct tally__messenger *messenger)
{
    size_t moved = 0;

    return tally__messenger_look(messenger, &moved) == TALLY_OK && messenger->n_under_way == 0 &&
           have_all_left(messenger);
}

void tally__mpi_keep(struct tally__messenger *messenger)
{
    messenger->is_kept = true;
    messenger->next = all_messengers;
    all_messengers = messenger;
    is_spread = is_spread || messenger->domain->n_machines > 1;
}

void tally__mpi_reap(void)
{
    struct tally__messenger **link = &all_messengers;

    while (*link) {
        struct tally__messenger *messenger = *link;

        if (!messenger->is_left || !is_quiet(messenger)) {
            link = &messenger->next;
            continue;
        }
        *link = messenger->next;
        tally__messenger_end(messenger);
        for (int i = 0; i < messenger->n_lanes; i++) {
            (void)messenger->api->close(&messenger->lanes[i].comm);
        }
        (void)messenger->api->close(&messenger->comm);
        messenger->domain->ops->destroy(messenger->domain);
        tally__messenger_free(messenger);
    }
}

/* Whether any message is still to be sent. */
static bool any_under_way(void)
{
    size_t moved = 0;

    for (struct tally__messenger *messenger = all_messengers; messenger;
         messenger = messenger->next) {
        if (tally__messenger_look(messenger, &moved) == TALLY_OK && messenger->n_under_way > 0) {
            return true;
        }
    }
    return false;
}

/* Whether a messenger that this rank has left, or in which a rank may be lost, is not left by all.
 */
static bool any_to_be_left(void)
{
    tally__mpi_reap();
    for (struct tally__messenger *messenger = all_messengers; messenger;
         messenger = messenger->next) {
        if (messenger->is_left ||
            (atomic_load(&messenger->domain->has_lost) && !is_quiet(messenger))) {
            return true;
        }
    }
    return false;
}

/* Waits while there is something to wait for, until end_ns at most. With the lock held, but not
 * while it sleeps. */
static void wait_while(bool (*is_needed)(void), uint64_t end_ns)
{
    while (is_needed() && tally__now_ns() < end_ns) {
        tally__mpi_unlock();
        tally__sleep_ns(PAUSE_NS);
        tally__mpi_lock();
    }
}

void tally__mpi_note_lost(void)
{
    most_ns = most_ns < LOST_NS ? most_ns : LOST_NS;
}

void tally__mpi_note_half_duplicated(void)
{
    is_half_duplicated = true;
}

/*
 * Sets the time that this process may wait for the others when it ends. All are well: for ever, as
 * MPI_Finalize does. A rank may be lost: not long. A group was given up for another reason, or left
 * open: all ranks have been told, and arrive within its deadline.
 */
static void note_outlook(const struct tally__messenger *messenger)
{
    const struct tally__domain *domain = messenger->domain;

    if (atomic_load(&domain->has_lost) || tally__process_any_ended()) {
        tally__mpi_note_lost();
    } else if (atomic_load(&domain->has_failed) || !messenger->is_left) {
        most_ns = most_ns < messenger->timeout_ns ? most_ns : messenger->timeout_ns;
    }
}

void tally__messenger_leave(struct tally__messenger *messenger)
{
    tally__mpi_lock();
    messenger->is_left = true;
    note_outlook(messenger);
    if (!has_ended) {
        wait_while(any_under_way, tally__now_ns() + CLOSE_NS);
        tally__mpi_reap();
    }
    tally__mpi_unlock();
}

/* Tells the other ranks why this one, which has not closed its group, will not come any more. */
static void tell_end(const struct tally__messenger *messenger)
{
    const struct tally__domain *domain = messenger->domain;
    struct tally__slot *own = tally__at(domain, domain->rank, domain->first_slot[domain->rank]);
    tally_group *group = messenger->groups;

    if (messenger->is_left || atomic_load_explicit(&own->given_up, memory_order_acquire) != 0) {
        return;
    }
    own->given_up_status = TALLY_PEER;
    (void)snprintf(own->given_up_text, sizeof own->given_up_text, "rank %d " TALLY__ENDED_OPEN,
                   domain->rank);
    /* Partner: the load in tally__has_left, of near ranks. */
    atomic_store_explicit(&own->given_up, 1, memory_order_release);
    while (group && group->parent) {
        group = group->far->next;
    }
    if (group) {
        tally__send_leaving_locked(group);
    }
}

/* Sends last words, and cancels receives. A messenger that is not quiet then stays. With the lock
 * held. */
static bool end_all(uint64_t words_ns)
{
    uint64_t end_ns = tally__now_ns() + words_ns;
    bool is_missing;

    for (struct tally__messenger *messenger = all_messengers; messenger;
         messenger = messenger->next) {
        note_outlook(messenger);
        tell_end(messenger);
    }
    wait_while(any_under_way, end_ns);
    wait_while(any_to_be_left, end_ns);
    is_missing = any_to_be_left();
    for (struct tally__messenger *messenger = all_messengers; messenger;
         messenger = messenger->next) {
        tally__messenger_end(messenger);
    }
    has_ended = true;
    return is_missing;
}

void tally__mpi_end(uint64_t words_ns, struct tally__mpi_outlook *outlook)
{
    static bool is_missing;

    tally__mpi_lock();
    if (!has_ended) {
        is_missing = end_all(words_ns);
        if (is_missing && most_ns <= LOST_NS) {
            tally__log(TALLY_LOG_ERROR, "a rank was lost: MPI is not finalized without it");
        }
    }
    if (tally__process_any_ended()) {
        tally__mpi_note_lost();
        is_missing = true;
    }
    outlook->most_ns = most_ns;
    outlook->is_half_duplicated = is_half_duplicated;
    outlook->is_missing = is_missing && most_ns <= LOST_NS;
    outlook->is_spread = is_spread;
    tally__mpi_unlock();
}

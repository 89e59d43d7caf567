/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of MPI domains. A domain that is destroyed stays in a list until all ranks have said that
 * they have left, because until then messages may come: it is looked at whenever another is made or
 * destroyed, and when MPI ends. What the process has met by then decides how long it may wait for
 * the others. Application threads enter, and the thread that ends the process; the lock is that of
 * mpi_domain.c.
 */
#include "comm/mpi/mpi_end.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/ending.h"

/* How long the end of a group waits for words on their way. Short messages are on it as soon as MPI
 * has looked after them; long ones may wait for ranks that do not come. */
#define CLOSE_NS UINT64_C(50000000)
/* How long the end of the process waits for all, where a rank may be lost. */
#define LOST_NS UINT64_C(2000000000)

/* Guarded by the lock. */
static struct tally__mpi_domain *all_domains;
static bool has_ended;
static bool is_half_duplicated;
static uint64_t most_ns = TALLY__MPI_FOREVER; /* as outlook_of; of domains that are gone too */

bool tally__mpi_has_ended(void)
{
    return has_ended;
}

/* Whether MPI still works on a sum, which all have given up. With the lock held. */
static bool is_summing(struct tally__mpi_domain *mpi)
{
    for (int i = 0; i < mpi->n_lanes; i++) {
        struct tally__mpi_lane *lane = &mpi->lanes[i];
        struct tally__mpi_status status;

        if (lane->is_summing &&
            (mpi->post.api->test(&lane->request, &status) != 0 || !status.is_done)) {
            return true;
        }
        lane->is_summing = false;
    }
    return false;
}

static bool have_all_left(const struct tally__mpi_domain *mpi)
{
    for (int r = 0; r < mpi->common.n_ranks; r++) {
        const struct tally__slot *slot = tally__at(&mpi->common, r, mpi->common.first_slot[r]);

        /* Partner: the post's store. */
        if (r != mpi->common.rank &&
            atomic_load_explicit(&slot->given_up, memory_order_acquire) == 0) {
            return false;
        }
    }
    return true;
}

/* Whether nothing more will come, and nothing is on its way. With the lock held. */
static bool is_quiet(struct tally__mpi_domain *mpi)
{
    size_t moved = 0;

    return tally__post_progress(&mpi->post, &moved) == TALLY_OK && mpi->post.n_under_way == 0 &&
           !is_summing(mpi) && have_all_left(mpi);
}

void tally__mpi_keep(struct tally__mpi_domain *mpi)
{
    mpi->is_kept = true;
    mpi->next = all_domains;
    all_domains = mpi;
}

void tally__mpi_reap(void)
{
    struct tally__mpi_domain **link = &all_domains;

    while (*link) {
        struct tally__mpi_domain *mpi = *link;

        if (!mpi->is_left || !is_quiet(mpi)) {
            link = &mpi->next;
            continue;
        }
        *link = mpi->next;
        tally__post_end(&mpi->post);
        for (int i = 0; i < mpi->n_lanes; i++) {
            (void)mpi->post.api->close(&mpi->lanes[i].comm);
        }
        (void)mpi->post.api->close(&mpi->post.comm);
        tally__mpi_free(mpi);
    }
}

/* Whether anything that was sent is still to be brought on its way. */
static bool any_under_way(void)
{
    size_t moved = 0;

    for (struct tally__mpi_domain *mpi = all_domains; mpi; mpi = mpi->next) {
        if (tally__post_progress(&mpi->post, &moved) == TALLY_OK && mpi->post.n_under_way > 0) {
            return true;
        }
    }
    return false;
}

/* Whether a domain that we have left, or in which a rank may be lost, is not left by all. */
static bool any_to_be_left(void)
{
    tally__mpi_reap();
    for (struct tally__mpi_domain *mpi = all_domains; mpi; mpi = mpi->next) {
        if (mpi->is_left || (atomic_load(&mpi->common.has_lost) && !is_quiet(mpi))) {
            return true;
        }
    }
    return false;
}

/* Looks until there is nothing more to wait for, for so long at most. With the lock held. */
static void wait_while(bool (*is_needed)(void), uint64_t end_ns)
{
    const struct timespec pause = {0, 100000};

    while (is_needed() && tally__now_ns() < end_ns) {
        tally__mpi_unlock();
        (void)nanosleep(&pause, NULL);
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
 * How long this process may wait for the others when it ends. All are well: for ever, as
 * MPI_Finalize does. A rank may be lost: not long. A group was given up for another reason, or left
 * open: all have been told, and come within its deadline.
 */
static void note_outlook(const struct tally__mpi_domain *mpi)
{
    if (atomic_load(&mpi->common.has_lost) || tally__process_any_ended()) {
        tally__mpi_note_lost();
    } else if (atomic_load(&mpi->common.has_failed) || !mpi->is_left) {
        most_ns = most_ns < mpi->timeout_ns ? most_ns : mpi->timeout_ns;
    }
}

void tally__mpi_leave(struct tally__mpi_domain *mpi)
{
    tally__mpi_lock();
    mpi->is_left = true;
    note_outlook(mpi);
    if (!has_ended) {
        wait_while(any_under_way, tally__now_ns() + CLOSE_NS);
        tally__mpi_reap();
    }
    tally__mpi_unlock();
}

/* Tells the others why a rank that has not closed its group will not come any more. */
static void tell_end(struct tally__mpi_domain *mpi)
{
    struct tally__domain *domain = &mpi->common;
    struct tally__slot *own = mpi->slots;

    if (mpi->is_left || atomic_load_explicit(&own->given_up, memory_order_acquire) != 0) {
        return;
    }
    own->given_up_status = TALLY_PEER;
    (void)snprintf(own->given_up_text, sizeof own->given_up_text, "rank %d " TALLY__ENDED_OPEN,
                   domain->rank);
    for (int r = 0; r < domain->n_ranks; r++) {
        struct tally__put words = {
            .offset = tally__offset_of(domain, &own->given_up_status),
            .bytes = sizeof own->given_up_status + sizeof own->given_up_text,
            .flag_offset = tally__offset_of(domain, &own->given_up),
            .flag = 1,
        };

        if (r != domain->rank) {
            (void)tally__post_put(&mpi->post, r, tally__at(domain, domain->rank, 0), &words);
        }
    }
}

/* Words are brought on their way, receives taken back. A post that is not quiet then stays.
 * With the lock held. */
static bool end_all(uint64_t words_ns)
{
    uint64_t end_ns = tally__now_ns() + words_ns;
    bool is_missing;

    for (struct tally__mpi_domain *mpi = all_domains; mpi; mpi = mpi->next) {
        note_outlook(mpi);
        tell_end(mpi);
    }
    wait_while(any_under_way, end_ns);
    wait_while(any_to_be_left, end_ns);
    is_missing = any_to_be_left();
    for (struct tally__mpi_domain *mpi = all_domains; mpi; mpi = mpi->next) {
        tally__post_end(&mpi->post);
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
    tally__mpi_unlock();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group object: making, giving up, closing. open.c and split.c find its ranks. Application
 * threads enter the public functions; lane threads enter tally__give_up and tally__check_alive.
 */
#include "comm/group.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/doing.h"
#include "comm/ending.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"
#include "comm/threads.h"
#include "trace/tracer.h"

static void fill_lanes(tally_group *group, const struct tally__group_parts *parts)
{
    for (int i = 0; i < parts->n_lanes; i++) {
        tally_lane *lane = &group->lanes[i];

        lane->group = group;
        lane->index = i;
        lane->slots = &group->slot_table[(size_t)i * (size_t)parts->size];
        lane->scratch.starts = &group->starts_table[(size_t)i * 2 * (size_t)parts->size];
        lane->scratch.lists = &group->lists_table[(size_t)i * (size_t)parts->size * TALLY__N_LISTS];
        lane->wide.of = lane->scratch.lists + (size_t)parts->size * (TALLY__N_LISTS - 1);
        for (int r = 0; r < parts->size; r++) {
            if (!tally__is_far(parts->domain, parts->domain_rank[r])) {
                lane->slots[r] = tally__at(parts->domain, parts->domain_rank[r],
                                           parts->first_slot[r] + (uint64_t)i * TALLY__SLOT_BYTES);
            }
        }
    }
}

int tally__group_make(const struct tally__group_parts *parts, tally_group **group)
{
    size_t size = (size_t)parts->size;
    size_t n_lanes = (size_t)parts->n_lanes;
    tally_group *made = tally__alloc(sizeof *made, "a group");

    assert(parts->rank >= 0 && parts->rank < parts->size && parts->n_lanes > 0);
    if (!made) {
        return TALLY_NOMEM;
    }
    (void)pthread_mutex_init(&made->give_up_mutex, NULL);
    (void)pthread_mutex_init(&made->closed_mutex, NULL);
    made->domain = parts->domain;
    made->parent = parts->parent;
    made->tracer = parts->parent ? parts->parent->tracer : NULL;
    made->creator = tally__creator_here();
    made->rank = parts->rank;
    made->size = parts->size;
    made->n_lanes = parts->n_lanes;
    made->own_slots = parts->own_slots;
    made->timeout_ns = parts->timeout_ns;
    made->spins = parts->domain->spins;
    made->domain_rank = tally__alloc_array(size, sizeof *made->domain_rank, "a group's ranks");
    made->lanes = tally__alloc_array(n_lanes, sizeof *made->lanes, "a group's lanes");
    made->slot_table =
        tally__alloc_array(size * n_lanes, sizeof(struct tally__slot *), "a group's slots");
    made->starts_table =
        tally__alloc_array(2 * size * n_lanes, sizeof(uint64_t), "a group's scratch");
    made->lists_table =
        tally__alloc_array(size * n_lanes * TALLY__N_LISTS, sizeof(void *), "a group's scratch");
    if (!made->domain_rank || !made->lanes || !made->slot_table || !made->starts_table ||
        !made->lists_table) {
        tally__group_unmake(made);
        return TALLY_NOMEM;
    }
    memcpy(made->domain_rank, parts->domain_rank, size * sizeof *made->domain_rank);
    fill_lanes(made, parts);
    if (tally__far_make(made, parts->channel) != TALLY_OK) {
        tally__group_unmake(made);
        return TALLY_NOMEM;
    }
    *group = made;
    return TALLY_OK;
}

void tally__group_unmake(tally_group *group)
{
    (void)pthread_mutex_destroy(&group->give_up_mutex);
    (void)pthread_mutex_destroy(&group->closed_mutex);
    tally__memory_forget(group);
    tally__far_unmake(group);
    tally__free(group->domain_rank);
    tally__free(group->lanes);
    tally__free(group->slot_table);
    tally__free(group->starts_table);
    tally__free(group->lists_table);
    tally__free(group);
}

/* A domain with a messenger ends when all ranks have left it. */
static void end_domain(struct tally__domain *domain)
{
    if (domain->messenger) {
        tally__messenger_leave(domain->messenger);
    } else {
        domain->ops->destroy(domain);
    }
}

int tally__group_open_domain(struct tally__domain *domain, struct tally__slot *own_slots, int lanes,
                             double timeout_s, tally_group **group)
{
    struct tally__group_parts parts = {
        .domain = domain,
        .rank = domain->rank,
        .size = domain->n_ranks,
        .first_slot = domain->first_slot,
        .own_slots = own_slots,
        .n_lanes = lanes > 0 ? lanes : 1,
        .timeout_ns = (uint64_t)(timeout_s * (double)TALLY__NS_PER_SECOND),
    };
    int *identity =
        tally__alloc_array((size_t)domain->n_ranks, sizeof *identity, "a group's ranks");
    tally_group *made = NULL;
    int rc = TALLY_NOMEM;

    if (identity) {
        for (int r = 0; r < domain->n_ranks; r++) {
            identity[r] = r;
        }
        parts.domain_rank = identity;
        rc = tally__group_make(&parts, &made);
        tally__free(identity);
    }
    if (rc == TALLY_OK) {
        rc = tally__tracer_make(domain->rank, domain->n_ranks, domain->name, &made->tracer);
    }
    if (rc == TALLY_OK) {
        rc = tally__threads_start(domain, lanes, &made->threads);
    }
    if (rc != TALLY_OK) {
        if (made) {
            tally__tracer_free(made->tracer);
            tally__group_unmake(made);
        }
        end_domain(domain);
        return rc;
    }
    *group = made;
    return TALLY_OK;
}

/* Publishes that this rank has left: status TALLY_OK for a group closed in good order. */
static void publish_leaving(tally_group *group, int status, const char *text)
{
    struct tally__slot *own = group->lanes[0].slots[group->rank];

    own->given_up_status = status;
    (void)snprintf(own->given_up_text, sizeof own->given_up_text, "%s", text);
    /* Partner: the load in tally__has_left, wait.c. */
    atomic_store_explicit(&own->given_up, 1, memory_order_release);
    /* Ranks that sleep on one of our lines need not sleep out their slice. */
    for (int i = 0; i < group->n_lanes; i++) {
        tally__futex_wake(&group->lanes[i].slots[group->rank]->line[0].round);
        tally__futex_wake(&group->lanes[i].slots[group->rank]->line[1].round);
    }
    tally__send_leaving(group);
}

/* Records for the end of the process how the group ended. Partners: the loads in mpi_end.c. */
static void note_in_domain(struct tally__domain *domain, int status)
{
    bool may_be_lost = status == TALLY_PEER || status == TALLY_TIMEOUT || status == TALLY_SYSTEM;

    atomic_store(may_be_lost ? &domain->has_lost : &domain->has_failed, true);
}

int tally__give_up(tally_group *group, int status, const char *format, ...)
{
    char text[TALLY__TEXT_BYTES];
    va_list args;
    bool first;

    assert(status != TALLY_OK);
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)pthread_mutex_lock(&group->give_up_mutex);
    first = atomic_load_explicit(&group->given_up, memory_order_relaxed) == TALLY_OK;
    if (first) {
        (void)snprintf(group->reason, sizeof group->reason, "%s", text);
        note_in_domain(group->domain, status);
        publish_leaving(group, status, text);
        /* Partner: the loads in tally__check_alive. */
        atomic_store_explicit(&group->given_up, status, memory_order_release);
    }
    (void)pthread_mutex_unlock(&group->give_up_mutex);
    if (first) {
        tally__log(TALLY_LOG_ERROR, "%s gives up its group: %s",
                   tally__rank_text(group, group->rank).text, text);
    }
    return tally__fail(status, "%s", text);
}

bool tally__has_siblings(const tally_group *group)
{
    return group->parent &&
           atomic_load_explicit(&group->parent->n_children, memory_order_relaxed) > 1;
}

bool tally__is_alive(const tally_group *group)
{
    for (const tally_group *at = group; at; at = at->parent) {
        if (atomic_load_explicit(&at->given_up, memory_order_acquire) != TALLY_OK) {
            return false;
        }
    }
    return true;
}

int tally__check_alive(tally_group *group)
{
    TRY(tally__check_creator(&group->creator));
    for (const tally_group *at = group; at; at = at->parent) {
        if (atomic_load_explicit(&at->given_up, memory_order_acquire) != TALLY_OK) {
            return tally__fail(TALLY_ABORTED, "the group was given up: %s", at->reason);
        }
    }
    return TALLY_OK;
}

int tally__fail_given_up(const tally_group *group)
{
    for (const tally_group *at = group; at; at = at->parent) {
        int status = atomic_load_explicit(&at->given_up, memory_order_acquire);

        if (status != TALLY_OK) {
            return tally__fail(status, "%s", at->reason);
        }
    }
    return TALLY_OK;
}

int tally_group_abort(tally_group *group, const char *reason)
{
    if (!group) {
        return tally__fail(TALLY_ARG, "tally_group_abort: group is NULL");
    }
    TRY(tally__check_creator(&group->creator));
    (void)tally__give_up(group, TALLY_ABORTED, "%s gave up: %s",
                         tally__rank_text(group, group->rank).text,
                         reason ? reason : "no reason given");
    return TALLY_OK;
}

int tally_group_rank(const tally_group *group)
{
    return group ? group->rank : -1;
}

int tally_group_size(const tally_group *group)
{
    return group ? group->size : 0;
}

const char *tally_group_backend(const tally_group *group)
{
    return group ? group->domain->name : "";
}

unsigned long long tally_group_bytes_sent(const tally_group *group)
{
    return group ? atomic_load_explicit(&group->bytes_sent, memory_order_relaxed) : 0;
}

static void unmake_closed(tally_group *group)
{
    while (group->closed) {
        tally_group *child = group->closed;

        group->closed = child->next_closed;
        tally__group_unmake(child);
    }
}

/* Remaining memory goes with the domain, when no rank can read it any more. */
static void close_spanning(tally_group *group)
{
    struct tally__domain *domain = group->domain;

    assert(atomic_load_explicit(&group->n_children, memory_order_relaxed) == 0);
    tally__threads_stop(group->threads);
    tally__ending_forget(group);
    if (atomic_load_explicit(&group->given_up, memory_order_acquire) == TALLY_OK) {
        publish_leaving(group, TALLY_OK, "");
    }
    unmake_closed(group);
    tally__tracer_free(group->tracer);
    tally__group_unmake(group);
    end_domain(domain);
}

/* Whether every rank has closed the group in good order: no rank reads its memory any more. */
static bool is_closed_by_all(const tally_group *group)
{
    for (int r = 0; r < group->size; r++) {
        const struct tally__slot *slot = group->lanes[0].slots[r];

        /* Partner: the store in publish_leaving. */
        if (atomic_load_explicit(&slot->given_up, memory_order_acquire) == 0 ||
            slot->given_up_status != TALLY_OK) {
            return false;
        }
    }
    return true;
}

void tally__leave_sums(tally_group *group)
{
    uintptr_t own = (uintptr_t)group->threads;

    /* A sum that was given up may still be under way. */
    if (tally__is_alive(group)) {
        (void)atomic_compare_exchange_strong_explicit(&group->domain->sums_of, &own, 0,
                                                      memory_order_relaxed, memory_order_relaxed);
    }
}

/* Finishes all jobs submitted to the group's lanes. */
static int finish_jobs(tally_group *group)
{
    if (group->owns_threads) {
        tally__threads_stop(group->threads);
        tally__leave_sums(group);
        group->threads = NULL;
        return TALLY_OK;
    }
    for (int i = 0; i < group->n_lanes; i++) {
        TRY(tally__drain(&group->lanes[i]));
    }
    return TALLY_OK;
}

/*
 * A sub-group's slots and memory may be reused only when no rank will read them any more. Until a
 * split finds that (tally__mark_reusable), or the parent is closed, the object stays in its list.
 * Waits for no other rank.
 */
static int close_sub_group(tally_group *group)
{
    tally_group *parent = group->parent;
    tally_group **tail;

    assert(atomic_load_explicit(&parent->n_children, memory_order_relaxed) > 0);
    TRY(finish_jobs(group));
    if (atomic_load_explicit(&group->given_up, memory_order_acquire) == TALLY_OK) {
        publish_leaving(group, TALLY_OK, group->farewell);
    }
    if (is_closed_by_all(group)) {
        tally__memory_release(group);
    }
    (void)pthread_mutex_lock(&parent->closed_mutex);
    for (tail = &group->closed; *tail; tail = &(*tail)->next_closed) {
    }
    *tail = parent->closed;
    group->next_closed = group->closed;
    parent->closed = group;
    group->closed = NULL;
    (void)pthread_mutex_unlock(&parent->closed_mutex);
    atomic_fetch_sub_explicit(&parent->n_children, 1, memory_order_relaxed);
    return TALLY_OK;
}

void tally__release_closed(tally_group *parent)
{
    (void)pthread_mutex_lock(&parent->closed_mutex);
    for (tally_group *child = parent->closed; child; child = child->next_closed) {
        if (!child->reusable && is_closed_by_all(child)) {
            tally__memory_release(child);
        }
    }
    (void)pthread_mutex_unlock(&parent->closed_mutex);
}

void tally__mark_reusable(tally_group *parent)
{
    (void)pthread_mutex_lock(&parent->closed_mutex);
    for (tally_group *child = parent->closed; child; child = child->next_closed) {
        if (!child->reusable && is_closed_by_all(child)) {
            child->reusable = true;
            tally__memory_release(child);
        }
    }
    (void)pthread_mutex_unlock(&parent->closed_mutex);
}

static struct tally__slot *take_from(tally_group *group)
{
    struct tally__slot *slots = NULL;

    (void)pthread_mutex_lock(&group->closed_mutex);
    for (tally_group **link = &group->closed; *link; link = &(*link)->next_closed) {
        tally_group *child = *link;

        if (child->reusable) {
            assert(!child->memory && !child->closed);
            *link = child->next_closed;
            slots = child->own_slots;
            tally__group_unmake(child);
            break;
        }
    }
    (void)pthread_mutex_unlock(&group->closed_mutex);
    return slots;
}

struct tally__slot *tally__take_closed_slots(tally_group *parent)
{
    struct tally__slot *slots = NULL;

    /* Sub-groups of a closed group are in the list of that group's parent. */
    for (tally_group *group = parent; group && !slots; group = group->parent) {
        slots = take_from(group);
    }
    return slots;
}

int tally_group_close(tally_group *group)
{
    if (!group || !tally__is_creator(&group->creator)) {
        return TALLY_OK;
    }
    if (atomic_load_explicit(&group->n_children, memory_order_relaxed) > 0) {
        return tally__fail(TALLY_STATE,
                           "tally_group_close: %d ddps or sub-groups of this group are still open: "
                           "free and close them first",
                           atomic_load_explicit(&group->n_children, memory_order_relaxed));
    }
    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "tally_group_close: not from a job on a lane");
    }
    if (group->parent) {
        return close_sub_group(group);
    }
    close_spanning(group);
    return TALLY_OK;
}

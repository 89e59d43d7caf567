/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sub-groups: all ranks of the parent announce color and key in one round; each computes the same
 * membership. Runs as a job on the parent's lane 0.
 */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"
#include "comm/threads.h"

/* A rank's announcement, in its stage. */
struct split_card {
    int32_t color;
    int32_t key;
    uint64_t first_slot;
    uint32_t channel;       /* of the new group's messages, if this rank is its first */
    uint32_t sums_are_free; /* none of this rank's groups uses MPI's sums */
};

_Static_assert(sizeof(struct split_card) <= TALLY__STAGE_BYTES, "a card fits in a stage");

struct split_request {
    int color;
    int key;
    enum tally__split_threads threads;
    int *domain_rank;     /* room for all ranks of the parent */
    uint64_t *first_slot; /* room for all ranks of the parent */
    struct tally__slot *own_slots;
    tally_group *made;
};

/* Resets slots; the content of their stages does not matter. */
static void clear_slots(unsigned char *slots, const tally_group *parent)
{
    for (int i = 0; i < parent->n_lanes; i++) {
        memset(slots + (size_t)i * TALLY__SLOT_BYTES, 0, sizeof(struct tally__slot));
    }
}

/* Gets slots for the new group: reset ones of a closed group, or fresh memory. */
static int take_slots(tally_group *parent, struct tally__slot **slots)
{
    size_t bytes = (size_t)parent->n_lanes * TALLY__SLOT_BYTES;
    void *memory = tally__take_closed_slots(parent);

    if (memory) {
        clear_slots(memory, parent);
    } else {
        TRY(parent->domain->ops->alloc(parent->domain, TALLY__FOR_SLOTS, bytes, &memory));
    }
    *slots = memory;
    return TALLY_OK;
}

static const struct split_card *card_of(const tally_lane *lane, int rank)
{
    return (const struct split_card *)(const void *)tally__stage_of(lane, rank, lane->round.number);
}

/* The rank in its sub-group: the number of ranks of its color that come before it, by key, then by
 * rank. */
static int sub_rank_of(const tally_lane *lane, int rank)
{
    const struct split_card *card = card_of(lane, rank);
    int n_before = 0;

    for (int r = 0; r < lane->group->size; r++) {
        const struct split_card *other = card_of(lane, r);

        if (other->color == card->color &&
            (other->key < card->key || (other->key == card->key && r < rank))) {
            n_before++;
        }
    }
    return n_before;
}

/* Whether the group, or an ancestor, has its own threads. */
static bool has_own_threads(const tally_group *group)
{
    while (group && !group->owns_threads) {
        group = group->parent;
    }
    return group != NULL;
}

/* Gives MPI's sums to the threads of a group of all ranks, if they are free on every rank.
 */
static void take_sums(const tally_lane *lane, const tally_group *made)
{
    struct tally__domain *domain = made->domain;

    for (int r = 0; r < lane->group->size; r++) {
        if (!card_of(lane, r)->sums_are_free) {
            return;
        }
    }
    if (made->size == domain->n_ranks) {
        atomic_store_explicit(&domain->sums_of, (uintptr_t)made->threads, memory_order_relaxed);
    }
}

static int make_sub_group(tally_lane *lane, struct split_request *request)
{
    tally_group *parent = lane->group;
    struct tally__group_parts parts = {
        .domain = parent->domain,
        .parent = parent,
        .rank = sub_rank_of(lane, parent->rank),
        .domain_rank = request->domain_rank,
        .first_slot = request->first_slot,
        .own_slots = request->own_slots,
        .n_lanes = parent->n_lanes,
        .timeout_ns = parent->timeout_ns,
    };

    for (int r = 0; r < parent->size; r++) {
        if (card_of(lane, r)->color == request->color) {
            int sub_rank = sub_rank_of(lane, r);

            request->domain_rank[sub_rank] = parent->domain_rank[r];
            request->first_slot[sub_rank] = card_of(lane, r)->first_slot;
            parts.channel = sub_rank == 0 ? card_of(lane, r)->channel : parts.channel;
            parts.size++;
        }
    }
    assert(parts.size > 0 && parts.size <= parent->size && parts.rank < parts.size);
    assert(request->domain_rank[parts.rank] == parent->domain_rank[parent->rank]);
    TRY(tally__group_make(&parts, &request->made));
    request->made->threads = parent->threads;
    if (request->threads == TALLY__THREADS_OWN && !has_own_threads(parent)) {
        TRY(tally__threads_start(parent->domain, tally__threads_count(parent->threads),
                                 &request->made->threads));
        request->made->owns_threads = true;
        take_sums(lane, request->made);
    }
    return TALLY_OK;
}

/* Maps the slots of the new group's ranks, where address space is limited. */
static int reach_slots(const tally_lane *lane, const struct split_request *request)
{
    tally_group *parent = lane->group;
    size_t bytes = (size_t)parent->n_lanes * TALLY__SLOT_BYTES;

    for (int r = 0; request->color >= 0 && r < parent->size; r++) {
        const struct split_card *card = card_of(lane, r);

        if (card->color == request->color && tally__is_near(parent, r)) {
            TRY(parent->domain->ops->reach(parent->domain, parent->domain_rank[r], card->first_slot,
                                           bytes));
        }
    }
    return TALLY_OK;
}

/* The call of the application. */
static enum tally__kind kind_of(const struct split_request *request)
{
    return request->threads == TALLY__THREADS_OWN ? TALLY__KIND_DDP : TALLY__KIND_SPLIT;
}

/* Maps the slots and makes the group: on all ranks or on none. No rank uses the group before all
 * ranks have it, so a message finds its group. */
static int make_together(tally_lane *lane, struct split_request *request, struct tally__call *call)
{
    int rc = reach_slots(lane, request);

    if (rc == TALLY_OK && request->color >= 0) {
        rc = make_sub_group(lane, request);
    }
    if (rc != TALLY_OK) {
        return tally__refuse(lane, kind_of(request), rc);
    }
    call->detail = 3;
    return tally__round(lane, call);
}

static int split_job(tally_lane *lane, void *user)
{
    struct split_request *request = user;
    tally_group *parent = lane->group;
    struct tally__call call = {.kind = (uint16_t)kind_of(request)};
    struct split_card *card;
    int rc = TALLY_OK;

    request->domain_rank =
        tally__alloc_array((size_t)parent->size, sizeof *request->domain_rank, "a split");
    request->first_slot =
        tally__alloc_array((size_t)parent->size, sizeof *request->first_slot, "a split");
    if (!request->domain_rank || !request->first_slot) {
        return tally__refuse(lane, kind_of(request), TALLY_NOMEM);
    }
    /* After the first round every rank sees the same sub-groups closed; after the second, no rank
     * reads their slots any more. */
    TRY(tally__round(lane, &call));
    tally__mark_reusable(parent);
    call.detail = 1;
    TRY(tally__round(lane, &call));
    if (request->color >= 0) {
        rc = take_slots(parent, &request->own_slots);
        if (rc != TALLY_OK) {
            return tally__refuse(lane, kind_of(request), rc);
        }
    }
    card = (struct split_card *)(void *)tally__next_stage(lane);
    card->color = request->color;
    card->key = request->key;
    card->first_slot =
        request->own_slots ? tally__offset_of(parent->domain, request->own_slots) : 0;
    card->channel = parent->domain->messenger
                        ? tally__messenger_new_channel(parent->domain->messenger, parent->n_lanes)
                        : 0;
    card->sums_are_free = atomic_load_explicit(&parent->domain->sums_of, memory_order_relaxed) == 0;
    call.detail = 2;
    rc = tally__round_with(lane, &call, sizeof *card);
    if (rc == TALLY_OK && (parent->domain->is_tight || parent->far)) {
        return make_together(lane, request, &call);
    }
    if (rc == TALLY_OK && request->color >= 0) {
        rc = make_sub_group(lane, request);
    }
    return rc;
}

int tally__group_split(tally_group *parent, int color, int key, enum tally__split_threads threads,
                       tally_group **group)
{
    struct split_request request = {
        .color = color < 0 ? -1 : color, .key = key, .threads = threads};
    int rc;

    if (!parent || !group) {
        return tally__fail(TALLY_ARG, "tally_group_split: %s is NULL", parent ? "group" : "parent");
    }
    rc = tally__submit_and_wait(&parent->lanes[0], split_job, &request);
    tally__free(request.domain_rank);
    tally__free(request.first_slot);
    if (rc == TALLY_OK) {
        *group = request.made;
        if (request.made) {
            atomic_fetch_add_explicit(&parent->n_children, 1, memory_order_relaxed);
        }
        return TALLY_OK;
    }
    if (request.made) {
        if (request.made->owns_threads) {
            tally__threads_stop(request.made->threads);
            tally__leave_sums(request.made);
        }
        tally__group_unmake(request.made);
    }
    /* In a group that was given up, a peer may have succeeded and read our slots: they stay until
     * the domain ends. */
    if (request.own_slots && tally__is_alive(parent)) {
        parent->domain->ops->free(parent->domain, request.own_slots);
    }
    return rc;
}

int tally_group_split(tally_group *parent, int color, int key, tally_group **group)
{
    return tally__group_split(parent, color, key, TALLY__THREADS_SHARED, group);
}

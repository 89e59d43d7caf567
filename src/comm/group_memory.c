/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that all ranks of a group can reach. The domain allocates it; here all ranks agree that
 * every rank has it, and that all have finished with it. Memory that was not freed goes with its
 * group, once all ranks have closed that.
 */
#include "base/memory.h"
#include "base/status.h"
#include "comm/messages.h"
#include "comm/round.h"
#include "comm/threads.h"

/* One allocation, in the group's list once all ranks have it. */
struct tally__piece {
    struct tally__piece *next;
    void *memory;
};

struct memory_request {
    size_t bytes;
    struct tally__piece *piece;
};

static void remember(tally_group *group, struct tally__piece *piece)
{
    (void)pthread_mutex_lock(&group->closed_mutex);
    piece->next = group->memory;
    group->memory = piece;
    (void)pthread_mutex_unlock(&group->closed_mutex);
}

static void forget(tally_group *group, const void *memory)
{
    struct tally__piece **link = &group->memory;
    struct tally__piece *piece;

    (void)pthread_mutex_lock(&group->closed_mutex);
    while (*link && (*link)->memory != memory) {
        link = &(*link)->next;
    }
    piece = *link;
    if (piece) {
        *link = piece->next;
    }
    (void)pthread_mutex_unlock(&group->closed_mutex);
    tally__free(piece);
}

void tally__memory_release(tally_group *group)
{
    for (const struct tally__piece *piece = group->memory; piece; piece = piece->next) {
        group->domain->ops->free(group->domain, piece->memory);
    }
    tally__memory_forget(group);
}

void tally__memory_forget(tally_group *group)
{
    while (group->memory) {
        struct tally__piece *piece = group->memory;

        group->memory = piece->next;
        tally__free(piece);
    }
}

int tally__reach_always(struct tally__domain *domain, int rank, uint64_t offset, uint64_t bytes)
{
    (void)domain;
    (void)rank;
    (void)offset;
    (void)bytes;
    return TALLY_OK;
}

/* In a domain short of address space, all ranks map each other's new memory, or none keeps it. */
static int reach_all(tally_lane *lane, struct tally__call *call)
{
    const tally_group *group = lane->group;

    for (int r = 0; r < group->size; r++) {
        int rc = tally__is_near(group, r)
                     ? group->domain->ops->reach(group->domain, group->domain_rank[r],
                                                 tally__said(lane, r)->offset, call->count)
                     : TALLY_OK;

        if (rc != TALLY_OK) {
            return tally__refuse(lane, TALLY__KIND_ALLOC, rc);
        }
    }
    call->detail = 1;
    return tally__round(lane, call);
}

static int alloc_job(tally_lane *lane, void *user)
{
    struct memory_request *request = user;
    struct tally__domain *domain = lane->group->domain;
    enum tally__memory_use use =
        lane->group->size == domain->n_ranks ? TALLY__FOR_ALL : TALLY__FOR_SOME;
    struct tally__call call = {.kind = TALLY__KIND_ALLOC, .count = request->bytes};
    void *memory;
    int rc = TALLY_NOMEM;

    tally__release_closed(lane->group);
    request->piece = tally__alloc(sizeof *request->piece, "group memory");
    if (request->piece) {
        rc = domain->ops->alloc(domain, use, request->bytes, &memory);
    }
    if (rc != TALLY_OK) {
        return tally__refuse(lane, TALLY__KIND_ALLOC, rc);
    }
    call.offset = tally__offset_of(domain, memory);
    rc = tally__round(lane, &call);
    if (rc == TALLY_OK && domain->is_tight) {
        rc = reach_all(lane, &call);
    }
    if (rc != TALLY_OK) {
        domain->ops->free(domain, memory);
        return rc;
    }
    request->piece->memory = memory;
    return TALLY_OK;
}

/* Address space that is limited is not spent on this. */
static bool try_alloc(struct tally__domain *domain, size_t bytes, struct tally__piece **piece)
{
    *piece = domain->is_tight ? NULL : tally__alloc(sizeof **piece, "group memory");
    if (*piece &&
        domain->ops->alloc(domain, TALLY__FOR_SOME, bytes, &(*piece)->memory) != TALLY_OK) {
        tally__free(*piece);
        *piece = NULL;
    }
    return *piece;
}

int tally__memory_in_job(tally_lane *lane, size_t bytes, void **memory, bool *got)
{
    tally_group *group = lane->group;
    struct tally__call call = {
        .kind = TALLY__KIND_ALLOC, .count = bytes, .offset = TALLY__NOT_SHARED};
    struct tally__piece *piece;
    int rc;

    if (try_alloc(group->domain, bytes, &piece)) {
        call.offset = tally__offset_of(group->domain, piece->memory);
    }
    rc = tally__round(lane, &call);
    if (rc == TALLY_OK && piece && tally__reads_all(lane)) {
        for (int r = 0; r < group->size; r++) {
            memory[r] = tally__peer_data(lane, r);
        }
        remember(group, piece);
        *got = true;
        return TALLY_OK;
    }
    if (piece) {
        group->domain->ops->free(group->domain, piece->memory);
        tally__free(piece);
    }
    *got = false;
    return rc;
}

int tally_group_alloc(tally_group *group, size_t bytes, void **memory)
{
    struct memory_request request = {bytes, NULL};
    int rc;

    if (!group || !memory) {
        return tally__fail(TALLY_ARG, "tally_group_alloc: %s is NULL", group ? "memory" : "group");
    }
    rc = tally__submit_and_wait(&group->lanes[0], alloc_job, &request);
    if (rc != TALLY_OK) {
        tally__free(request.piece);
        return rc;
    }
    remember(group, request.piece);
    *memory = request.piece->memory;
    return TALLY_OK;
}

/* No rank frees before all have announced that they will not read each other's memory any more. */
static int free_job(tally_lane *lane, void *user)
{
    const struct tally__call call = {.kind = TALLY__KIND_FREE};
    struct tally__domain *domain = lane->group->domain;

    if (!domain->ops->has_allocated(domain, user)) {
        (void)tally__fail(TALLY_ARG, "tally_group_free: the pointer is not memory of the group");
        return tally__refuse(lane, TALLY__KIND_FREE, TALLY_ARG);
    }
    return tally__round(lane, &call);
}

int tally_group_free(tally_group *group, void *memory)
{
    int rc;

    if (!memory) {
        return TALLY_OK;
    }
    if (!group) {
        return tally__fail(TALLY_ARG, "tally_group_free: group is NULL");
    }
    if (!tally__is_creator(&group->creator)) {
        return TALLY_OK;
    }
    rc = tally__submit_and_wait(&group->lanes[0], free_job, memory);
    /* After a failure a peer may still read it: it stays until the group is closed. */
    if (rc == TALLY_OK) {
        forget(group, memory);
        group->domain->ops->free(group->domain, memory);
    }
    return rc == TALLY_ABORTED ? TALLY_OK : rc;
}

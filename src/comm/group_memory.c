/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the ranks of a group can reach. The memory itself comes from the domain; here all
 * ranks agree that they have it, and that they have all done with it.
 */
#include "base/status.h"
#include "comm/round.h"
#include "comm/threads.h"

struct memory_request {
    size_t bytes;
    void *memory;
};

static int alloc_job(tally_lane *lane, void *user)
{
    struct memory_request *request = user;
    struct tally__domain *domain = lane->group->domain;
    enum tally__memory_use use =
        lane->group->size == domain->n_ranks ? TALLY__FOR_ALL : TALLY__FOR_SOME;
    struct tally__call call = {.kind = TALLY__KIND_ALLOC, .count = request->bytes};
    void *memory;
    int rc;

    rc = domain->ops->alloc(domain, use, request->bytes, &memory);
    if (rc != TALLY_OK) {
        return tally__refuse(lane, TALLY__KIND_ALLOC, rc);
    }
    rc = tally__round(lane, &call);
    if (rc != TALLY_OK) {
        domain->ops->free(domain, memory);
        return rc;
    }
    request->memory = memory;
    return TALLY_OK;
}

int tally_group_alloc(tally_group *group, size_t bytes, void **memory)
{
    struct memory_request request = {bytes, NULL};

    if (!group || !memory) {
        return tally__fail(TALLY_ARG, "tally_group_alloc: %s is NULL", group ? "memory" : "group");
    }
    TRY(tally__submit_and_wait(&group->lanes[0], alloc_job, &request));
    *memory = request.memory;
    return TALLY_OK;
}

/* Nobody frees before all have said that they will not look at each other's memory any more. */
static int free_job(tally_lane *lane, void *user)
{
    const struct tally__call call = {.kind = TALLY__KIND_FREE};
    struct tally__domain *domain = lane->group->domain;

    if (!domain->ops->owns(domain, user)) {
        (void)tally__fail(TALLY_ARG, "tally_group_free: this is no memory of the group");
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
    if (!tally__is_owner(&group->owner)) {
        return TALLY_OK;
    }
    rc = tally__submit_and_wait(&group->lanes[0], free_job, memory);
    /* After a failure a peer may still look at it: it stays until the group is closed. */
    if (rc == TALLY_OK) {
        group->domain->ops->free(group->domain, memory);
    }
    return rc == TALLY_ABORTED ? TALLY_OK : rc;
}

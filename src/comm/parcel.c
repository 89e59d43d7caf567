/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank brings to the others' mirrors of its memory: parts of stages (parcels), and words:
 * its line and its leaving. Where ranks reach each other's memory there is
 * nothing to bring. Only the thread that runs a lane's jobs enters with that lane;
 * tally__carry_leaving is entered by any.
 */
#include "comm/parcel.h"

#include "base/status.h"
#include "comm/ask.h"
#include "comm/doing.h"

static int put(tally_lane *lane, int rank, struct tally__put *words)
{
    tally_group *group = lane->group;
    struct tally__domain *domain = group->domain;
    int rc = domain->carrier->put(domain, group->domain_rank[rank], words);

    return rc == TALLY_OK ? rc : tally__give_up(group, rc, "%s", tally_last_error());
}

/* The ranks after this one come first, so that no rank gets everybody's bytes at once. */
static int nth_peer(const tally_group *group, int n)
{
    return (group->rank + 1 + n) % group->size;
}

int tally__parcel(tally_lane *lane, int rank, uint64_t round, size_t offset, size_t bytes)
{
    tally_group *group = lane->group;
    struct tally__put parcel = {.bytes = bytes, .flag_offset = TALLY__NO_FLAG};
    struct tally__asking asking = {0};
    size_t left = bytes;
    struct tally__late late;

    if (!group->domain->carrier || rank == group->rank || bytes == 0) {
        return TALLY_OK;
    }
    parcel.offset =
        tally__offset_of(group->domain, tally__stage_of(lane, group->rank, round) + offset);
    for (;;) {
        TRY(put(lane, rank, &parcel));
        if (parcel.bytes == 0) {
            return TALLY_OK;
        }
        if (parcel.bytes < left) {
            left = parcel.bytes;
            asking = (struct tally__asking){0};
        }
        if (tally__ask_for_room(lane, rank, &asking, &late) != TALLY_OK) {
            char place[TALLY__DOING_BYTES];

            tally__describe_doing(lane, place);
            return tally__give_up_late(lane, rank, &late, place);
        }
    }
}

int tally__parcel_to_all(tally_lane *lane, uint64_t round, size_t offset, size_t bytes)
{
    tally_group *group = lane->group;

    for (int i = 0; group->domain->carrier && i < group->size - 1; i++) {
        TRY(tally__parcel(lane, nth_peer(group, i), round, offset, bytes));
    }
    return TALLY_OK;
}

int tally__carry_line(tally_lane *lane, const struct tally__line *line)
{
    tally_group *group = lane->group;
    const struct tally__domain *domain = group->domain;
    const struct tally__slot *own = lane->slots[group->rank];

    for (int i = 0; i < group->size - 1; i++) {
        struct tally__put text = {.offset =
                                      tally__offset_of(domain, own->text[lane->round.number % 2]),
                                  .bytes = TALLY__TEXT_BYTES,
                                  .flag_offset = TALLY__NO_FLAG};
        struct tally__put call = {.offset = tally__offset_of(domain, &line->call),
                                  .bytes = sizeof *line - offsetof(struct tally__line, call),
                                  .flag_offset = tally__offset_of(domain, &line->round),
                                  .flag = (uint32_t)lane->round.number,
                                  .is_awaited = true};

        if (line->call.status != TALLY_OK) {
            TRY(put(lane, nth_peer(group, i), &text));
        }
        TRY(put(lane, nth_peer(group, i), &call));
    }
    return TALLY_OK;
}

void tally__carry_leaving(tally_group *group)
{
    struct tally__domain *domain = group->domain;
    const struct tally__slot *own = group->lanes[0].slots[group->rank];
    size_t bytes = sizeof own->given_up_status + sizeof own->given_up_text;

    for (int r = 0; domain->carrier && r < group->size; r++) {
        struct tally__put words = {.offset = tally__offset_of(domain, &own->given_up_status),
                                   .bytes = bytes,
                                   .flag_offset = tally__offset_of(domain, &own->given_up),
                                   .flag = 1};

        /* A rank that cannot be told finds out by the deadline. */
        if (r != group->rank && domain->ops->alive(domain, group->domain_rank[r])) {
            (void)domain->carrier->put(domain, group->domain_rank[r], &words);
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of lines that have come: taking them apart, and keeping each line and its payload until
 * its round is over. messages.c sends them. The thread that calls MPI enters, with the MPI lock
 * held; the thread that runs a lane's jobs reads the payload of its far ranks.
 */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"

/* Gives each far rank room for the messages of two rounds. If lines are not spread, it changes
 * places with the buffer in which MPI receives a message. */
int tally__inboxes_make(const tally_group *group)
{
    const struct tally__far *far = group->far;
    size_t bytes = tally__is_spread(group) ? sizeof(struct tally__entry) + far->payload_bytes
                                           : TALLY__LINES_BYTES;

    for (int i = 0; i < 2 * group->n_lanes; i++) {
        for (int r = 0; r < group->size; r++) {
            unsigned char **inbox = &far->inboxes[(size_t)i * (size_t)group->size + (size_t)r];

            *inbox = tally__is_near(group, r) ? NULL : tally__alloc(bytes, "a group's messages");
            if (!*inbox && !tally__is_near(group, r)) {
                return TALLY_NOMEM;
            }
        }
    }
    return TALLY_OK;
}

void tally__inboxes_free(const tally_group *group)
{
    size_t n = 2 * (size_t)group->n_lanes * (size_t)group->size;

    for (size_t i = 0; group->far->inboxes && i < n; i++) {
        tally__free(group->far->inboxes[i]);
    }
    tally__free(group->far->inboxes);
}

static bool is_sound(const struct tally__entry *entry, size_t bytes)
{
    return entry->magic == TALLY__MAGIC && entry->kind <= TALLY__LEAVING &&
           entry->more <= entry->bytes && entry->bytes - entry->more <= bytes - sizeof *entry &&
           entry->call.kind < TALLY__N_KINDS;
}

static tally_group *find_group(const struct tally__messenger *messenger,
                               const struct tally__entry *entry)
{
    tally_group *group = messenger->groups;

    while (group && (entry->channel < group->far->channel ||
                     entry->channel >= group->far->channel + (uint32_t)group->n_lanes)) {
        group = group->far->next;
    }
    return group;
}

unsigned char *tally__inbox_of(const tally_lane *lane, int rank, uint64_t round)
{
    size_t at = round % 2 * (size_t)lane->group->size + (size_t)rank;

    return lane->group->far->lanes[lane->index].inbox[at] + sizeof(struct tally__entry);
}

/* Keeps the payload of a line. If lines are not spread, a message has one line, and its buffer
 * is kept instead of a copy. */
static void keep_payload(const tally_lane *lane, const struct tally__entry *entry,
                         const unsigned char *tail, unsigned char **message)
{
    size_t at = entry->round % 2 * (size_t)lane->group->size + (size_t)entry->rank;
    unsigned char **inbox = &lane->group->far->lanes[lane->index].inbox[at];

    if (tally__is_spread(lane->group)) {
        memcpy(*inbox + sizeof *entry, tail, entry->bytes);
    } else {
        unsigned char *taken = *message;

        *message = *inbox;
        *inbox = taken;
    }
}

/* A line is complete. Partner: the load in tally__has_arrived, as if the far rank had stored it. */
static void publish(struct tally__line *line, uint32_t round)
{
    atomic_store_explicit(&line->round, round, memory_order_release);
}

/* A message that has come. */
struct came {
    unsigned char **message; /* NULL: it has several lines */
    struct tally__parts *parts;
};

/* A line may come twice: directly, and from the rank that spreads it. */
static bool take_line(const tally_lane *lane, const struct tally__entry *entry,
                      const unsigned char *tail, const struct came *came)
{
    struct tally__slot *slot = lane->slots[entry->rank];
    struct tally__line *line = &slot->line[entry->round % 2];
    const struct tally__far *far = lane->group->far;
    bool is_text = entry->call.status != TALLY_OK;

    if (entry->bytes > (is_text ? TALLY__TEXT_BYTES : far->inbox_bytes) ||
        (!came->message && !tally__is_spread(lane->group)) ||
        (entry->more > 0 && (is_text || tally__is_spread(lane->group)))) {
        return false;
    }
    if ((int32_t)(atomic_load_explicit(&line->round, memory_order_relaxed) - entry->round) >= 0) {
        return true;
    }
    line->call = entry->call;
    line->doing = entry->doing;
    line->stamps = entry->stamps;
    line->seen_ns = entry->stamps.arrived_ns > 0 ? tally__now_ns() : 0;
    if (is_text) {
        memcpy(slot->text[entry->round % 2], tail, entry->bytes);
        slot->text[entry->round % 2][TALLY__TEXT_BYTES - 1] = '\0';
    } else {
        keep_payload(lane, entry, tail, came->message);
    }
    if (entry->more > 0) {
        came->parts->to = (unsigned char *)(uintptr_t)tail + entry->bytes - entry->more;
        came->parts->line = line;
        came->parts->round = entry->round;
    } else {
        publish(line, entry->round);
    }
    return true;
}

/* Adds a further part of a line. */
static bool take_part(struct tally__parts *parts, const unsigned char *message, size_t bytes)
{
    if (bytes == 0 || bytes > parts->left) {
        return false;
    }
    parts->left -= bytes;
    if (parts->to) {
        memcpy(parts->to, message, bytes);
        parts->to += bytes;
        if (parts->left == 0) {
            publish(parts->line, parts->round);
        }
    }
    return true;
}

void tally__drop_parts(struct tally__messenger *messenger, const tally_group *group)
{
    for (int r = 0; r < group->size; r++) {
        struct tally__parts *parts = &messenger->parts[group->domain_rank[r]];

        for (int i = 0; i < 2 * group->n_lanes; i++) {
            if (parts->line == &group->lanes[i / 2].slots[r]->line[i % 2]) {
                parts->to = NULL;
            }
        }
    }
}

static bool take_leaving(const tally_group *group, const struct tally__entry *entry,
                         const unsigned char *tail)
{
    struct tally__slot *slot = group->lanes[0].slots[entry->rank];

    if (entry->bytes < TALLY__TEXT_BYTES + (size_t)group->n_lanes * sizeof(uint32_t)) {
        return false;
    }
    for (int i = 0; i < group->n_lanes; i++) {
        memcpy(&group->far->left_after[i * group->size + entry->rank],
               tail + TALLY__TEXT_BYTES + (size_t)i * sizeof(uint32_t), sizeof(uint32_t));
    }
    slot->given_up_status = (int32_t)entry->round;
    memcpy(slot->given_up_text, tail, TALLY__TEXT_BYTES);
    slot->given_up_text[TALLY__TEXT_BYTES - 1] = '\0';
    /* Partner: the load in tally__has_left. */
    atomic_store_explicit(&slot->given_up, 1, memory_order_release);
    return true;
}

bool tally__is_passed_on(const tally_lane *lane, int rank)
{
    const tally_group *group = lane->group;

    return !tally__is_near(group, rank) &&
           (int32_t)(group->far->left_after[lane->index * group->size + rank] -
                     (uint32_t)lane->round.number) >= 0;
}

static bool take_entry(struct tally__messenger *messenger, const struct tally__entry *entry,
                       const unsigned char *tail, const struct came *came)
{
    tally_group *group = find_group(messenger, entry);

    if (entry->kind == TALLY__LEAVING && entry->channel == 0 && entry->rank >= 0 &&
        entry->rank < messenger->domain->n_ranks) {
        messenger->has_left[entry->rank] = true;
    }
    if (!group) {
        return true; /* this rank has closed the group */
    }
    if (entry->rank < 0 || entry->rank >= group->size) {
        return false;
    }
    if (tally__is_near(group, entry->rank)) {
        return true; /* its line is in its memory */
    }
    if (entry->kind == TALLY__LEAVING) {
        return take_leaving(group, entry, tail);
    }
    return take_line(&group->lanes[entry->channel - group->far->channel], entry, tail, came);
}

bool tally__deliver(struct tally__messenger *messenger, int source, unsigned char **message,
                    size_t bytes)
{
    struct tally__parts *parts = &messenger->parts[source];
    const unsigned char *next = *message;

    if (parts->left > 0) {
        return take_part(parts, next, bytes);
    }
    while (bytes > 0) {
        struct tally__entry entry;
        size_t step;

        if (bytes < sizeof entry) {
            return false;
        }
        memcpy(&entry, next, sizeof entry);
        if (!is_sound(&entry, bytes)) {
            return false;
        }
        step = sizeof entry + tally__padded(entry.bytes - entry.more);
        *parts = (struct tally__parts){.left = entry.more};
        if (!take_entry(messenger, &entry, next + sizeof entry,
                        &(struct came){.message = step < bytes ? NULL : message, .parts = parts})) {
            return false;
        }
        if (step >= bytes) {
            break;
        }
        next += step;
        bytes -= step;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines as messages: making them, sending them, spreading them. A message is a row of entries, each
 * the line of one rank and its payload. inbox.c receives them; transfers.c has the large data.
 */
#include "comm/messages.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/group_config.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"

/* Bytes with a line to one rank are in messages.h. Payload with a line where each rank sends to
 * all: measured, more is faster in two phases, which send less; two ranks send the same number of
 * bytes in one phase or two. And all ranks' payload together where lines are spread. */
#define PAIR_PAYLOAD ((size_t)24 * 1024)
#define DIRECT_PAYLOAD ((size_t)16 * 1024)
#define SPREAD_PAYLOAD ((size_t)64 * 1024)
#define LEAST_PAYLOAD ((size_t)256)
#define MOST_SPREAD_PAYLOAD ((size_t)4096)

_Static_assert(sizeof(struct tally__entry) <= TALLY__HEAD_BYTES, "an entry fits before a stage");
_Static_assert(sizeof(struct tally__entry) % 8 == 0, "payload is aligned");
_Static_assert(sizeof(struct tally__entry) + TALLY__RIDER_BYTES <= TALLY__LINES_BYTES,
               "a line fits in one message");
_Static_assert(TALLY__RIDER_BYTES <= UINT16_MAX, "the parts of a line are counted in 16 bits");

size_t tally__payload_for(int size, int n_far)
{
    size_t most;

    if (n_far <= TALLY__MOST_DIRECT) {
        return size == 2 ? PAIR_PAYLOAD : DIRECT_PAYLOAD;
    }
    most = SPREAD_PAYLOAD / (size_t)size;
    most = most < MOST_SPREAD_PAYLOAD ? most : MOST_SPREAD_PAYLOAD;
    return most > LEAST_PAYLOAD ? most / 64 * 64 : LEAST_PAYLOAD;
}

/* ---- beginning and end ---- */

static void fill_lanes(tally_group *group)
{
    struct tally__far *far = group->far;
    size_t size = (size_t)group->size;
    size_t n_pending = far->n_pending / (size_t)group->n_lanes;
    size_t packed_bytes = size * (sizeof(struct tally__entry) + far->inbox_bytes);

    for (int i = 0; i < group->n_lanes; i++) {
        struct tally__far_lane *lane = &far->lanes[i];

        lane->inbox = far->inboxes + (size_t)i * 2 * size;
        lane->packed = far->packed + (size_t)i * packed_bytes;
        lane->sending = far->pending + (size_t)i * n_pending;
        lane->pending = lane->sending + 1;
        lane->streams = far->streams + (size_t)i * size;
        lane->part_bytes = TALLY__LINES_BYTES;
        for (int r = 0; r < group->size; r++) {
            if (!tally__is_near(group, r)) {
                group->lanes[i].slots[r] = &far->slots[(size_t)i * size + (size_t)r];
            }
        }
    }
}

/* Counts the ranks in the smallest and in the largest set of ranks that are near each other. */
static int count_near(const tally_group *group, int *least, int *most)
{
    const struct tally__domain *domain = group->domain;
    int *n;

    *least = *most = group->size;
    if (!domain->first_near) {
        return TALLY_OK;
    }
    n = tally__alloc_array((size_t)domain->n_ranks, sizeof *n, "a group's messages");
    if (!n) {
        return TALLY_NOMEM;
    }
    *most = 0;
    for (int r = 0; r < group->size; r++) {
        n[domain->first_near[group->domain_rank[r]]]++;
    }
    for (int i = 0; i < domain->n_ranks; i++) {
        *least = n[i] > 0 && n[i] < *least ? n[i] : *least;
        *most = n[i] > *most ? n[i] : *most;
    }
    tally__free(n);
    return TALLY_OK;
}

int tally__far_make(tally_group *group, uint32_t channel)
{
    size_t size = (size_t)group->size;
    size_t n_lanes = (size_t)group->n_lanes;
    struct tally__far *far;
    void *packed = NULL;
    int least;
    int most;

    TRY(count_near(group, &least, &most));
    if (most == group->size) {
        return TALLY_OK;
    }
    far = tally__alloc(sizeof *far, "a group's messages");
    group->far = far;
    if (!far) {
        return TALLY_NOMEM;
    }
    far->channel = channel;
    far->n = group->size - least;
    far->has_near = most > 1;
    far->payload_bytes = tally__payload_for(group->size, far->n);
    far->inbox_bytes = tally__is_spread(group) ? far->payload_bytes : TALLY__RIDER_BYTES;
    far->n_pending = n_lanes * (1 + size * TALLY__N_FLOWS * TALLY__N_WINDOWS);
    far->slots = tally__alloc_array(n_lanes * size, sizeof *far->slots, "a group's messages");
    far->left_after =
        tally__alloc_array(n_lanes * size, sizeof *far->left_after, "a group's messages");
    far->lanes = tally__alloc_array(n_lanes, sizeof *far->lanes, "a group's messages");
    far->streams = tally__alloc_array(n_lanes * size, sizeof *far->streams, "a group's messages");
    far->inboxes =
        tally__alloc_array(n_lanes * 2 * size, sizeof *far->inboxes, "a group's messages");
    far->pending = tally__alloc_array(far->n_pending, sizeof *far->pending, "a group's messages");
    if (!far->slots || !far->left_after || !far->lanes || !far->streams || !far->inboxes ||
        !far->pending) {
        return TALLY_NOMEM;
    }
    TRY(tally__inboxes_make(group));
    TRY(group->domain->ops->alloc(group->domain, TALLY__FOR_SOME,
                                  n_lanes * size * (sizeof(struct tally__entry) + far->inbox_bytes),
                                  &packed));
    far->packed = packed;
    fill_lanes(group);
    tally__messenger_add(group->domain->messenger, group);
    return TALLY_OK;
}

/* Memory that MPI may still use belongs to the domain, and stays unless the group ended well. */
static void free_domain_memory(tally_group *group)
{
    struct tally__domain *domain = group->domain;

    if (!group->reusable) {
        return;
    }
    if (group->far->packed) {
        domain->ops->free(domain, group->far->packed);
    }
    for (int i = 0; i < group->n_lanes; i++) {
        if (group->far->lanes[i].scratch) {
            domain->ops->free(domain, group->far->lanes[i].scratch);
        }
    }
}

void tally__far_unmake(tally_group *group)
{
    struct tally__far *far = group->far;

    if (!far) {
        return;
    }
    tally__messenger_remove(group->domain->messenger, group);
    if (far->lanes) {
        free_domain_memory(group);
    }
    tally__free(far->slots);
    tally__free(far->left_after);
    tally__free(far->lanes);
    tally__free(far->streams);
    tally__inboxes_free(group);
    tally__free(far->pending);
    tally__free(far);
    group->far = NULL;
}

/* ---- sending ---- */

/* The bytes that follow the line of rank in a message: its payload, or the text of its failure. */
static const void *tail_of(const tally_lane *lane, int rank, uint32_t *bytes)
{
    const struct tally__call *call = tally__said(lane, rank);

    if (call->status != TALLY_OK) {
        *bytes = TALLY__TEXT_BYTES;
        return lane->slots[rank]->text[lane->round.number % 2];
    }
    *bytes = call->payload;
    return tally__stage_of(lane, rank, lane->round.number);
}

static struct tally__entry entry_of(const tally_lane *lane, int rank, uint32_t bytes)
{
    return (struct tally__entry){.magic = TALLY__MAGIC,
                                 .kind = TALLY__A_LINE,
                                 .channel = lane->group->far->channel + (uint32_t)lane->index,
                                 .rank = rank,
                                 .round = (uint32_t)lane->round.number,
                                 .bytes = bytes,
                                 .call = *tally__said(lane, rank),
                                 .doing = *tally__doing_of(lane, rank),
                                 .stamps = *tally__stamps_of(lane, rank)};
}

static int check_sent(tally_group *group, int rc)
{
    return rc == TALLY_OK ? rc : tally__give_up(group, rc, "%s", tally_last_error());
}

/* The number of bytes of a line's message that do not fit in its first part. */
static uint16_t more_of(const tally_lane *lane, size_t bytes)
{
    size_t part = lane->group->far->lanes[lane->index].part_bytes;

    assert(part >= sizeof(struct tally__entry) + TALLY__TEXT_BYTES);
    return tally__is_spread(lane->group) || bytes <= part ? 0 : (uint16_t)(bytes - part);
}

static int send_lines(tally_lane *lane, int rank, const struct tally__lines *lines)
{
    tally_group *group = lane->group;

    return check_sent(group, tally__messenger_send_lines(group->domain->messenger,
                                                         group->domain_rank[rank], lines,
                                                         group->far->lanes[lane->index].sending));
}

/* This rank's line is sent from the room before its stage, so that the payload is not copied. */
static struct tally__lines own_message(const tally_lane *lane)
{
    int rank = lane->group->rank;
    unsigned char *stage = tally__stage_of(lane, rank, lane->round.number);
    uint32_t n;
    const void *tail = tail_of(lane, rank, &n);
    struct tally__entry entry = entry_of(lane, rank, n);

    if (tail != stage) {
        memcpy(stage, tail, n);
    }
    entry.more = more_of(lane, sizeof entry + n);
    memcpy(stage - sizeof entry, &entry, sizeof entry);
    return (struct tally__lines){
        .data = stage - sizeof entry, .bytes = sizeof entry + n, .more = entry.more};
}

/* The ranks after this one come first, so that no rank gets all messages at once. */
static int nth_peer(const tally_group *group, int n)
{
    return (group->rank + n) % group->size;
}

int tally__send_line(tally_lane *lane)
{
    tally_group *group = lane->group;
    const struct tally__lines lines = own_message(lane);

    assert(lines.bytes <= TALLY__LINES_BYTES);
    group->far->lanes[lane->index].has_told_all = !tally__is_spread(group);
    if (tally__is_spread(group)) {
        return send_lines(lane, nth_peer(group, 1), &lines);
    }
    for (int i = 1; i < group->size; i++) {
        int rank = nth_peer(group, i);

        if (!tally__is_near(group, rank)) {
            TRY(send_lines(lane, rank, &lines));
        }
    }
    return TALLY_OK;
}

int tally__send_line_each(tally_lane *lane, const struct tally__stream *riders)
{
    tally_group *group = lane->group;
    size_t most = sizeof(struct tally__entry) + group->far->inbox_bytes;

    assert(!tally__is_spread(group));
    group->far->lanes[lane->index].has_told_all = true;
    for (int i = 1; i < group->size; i++) {
        int rank = nth_peer(group, i);
        struct tally__entry entry = entry_of(lane, group->rank, (uint32_t)riders[rank].send_bytes);
        unsigned char *message = group->far->lanes[lane->index].packed + (size_t)rank * most;
        struct tally__lines lines = {.data = message, .bytes = sizeof entry + entry.bytes};

        if (!tally__is_near(group, rank)) {
            entry.more = more_of(lane, lines.bytes);
            lines.more = entry.more;
            memcpy(message, &entry, sizeof entry);
            if (entry.bytes > 0) {
                memcpy(message + sizeof entry, riders[rank].send, entry.bytes);
            }
            TRY(send_lines(lane, rank, &lines));
        }
    }
    return TALLY_OK;
}

int tally__n_spread_steps(const tally_lane *lane)
{
    int n = 0;

    while (tally__is_spread(lane->group) && (1 << n) < lane->group->size) {
        n++;
    }
    return n;
}

int tally__spread_step(tally_lane *lane, int step)
{
    tally_group *group = lane->group;
    int distance = 1 << step;
    int n = group->size - distance < distance ? group->size - distance : distance;
    size_t most = sizeof(struct tally__entry) + group->far->payload_bytes;
    struct tally__lines lines = {.data = group->far->lanes[lane->index].packed +
                                         (size_t)distance * most};

    for (int i = 0; i < n; i++) {
        int rank = (group->rank - i + group->size) % group->size;
        uint32_t bytes;
        const void *tail = tail_of(lane, rank, &bytes);
        const struct tally__entry entry = entry_of(lane, rank, bytes);

        if (lines.bytes + sizeof entry + tally__padded(bytes) > TALLY__LINES_BYTES) {
            TRY(send_lines(lane, nth_peer(group, distance), &lines));
            lines = (struct tally__lines){.data = lines.data + lines.bytes};
        }
        memcpy(lines.data + lines.bytes, &entry, sizeof entry);
        memcpy(lines.data + lines.bytes + sizeof entry, tail, bytes);
        lines.bytes += sizeof entry + tally__padded(bytes);
    }
    return send_lines(lane, nth_peer(group, distance), &lines);
}

void tally__tell_all(tally_lane *lane)
{
    tally_group *group = lane->group;
    struct tally__far_lane *far = &group->far->lanes[lane->index];
    struct tally__lines lines;

    if (far->has_told_all) {
        return;
    }
    far->has_told_all = true;
    lines = own_message(lane);
    for (int r = 0; r < group->size; r++) {
        if (!tally__is_near(group, r)) {
            (void)tally__messenger_send_lines(group->domain->messenger, group->domain_rank[r],
                                              &lines, far->sending);
        }
    }
}

/* The message of TALLY__LEAVING. */
struct leaving {
    struct tally__entry entry;
    char text[TALLY__TEXT_BYTES];
    uint32_t last_round[TALLY__MAX_LANES];
};

static void send_leaving(struct tally__messenger *messenger, int rank,
                         const struct leaving *leaving)
{
    struct leaving *message = tally__alloc(sizeof *message, "a message");

    if (message) {
        *message = *leaving;
        /* A rank that cannot be told learns it when its deadline passes. */
        (void)tally__messenger_put_lines(messenger, rank, message, sizeof *message, NULL);
    }
}

void tally__send_leaving_locked(tally_group *group)
{
    const struct tally__slot *own = group->lanes[0].slots[group->rank];
    struct tally__messenger *messenger = group->domain->messenger;
    struct leaving leaving = {.entry = {.magic = TALLY__MAGIC, .kind = TALLY__LEAVING}};

    if (!group->far) {
        return;
    }
    leaving.entry.channel = group->far->channel;
    leaving.entry.rank = group->rank;
    leaving.entry.round = (uint32_t)own->given_up_status;
    leaving.entry.bytes = sizeof leaving - sizeof leaving.entry;
    (void)snprintf(leaving.text, sizeof leaving.text, "%s", own->given_up_text);
    /* In good order no job runs; otherwise the rounds do not matter. */
    for (int i = 0; own->given_up_status == TALLY_OK && i < group->n_lanes; i++) {
        leaving.last_round[i] = (uint32_t)group->lanes[i].round.number;
    }
    for (int r = 0; r < group->size; r++) {
        if (!tally__is_near(group, r) &&
            !tally__process_has_ended(messenger->processes[group->domain_rank[r]])) {
            send_leaving(messenger, group->domain_rank[r], &leaving);
        }
    }
}

void tally__send_leaving(tally_group *group)
{
    if (group->far) {
        tally__mpi_lock();
        tally__send_leaving_locked(group);
        tally__mpi_unlock();
    }
}

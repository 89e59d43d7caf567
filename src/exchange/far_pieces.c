/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces as messages. A message is a slot of the lane's scratch memory, or the data itself. */
#include "exchange/far_pieces.h"

#include <string.h>

#include "base/status.h"
#include "trace/ring.h"

size_t tally__piece_n_slots(const struct tally__pieces *m)
{
    size_t size = (size_t)m->x->lane->group->size;

    return TALLY__N_WINDOWS * (m->is_in_place ? size : 3 * size + 1);
}

unsigned char *tally__piece_slot(const struct tally__pieces *m, enum tally__flow flow, size_t c,
                                 int rank)
{
    static const size_t rows[TALLY__N_FLOWS] = {[TALLY__COMING] = 0,
                                                [TALLY__GOING] = TALLY__N_WINDOWS,
                                                [TALLY__TAKING] = 2 * TALLY__N_WINDOWS,
                                                [TALLY__GIVING] = 3 * TALLY__N_WINDOWS};
    size_t size = (size_t)m->x->lane->group->size;
    size_t window = c % TALLY__N_WINDOWS;
    size_t at = flow == TALLY__GIVING ? rows[flow] * size + window
                                      : (rows[flow] + window) * size + (size_t)rank;

    return m->scratch + at * m->slot_bytes;
}

bool tally__piece_rode(const struct tally__pieces *m, int rank)
{
    return m->rides && !tally__is_near(m->x->lane->group, rank);
}

unsigned char *tally__piece_contribution(const struct tally__pieces *m, size_t c, int rank)
{
    return tally__piece_rode(m, rank) ? tally__stage_of(m->x->lane, rank, m->x->lane->round.number)
                                      : tally__piece_slot(m, TALLY__COMING, c, rank);
}

unsigned char *tally__piece_data(const struct tally__pieces *m, const struct tally__range *piece)
{
    return m->x->data + piece->start * m->x->codec->element_bytes;
}

size_t tally__piece_bytes(const struct tally__pieces *m, const struct tally__range *piece)
{
    return m->x->codec->ops->wire_bytes(m->x->codec, piece);
}

unsigned char *tally__piece_behind_mark(const struct tally__pieces *m, unsigned char *slot)
{
    return slot + (m->is_coded ? TALLY__MARK_BYTES : 0);
}

bool tally__piece_is_marked(const unsigned char *slot)
{
    return slot[0] != 0;
}

int tally__piece_send(const struct tally__pieces *m, enum tally__flow flow, size_t c, int rank,
                      const struct tally__range *piece, int owner)
{
    unsigned char *slot = tally__piece_slot(m, flow, c, owner);
    size_t bytes = tally__piece_bytes(m, piece);

    if (m->is_in_place) {
        slot = tally__piece_data(m, piece);
    } else if (m->is_coded) {
        memset(slot, m->is_spoiled, TALLY__MARK_BYTES);
        bytes = TALLY__MARK_BYTES + (m->is_spoiled ? 0 : bytes);
    }
    (void)tally__phase(TALLY__EVENT_SEND);
    return tally__transfer_send(m->x->lane, flow, c, rank, slot, bytes);
}

int tally__piece_receive(const struct tally__pieces *m, enum tally__flow flow, size_t c, int rank,
                         const struct tally__range *piece)
{
    bool goes_to_place = m->is_in_place && flow == TALLY__TAKING;
    unsigned char *to =
        goes_to_place ? tally__piece_data(m, piece) : tally__piece_slot(m, flow, c, rank);

    return tally__transfer_receive(m->x->lane, flow, c, rank, to,
                                   tally__piece_bytes(m, piece) +
                                       (m->is_coded ? TALLY__MARK_BYTES : 0));
}

bool tally__piece_is_read(const struct tally__pieces *m, int rank)
{
    return tally__reads(m->x->lane, rank);
}

bool tally__piece_reads_this(const struct tally__pieces *m, int owner)
{
    return tally__is_near(m->x->lane->group, owner) &&
           tally__reads(m->x->lane, m->x->lane->group->rank);
}

int tally__piece_peer(const struct tally__pieces *m, int i)
{
    return (m->x->lane->group->rank + i) % m->x->lane->group->size;
}

void tally__piece_encode(struct tally__pieces *m, const struct tally__range *piece,
                         const void *data, unsigned char *slot)
{
    const struct tally__codec *codec = m->x->codec;
    int rc;

    if (!m->is_spoiled && !m->is_in_place) {
        (void)tally__phase(TALLY__EVENT_ENCODE);
        rc = codec->ops->encode(codec, piece, data, tally__piece_behind_mark(m, slot));
        if (rc != TALLY_OK) {
            m->outcome = tally__outcome_of(rc);
            m->is_spoiled = true;
        }
    }
}

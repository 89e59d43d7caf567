/* SPDX-License-Identifier: Apache-2.0 */
/* The board of a bench's ranks. The application's thread of each rank enters. */
#include "bench/rank_board.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/rank_team.h"

#define LINE_BYTES 64

struct rank_board_memory {
    atomic_uint n_arrived;
    _Alignas(LINE_BYTES) unsigned char records[];
};

static size_t memory_bytes(const struct rank_board *board)
{
    return sizeof *board->memory + (size_t)board->ranks * board->record_bytes;
}

int rank_board_create(int ranks, size_t record_bytes, struct rank_board *board)
{
    struct rank_board made = {.ranks = ranks, .record_bytes = record_bytes};

    made.memory = rank_team_share(memory_bytes(&made));
    if (!made.memory) {
        return TALLY_NOMEM;
    }
    made.records = made.memory->records;
    *board = made;
    return TALLY_OK;
}

void rank_board_free(struct rank_board *board)
{
    rank_team_unshare(board->memory, memory_bytes(board));
}

int rank_board_join(struct rank_board *board, int rank, tally_group *group)
{
    board->rank = rank;
    board->group = group;
    board->sizes = tally__alloc_array((size_t)board->ranks, sizeof *board->sizes, "a board");
    if (!board->sizes) {
        return TALLY_NOMEM;
    }
    for (int r = 0; r < board->ranks; r++) {
        board->sizes[r] = board->record_bytes;
    }
    return TALLY_OK;
}

void rank_board_leave(struct rank_board *board)
{
    tally__free(board->sizes);
    board->sizes = NULL;
}

static int exchange_records(struct rank_board *board)
{
    const unsigned char *own =
        (const unsigned char *)board->records + (size_t)board->rank * board->record_bytes;
    tally_future *future;
    int rc;

    TRY(tally_all_gather(board->group, own, board->sizes, board->records, &future));
    rc = tally_future_wait(future);
    tally_future_free(future);
    return rc;
}

int rank_board_meet(struct rank_board *board)
{
    board->n_meetings++;
    if (board->group) {
        TRY(exchange_records(board));
    } else {
        rank_team_meet(&board->memory->n_arrived, board->n_meetings, board->ranks);
    }
    board->met_ns = tally__now_ns();
    return TALLY_OK;
}

uint64_t rank_board_now(const struct rank_board *board)
{
    return tally__now_ns() - (board->group ? board->met_ns : 0);
}

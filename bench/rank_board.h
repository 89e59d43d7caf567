/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data that the ranks of a bench share: a record of each rank, and meetings, after which every
 * rank sees the contents that all records had before. Ranks that the bench has forked share the
 * memory of the records, and a clock. Ranks that a launcher has started may run anywhere: they
 * exchange the records over their group, and each has a separate clock, which starts at every
 * meeting.
 */
#ifndef TALLY_BENCH_RANK_BOARD_H
#define TALLY_BENCH_RANK_BOARD_H

#include <stdint.h>
#include <tally_extend.h>

struct rank_board {
    int ranks;
    size_t record_bytes;
    void *records; /* one per rank, zeroed at first; a rank writes its own */
    struct rank_board_memory *memory;
    /* Of one rank, from rank_board_join on. */
    int rank;
    unsigned n_meetings;
    tally_group *group; /* over which records travel; NULL where they need not */
    size_t *sizes;      /* of what every rank sends then */
    uint64_t met_ns;
};

/* Before ranks are forked. Errors: NOMEM. */
int rank_board_create(int ranks, size_t record_bytes, struct rank_board *board);
void rank_board_free(struct rank_board *board);

/* A rank takes its own copy of the board. group: of ranks that a launcher has started, else NULL.
 * Errors: NOMEM. */
int rank_board_join(struct rank_board *board, int rank, tally_group *group);
void rank_board_leave(struct rank_board *board);

/* Collective; the ranks leave it at the same time, as nearly as they can. Errors: those of an
 * all-gather, or none where memory is shared. */
int rank_board_meet(struct rank_board *board);

uint64_t rank_board_now(const struct rank_board *board);

#endif

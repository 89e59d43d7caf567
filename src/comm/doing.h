/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages about ranks in the application's words: the launcher's number of a rank, and the call,
 * step and bucket it is in. Only the thread that runs a lane's jobs enters with that lane.
 */
#ifndef TALLY_COMM_DOING_H
#define TALLY_COMM_DOING_H

#include "comm/group.h"

/* Buffer size for tally__describe_doing. */
#define TALLY__DOING_BYTES 200

/* At the start of a job: records the application's call and the number of completed steps. */
void tally__doing_call(tally_lane *lane, const char *call, uint64_t n_steps);

/* At the start of a job: records the step, counted from 1, and a bucket with the name of its first
 * parameter, or, with bucket -1, the end of the step of a ddp with the name of its first. */
struct tally__step_words {
    uint64_t step;
    int bucket;
    const char *name;
    bool has_more;
    const char *hook;
};
void tally__doing_step(tally_lane *lane, const struct tally__step_words *words);

/* Describes what this rank is doing: "step 6 (bucket 0: 'wte', ...)". */
void tally__describe_doing(const tally_lane *lane, char *text);

/* The same from a line, which must not change meanwhile. */
void tally__describe_line(const tally_group *group, const struct tally__line *line, char *text);

/* A rank in a message: "rank 5", by the launcher's number. Where the application's sub-group
 * numbers it otherwise: "rank 5 (2 of this sub-group)". */
struct tally__rank_text {
    char text[48];
};
struct tally__rank_text tally__rank_text(const tally_group *group, int rank);

/* Several ranks in a message, by the launcher's numbers: "ranks 1, 3". A list of one reads as
 * tally__rank_text does. Starts zeroed. */
struct tally__rank_list {
    int n;
    int first; /* the first rank's number */
    char text[128];
};
void tally__rank_list_add(struct tally__rank_list *list, const tally_group *group, int rank);

/* The length of the words at the start of text that name the rank at fault: of "rank 2" in "rank 2:
 * ..." and "rank 2, or another ..."; of "among ranks 2..3" in "among ranks 2..3: ...". 0: none. */
size_t tally__culprit_length(const char *text);

/* Gives the group up: in the round just finished rank's call differs from that of rank 0. */
int tally__give_up_mismatch(tally_lane *lane, int rank);

/* Gives the group up: a wait for rank (-1: for several ranks) ended without it. */
struct tally__late;
int tally__give_up_late(tally_lane *lane, int rank, const struct tally__late *late);

#endif

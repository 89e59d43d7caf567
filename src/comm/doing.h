/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages about ranks in the application's words: which call, step and bucket a rank is in, and by
 * which number the launcher knows it. Only the thread that runs a lane's jobs enters with that
 * lane.
 */
#ifndef TALLY_COMM_DOING_H
#define TALLY_COMM_DOING_H

#include "comm/group.h"

/* Room for what tally__describe_doing says. */
#define TALLY__DOING_BYTES 200

/* At the start of a job: it is part of this call of the application's, after so many steps. */
void tally__doing_call(tally_lane *lane, const char *call, uint64_t n_steps);

/* At the start of a job: it is part of this step, counted from 1; a bucket with this parameter
 * first, or, with bucket -1, the end of the step. */
struct tally__step_words {
    uint64_t step;
    int bucket;
    const char *name;
    bool has_more;
    const char *hook;
};
void tally__doing_step(tally_lane *lane, const struct tally__step_words *words);

/* Where this rank is in words: "step 6 (bucket 0: 'wte', ...)". */
void tally__describe_doing(const tally_lane *lane, char *text);

/* Whether a text names the rank at fault already: "rank 2: ...", "rank 2, or another ...". */
bool tally__is_attributed(const char *text);

/* Ranks have said different things in the round just finished, rank 0 and this one among them. */
int tally__give_up_mismatch(tally_lane *lane, int rank);

/* A rank has left the group in good order; this rank waits for it in vain. */
int tally__give_up_closed(tally_lane *lane, int rank);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreements: each rank says one word in a round, and reads everybody's. Only the thread that runs
 * a lane's jobs enters with that lane. Keeps no state.
 */
#include "comm/agree.h"

#include "comm/round.h"
#include "comm/threads.h"

int tally__agree_status(tally_lane *lane, const struct tally__outcome *outcome)
{
    int rc = tally__outcome_return(outcome);

    return rc == TALLY_OK ? TALLY_OK : tally__end_job(lane, TALLY__ENDS_ITSELF, rc);
}

static int say(tally_lane *lane, uint64_t word)
{
    const struct tally__call call = {.kind = TALLY__KIND_AGREE, .word = word};

    return tally__round(lane, &call);
}

int tally__agree_same(tally_lane *lane, uint64_t digest, int *other)
{
    int first = -1;

    TRY(say(lane, digest));
    for (int r = lane->group->size - 1; r > 0; r--) {
        if (tally__said(lane, r)->word != tally__said(lane, 0)->word) {
            first = r;
        }
    }
    *other = first;
    return TALLY_OK;
}

int tally__agree_any(tally_lane *lane, uint64_t bits, uint64_t *any)
{
    uint64_t all = 0;

    TRY(say(lane, bits));
    for (int r = 0; r < lane->group->size; r++) {
        all |= tally__said(lane, r)->word;
    }
    *any = all;
    return TALLY_OK;
}

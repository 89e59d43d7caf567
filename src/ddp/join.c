/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uneven inputs. Under config.join every step begins with a job on lane 0 in which ranks learn
 * which of them have input. A rank without input repeats that job and takes part in the others'
 * steps with zeros, until no rank has input. The application's thread enters on a rank without
 * input.
 */
#include "base/status.h"
#include "comm/doing.h"
#include "comm/group.h"
#include "comm/group_config.h"
#include "ddp/ddp.h"

int tally__join_stopped(const tally_ddp *ddp)
{
    return tally__fail(TALLY_STATE, "%s has run out of input, and config.join_stops is set",
                       tally__rank_text(ddp->group, ddp->presence.who_ended).text);
}

int tally__presence_job(tally_lane *lane, void *user)
{
    tally_ddp *ddp = user;
    struct tally__presence *presence = &ddp->presence;
    int size = tally_group_size(ddp->group);
    uint8_t has_input[TALLY__MAX_WORLD] = {0};

    tally__doing_call(lane, presence->active ? "the start of a step" : "tally_ddp_join",
                      ddp->step + ddp->steps_before);
    /* One round for any number of ranks; an agreement has 64 bits. */
    has_input[tally_group_rank(ddp->group)] = presence->active;
    TRY(tally_lane_all_reduce(lane, has_input, (size_t)size, TALLY_U8, TALLY_MAX));
    presence->n_active = 0;
    presence->who_ended = size;
    for (int r = size - 1; r >= 0; r--) {
        if (!has_input[r]) {
            presence->who_ended = r;
        } else if (presence->n_active++ == 0) {
            presence->root = r;
        }
    }
    presence->stopped =
        ddp->config.join_stops && presence->n_active > 0 && presence->n_active < size;
    if (presence->stopped) {
        return tally__join_stopped(ddp);
    }
    return presence->n_active > 0 && ddp->observer.step_begin
               ? ddp->observer.step_begin(ddp->observer.user, lane, presence->root)
               : TALLY_OK;
}

/* All ranks take the parameters and buffers of the highest rank that had input in the last step. */
static int farewell_job(tally_lane *lane, void *user)
{
    const tally_ddp *ddp = user;

    return tally__values_take(lane, ddp, ddp->presence.root);
}

static int shadow(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_join"));
    if (!ddp->config.join) {
        return tally__fail(TALLY_STATE, "tally_ddp_join: config.join is not set");
    }
    ddp->presence.active = false;
    for (;;) {
        int rc = tally__ddp_run(ddp, tally__presence_job, ddp);

        if (rc != TALLY_OK) {
            /* Ranks with input have launched their buckets, which fail one by one if this rank
             * takes part. */
            return tally__is_alive(ddp->group) ? tally__shadow_step(ddp) : rc;
        }
        if (ddp->presence.n_active == 0) {
            break;
        }
        TRY(tally__shadow_step(ddp));
    }
    return tally__ddp_run(ddp, farewell_job, ddp);
}

int tally_ddp_join(tally_ddp *ddp)
{
    TRY(tally__check_ddp(ddp, "tally_ddp_join"));
    return tally__stats_note(ddp, shadow(ddp));
}

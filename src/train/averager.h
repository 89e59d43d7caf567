/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The averager: brings parameters together that ranks have updated by themselves. It has a ddp of
 * its own over the same parameters, whose gradients are what travels: the parameters themselves,
 * or, where a hook loses something on the way or an outer optimizer follows, what they have changed
 * since all ranks last had the same ones, the anchor. So hooks, residuals and statistics are those
 * of a ddp.
 *
 * The first averaging behind the warm-up is one of all ranks, of the parameters as they are: it
 * makes the anchor, whatever ranks did before.
 */
#ifndef TALLY_TRAIN_AVERAGER_H
#define TALLY_TRAIN_AVERAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp/ddp.h"
#include "ddp/ddp_state.h"
#include "optim/moments.h"
#include "optim/rule.h"
#include "train/training.h"

struct tally__averager_level {
    int period;
    int n_ranks;        /* that average together */
    tally_group *group; /* those; NULL: all */
};

/* One parameter's share. */
struct tally__averaged {
    size_t index;                  /* of the parameter, in the application's ddp */
    float *anchor;                 /* NULL: none is needed, or it is not fp32 */
    struct tally__moments moments; /* of the outer optimizer */
};

struct tally_averager {
    tally_ddp *of;  /* whose parameters they are */
    tally_ddp *ddp; /* that sends them */
    int warmup;
    size_t n_levels;
    struct tally__averager_level *levels;
    size_t n_params;
    struct tally__averaged *params;
    bool *covers;     /* per parameter of the application's ddp: it is one of those */
    tally_hook *hook; /* of ddp: around the one that config names */
    bool is_lossy;    /* that one does not leave the exact mean */
    struct tally__rule *outer;
    bool has_anchor;
    uint64_t n_steps;
    uint64_t n_averagings; /* since it was made */
    size_t due;            /* the level whose exchange is under way */
    /* The steps of the application's ddp, plus 1, when all ranks last averaged; 0: never. */
    uint64_t agreed_step;
};

/* averager_levels.c */
/* What is wrong with these levels for so many ranks. Errors: ARG naming it. */
int tally__levels_check(const tally_averager_level *levels, size_t n, int n_ranks);

/* averager_hook.c */
/* Makes averager->hook around this one; on failure there is none. Errors: NOMEM. */
int tally__averager_wrap(tally_averager *averager, tally_hook *inner);

/* averager.c */
/* Whether the ddp may have a hook that leaves ranks with different means, if it is one: with its
 * averager, and with its optimizer. Errors: ARG, UNSUPPORTED. */
int tally__local_check(const struct tally__training *training, const tally_averager *averager,
                       const tally_hook *hook);
/* Whether an optimizer calls it. */
bool tally__averager_is_run(const tally_averager *averager);

/* averager_step.c */
/* tally_averager_step, also in the middle of the application's ddp's step. */
int tally__averager_run(tally_averager *averager, int *n_averaged);

/* averager_state.c */
/* Its state, and behind it that of its inner object, the averager's own ddp. is_whole: to save a
 * blob for all ranks. */
void tally__averager_state(tally_averager *averager, bool is_whole, struct tally__state state[2]);

#endif

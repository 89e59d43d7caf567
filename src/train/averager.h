/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The averager averages parameters that ranks have updated separately. It has its own ddp over the
 * same parameters; the gradients of that ddp are the parameters, or, if the hook is lossy or an
 * outer optimizer follows, their changes since all ranks last had equal parameters, the anchor. So
 * hooks, residuals and statistics are those of a ddp. The first averaging after the warm-up is
 * among all ranks, and of the parameters themselves: it makes the anchor.
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
    int n_ranks;        /* number of ranks that average together */
    tally_group *group; /* these ranks; NULL: all */
};

/* The averager's data of one parameter. */
struct tally__averaged {
    size_t index;                  /* of the parameter, in the application's ddp */
    float *anchor;                 /* NULL: none is needed, or it is not fp32 */
    struct tally__moments moments; /* of the outer optimizer */
};

struct tally_averager {
    tally_ddp *app_ddp; /* the application's: its parameters are averaged */
    tally_ddp *ddp;     /* the averager's: it sends them */
    int warmup;
    size_t n_levels;
    struct tally__averager_level *levels;
    size_t n_params;
    struct tally__averaged *params;
    bool *covers;     /* per parameter of the application's ddp: it is averaged */
    tally_hook *hook; /* the hook of ddp: a wrapper around the one that config names */
    bool is_lossy;    /* the hook that config names does not leave the exact mean */
    struct tally__rule *outer;
    bool has_anchor;
    uint64_t n_steps;
    uint64_t n_averagings; /* since it was made */
    size_t due;            /* the level whose exchange is under way */
    /* The steps of the application's ddp, plus 1, when all ranks last averaged; 0: never. */
    uint64_t agreed_step;
};

/* averager.c */
/* Refuses a hook that leaves different means on different ranks if it does not go with the averager
 * or the optimizer. Errors: ARG, UNSUPPORTED. */
int tally__local_check(const struct tally__training *training, const tally_averager *averager,
                       const tally_hook *hook);
/* TALLY_OK between steps; ARG for NULL; STATE inside a step. Names the call. */
int tally__averager_check(const tally_averager *averager, const char *call);
/* Whether an optimizer calls it. */
bool tally__averager_is_run(const tally_averager *averager);

/* averager_step.c */
/* tally_averager_step, also during a step of the application's ddp. */
int tally__averager_run(tally_averager *averager, int *n_averaged);
/* Makes averager->hook, a wrapper around inner; on failure it stays NULL. Errors: NOMEM. */
int tally__averager_wrap(tally_averager *averager, tally_hook *inner);

/* averager_state.c */
/* Fills state[0] with the averager's state, and state[1] with that of its ddp. is_whole: for
 * saving one blob for all ranks. */
void tally__averager_state(tally_averager *averager, bool is_whole, struct tally__state state[2]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The observer of the application's ddps (ddp/observer.h): everything that uses the means. */
#ifndef TALLY_TRAIN_TRAINING_H
#define TALLY_TRAIN_TRAINING_H

#include "ddp/ddp.h"
#include "train/mixed.h"

struct tally__checkpoints;

struct tally__training {
    tally_ddp *ddp;
    struct tally__mixed mixed;
    tally_optimizer *optimizer; /* NULL: none; changes between steps only, like the next */
    tally_averager *averager;   /* NULL: none */
    struct tally__checkpoints *checkpoints; /* NULL: none was saved */
};

/* Of a ddp that tally_ddp_create made. */
static inline struct tally__training *tally__training_of(const tally_ddp *ddp)
{
    return ddp->observer.user;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback. For each parameter of a ddp, a residual is what compression has left out so far.
 * It has two parts:
 *
 *   sent    lost from this rank's contributions: all elements.
 *   owned   lost from the means of the shard that this rank owns: a run of elements. All ranks of
 *           the group that exchanged lack it; the owner adds it to the next mean. A parameter has
 *           one owned part for each size of group that has exchanged it.
 *
 * Both follow their elements when buckets change. Their states:
 *
 *   sent    PLAIN    sent is the residual; NULL: zeros. All hooks can read it.
 *           HELD     a hook has it in another form; only its holder can convert it back.
 *   owned   placed   each owner has its run, as the layout of buckets says.
 *           whole    this rank has the elements of its whole group, and takes its run from them in
 *                    the next layout.
 *
 *   PLAIN  -- tally__residual_hold -------> HELD    a hook continues in its own form
 *   HELD   -- tally__residual_make_plain -> PLAIN   before a save, another hook, another layout
 *   PLAIN  -- tally__residual_deliver ----> zeros   it was added to a gradient
 *   placed -- tally__residuals_move ------> whole   before the layout changes
 *   whole  -- tally__residual_own --------> placed  in the first step of the new layout
 *   owned  -- tally__residuals_move ------> sent    before another hook or other groups: every rank
 *                                                   that lacks it adds it to its own residual, so
 *                                                   that the next mean contains it once
 *
 * So bits do not depend on the layout. While a bucket is reduced, the residuals of its parameters
 * belong to that job; between steps they belong to the application's thread.
 */
#ifndef TALLY_EXCHANGE_RESIDUALS_H
#define TALLY_EXCHANGE_RESIDUALS_H

#include <stdbool.h>
#include <stddef.h>

#include "tally_extend.h"

struct tally__residuals;

/* The hook that holds a residual in its own form. write_down makes parameter i, and all parameters
 * held together with it, plain by tally__residual_became_plain. Errors: NOMEM; then all are still
 * held. */
struct tally__holder {
    int (*write_down)(void *state, struct tally__residuals *residuals, size_t i);
    void *state;
};

struct tally__owned {
    struct tally__owned *next; /* of a larger group */
    int n_ranks;               /* size of the group whose means they are */
    size_t first;              /* this rank's run */
    size_t n;
    bool is_whole;
    float *values;  /* of the run; whole: of all elements; NULL: none */
    float *pending; /* of all elements, while they move */
};

struct tally__residual {
    size_t n;    /* elements; 0: no array yet */
    float *sent; /* NULL: zeros */
    float *held; /* the holder's array for the elements; NULL: the residual is plain */
    const struct tally__holder *holder;
    struct tally__owned *owned; /* by n_ranks; NULL: nothing was left out of means */
    bool is_lent;               /* sent is a part of a block */
    float *block;               /* that this and other parameters have a part of; NULL: none */
};

struct tally__residuals {
    size_t n_params;
    struct tally__residual *params;
};

/* Makes an object without residuals, for n parameters. Errors: NOMEM. */
int tally__residuals_make(size_t n_params, struct tally__residuals **residuals);
void tally__residuals_free(struct tally__residuals *residuals);

/* Forgets one parameter's residuals, held or not. */
void tally__residual_clear(struct tally__residual *residual);

/* ---- residuals of contributions ---- */

/* Makes sent an array of n elements, if it is not. Errors: NOMEM. */
int tally__residual_allocate(struct tally__residual *residual, size_t n);

/*
 * Gives the parameters of a bucket that have no array one each, in one block of memory: its first
 * use takes fewer page faults than that of many arrays. The block lives as long as residuals: for
 * those that are made for a few steps. Does nothing the second time. Errors: NOMEM.
 */
int tally__residuals_lend(struct tally__residuals *residuals, const tally_bucket *bucket);

/* The residual is now in the holder's array, in the holder's form. */
void tally__residual_hold(struct tally__residual *residual, float *held,
                          const struct tally__holder *holder);
/* The holder has written it to sent. */
void tally__residual_became_plain(struct tally__residual *residual);

/* Makes one residual plain; all of them. Errors: NOMEM; the remaining ones are then still held. */
int tally__residual_make_plain(struct tally__residuals *residuals, size_t i);
int tally__residuals_make_plain(struct tally__residuals *residuals);

/* Adds the plain residual of contributions to a gradient, or to a copy of it, and zeroes the
 * residual. */
void tally__residual_deliver(struct tally__residual *residual, float *gradient);

/* As above for all parameters of a bucket, which are plain: for a hook without feedback after one
 * with. Does nothing on a rank that shadows. Errors: NOMEM. */
int tally__residuals_deliver(struct tally__residuals *residuals, const tally_bucket *bucket);

/* Adds values to the residual of a parameter, in its present form; does nothing where there is
 * none. */
void tally__residual_add(struct tally__residual *residual, size_t n, const float *values);

/* ---- residuals of means ---- */

/* The owned residual of means of n_ranks ranks; NULL: none. */
struct tally__owned *tally__residual_owned(const struct tally__residual *residual, int n_ranks);

/* As above, made if needed, without a run. Errors: NOMEM. */
int tally__residual_add_owned(struct tally__residual *residual, int n_ranks,
                              struct tally__owned **owned);

/*
 * Makes owned cover exactly the n elements from first on of means of n_ranks ranks. Errors: NOMEM;
 * INTERNAL when it is placed otherwise, in a layout that was changed without tally__residuals_move.
 * Nothing has changed then.
 */
int tally__residual_own(struct tally__residual *residual, size_t first, size_t n, int n_ranks,
                        struct tally__owned **owned);

/* Removes the owned residual of means of n_ranks ranks. */
void tally__residual_disown(struct tally__residual *residual, int n_ranks);

/* Makes to a plain copy of from, which is plain. Allocates nothing if the sizes are equal. Errors:
 * NOMEM; then to is undefined. */
int tally__residual_copy(const struct tally__residual *from, struct tally__residual *to);

/* ---- moving between ranks (residuals_move.c) ---- */

/* Whether owner's residual of means of n_ranks ranks is missing from rank's means: groups are of
 * consecutive ranks. */
bool tally__lacks(int rank, int owner, int n_ranks);

enum tally__move {
    TALLY__MOVE_WHOLE, /* to all ranks with a run: before another layout */
    TALLY__MOVE_SENT   /* to sent of all ranks whose means lack it: before another hook, or other
                          groups */
};

/* The owned parts that tally__residuals_move moves. */
struct tally__moving {
    enum tally__move how;
    const tally_bucket *bucket; /* only its parameters; NULL: all */
    /* Whether the owned residual of means of n_ranks ranks stays; NULL: nothing stays. */
    bool (*stays)(const void *user, int n_ranks);
    const void *user;
};

/* Whether this rank has residuals to move; the same on all ranks of an exchange. */
bool tally__residuals_must_move(const struct tally__residuals *residuals,
                                const struct tally__moving *moving);

/*
 * Moves owned residuals, in one exchange of all ranks of the ddp. In a job. Errors: NOMEM on any
 * rank: on all, and nothing has changed; those of an exchange.
 */
int tally__residuals_move(tally_lane *lane, struct tally__residuals *residuals,
                          const struct tally__moving *moving);

#endif

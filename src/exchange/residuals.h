/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback in one place. For each parameter of a ddp it keeps what compression
 * left out so far, in two parts:
 *
 *   sent    of this rank's contributions: all elements
 *   owned   of the means whose shard this rank owns: a run of elements, per size of the group that
 *           exchanged. All ranks of that group lack it, and its owner adds it to the next mean
 *
 * Both follow their element, not its bucket. Who has them:
 *
 *   sent    PLAIN    sent is the residual; NULL: zeros. All hooks can read it.
 *           HELD     a hook has it in a form of its own; only its holder can write it down.
 *   owned   placed   each owner has its run, as the layout of buckets says.
 *           whole    this rank has all elements of its group's, and takes its run of the next
 *                    layout from that.
 *
 *   PLAIN -- tally__residual_hold ----> HELD    a hook goes on in its own form
 *   HELD  -- tally__residual_make_plain --> PLAIN   somebody else is to see it: save, another hook,
 *                                               another layout, another reader
 *   PLAIN -- tally__residual_deliver -> zeros   it was added to a gradient
 *   placed -- tally__residuals_move -----> whole   before the layout changes
 *   whole  -- tally__residual_own ----> placed  the first step in the new layout
 *   owned  -- tally__residuals_move -----> sent    before another hook, or other groups: every rank
 *                                               that lacks it adds it to its own, so that the next
 *                                               mean gets it once
 *
 * So bits do not depend on the layout. An entry belongs to the job that reduces the bucket its
 * parameter is in, and between steps to the application's thread.
 */
#ifndef TALLY_EXCHANGE_RESIDUALS_H
#define TALLY_EXCHANGE_RESIDUALS_H

#include <stdbool.h>
#include <stddef.h>

#include "tally_extend.h"

struct tally__residuals;

/* Who holds a residual in another form. write_down settles parameter i, and all that are held
 * together with it, by tally__residual_became_plain. Errors: NOMEM, and all are still held. */
struct tally__holder {
    int (*write_down)(void *state, struct tally__residuals *residuals, size_t i);
    void *state;
};

struct tally__owned {
    struct tally__owned *next; /* of a larger group */
    int n_ranks;               /* that the means were of */
    size_t first;              /* this rank's run */
    size_t n;
    bool is_whole;
    float *values;  /* of the run; whole: of all elements; NULL: none */
    float *pending; /* of all elements, while they are on their way */
};

struct tally__residual {
    size_t n;    /* elements; 0: no array yet */
    float *sent; /* NULL: zeros */
    float *held; /* the holder's array for the elements; NULL: the residual is plain */
    const struct tally__holder *holder;
    struct tally__owned *owned; /* by n_ranks; NULL: nothing was left out of means */
};

struct tally__residuals {
    size_t n_params;
    struct tally__residual *params;
};

/* One without residuals, for so many parameters. Errors: NOMEM. */
int tally__residuals_make(size_t n_params, struct tally__residuals **residuals);
void tally__residuals_free(struct tally__residuals *residuals);

/* Forgets one parameter's residuals, held or not. */
void tally__residual_clear(struct tally__residual *residual);

/* ---- what was sent ---- */

/* Makes sure that there is sent, of n elements. Errors: NOMEM. */
int tally__residual_send(struct tally__residual *residual, size_t n);

/* The residual is now in the holder's array, in the holder's form. */
void tally__residual_hold(struct tally__residual *residual, float *held,
                          const struct tally__holder *holder);
/* The holder has written it to sent. */
void tally__residual_became_plain(struct tally__residual *residual);

/* Makes one residual plain; all of them. Errors: NOMEM, and what is not settled is still held. */
int tally__residual_make_plain(struct tally__residuals *residuals, size_t i);
int tally__residuals_make_plain(struct tally__residuals *residuals);

/* Adds a plain residual of what was sent to a gradient, or a copy of it, and forgets it. */
void tally__residual_deliver(struct tally__residual *residual, float *gradient);

/* The same for all parameters of a bucket, settled before: for a hook without feedback that follows
 * one with. Nothing on a rank that shadows. Errors: NOMEM. */
int tally__residuals_deliver(struct tally__residuals *residuals, const tally_bucket *bucket);

/* Adds values to what is left out of a parameter, in whatever form it is; nothing where nothing was
 * left out so far. */
void tally__residual_add(struct tally__residual *residual, size_t n, const float *values);

/* ---- what is owned ---- */

/* What is owned of means of so many ranks; NULL: nothing ever was. */
struct tally__owned *tally__residual_owned(const struct tally__residual *residual, int n_ranks);

/* The same, made if need be: this rank has no run of it yet. Errors: NOMEM. */
int tally__residual_add_owned(struct tally__residual *residual, int n_ranks,
                              struct tally__owned **owned);

/*
 * Makes sure that owned covers the n elements from first on of means of n_ranks ranks, and nothing
 * else. Errors: NOMEM; INTERNAL when it is placed otherwise, in a layout that was changed without
 * tally__residuals_move. Nothing has changed then.
 */
int tally__residual_own(struct tally__residual *residual, size_t first, size_t n, int n_ranks,
                        struct tally__owned **owned);

/* Forgets what is owned of means of so many ranks. */
void tally__residual_disown(struct tally__residual *residual, int n_ranks);

/* Makes to a plain copy of from, which is plain. Where it was of the same size, it allocates
 * nothing. Errors: NOMEM, and what to has is undefined. */
int tally__residual_copy(const struct tally__residual *from, struct tally__residual *to);

/* ---- passing on (residuals_move.c) ---- */

/* Whether rank lacks what owner, both of the same group, owns of means of n_ranks ranks: groups are
 * of consecutive ranks. */
bool tally__lacks(int rank, int owner, int n_ranks);

enum tally__move {
    TALLY__MOVE_WHOLE, /* to all ranks that have a run: before another layout */
    TALLY__MOVE_SENT   /* to sent of all ranks that lack it: before another hook, other groups */
};

/* What is passed on. */
struct tally__moving {
    enum tally__move how;
    const tally_bucket *bucket; /* of its parameters; NULL: of all */
    /* Whether what is owned of means of so many ranks stays; NULL: nothing stays. */
    bool (*stays)(const void *user, int n_ranks);
    const void *user;
};

/* Whether this rank has anything to pass on; all ranks of an exchange have or have not. */
bool tally__residuals_must_move(const struct tally__residuals *residuals,
                                const struct tally__moving *passing);

/*
 * Passes owned residuals on, in one exchange of all ranks of the lane, those of the ddp. On a lane,
 * in a job. Errors: NOMEM on any rank: on all of them, and nothing has changed; those of an
 * exchange.
 */
int tally__residuals_move(tally_lane *lane, struct tally__residuals *residuals,
                          const struct tally__moving *passing);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook object, as ddp and the hooks see it. Every hook, tally's own or the application's, is
 * one table: the public part (tally_hook_table) and a private part with what tally does not
 * promise. tally__hook_make fills every entry that is not set with one that does nothing, so
 * callers call all entries without asking whether they are there. Only scatter and is_elementwise
 * may be NULL: tally__hook_reduce and tally__hook_is_elementwise know.
 */
#ifndef TALLY_HOOK_HOOK_H
#define TALLY_HOOK_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tally_extend.h"

struct tally__hook_kind;

/* A packing of parameters into buckets. */
#define TALLY__MOST_CLASSES 8
struct tally__packing {
    size_t cap_bytes; /* of all buckets; 0: the caps of the config */
    /* Per parameter, below TALLY__MOST_CLASSES: those of different classes share no bucket. NULL:
     * all are of class 0. */
    const unsigned char *classes;
};

/* The private part of a hook's table. The application's hooks have the defaults: false, 0, and
 * functions that do nothing. A wrapper has those of the hook inside (hook/wrapper.h). */
struct tally__hook_private {
    bool is_exact;     /* leaves the mean up to rounding in the dtype of the bucket */
    bool layout_bound; /* the mean depends on the parameters that share a bucket and on their order:
                          buckets keep the layout of the plan while the hook is attached */
    bool sends_nothing; /* ranks keep their own gradients */
    bool is_local;      /* from step local_start on, ranks get different means */
    uint64_t local_start;
    bool divides; /* makes groups of some ranks of the ddp: it cannot run in such a group itself */
    bool is_led;  /* calls the hook inside on some ranks only; rank 0 is one of them */
    bool follows_steps; /* needs step_end and step_over, which a ddp calls: no hook wraps it */
    /* Before attach, and after detach: makes and closes groups. Separate from attach, because the
     * hook inside may be attached already. Collective; between steps. */
    int (*enter)(void *state, tally_ddp *ddp);
    void (*leave)(void *state);
    /* Whether the hook inside is called on this rank. */
    bool (*runs_here)(const void *state);
    /* Whether the next reduce of this bucket treats elements one by one, as table.elementwise says
     * for all buckets. On the bucket's lane. NULL: as the table says. */
    bool (*is_elementwise)(const void *state, const tally_bucket *bucket);
    /* In a job on lane 0, after all buckets of a step that have their means, before the next step.
     * Collective. Errors: those of an exchange. */
    int (*step_end)(void *state, tally_lane *lane);
    /* At the end of wait, after statistics are recorded: the step has succeeded. has_input: this
     * rank's times are in the statistics. Never waits for other ranks. */
    void (*step_over)(void *state, bool has_input);
    /* The packing that the hook wants, the same on all ranks. The ddp asks when the hook is
     * attached or loaded, and after each step_end; where buckets may move, it packs them so before
     * the next step, and they get a new generation. Otherwise, or without memory for it, they stay.
     */
    void (*get_packing)(const void *state, struct tally__packing *packing);
    /* The part that this rank's own contributions to the last step left out, relative to them: a
     * quotient of norms. Below 0: the hook has not measured it in this step. Between steps. */
    double (*get_error)(const void *state);
    /* Changes whenever explain says something new that a trace should have; 0: nothing so far. */
    uint64_t (*n_explained)(const void *state);
    /* Fills in the decision for a bucket; hook and measured_s are set. Between steps. */
    void (*explain)(const void *state, size_t bucket, tally_bucket_choice *choice);
};

struct tally_hook {
    tally_hook_table table; /* a copy; the name is a copy too */
    struct tally__hook_private private;
    void *state;
    const struct tally__hook_kind *kind; /* the row of tally's list; NULL: the application's hook */
    tally_hook *inner;                   /* the hook that a wrapper calls; otherwise NULL */
    atomic_int n_holds;                  /* the maker's, and one per ddp or wrapper that uses it */
};

/* tally_hook_create with the private part; NULL for the defaults. On failure it destroys the state.
 */
int tally__hook_make(const tally_hook_table *table, const struct tally__hook_private *private,
                     void *state, tally_hook **hook);

/*
 * Runs the hook's reduce, or, if shard_starts is given and the hook has one, its scatter. On a
 * lane, in a reduction (exchange/reduction.h). Errors: the status that the hook returns.
 */
int tally__hook_reduce(const tally_hook *hook, tally_lane *lane, const tally_bucket *bucket,
                       const size_t *shard_starts);

/* Whether the next reduce of the bucket treats elements one by one. */
bool tally__hook_is_elementwise(const tally_hook *hook, const tally_bucket *bucket);

/* The reduce of allreduce, which has no state: leaves the mean of the bucket, sent in the wire type
 * of the reduction. */
int tally__hook_send_plain(void *state, tally_lane *lane, const tally_bucket *bucket);

/* The divisor of a sum over a sub-group: its number of ranks, or under join the number of its ranks
 * that have input; or the divisor of the bucket. */
enum tally__divisor { TALLY__DIVISOR_OF_GROUP, TALLY__DIVISOR_STAYS };

/*
 * Runs the hook's reduce among the ranks of a sub-group. In a job of the bucket's group; the
 * sub-group can be used again after a failure. Errors: what reduce returns on any of these ranks.
 */
int tally__hook_reduce_in_subgroup(const tally_hook *hook, tally_lane *lane, tally_group *group,
                                   enum tally__divisor divisor, const tally_bucket *bucket);

/* The hook itself or the one inside that is local; NULL: none is. */
const tally_hook *tally__hook_local(const tally_hook *hook);

/* The hook inside all wrappers: it has the state. */
const tally_hook *tally__hook_innermost(const tally_hook *hook);

/*
 * Call attach and load of the hook. A failure always has a text, even if the hook gave none; a
 * success does not change the thread's text.
 */
int tally__hook_attach(const tally_hook *hook, tally_ddp *ddp);
int tally__hook_load(const tally_hook *hook, const tally_hook_blob *blobs, size_t n_blobs);

/* Saves the hook's state to memory that tally__hook_state_free frees; empty if the hook saves
 * nothing. Errors: NOMEM, what save returns. */
int tally__hook_state_take(const tally_hook *hook, tally_hook_blob *state);
void tally__hook_state_free(tally_hook_blob *state);

/*
 * The kind of the innermost hook. For tally's own hooks it is the row of tally's list; for the
 * application's hooks, which have no list, it is the name without options. Blobs contain it as a
 * flag and a text; text is not terminated.
 */
struct tally__hook_kind_name {
    bool is_builtin; /* one of tally's */
    size_t length;
    const char *text;
};
struct tally__hook_kind_name tally__hook_kind_name(const tally_hook *hook);
bool tally__hook_same_kind(struct tally__hook_kind_name a, struct tally__hook_kind_name b);

/* Adds a hold; tally_hook_free drops one. */
void tally__hook_hold(tally_hook *hook);

#endif

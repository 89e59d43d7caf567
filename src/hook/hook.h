/* SPDX-License-Identifier: Apache-2.0 */
/* The hook object, as ddp and the hooks see it. */
#ifndef TALLY_HOOK_HOOK_H
#define TALLY_HOOK_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tally_extend.h"

struct tally_hook {
    tally_hook_table table; /* its name is ours */
    void *state;
    tally_hook *inner;  /* the hook that a wrapper calls, held by its state; else NULL */
    atomic_int n_holds; /* the maker's, and one per ddp or wrapper that uses it */
    bool is_own;        /* of tally's list; otherwise the application's */
    bool is_exact;      /* leaves the mean to rounding of fp32 */
    /* Each element's mean depends on that element alone, and reduce looks at nothing but data, n,
     * dtype and divisor: so it may be given a bucket in parts, wherever they lie. */
    bool elementwise;
    /* The mean depends on which parameters share a bucket, and in which order: buckets keep the
     * layout of the plan while it is attached. */
    bool layout_bound;
    /* As reduce, to the same bits, but the mean is left in this rank's shard of data alone, where
     * rank r's shard is elements shard_starts[r] up to shard_starts[r + 1]; the rest is undefined.
     * NULL where a hook cannot do that for less than the whole costs. */
    int (*scatter)(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts);
    /* From step local_start on, ranks get different means. */
    bool is_local;
    uint64_t local_start;
    /* Ranks keep their own gradients. */
    bool sends_nothing;
    /* What a hook with groups of its own needs of a ddp; the hook inside is attached apart, since
     * it may be attached already. Collective; between steps. NULL: nothing. */
    int (*enter)(void *state, tally_ddp *ddp);
    void (*leave)(void *state);
    /* Of a wrapper that calls the hook inside on some ranks only: whether on this one. Rank 0 is
     * one of them. NULL: on all. */
    bool (*runs_here)(const void *state);
};

/* What allreduce does: the mean of the bucket, travelling as the lane says. */
int tally__hook_send_plain(tally_lane *lane, const tally_bucket *bucket);

/* What a sub-group's sum is divided by: its number of ranks, under join those of them that have
 * input; or as the bucket says. */
enum tally__divisor { TALLY__DIVISOR_OF_GROUP, TALLY__DIVISOR_STAYS };

/*
 * What the hook's reduce does, among the ranks of a sub-group alone. In a job of the bucket's
 * group, which may fail without an end to the sub-group. Errors: what reduce returns on any of
 * these ranks.
 */
int tally__hook_reduce_in_subgroup(const tally_hook *hook, tally_lane *lane, tally_group *group,
                                   enum tally__divisor divisor, const tally_bucket *bucket);

/* The hook itself or the one inside that is local; NULL: none is. */
const tally_hook *tally__hook_local(const tally_hook *hook);

/* Whether the hook, or one inside, divides the ddp's group: then it cannot run in a part of it. */
bool tally__hook_divides(const tally_hook *hook);

/* Without wrappers: the hook that has the state. */
const tally_hook *tally__hook_innermost(const tally_hook *hook);

/*
 * The hook's functions of these names, if it has them. A failure has a text, whether the hook gave
 * one or not; a success leaves the thread's text as it was.
 */
int tally__hook_enter(const tally_hook *hook, tally_ddp *ddp);
void tally__hook_leave(const tally_hook *hook);
int tally__hook_attach(const tally_hook *hook, tally_ddp *ddp);
void tally__hook_detach(const tally_hook *hook, tally_ddp *ddp);
int tally__hook_load(const tally_hook *hook, const tally_hook_blob *blobs, size_t n_blobs);

/* What the hook saves, in memory that tally__hook_state_free gives back; empty if it saves nothing.
 * Errors: NOMEM, what its save returns. */
int tally__hook_state_take(const tally_hook *hook, tally_hook_blob *state);
void tally__hook_state_free(tally_hook_blob *state);

/* Which hook has the state: whether it is tally's own, and its name up to its options, which is the
 * start of a longer text. */
struct tally__hook_kind_name {
    bool is_own;
    size_t length;
    const char *text;
};
struct tally__hook_kind_name tally__hook_kind_name(const tally_hook *hook);
bool tally__hook_same_kind(struct tally__hook_kind_name a, struct tally__hook_kind_name b);

/* Whether the hook that has the state is called on some ranks only, and whether on this one. */
bool tally__hook_is_led(const tally_hook *hook);
bool tally__hook_runs_here(const tally_hook *hook);

/* One more hold; tally_hook_free drops one. */
void tally__hook_hold(tally_hook *hook);

#endif

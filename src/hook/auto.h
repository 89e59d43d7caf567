/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook auto, as its files share it. It holds several hooks, the candidates, of which the first
 * is exact, and reduces each bucket by one of them. Its life, counted in steps of a ddp:
 *
 * - WARM_UP: the first steps, while buckets may still be arranged. The first one is the opening: it
 *   codes each bucket twice, without sending. The line was measured before, while the hook was
 *   attached. Steps take the choice that is best for communication alone.
 * - PLAIN: measures ready times, backward and steps, with the hooks chosen so far.
 * - PROBE: also codes each bucket with every candidate, without sending, on the lane.
 * - REFEREE: takes pairs of steps, one with the old choice and one with the proposal.
 * - CAP: takes steps with buckets of another cap, after as many with the old one.
 * - SETTLED: watches step times, and reviews the choice now and then.
 * - FIXED: the choice comes from a plan file and stays.
 *
 * All decisions are made in step_end, a job after all buckets of a step, from maxima over ranks;
 * rank 0 decides. So all ranks change phase and choice between the same two steps.
 *
 * Choices are kept per parameter. A bucket takes the choice that all of its parameters have; if
 * they differ, because buckets were arranged again, it is exact. Buckets with another cap have no
 * parameters of different choices (tally__packing), so that all keep theirs.
 */
#ifndef TALLY_HOOK_AUTO_H
#define TALLY_HOOK_AUTO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "exchange/residuals.h"
#include "hook/hook.h"
#include "tune/choose.h"
#include "tune/profile.h"

enum tally__auto_phase {
    TALLY__AUTO_WARM_UP,
    TALLY__AUTO_PLAIN,
    TALLY__AUTO_PROBE,
    TALLY__AUTO_REFEREE,
    TALLY__AUTO_CAP,
    TALLY__AUTO_SETTLED,
    TALLY__AUTO_FIXED
};

/* Buckets on their way to another packing: the end of the next step shows whether they have moved.
 */
enum tally__auto_move { TALLY__AUTO_STAYS, TALLY__AUTO_TO_TRIAL, TALLY__AUTO_BACK };

/* Steps in which buckets are coded by all candidates. */
#define TALLY__AUTO_PROBES 3
/* Codings of the first step: the second shows what feedback and a warm start make of the first. */
#define TALLY__AUTO_OPENING_PROBES 2
/* Steps over which an error counts. */
#define TALLY__AUTO_ERROR_STEPS 32
/* Step times that are kept. */
#define TALLY__AUTO_WINDOW 16
/* Pairs of steps that a referee takes; its steps: one to warm up, the pairs, and the one whose end
 * decides. */
#define TALLY__AUTO_PAIRS 8
#define TALLY__AUTO_REFEREE_STEPS (2 + 2 * TALLY__AUTO_PAIRS)
/* Steps of a trial of another cap: the one whose end asks for it, one to warm up, those that count,
 * the one whose end decides, and one to go back. */
#define TALLY__AUTO_CAP_STEPS (TALLY__AUTO_PAIRS + 4)
/* The least value of review. */
#define TALLY__AUTO_LEAST_REVIEW 80
#define TALLY__AUTO_REASON 200
#define TALLY__AUTO_VERDICT 120

/* A bucket, by its index. Lanes write it while they reduce the bucket. */
struct tally__auto_slot {
    uint64_t tick;       /* the step that reduced it last */
    int param;           /* its first parameter */
    bool is_mixed;       /* its parameters have different choices: it was exact */
    unsigned generation; /* of the layout */
    double bytes;        /* of its gradients */
    double took_s;       /* in the last step */
    double cpu_s;        /* sum over the window: CPU time of its lane */
    double ready_s;      /* sum over the window */
    size_t n_cpu;        /* terms of these sums */
    size_t n_ready;
};

/* A candidate's work on a bucket, coded without sending. */
struct tally__auto_probe {
    double code_s;
    double bytes; /* of this rank's contribution */
    double exchanges;
    double left[TALLY__AUTO_PROBES]; /* the square of what is left out, after each step; without
                                        feedback: by that step; below 0: it was not coded */
};

/* Some elements of each parameter, evenly spaced, which stand for all. */
struct tally__samples {
    size_t n;
    size_t *first; /* per parameter, and the end: its samples */
    size_t *step;  /* per parameter: elements between two of them */
};

/* The decision for a bucket, as tally_ddp_explain gives it. */
struct tally__auto_row {
    unsigned char choice;
    unsigned char runner_up; /* equal to choice: none */
    double predicted_s;
    double runner_up_s; /* the bucket's time with the runner-up */
    double error;
    char reason[TALLY__AUTO_REASON];
};

/* Replaces measurements, for tests: decisions are then the same on every machine. Both entries are
 * called on each rank, before maxima are taken. */
struct tally__auto_seam {
    void (*profile)(void *user, struct tally__profile *profile);
    /* The time of a step; of the proposal, in the referee. */
    double (*step_s)(void *user, bool is_proposal);
    void *user;
};

struct tally__auto {
    double budget;
    double margin;
    uint64_t review;
    char *plan_path;    /* NULL: none */
    char *profile_path; /* NULL: none */
    size_t n;
    tally_hook *candidates[TALLY__MOST_CANDIDATES];
    tally_hook *probers[TALLY__MOST_CANDIDATES]; /* the same hooks, for coding without sending */
    bool is_probing[TALLY__MOST_CANDIDATES];     /* the prober is attached */
    bool banned[TALLY__MOST_CANDIDATES];         /* it left out more than the budget */
    struct tally__auto_seam seam;
    /* This rank had no memory to measure with. Relaxed: lanes set it, and step_end, which waits for
     * their buckets, reads it. */
    atomic_bool lacks_memory;
    atomic_bool saw_infinite; /* a bucket under test had infinities or NaN; relaxed too */
    bool gave_up;             /* nothing could be measured; verdict says why */

    tally_ddp *ddp;
    tally_group *alone; /* this rank */
    int n_entered;
    int rank;
    int n_ranks;
    double hosts; /* 0: not counted yet */
    double ranks_per_host;
    size_t lanes;

    enum tally__auto_phase phase;
    uint64_t tick;     /* steps since attach, of any phase */
    uint64_t in_phase; /* steps since the phase began */
    double least_gain; /* that a referee asks for */
    bool has_errors;   /* candidates were probed for their errors */
    size_t n_probed;   /* steps that were */
    size_t n_spoiled;  /* probed steps without a result, because of infinities or NaN */
    bool is_live;      /* samples of means are taken, to measure the error */
    uint64_t n_live;   /* steps of them */
    unsigned generation;
    double reference_s; /* step time when the choice was settled */
    bool is_opening;    /* buckets of the first step are coded */
    /* The candidates, in the order of what bucket 0 takes with them. The lane of bucket 0
     * writes it before it releases the flag; the others acquire the flag before they read. */
    unsigned char early_order[TALLY__MOST_CANDIDATES];
    atomic_bool has_early_order;
    bool is_unproved;   /* settled is the opening, which no referee has seen */
    bool has_line;      /* the line was measured since the choice was settled */
    bool may_cut;       /* the referee expects so much that it ends slow steps by the proposal */
    bool was_proposals; /* the last step of the referee was the proposal's */
    double proposal_s;  /* the last of its steps, on this rank; 0: none yet */

    /* Per parameter. */
    size_t n_params;
    unsigned char *settled;      /* the choice in force */
    unsigned char *proposal;     /* the choice under test */
    const unsigned char *active; /* one of these: of the step under way */
    unsigned char *used;         /* in the last step */
    unsigned char *holds;        /* the candidate whose residuals the parameter has */
    int *home;                   /* the bucket that it was in last; -1: none */
    bool *is_delayed;            /* it has a delayed bucket, which is not measured */

    /* Per bucket; there are at most as many as parameters. */
    size_t n_buckets;
    struct tally__auto_slot *slots;
    struct tally__auto_probe *probes; /* candidate * n_params + bucket */
    double *squares;                  /* of gradients, over the probed steps */
    double *sums;                     /* as struct tally__question has them */
    double *losses;                   /* candidate * n_buckets + bucket */
    unsigned char *of_buckets;        /* a choice per bucket */
    struct tally__auto_row *rows;
    size_t n_rows;
    uint64_t n_explained; /* changes with the rows, and when they have a measured time */
    char verdict[TALLY__AUTO_VERDICT]; /* of the last referee, as the end of a sentence */

    /* The bucket cap. */
    size_t cap_bytes;  /* that it would choose; 0: not computed, or not tried again yet */
    double cap_gain;   /* the gain of that, as a part of a step */
    bool is_cap_asked; /* since the choice was settled */
    uint64_t cap_tick; /* before this step no other cap is tried */
    size_t trial_cap;  /* the last that was tried */
    enum tally__auto_move move;
    uint64_t settled_for;                  /* steps before the trial */
    double old_s[TALLY__AUTO_PAIRS];       /* steps with the old cap, of the slowest rank */
    size_t laid_cap;                       /* the packing that stays; 0: the caps of the config, */
    unsigned char *laid_classes;           /* and the classes of its parameters */
    char cap_verdict[TALLY__AUTO_VERDICT]; /* of the last trial, as the end of a sentence */

    struct tally__samples samples;
    float *probe_sums; /* of gradients, over the probed steps */
    float *live_sums;  /* of means */
    float *live_start; /* residuals before the first of these steps, */
    float *live_end;   /* and after the last */
    struct tally__residuals *probe_residuals[TALLY__MOST_CANDIDATES];

    struct tally__profile profile; /* the figures that the last decision used */
    bool has_profile;
    double forward_s; /* sums over the window, and their number */
    double backward_s;
    double compute_squares; /* of forward and backward together */
    size_t n_times;
    double probe_backward_s; /* sum over the probed steps, */
    double probe_cpu_s;      /* with the coding beside it */
    size_t n_probe_times;
    uint64_t last_over_ns;
    double step_s[2 * TALLY__AUTO_WINDOW]; /* a ring, by tick */
};

/* ---- hook_auto.c ---- */

/* Tests: the hook, made from the text of auto, gets its measurements here. Before it is attached.
 */
void tally__auto_set_seam(tally_hook *hook, const struct tally__auto_seam *seam);

/* ---- auto_arrays.c ---- */

/* Errors: NOMEM; the caller frees what was made. */
int tally__auto_make_arrays(struct tally__auto *self, tally_ddp *ddp);
void tally__auto_free_arrays(struct tally__auto *self);

/* ---- auto_candidates.c ---- */

/* Makes the hooks of a text, joined by '+' outside of brackets. Errors: ARG naming the candidate;
 * NOMEM; the caller frees those that were made. */
int tally__auto_read_candidates(struct tally__auto *self, const char *text);

/* ---- auto_probe.c: in jobs ---- */

/* Codes a copy of the bucket's gradients, which are not reduced yet, by all candidates; in the
 * opening twice, and no longer by all once one is known to be best. */
int tally__auto_code(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket);
/* Attaches the probers, with residuals of their own. Between steps. Errors: NOMEM; then none is. */
int tally__auto_begin_probes(struct tally__auto *self);
/* Forgets what was coded. */
void tally__auto_clear_probes(struct tally__auto *self);
/* Detaches the probers and frees their residuals. Between steps. */
void tally__auto_end_probes(struct tally__auto *self);
/* The latency of a round and the rate of the line. Collective. */
int tally__auto_measure_line(struct tally__auto *self, tally_lane *lane,
                             struct tally__profile *profile);
/* Hosts, and ranks on the fullest of them. Collective. */
int tally__auto_count_hosts(struct tally__auto *self, tally_lane *lane);

/* ---- auto_opening.c ---- */

/* Measures the line, if there is one and no plan. In the collective part of attaching. Collective.
 */
int tally__auto_enter_line(struct tally__auto *self);
/* Between steps. */
void tally__auto_begin_opening(struct tally__auto *self);
/* In the job of a bucket that was coded: its parameters take the hook that is best for
 * communication alone. Collective. */
int tally__auto_choose_early(struct tally__auto *self, tally_lane *lane,
                             const tally_bucket *bucket);
/* In jobs of buckets: the candidates in the order of their costs, the exact one first; false: these
 * are not known yet. */
bool tally__auto_get_order(const struct tally__auto *self, unsigned char *order);
/* Makes that choice for all buckets, by all codings of the step and the line: backward is not known
 * yet. In step_end. Collective. */
int tally__auto_end_opening(struct tally__auto *self, tally_lane *lane);

/* ---- auto_samples.c ---- */

/* Errors: NOMEM. */
int tally__samples_make(tally_ddp *ddp, size_t n_params, struct tally__samples *samples);
void tally__samples_free(struct tally__samples *samples);
/* Adds the samples of a parameter to sums, and the square of its norm, as they tell it, to *square.
 * Infinities and NaN count in the square alone. */
void tally__samples_add(const struct tally__samples *samples, const tally_bucket_param *param,
                        float *sums, double *square);
/* Writes the samples of a parameter's residual: what this rank's contributions lack, as a part of
 * the mean, and what the means of its shard lack. Errors: NOMEM. */
int tally__samples_residual(const struct tally__samples *samples, const tally_bucket *bucket, int k,
                            struct tally__residuals *residuals, float *to);

/* ---- auto_meet.c: the phases ---- */

int tally__auto_step_end(void *state, tally_lane *lane);
/* Begins measuring, or, with a plan, the fixed choice. */
void tally__auto_start(struct tally__auto *self);
/* The buckets have changed: measures again, with the choices of their parameters. */
void tally__auto_measure_again(struct tally__auto *self);
void tally__auto_begin(struct tally__auto *self, enum tally__auto_phase phase);
/* The choice stays until the next review. With feedback its error is measured from here on. */
void tally__auto_settle(struct tally__auto *self);
/* A state was loaded: what was settled stays so, and is measured when it is reviewed. */
void tally__auto_loaded(struct tally__auto *self, bool is_settled);

/* ---- auto_times.c: on the thread that waits ---- */

void tally__auto_step_over(void *state, bool has_input);
/* Between steps. */
void tally__auto_forget_times(struct tally__auto *self);

/* ---- auto_referee.c: in step_end ---- */

/* Decides, as soon as the pairs so far do: the proposal becomes the settled choice, or is dropped.
 * Collective. */
int tally__auto_judge(struct tally__auto *self, tally_lane *lane, bool *is_decided);
bool tally__auto_next_is_proposals(const struct tally__auto *self);
/* A step with the old choice that already takes much longer than the proposal's: its other buckets
 * travel by the proposal. All ranks learn the same, in the job of a bucket. */
int tally__auto_cut(const struct tally__auto *self, tally_lane *lane, bool *is_cut);
/* Ends a trial: residuals go to the choice that stays, which is the proposal if it is kept. */
void tally__auto_end_trial(struct tally__auto *self, bool is_kept);
/* Sorts the values. */
double tally__auto_median(double *values, size_t n);
/* The time of the step that ended with this tick. */
double tally__auto_time_of(const struct tally__auto *self, uint64_t tick, bool is_proposal);

/* ---- auto_decide.c: in step_end ---- */

/* All ranks learn whether one of them lacks memory to measure with: by status, or because one of
 * its lanes said so. Then gave_up is set, and all return NOMEM. Other errors pass. Collective. */
int tally__auto_share_lack(struct tally__auto *self, tally_lane *lane, int status);

/* The same, inline, so that static analysis sees that it fails wherever status is a failure. */
static inline int tally__auto_agree_memory(struct tally__auto *self, tally_lane *lane, int status)
{
    int rc = tally__auto_share_lack(self, lane, status);

    return status == TALLY_OK || rc != TALLY_OK ? rc : status;
}

/* Fills the profile from this rank's figures and takes maxima over ranks. Collective. */
int tally__auto_gather(struct tally__auto *self, tally_lane *lane);
/* A proposal beside the settled choice. */
struct tally__offer {
    double gain; /* part of a step */
    uint64_t is_more_exact;
};

/* The most that any hook could gain, as a part of a step: with communication that costs nothing.
 * Errors: NOMEM. */
int tally__auto_most_gain(const struct tally__auto *self, double *gain);
/* Writes the choice that rank 0 makes to proposal. Errors count if has_errors is set. Collective.
 */
int tally__auto_propose(struct tally__auto *self, tally_lane *lane, struct tally__offer *offer);
/* The question of the last decision; and a choice per parameter as one per bucket, in of_buckets.
 */
struct tally__question tally__auto_question(const struct tally__auto *self);
const unsigned char *tally__auto_by_bucket(const struct tally__auto *self,
                                           const unsigned char *choice);
/* Maxima over ranks. */
int tally__auto_maxima(tally_lane *lane, double *values, size_t n);

/* ---- auto_errors.c ---- */

/* Fills sums and losses, relative to these, from this rank's coded steps. */
void tally__auto_fill_errors(struct tally__auto *self);
/* From maxima over ranks: makes losses absolute, and computes the error of each hook as the only
 * one, of the buckets that it may have. Gradients that were zero on all ranks give no error. */
void tally__auto_finish_errors(struct tally__auto *self);
/* The relative error of a candidate, from the codings of a bucket in the opening, on this rank.
 * Infinite: it cannot have the bucket. */
double tally__auto_opening_error(const struct tally__auto *self, size_t h,
                                 const tally_bucket *bucket);
/* Measures the error of the choice over the steps sampled; *is_over: it is above the budget, and
 * the candidate that leaves out most is banned. Collective. */
int tally__auto_measure_error(struct tally__auto *self, tally_lane *lane, bool *is_over);

/* ---- auto_reason.c ---- */

/* Fills the rows for the settled choice, and logs them. */
void tally__auto_explain_all(struct tally__auto *self);
void tally__auto_explain(const void *state, size_t bucket, tally_bucket_choice *choice);
uint64_t tally__auto_n_explained(const void *state);

/* ---- auto_cap.c ---- */

/* Computes the bucket cap that it would choose with the settled choice. In step_end. */
void tally__auto_find_cap(struct tally__auto *self);
/* In a settled step: asks for that cap, once, if steps_left are enough to try it. Collective. */
int tally__auto_try_cap(struct tally__auto *self, tally_lane *lane, uint64_t steps_left);
/* At the end of a step, which had a new layout or not: whether a trial of a cap accounts for it. */
bool tally__auto_has_moved(struct tally__auto *self, bool is_new);
/* Ends a step of a trial; the last one decides. Collective. */
int tally__auto_end_cap(struct tally__auto *self, tally_lane *lane);
/* The packing that the ddp should have. Any thread, between steps and in step_end. */
void tally__auto_get_packing(const void *state, struct tally__packing *packing);

/* ---- auto_plan.c: plan files ---- */

/* Writes the text of a plan, as far as room allows, with a NUL; returns its whole length. */
size_t tally__plan_write(const struct tally__auto *self, char *text, size_t room);
/* Reads a plan for a hook with these candidates and parameters; writes a choice per parameter, and
 * the bucket cap, 0 for none. Errors: ARG naming the line and what was expected there. */
int tally__plan_read(const struct tally__auto *self, tally_ddp *ddp, const char *text, size_t n,
                     unsigned char *choice, size_t *cap_bytes);
/* Rank 0 reads the file, all ranks learn its text and take their choice from it; *is_there: it
 * exists. status is how this rank fared so far. Collective: all ranks fail together. */
int tally__plan_load(struct tally__auto *self, tally_ddp *ddp, int status, bool *is_there);
/* Writes the files of plan and profile, on rank 0. A failure is logged: training continues. */
void tally__auto_write_files(const struct tally__auto *self);

/* ---- auto_state.c ---- */

int tally__auto_save(void *state, void *blob, size_t *bytes);
int tally__auto_load(void *state, const tally_hook_blob *blobs, size_t n_blobs);

#endif

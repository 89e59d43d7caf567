/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses a hook for each bucket of a step: the choice whose replayed step is shortest, with a
 * total error within a budget. A bucket that backward or the line clearly hides stays exact. Pure
 * arithmetic over a profile (profile.h), whose first hook is exact.
 */
#ifndef TALLY_TUNE_CHOOSE_H
#define TALLY_TUNE_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "tune/profile.h"

/* Hooks among which it chooses. */
#define TALLY__MOST_CANDIDATES 8

struct tally__question {
    const struct tally__profile *profile;
    /* Squares of norms, per bucket: of the sum of the gradients; and per hook and bucket
     * (h * n_buckets + b): of the part that the hook leaves out of that sum. NULL: no hook leaves
     * anything out. Infinite: the hook must not have this bucket. */
    const double *sums;
    const double *losses;
    double budget;      /* the most that the loss may be, relative to the sum, 0..1 */
    const bool *banned; /* per hook: not to be chosen; NULL: none */
};

struct tally__answer {
    double step_s;  /* with the choice */
    double exact_s; /* with the first hook for all buckets */
    double least_s; /* with hooks and a line that cost nothing, not even CPU time of backward */
    double error;   /* of the choice, relative to the sum */
};

/* Writes a hook's index per bucket to choice. Errors: NOMEM. */
int tally__choose(const struct tally__question *question, unsigned char *choice,
                  struct tally__answer *answer);

/* Replays the step with a given choice. Errors: NOMEM. */
int tally__choice_replay(const struct tally__question *question, const unsigned char *choice,
                         struct tally__answer *answer);

/* The cost of a bucket with a hook. */
struct tally__load tally__choice_load(const struct tally__profile *profile, size_t hook,
                                      size_t bucket);

/* One bucket of a choice, and the hook that would be chosen next for it. */
struct tally__bucket_answer {
    double bucket_s;     /* its own time */
    size_t runner_up;    /* the hook with which the step takes least time, without the chosen one;
                            equal to the chosen one if there is no other */
    double runner_up_s;  /* the step's time then */
    bool runner_up_fits; /* within the budget */
    double exact_s;      /* the step's time if this bucket alone went with the first hook */
    double nothing_s;    /* the step's time if this bucket alone cost nothing */
    double error;        /* of the hook chosen for it, relative to the bucket's sum */
    double runner_up_error;
};

/* Fills an answer per bucket. Errors: NOMEM. */
int tally__choice_explain(const struct tally__question *question, const unsigned char *choice,
                          struct tally__bucket_answer *answers);

#endif

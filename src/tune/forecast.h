/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forecasts: the time of a step on a cluster, from a profile of another one. Pure arithmetic over
 * cost.h and replay.h. It says nothing about the loss.
 */
#ifndef TALLY_TUNE_FORECAST_H
#define TALLY_TUNE_FORECAST_H

#include "tune/cost.h"
#include "tune/profile.h"
#include "tune/replay.h"

/* A way to exchange gradients or parameters. */
struct tally__way {
    const struct tally__profile_hook *hook;
    enum tally__scheme scheme;
    double period; /* steps between averagings of parameters; 0: gradients travel in every step */
};

/* Terms of a step. */
enum tally__term {
    TALLY__TERM_COMPUTE, /* forward and backward of the average rank */
    TALLY__TERM_LINE,
    TALLY__TERM_ROUNDS,
    TALLY__TERM_CODING,
    TALLY__TERM_SLOWEST,
    TALLY__N_TERMS
};
const char *tally__term_name(enum tally__term term);

struct tally__forecast {
    double step_s;
    double low_s; /* the range: see is_far */
    double high_s;
    double exposed_s;       /* of step_s, what communication adds to computing */
    double busy;            /* part of the step in which the average rank computes, 0..1 */
    double host_bytes;      /* that leave one host in a step */
    double messages;        /* that a rank sends in a step */
    double break_even_gbit; /* up to which this is faster than a flat allreduce; 0: nowhere,
                               INFINITY: everywhere */
    enum tally__term binds; /* the step would gain most without it */
    bool is_far; /* ranks, rate or latency are more than 10 times what was measured, or less than a
                    tenth: only the range is meant */
};

/* Errors: NOMEM. */
int tally__forecast(const struct tally__profile *profile, const struct tally__way *way,
                    const struct tally__cluster *cluster, struct tally__forecast *forecast);

/* The cluster on which the profile was taken. */
struct tally__cluster tally__profile_cluster(const struct tally__profile *profile);

#endif

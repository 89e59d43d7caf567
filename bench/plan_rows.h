/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `tally plan`: each way to exchange on each machine. */
#ifndef TALLY_BENCH_PLAN_ROWS_H
#define TALLY_BENCH_PLAN_ROWS_H

#include "tune/forecast.h"

/* The machines: all combinations. */
struct plan_machines {
    const double *hosts;
    size_t n_hosts;
    const double *ranks_per_host;
    size_t n_ranks_per_host;
    const double *gbit;
    size_t n_gbit;
    const double *latency_us;
    size_t n_latency;
};

#define PLAN_NAME_BYTES 256

/* A way to exchange, with the name that the user gave it: "hosts(int8)". */
struct plan_way {
    char name[PLAN_NAME_BYTES];
    struct tally__way way;
};

struct plan_row {
    const struct plan_way *way;
    struct tally__cluster cluster;
    struct tally__forecast forecast;
    bool is_best; /* the shortest step on its machine that sends gradients in every step */
};

struct plan {
    const char *file; /* the profile */
    struct tally__profile profile;
    struct plan_way *ways;
    size_t n_ways;
    struct plan_row *rows; /* machine by machine */
    size_t n_rows;
};

/* Reads the profile plan->file. Errors: ARG naming the line, SYSTEM, NOMEM. */
int plan_read(struct plan *plan);

/*
 * Reads the ways from a list such as "int8+hosts(int8)+diloco"; NULL: all hooks of the profile,
 * flat and, if is_shared, within hosts, and local training. periods is a list for postlocal and
 * diloco, of n values. Errors: ARG naming what is accepted, NOMEM.
 */
int plan_ways(struct plan *plan, const char *list, const double *periods, size_t n, bool is_shared);

/* Computes all rows. Errors: ARG for a machine that the profile says nothing about, NOMEM. */
int plan_compute(struct plan *plan, const struct plan_machines *machines);

void plan_free(struct plan *plan);

/* Texts of a row: "123.4" or, beyond what was measured, "110 .. 180"; and the break-even. */
#define PLAN_CELL 40
void plan_step_text(const struct tally__forecast *forecast, char text[PLAN_CELL]);
void plan_break_even_text(const struct tally__forecast *forecast, char text[PLAN_CELL]);

/* Whether a flat exchange is the wrong one: most of the step goes into its messages. */
bool plan_is_flat_wrong(const struct plan_row *row);

#endif

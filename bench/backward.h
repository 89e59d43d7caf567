/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A synthetic backward pass: arithmetic over an array that no cache holds, in units of equal
 * length. It computes and moves memory; it never sleeps, so it competes with communication for
 * cores and for memory like a real one.
 */
#ifndef TALLY_BENCH_BACKWARD_H
#define TALLY_BENCH_BACKWARD_H

#include <stddef.h>
#include <stdint.h>

struct backward {
    float *values;
    size_t n;    /* elements, a whole number of units */
    size_t next; /* start of the next unit */
};

/* Makes one, with every page touched. Errors: NOMEM. */
int backward_create(struct backward *backward);
void backward_free(struct backward *backward);

/* Computes for this number of units. */
void backward_burn(struct backward *backward, uint64_t n_units);

/* Nanoseconds that a unit takes when nothing else runs; measures for a tenth of a second. */
double backward_unit_ns(struct backward *backward);

#endif

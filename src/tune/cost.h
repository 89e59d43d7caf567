/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model: what one bucket costs on a cluster, by the messages that tally's exchanges send,
 * and how long the slowest of many ranks computes. Pure arithmetic: measures nothing, sends
 * nothing. Times are in seconds, rates in Gbit/s.
 *
 *   W ranks, R of them on each of H hosts; E bytes: one rank's contribution as it travels
 *   flight    the time from sending a small message to having received it
 *   round     every rank hears from every other one: a flight, or log2 W of them with many ranks
 *
 * Two phases: a round; shards to their owners; results to all ranks. A rank sends 2 (W - R) / W E
 * to other hosts, and all R ranks of a host share its link. One phase, for small data: a round that
 * carries all of it, (W - R) E per rank. Within hosts first: the ranks of a host add through
 * memory, and one leader per host takes part in the exchange. docs/architecture.md describes the
 * exchanges.
 */
#ifndef TALLY_TUNE_COST_H
#define TALLY_TUNE_COST_H

#include <stdbool.h>

/* The way to a peer: on another host, or through the memory of this one. */
struct tally__link {
    double latency_s; /* a flight */
    double message_s; /* CPU time of one more message */
    double gbit;      /* of a host's link, in each direction; of memory, for each rank */
};

struct tally__cluster {
    double hosts;
    double ranks_per_host;
    struct tally__link link;
    struct tally__link memory;
};

/* The ranks that exchange with each other. */
enum tally__scheme { TALLY__FLAT, TALLY__WITHIN_HOSTS };

/* A bucket, for the model. */
struct tally__parcel {
    double plain_bytes; /* of its gradients */
    double bytes;       /* of one rank's contribution as it travels */
    double code_s;
    int exchanges; /* one after the other */
};

/* Its cost. The bucket takes code_s + rounds_s + line_s. */
struct tally__load {
    double code_s;
    double rounds_s;   /* flights, and messages that one rank handles */
    double line_s;     /* bytes / bandwidth */
    double messages;   /* that one rank sends */
    double rank_bytes; /* that one rank sends, to other hosts or through memory */
    double host_bytes; /* that leave one host */
};

/* The flights of a round: many far ranks take log2 W. */
double tally__round_flights(double n_ranks, double n_far);

struct tally__load tally__load_of(const struct tally__cluster *cluster, enum tally__scheme scheme,
                                  const struct tally__parcel *parcel);

/* The distance of the slowest of n ranks from the mean, in standard deviations: the expected
 * maximum of n normal numbers, or, with a long tail, of n exponential ones. */
double tally__slowest(double n, bool long_tail);

#endif

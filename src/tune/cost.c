/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of one bucket, and the slowest of many ranks; see cost.h. No state; any thread. */
#include "tune/cost.h"

#include <math.h>

#include "comm/messages.h"

/* As exchange/two_phase.c has it: one phase through memory. tests/unit/test_tune_cost.c compares.
 */
#define NEAR_PAYLOAD 2048.0
#define MESSAGE_BYTES 262144.0 /* a piece of a larger shard */

double tally__round_flights(double n_ranks, double n_far)
{
    if (n_far <= 0) {
        return 0;
    }
    return n_far <= TALLY__MOST_DIRECT ? 1 : ceil(log2(n_ranks));
}

/* Messages that a rank sends in a round. */
static double round_messages(double n_ranks, double n_far)
{
    return n_far <= TALLY__MOST_DIRECT ? n_far : ceil(log2(n_ranks));
}

/* The most bytes that one phase carries. */
static double payload(double n_ranks, double n_far)
{
    if (n_far <= 0) {
        return NEAR_PAYLOAD;
    }
    return (double)tally__payload_for((int)n_ranks, (int)n_far);
}

static double seconds_for(const struct tally__link *link, double bytes)
{
    return link->gbit > 0 ? bytes * 8e-9 / link->gbit : 0;
}

/* One exchange of bytes among hosts * per_host ranks, added to *load. */
static void add_exchange(const struct tally__cluster *cluster, double per_host, double bytes,
                         struct tally__load *load)
{
    double n_ranks = cluster->hosts * per_host;
    double n_far = n_ranks - per_host;
    bool is_far = n_far > 0;
    const struct tally__link *link = is_far ? &cluster->link : &cluster->memory;
    double n_peers = is_far ? n_far : n_ranks - 1;
    double flights = is_far ? tally__round_flights(n_ranks, n_far) : 1;
    double messages = is_far ? round_messages(n_ranks, n_far) : 0;
    double shard = bytes / n_ranks;
    double sent;

    if (n_ranks <= 1) {
        return;
    }
    if (bytes <= payload(n_ranks, n_far)) {
        sent = n_peers * bytes;
    } else {
        bool rides = is_far && n_far <= TALLY__MOST_DIRECT && shard <= (double)TALLY__RIDER_BYTES;
        double pieces = ceil(shard / MESSAGE_BYTES);

        sent = 2 * n_peers * shard;
        flights += rides ? 1 : 2;
        messages += is_far ? (rides ? 1 : 2) * n_far * pieces : 0;
    }
    load->messages += messages;
    load->rounds_s += flights * link->latency_s + messages * link->message_s;
    load->rank_bytes += sent;
    load->line_s += seconds_for(link, is_far ? sent * per_host : sent);
    load->host_bytes += is_far ? sent * per_host : 0;
}

/* The ranks of a host add the gradients, and later take the result from their leader. */
static void add_within_host(const struct tally__cluster *cluster, double bytes,
                            struct tally__load *load)
{
    double per_host = cluster->ranks_per_host;
    double moved = 2 * bytes * (per_host - 1) / per_host + bytes;

    if (per_host > 1) {
        load->rounds_s += 4 * cluster->memory.latency_s;
        load->line_s += seconds_for(&cluster->memory, moved);
    }
}

struct tally__load tally__load_of(const struct tally__cluster *cluster, enum tally__scheme scheme,
                                  const struct tally__parcel *parcel)
{
    double per_host = scheme == TALLY__FLAT ? cluster->ranks_per_host : 1;
    double n_ranks = cluster->hosts * per_host;
    double n_far = n_ranks - per_host;
    struct tally__load load = {.code_s = parcel->code_s};

    for (int k = 0; k < parcel->exchanges; k++) {
        add_exchange(cluster, per_host, parcel->bytes / parcel->exchanges, &load);
    }
    /* The round that ends the job. */
    if (n_ranks > 1) {
        double messages = n_far > 0 ? round_messages(n_ranks, n_far) : 0;
        const struct tally__link *link = n_far > 0 ? &cluster->link : &cluster->memory;

        load.messages += messages;
        load.rounds_s += (n_far > 0 ? tally__round_flights(n_ranks, n_far) : 1) * link->latency_s +
                         messages * link->message_s;
    }
    if (scheme == TALLY__WITHIN_HOSTS) {
        add_within_host(cluster, parcel->plain_bytes, &load);
    }
    return load;
}

/* The number below which a normal number is with this probability. */
static double normal_quantile(double probability)
{
    double low = -10;
    double high = 10;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;

        if (0.5 * erfc(-middle / sqrt(2.0)) < probability) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (low + high) / 2;
}

double tally__slowest(double n, bool long_tail)
{
    const double euler = 0.5772156649;

    if (n <= 1) {
        return 0;
    }
    if (long_tail) {
        return log(n) + euler + 1 / (2 * n) - 1;
    }
    return normal_quantile((n - 0.375) / (n + 0.25)); /* Blom's formula */
}

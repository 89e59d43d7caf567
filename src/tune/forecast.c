/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forecasts; see forecast.h. The term that binds is found by leaving each one out. The range comes
 * from two other sets of assumptions: a hopeful one (coding and line overlap completely, messages
 * cost no CPU time) and a doubtful one (the line gives nine tenths, messages cost twice as much,
 * slow ranks have a long tail). No state; any thread.
 */
#include "tune/forecast.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

/* Beyond this factor from what was measured there is only a range. */
#define FAR_FACTOR 10.0
/* Without any term that gains more than this part of the step, computing binds. */
#define LEAST_GAIN 0.02
/* Rates among which the break-even is searched. */
#define LEAST_GBIT 1e-3
#define MOST_GBIT 1e5

/* Assumptions: what each term counts. */
struct view {
    double factor[TALLY__N_TERMS];
    double messages;
    bool overlaps; /* coding and line */
    bool long_tail;
};

static const struct view plain_view = {{1, 1, 1, 1, 1}, 1, false, false};
static const struct view hopeful_view = {{1, 1, 1, 1, 1}, 0, true, false};
static const struct view doubtful_view = {{1, 1 / 0.9, 1, 1, 1}, 2, false, true};

/* A question with its working memory. */
struct study {
    const struct tally__profile *profile;
    const struct tally__way *way;
    const struct tally__cluster *cluster;
    struct tally__replay_bucket *buckets;
};

static struct tally__load load_in(const struct study *study, const struct view *view, size_t b)
{
    const struct tally__profile_hook *hook = study->way->hook;
    const struct tally__parcel parcel = {study->profile->buckets[b].bytes, hook->coding[b].bytes,
                                         hook->coding[b].code_s, (int)hook->exchanges};
    struct tally__cluster cluster = *study->cluster;
    struct tally__load load;

    cluster.link.message_s *= view->messages;
    load = tally__load_of(&cluster, study->way->scheme, &parcel);
    load.line_s *= view->factor[TALLY__TERM_LINE];
    load.rounds_s *= view->factor[TALLY__TERM_ROUNDS];
    load.code_s *= view->factor[TALLY__TERM_CODING];
    if (view->overlaps) {
        load.line_s = fmax(load.line_s - load.code_s, 0);
    }
    return load;
}

static double slowest_s(const struct study *study, const struct view *view)
{
    double n_ranks = study->cluster->hosts * study->cluster->ranks_per_host;
    double period = study->way->period > 1 ? study->way->period : 1;

    /* Slow steps of one rank average out over a period. */
    return view->factor[TALLY__TERM_SLOWEST] * study->profile->spread_s *
           tally__slowest(n_ranks, view->long_tail) / sqrt(period);
}

/* All buckets one after the other, without a backward to hide them. */
static double average_s(const struct study *study, const struct view *view,
                        struct tally__forecast *forecast)
{
    double total_s = 0;

    for (size_t b = 0; b < study->profile->n_buckets; b++) {
        struct tally__load load = load_in(study, view, b);

        total_s += load.code_s + load.line_s + load.rounds_s;
        forecast->host_bytes += load.host_bytes / study->way->period;
        forecast->messages += load.messages / study->way->period;
    }
    return total_s / study->way->period;
}

static double replay_s(const struct study *study, const struct view *view,
                       struct tally__forecast *forecast)
{
    const struct tally__profile *profile = study->profile;
    struct tally__replay replay = {profile->backward_s, profile->cpu_share, (size_t)profile->lanes,
                                   profile->n_buckets, study->buckets};
    struct tally__replayed replayed;

    for (size_t b = 0; b < profile->n_buckets; b++) {
        struct tally__replay_bucket *bucket = &study->buckets[b];

        bucket->load = load_in(study, view, b);
        bucket->ready_s = profile->buckets[b].ready_s;
        bucket->cpu_s = bucket->load.code_s + profile->cpu_s_per_byte * bucket->load.rank_bytes *
                                                  view->factor[TALLY__TERM_LINE];
        forecast->host_bytes += bucket->load.host_bytes;
        forecast->messages += bucket->load.messages;
    }
    replayed = tally__replay(&replay);
    return replayed.backward_s - profile->backward_s + replayed.exposed_s;
}

/* The time of a step; also fills exposed_s, busy, bytes and messages. */
static double step_s(const struct study *study, const struct view *view,
                     struct tally__forecast *forecast)
{
    const struct tally__profile *profile = study->profile;
    double compute_s = profile->forward_s + profile->backward_s;

    forecast->host_bytes = 0;
    forecast->messages = 0;
    forecast->exposed_s =
        study->way->period > 0 ? average_s(study, view, forecast) : replay_s(study, view, forecast);
    forecast->step_s = compute_s + forecast->exposed_s + slowest_s(study, view);
    forecast->busy = forecast->step_s > 0 ? compute_s / forecast->step_s : 1;
    return forecast->step_s;
}

static enum tally__term find_binding(const struct study *study, double whole_s)
{
    enum tally__term binds = TALLY__TERM_COMPUTE;
    double most_s = LEAST_GAIN * whole_s;

    for (int term = TALLY__TERM_LINE; term < TALLY__N_TERMS; term++) {
        struct view view = plain_view;
        struct tally__forecast without;
        double gain_s;

        view.factor[term] = 0;
        gain_s = whole_s - step_s(study, &view, &without);
        if (gain_s > most_s) {
            most_s = gain_s;
            binds = (enum tally__term)term;
        }
    }
    return binds;
}

/* Whether this way is faster than a flat allreduce at a rate. */
static bool is_faster(const struct study *study, double gbit)
{
    const struct tally__way plain = {&study->profile->hooks[0], TALLY__FLAT, 0};
    struct tally__cluster cluster = *study->cluster;
    struct study other = *study;
    struct tally__forecast unused;
    double this_s;

    cluster.link.gbit = gbit;
    other.cluster = &cluster;
    this_s = step_s(&other, &plain_view, &unused);
    other.way = &plain;
    return this_s < step_s(&other, &plain_view, &unused);
}

static double find_break_even(const struct study *study)
{
    double low = LEAST_GBIT;
    double high = MOST_GBIT;

    if (study->cluster->hosts <= 1 || !is_faster(study, low)) {
        return 0;
    }
    if (is_faster(study, high)) {
        return INFINITY;
    }
    while (high / low > 1.001) {
        double middle = sqrt(low * high);

        *(is_faster(study, middle) ? &low : &high) = middle;
    }
    return low;
}

static bool is_beyond(double value, double measured)
{
    return value > FAR_FACTOR * measured || value * FAR_FACTOR < measured;
}

struct tally__cluster tally__profile_cluster(const struct tally__profile *profile)
{
    return (struct tally__cluster){profile->hosts, profile->ranks_per_host, profile->link,
                                   profile->memory};
}

int tally__forecast(const struct tally__profile *profile, const struct tally__way *way,
                    const struct tally__cluster *cluster, struct tally__forecast *forecast)
{
    struct study study = {profile, way, cluster, NULL};
    struct tally__forecast answer;
    struct tally__forecast unused;

    study.buckets =
        tally__alloc_array(profile->n_buckets, sizeof *study.buckets, "the replay of a step");
    if (!study.buckets) {
        return TALLY_NOMEM;
    }
    answer.low_s = step_s(&study, &hopeful_view, &unused);
    answer.high_s = step_s(&study, &doubtful_view, &unused);
    (void)step_s(&study, &plain_view, &answer);
    answer.low_s = fmin(answer.low_s, answer.step_s);
    answer.high_s = fmax(answer.high_s, answer.step_s);
    answer.binds = find_binding(&study, answer.step_s);
    answer.break_even_gbit = find_break_even(&study);
    answer.is_far =
        is_beyond(cluster->hosts * cluster->ranks_per_host,
                  profile->hosts * profile->ranks_per_host) ||
        (cluster->hosts > 1 && (is_beyond(cluster->link.gbit, profile->link.gbit) ||
                                is_beyond(cluster->link.latency_s, profile->link.latency_s)));
    tally__free(study.buckets);
    *forecast = answer;
    return TALLY_OK;
}

const char *tally__term_name(enum tally__term term)
{
    static const char *const names[TALLY__N_TERMS] = {[TALLY__TERM_COMPUTE] = "computing",
                                                      [TALLY__TERM_LINE] = "line",
                                                      [TALLY__TERM_ROUNDS] = "rounds",
                                                      [TALLY__TERM_CODING] = "coding",
                                                      [TALLY__TERM_SLOWEST] = "slowest rank"};

    return names[term];
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of a step; see replay.h. No state; any thread. */
#include "tune/replay.h"

#include <assert.h>
#include <math.h>

/* Backward as far as it has come. Buckets before first are done; those up to end are launched. */
struct walk {
    const struct tally__replay *replay;
    size_t first;
    size_t end;
    double now_s;
    double worked_s; /* of backward alone */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* The share of its CPU that backward has now, 0..1; *until_s is the time up to which it holds. */
static double speed(struct walk *walk, double *until_s)
{
    const struct tally__replay_bucket *buckets = walk->replay->buckets;
    double taken = 0;
    size_t n_waiting = 0;

    *until_s = INFINITY;
    while (walk->first < walk->end && buckets[walk->first].done_s <= walk->now_s) {
        walk->first++;
    }
    /* Each lane has at most one bucket that begins next. */
    for (size_t k = walk->first; k < walk->end && n_waiting < walk->replay->lanes; k++) {
        const struct tally__replay_bucket *bucket = &buckets[k];

        if (bucket->start_s > walk->now_s) {
            n_waiting++;
            *until_s = bucket->start_s < *until_s ? bucket->start_s : *until_s;
        } else if (bucket->done_s > walk->now_s) {
            taken += bucket->cpu_s / (bucket->done_s - bucket->start_s);
            *until_s = bucket->done_s < *until_s ? bucket->done_s : *until_s;
        }
    }
    taken *= walk->replay->cpu_share;
    return taken < 1 ? 1 - taken : 0;
}

/* Lets backward work until it has done work_s in total. */
static void work_until(struct walk *walk, double work_s)
{
    while (walk->worked_s < work_s) {
        double until_s;
        double rate = speed(walk, &until_s);
        double left_s = work_s - walk->worked_s;

        if (rate * (until_s - walk->now_s) >= left_s) {
            walk->now_s += left_s / rate;
            walk->worked_s = work_s;
        } else {
            walk->worked_s += rate * (until_s - walk->now_s);
            walk->now_s = until_s;
        }
    }
}

struct tally__replayed tally__replay(struct tally__replay *replay)
{
    double lane_free_s[TALLY__REPLAY_MOST_LANES] = {0};
    struct walk walk = {.replay = replay};
    double line_free_s = 0;
    double end_s = 0;

    assert(replay->lanes > 0 && replay->lanes <= TALLY__REPLAY_MOST_LANES);
    for (size_t b = 0; b < replay->n; b++) {
        struct tally__replay_bucket *bucket = &replay->buckets[b];
        double *lane_s = &lane_free_s[b % replay->lanes];

        /* Buckets are launched in order. */
        work_until(&walk,
                   bucket->ready_s < replay->backward_s ? bucket->ready_s : replay->backward_s);
        bucket->start_s = later(walk.now_s, *lane_s);
        line_free_s = later(bucket->start_s + bucket->load.code_s, line_free_s);
        line_free_s += bucket->load.line_s;
        bucket->done_s = line_free_s + bucket->load.rounds_s;
        *lane_s = bucket->done_s;
        end_s = later(end_s, bucket->done_s);
        walk.end = b + 1;
    }
    work_until(&walk, replay->backward_s);
    return (struct tally__replayed){.backward_s = walk.now_s,
                                    .exposed_s = later(end_s - walk.now_s, 0)};
}

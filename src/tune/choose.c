/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing hooks for the buckets of a step; see choose.h. The search starts from each hook for all
 * buckets, changes one bucket at a time as long as the step gains, and at last returns buckets to
 * the hook with less error that the step does not notice. Coding and line may take longer than was
 * measured, since other work goes on beside them: a choice is judged by the mean of two steps, one
 * as measured and one in which they do. No state; any thread.
 */
#include "tune/choose.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tune/forecast.h"
#include "tune/replay.h"

/* Part of a step that a change must gain, and part that a return to exactness may cost in total. */
#define LEAST_GAIN 1e-4
#define RETURN_COST 2e-3
#define MOST_SWEEPS 4
/* Factor by which buckets may take longer than was measured. */
#define DOUBT 1.25
/* Replays beyond which a sweep over single buckets would take too long. */
#define MOST_REPLAYS 4000

/* A question with its working memory. */
struct search {
    const struct tally__question *question;
    size_t n;
    size_t n_hooks;
    struct tally__load *loads; /* h * n + b */
    struct tally__replay_bucket *buckets;
    unsigned char *trial;
};

struct tally__load tally__choice_load(const struct tally__profile *profile, size_t hook,
                                      size_t bucket)
{
    const struct tally__profile_hook *of = &profile->hooks[hook];
    const struct tally__coding *coding = &of->coding[bucket];
    const struct tally__parcel parcel = {profile->buckets[bucket].bytes, coding->bytes,
                                         coding->code_s,
                                         of->exchanges > 1 ? (int)of->exchanges : 1};
    const struct tally__cluster cluster = tally__profile_cluster(profile);

    return tally__load_of(&cluster, TALLY__FLAT, &parcel);
}

static void end_search(struct search *search)
{
    tally__free(search->loads);
    tally__free(search->buckets);
    tally__free(search->trial);
}

static int begin_search(const struct tally__question *question, struct search *search)
{
    const struct tally__profile *profile = question->profile;

    *search =
        (struct search){.question = question, .n = profile->n_buckets, .n_hooks = profile->n_hooks};
    search->loads =
        tally__alloc_array(search->n * search->n_hooks, sizeof *search->loads, "a choice");
    search->buckets = tally__alloc_array(search->n, sizeof *search->buckets, "a choice");
    search->trial = tally__alloc_array(search->n, 1, "a choice");
    if (!search->loads || !search->buckets || !search->trial) {
        end_search(search);
        return TALLY_NOMEM;
    }
    for (size_t h = 0; h < search->n_hooks; h++) {
        for (size_t b = 0; b < search->n; b++) {
            search->loads[h * search->n + b] = tally__choice_load(profile, h, b);
        }
    }
    return TALLY_OK;
}

/* The time of the step if buckets take longer by a factor; bucket free costs nothing (n: none). */
static double step_with(const struct search *search, const unsigned char *choice,
                        size_t free_bucket, double factor)
{
    const struct tally__profile *profile = search->question->profile;
    struct tally__replay replay = {profile->backward_s, profile->cpu_share,
                                   profile->lanes > 1 ? (size_t)profile->lanes : 1, search->n,
                                   search->buckets};
    const struct tally__load nothing = {0};
    struct tally__replayed replayed;

    for (size_t b = 0; b < search->n; b++) {
        struct tally__replay_bucket *bucket = &search->buckets[b];

        bucket->load = search->loads[choice[b] * search->n + b];
        if (b == free_bucket) {
            bucket->load = nothing;
        }
        bucket->load.code_s *= factor;
        bucket->load.line_s *= factor;
        bucket->load.rounds_s *= factor;
        bucket->ready_s = profile->buckets[b].ready_s;
        bucket->cpu_s = bucket->load.code_s + profile->cpu_s_per_byte * bucket->load.rank_bytes;
    }
    replayed = tally__replay(&replay);
    return profile->forward_s + replayed.backward_s + replayed.exposed_s;
}

static double step_s(const struct search *search, const unsigned char *choice, size_t free_bucket)
{
    return step_with(search, choice, free_bucket, 1);
}

/* The cost of a choice: the mean of both steps. */
static double cost_s(const struct search *search, const unsigned char *choice)
{
    return (step_s(search, choice, search->n) + step_with(search, choice, search->n, DOUBT)) / 2;
}

/* The lower bound of all choices: the step without communication. Backward was measured while the
 * lanes of a choice ran; at most, it would gain all of their CPU time. */
static double least_s(const struct search *search, const unsigned char *choice)
{
    const struct tally__profile *profile = search->question->profile;
    double cpu_s = 0;

    for (size_t b = 0; b < search->n; b++) {
        const struct tally__load *load = &search->loads[choice[b] * search->n + b];

        cpu_s += load->code_s + profile->cpu_s_per_byte * load->rank_bytes;
    }
    return profile->forward_s + fmax(profile->backward_s - cpu_s, 0);
}

/* The relative error from squares; without a sum, a loss is beyond any budget. */
static double part_of(double loss, double sum)
{
    return sum > 0 ? sqrt(loss / sum) : loss > 0 ? INFINITY : 0;
}

static double error_of(const struct search *search, const unsigned char *choice)
{
    const struct tally__question *question = search->question;
    double loss = 0;
    double sum = 0;

    for (size_t b = 0; b < search->n && question->losses; b++) {
        loss += question->losses[choice[b] * search->n + b];
        sum += question->sums[b];
    }
    return part_of(loss, sum);
}

static bool fits(const struct search *search, const unsigned char *choice)
{
    return error_of(search, choice) <= search->question->budget;
}

static bool is_banned(const struct search *search, size_t h)
{
    return h > 0 && search->question->banned && search->question->banned[h];
}

/* Tries every hook for every bucket; returns whether one change was better. */
static bool sweep(const struct search *search, unsigned char *choice, double *best_s)
{
    bool is_better = false;

    for (size_t b = 0; b < search->n; b++) {
        unsigned char kept = choice[b];

        for (size_t h = 0; h < search->n_hooks; h++) {
            double s;

            if (h == kept || is_banned(search, h)) {
                continue;
            }
            choice[b] = (unsigned char)h;
            s = fits(search, choice) ? cost_s(search, choice) : INFINITY;
            if (s < *best_s * (1 - LEAST_GAIN)) {
                *best_s = s;
                kept = choice[b];
                is_better = true;
            }
        }
        choice[b] = kept;
    }
    return is_better;
}

static double loss_of(const struct search *search, size_t h, size_t b)
{
    const double *losses = search->question->losses;

    return losses ? losses[h * search->n + b] : (double)h;
}

/* Buckets go back to the hook with the least error with which the cost stays below most_s. */
static void relax(const struct search *search, unsigned char *choice, double most_s)
{
    for (size_t b = 0; b < search->n; b++) {
        unsigned char kept = choice[b];

        for (size_t h = 0; h < search->n_hooks; h++) {
            if (is_banned(search, h) || loss_of(search, h, b) >= loss_of(search, kept, b)) {
                continue;
            }
            choice[b] = (unsigned char)h;
            if (cost_s(search, choice) <= most_s) {
                kept = choice[b];
            }
        }
        choice[b] = kept;
    }
}

/* Improves choice from one start; returns its cost. */
static double improve(const struct search *search, unsigned char *choice)
{
    double best_s = cost_s(search, choice);

    for (int i = 0; i < MOST_SWEEPS && search->n * search->n_hooks <= MOST_REPLAYS; i++) {
        if (!sweep(search, choice, &best_s)) {
            break;
        }
    }
    relax(search, choice, best_s * (1 + RETURN_COST));
    return cost_s(search, choice);
}

int tally__choose(const struct tally__question *question, unsigned char *choice,
                  struct tally__answer *answer)
{
    struct search search;
    double best_s = INFINITY;

    TRY(begin_search(question, &search));
    for (size_t h = 0; h < search.n_hooks; h++) {
        double s;

        for (size_t b = 0; b < search.n; b++) {
            search.trial[b] = isinf(loss_of(&search, h, b)) ? 0 : (unsigned char)h;
        }
        if (is_banned(&search, h) || (h > 0 && !fits(&search, search.trial))) {
            continue;
        }
        s = improve(&search, search.trial);
        if (s < best_s * (1 - LEAST_GAIN)) {
            best_s = s;
            memcpy(choice, search.trial, search.n);
        }
    }
    end_search(&search);
    return tally__choice_replay(question, choice, answer);
}

int tally__choice_replay(const struct tally__question *question, const unsigned char *choice,
                         struct tally__answer *answer)
{
    struct search search;

    TRY(begin_search(question, &search));
    answer->step_s = step_s(&search, choice, search.n);
    answer->error = error_of(&search, choice);
    memset(search.trial, 0, search.n);
    answer->exact_s = step_s(&search, search.trial, search.n);
    answer->least_s = least_s(&search, choice);
    end_search(&search);
    return TALLY_OK;
}

static double bucket_error(const struct search *search, size_t h, size_t b)
{
    const struct tally__question *question = search->question;

    return question->losses ? part_of(question->losses[h * search->n + b], question->sums[b]) : 0;
}

static void explain(const struct search *search, const unsigned char *choice, size_t bucket,
                    struct tally__bucket_answer *answer)
{
    unsigned char chosen = choice[bucket];
    const struct tally__load *load = &search->loads[chosen * search->n + bucket];

    *answer =
        (struct tally__bucket_answer){.bucket_s = load->code_s + load->line_s + load->rounds_s,
                                      .runner_up = chosen,
                                      .runner_up_s = INFINITY};
    answer->nothing_s = step_s(search, choice, bucket);
    answer->error = bucket_error(search, chosen, bucket);
    for (size_t h = 0; h < search->n_hooks; h++) {
        double s;

        search->trial[bucket] = (unsigned char)h;
        s = step_s(search, search->trial, search->n);
        if (h == 0) {
            answer->exact_s = s;
        }
        if (h != chosen && s < answer->runner_up_s) {
            answer->runner_up = h;
            answer->runner_up_s = s;
            answer->runner_up_fits = !is_banned(search, h) && fits(search, search->trial);
            answer->runner_up_error = bucket_error(search, h, bucket);
        }
    }
    search->trial[bucket] = chosen;
}

int tally__choice_explain(const struct tally__question *question, const unsigned char *choice,
                          struct tally__bucket_answer *answers)
{
    struct search search;

    TRY(begin_search(question, &search));
    memcpy(search.trial, choice, search.n);
    for (size_t b = 0; b < search.n; b++) {
        explain(&search, choice, b, &answers[b]);
    }
    end_search(&search);
    return TALLY_OK;
}

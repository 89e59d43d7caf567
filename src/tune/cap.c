/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a bucket cap; see cap.h. A gradient is ready at its part of the time between two buckets
 * of the profile; a part of a bucket has its part of the bytes and of the coding. Parts keep their
 * hooks, and those of different hooks share no new bucket. No state; any thread.
 */
#include "tune/cap.h"

#include <math.h>
#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"
#include "tune/choose.h"
#include "tune/forecast.h"
#include "tune/replay.h"

/* The caps that are tried: powers of two. */
#define LEAST_CAP ((size_t)64 << 10)
#define MOST_CAP ((size_t)256 << 20)
/* Of caps whose steps differ by less than this part, the largest is taken: it sends least messages.
 */
#define EQUAL 0.005

/* The bucket that the parts of a hook are filling. */
struct filling {
    size_t first;
    size_t n; /* parts so far; 0: it is empty */
    double plain_bytes;
    struct tally__coding coding;
    double ready_s;
};

/* A question with its working memory. */
struct packing {
    const struct tally__cap_question *question;
    struct tally__replay_bucket *buckets;
    size_t n;
    struct filling filling[TALLY__MOST_CANDIDATES]; /* per hook */
};

/* The hook by which part i travels. */
static size_t hook_of(const struct tally__cap_question *question, size_t i)
{
    return question->choice[question->parts[i].bucket];
}

static void close_bucket(struct packing *packing, struct filling *filling)
{
    const struct tally__cap_question *question = packing->question;
    const struct tally__profile *profile = question->profile;
    const struct tally__cluster cluster = tally__profile_cluster(profile);
    size_t hook = hook_of(question, filling->first);
    double exchanges = profile->hooks[hook].exchanges;
    const struct tally__parcel parcel = {filling->plain_bytes, filling->coding.bytes,
                                         filling->coding.code_s,
                                         exchanges > 1 ? (int)exchanges : 1};
    struct tally__replay_bucket made = {.ready_s = filling->ready_s};

    made.load = tally__load_of(&cluster, TALLY__FLAT, &parcel);
    made.cpu_s = made.load.code_s + profile->cpu_s_per_byte * made.load.rank_bytes;
    packing->buckets[packing->n++] = made;
    *filling = (struct filling){.n = 0};
}

/* The end of the parts that share a bucket of the profile with part i. */
static size_t end_of_bucket(const struct tally__cap_question *question, size_t i)
{
    size_t bucket = question->parts[i].bucket;

    while (i < question->n && question->parts[i].bucket == bucket) {
        i++;
    }
    return i;
}

/* Adds part i to a bucket; share: how much of its bucket of the profile is ready with it. */
static void add_part(const struct tally__cap_question *question, size_t i, double share,
                     struct filling *filling)
{
    const struct tally__profile *profile = question->profile;
    const struct tally__cap_part *part = &question->parts[i];
    const struct tally__profile_bucket *from = &profile->buckets[part->bucket];
    const struct tally__coding *coding = &profile->hooks[hook_of(question, i)].coding[part->bucket];
    double before_s = part->bucket > 0 ? profile->buckets[part->bucket - 1].ready_s : 0;
    double ready_s = before_s + share * fmax(from->ready_s - before_s, 0);
    double of = from->bytes > 0 ? part->bytes / from->bytes : 0;

    filling->first = filling->n++ > 0 ? filling->first : i;
    filling->plain_bytes += part->bytes;
    filling->coding.bytes += of * coding->bytes;
    filling->coding.code_s += of * coding->code_s;
    filling->ready_s = fmax(filling->ready_s, ready_s);
}

/* Closes the buckets that are left, in the order of their first parts. */
static void close_rest(struct packing *packing)
{
    const struct tally__cap_question *question = packing->question;

    for (size_t i = 0; i < question->n; i++) {
        struct filling *bucket = &packing->filling[hook_of(question, i)];

        if (bucket->n > 0 && bucket->first == i) {
            close_bucket(packing, bucket);
        }
    }
}

/* Packs all parts; a cap of 0 keeps the buckets of the profile. As ddp/plan.c has it, a bucket is
 * closed by the part that reaches the cap. */
static void pack(struct packing *packing, size_t cap_bytes)
{
    const struct tally__cap_question *question = packing->question;
    size_t end = 0;
    double done = 0;
    double whole = 0;

    packing->n = 0;
    for (size_t i = 0; i < question->n; i++) {
        struct filling *bucket = &packing->filling[hook_of(question, i)];

        if (i == end) {
            end = end_of_bucket(question, i);
            done = 0;
            whole = question->profile->buckets[question->parts[i].bucket].bytes;
        }
        done += question->parts[i].bytes;
        add_part(question, i, whole > 0 ? fmin(done / whole, 1) : 1, bucket);
        if (cap_bytes > 0 ? bucket->plain_bytes >= (double)cap_bytes : i + 1 == end) {
            close_bucket(packing, bucket);
        }
    }
    close_rest(packing);
}

static double step_s(struct packing *packing, size_t cap_bytes)
{
    const struct tally__profile *profile = packing->question->profile;
    struct tally__replay replay = {profile->backward_s, profile->cpu_share,
                                   profile->lanes > 1 ? (size_t)profile->lanes : 1, 0,
                                   packing->buckets};
    struct tally__replayed replayed;

    pack(packing, cap_bytes);
    replay.n = packing->n;
    replayed = tally__replay(&replay);
    return profile->forward_s + replayed.backward_s + replayed.exposed_s;
}

int tally__cap_choose(const struct tally__cap_question *question, struct tally__cap_answer *answer)
{
    struct packing packing = {.question = question};
    double total = 0;
    double best_s = INFINITY;

    packing.buckets =
        tally__alloc_array(question->n, sizeof *packing.buckets, "the choice of a bucket cap");
    if (!packing.buckets) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < question->n; i++) {
        total += question->parts[i].bytes;
    }
    *answer = (struct tally__cap_answer){.now_s = step_s(&packing, 0)};
    for (size_t cap = LEAST_CAP; cap <= MOST_CAP && (double)cap < 2 * total; cap *= 2) {
        best_s = fmin(best_s, step_s(&packing, cap));
    }
    for (size_t cap = LEAST_CAP; cap <= MOST_CAP && (double)cap < 2 * total; cap *= 2) {
        double s = step_s(&packing, cap);

        if (s <= best_s * (1 + EQUAL)) {
            answer->cap_bytes = cap;
            answer->step_s = s;
        }
    }
    /* A model below the least cap has one bucket. */
    answer->step_s = answer->cap_bytes > 0 ? answer->step_s : answer->now_s;
    tally__free(packing.buckets);
    return TALLY_OK;
}

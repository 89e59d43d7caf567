/* SPDX-License-Identifier: Apache-2.0 */
/* Means of steps, the headline of a report, and the steps it shows. One thread; no state. */
#include "tools/report_steps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A straggler is late in this part of the steps more than any other rank. */
#define LATE_STEPS_PART 0.25
/* The first step allocates and connects; it is not the slowest one if there are this many. */
#define STEPS_TO_SKIP_FIRST 10
/* More ranks do not fit on a page. */
#define RANKS_SHOWN_MAX 64
/* The length of the end of a failed run that is shown if no step tells. */
#define END_NS UINT64_C(2000000000)

static int compare_seen(const void *a, const void *b)
{
    const struct step_seen *x = a;
    const struct step_seen *y = b;

    if (x->step != y->step) {
        return x->step < y->step ? -1 : 1;
    }
    return (x->member > y->member) - (x->member < y->member);
}

/* ---- means ---- */

static void add_to_mean(struct step_mean *mean, const struct step_seen *seen, double *n_errors)
{
    double length = (double)(seen->end_ns - seen->begin_ns);

    mean->step = seen->step;
    mean->n_ranks++;
    mean->step_ns += length;
    mean->compute_ns += length - seen->exposed_ns - seen->optimizer_ns;
    mean->exposed_ns += seen->exposed_ns;
    mean->optimizer_ns += seen->optimizer_ns;
    mean->comm_ns += seen->comm_ns;
    mean->wire_bytes += seen->wire_bytes;
    mean->plain_bytes += seen->plain_bytes;
    mean->is_skipped |= seen->is_skipped;
    if (seen->error >= 0) {
        mean->error += seen->error;
        *n_errors += 1;
    }
}

static void finish_mean(struct step_mean *mean, double n_errors)
{
    double n = (double)mean->n_ranks;

    mean->step_ns /= n;
    mean->compute_ns /= n;
    mean->exposed_ns /= n;
    mean->optimizer_ns /= n;
    mean->comm_ns /= n;
    mean->wire_bytes /= n;
    mean->plain_bytes /= n;
    mean->error = n_errors > 0 ? mean->error / n_errors : -1;
}

static void add_to_rank(struct report_run *run, const struct step_seen *seen)
{
    int rank = run->set->members[seen->member].file.head.rank;
    struct rank_figures *figures = &run->ranks[rank];
    double length = (double)(seen->end_ns - seen->begin_ns);

    figures->n_steps++;
    figures->step_ns += length;
    figures->compute_ns += length - seen->exposed_ns - seen->optimizer_ns;
    figures->exposed_ns += seen->exposed_ns;
    figures->optimizer_ns += seen->optimizer_ns;
}

/* Steps of other ddps go. */
static void keep_ddp(struct report_run *run)
{
    size_t kept = 0;

    for (size_t i = 0; i < run->n_seen; i++) {
        if (run->seen[i].ddp == run->ddp) {
            run->seen[kept++] = run->seen[i];
        }
    }
    run->n_seen = kept;
    if (kept > 0) {
        qsort(run->seen, kept, sizeof *run->seen, compare_seen);
    }
}

static bool merge(struct report_run *run)
{
    double n_errors = 0;

    keep_ddp(run);
    run->steps = calloc(run->n_seen ? run->n_seen : 1, sizeof *run->steps);
    if (!run->steps) {
        return false;
    }
    for (size_t i = 0; i < run->n_seen; i++) {
        add_to_mean(&run->steps[run->n_steps], &run->seen[i], &n_errors);
        add_to_rank(run, &run->seen[i]);
        if (i + 1 == run->n_seen || run->seen[i + 1].step != run->seen[i].step) {
            finish_mean(&run->steps[run->n_steps++], n_errors);
            n_errors = 0;
        }
    }
    return true;
}

/* ---- the steps that are shown ---- */

static int compare_lengths(const void *a, const void *b)
{
    const struct step_mean *x = a;
    const struct step_mean *y = b;

    return (x->step_ns > y->step_ns) - (x->step_ns < y->step_ns);
}

/* A copy of all steps, by length; NULL if no memory is left. */
static struct step_mean *sort_steps(const struct report_run *run)
{
    struct step_mean *sorted = malloc((run->n_steps ? run->n_steps : 1) * sizeof *sorted);

    if (sorted) {
        memcpy(sorted, run->steps, run->n_steps * sizeof *sorted);
        qsort(sorted, run->n_steps, sizeof *sorted, compare_lengths);
    }
    return sorted;
}

static struct shown_rank *add_rank(struct shown_step *shown)
{
    struct shown_rank *grown;

    if (shown->n_ranks == RANKS_SHOWN_MAX) {
        shown->n_left_out++;
        return NULL;
    }
    grown = realloc(shown->ranks, (shown->n_ranks + 1) * sizeof *grown);
    if (!grown) {
        shown->n_left_out++;
        return NULL;
    }
    shown->ranks = grown;
    grown[shown->n_ranks] = (struct shown_rank){0};
    return &grown[shown->n_ranks++];
}

static void widen(struct shown_step *shown, uint64_t begin_ns, uint64_t end_ns)
{
    shown->begin_ns = begin_ns < shown->begin_ns ? begin_ns : shown->begin_ns;
    shown->end_ns = end_ns > shown->end_ns ? end_ns : shown->end_ns;
}

static void show_step(struct report_run *run, const char *label, uint64_t step)
{
    struct shown_step *shown = &run->shown[run->n_shown];

    for (size_t i = 0; i < run->n_shown; i++) {
        if (run->shown[i].step == step) {
            return;
        }
    }
    *shown = (struct shown_step){.step = step, .begin_ns = UINT64_MAX};
    (void)snprintf(shown->label, sizeof shown->label, "%s: step %" PRIu64, label, step);
    for (size_t i = 0; i < run->n_seen; i++) {
        const struct step_seen *seen = &run->seen[i];
        const struct trace_member *member = &run->set->members[seen->member];
        struct shown_rank *rank = seen->step == step ? add_rank(shown) : NULL;

        if (rank) {
            rank->rank = member->file.head.rank;
            rank->member = seen->member;
            rank->begin_ns = seen->begin_ns;
            rank->end_ns = seen->end_ns;
            widen(shown, trace_set_time(member, seen->begin_ns),
                  trace_set_time(member, seen->end_ns));
        }
    }
    run->n_shown++;
}

/* The begin of the last step that a rank completed; END_NS before the failure if none is known. */
static uint64_t begin_of_end(const struct report_run *run, const struct report_failure *failure)
{
    int rank = run->set->members[failure->member].file.head.rank;
    uint64_t begin_ns = failure->end_ns > END_NS ? failure->end_ns - END_NS : 0;

    for (size_t i = 0; i < run->n_seen; i++) {
        const struct step_seen *seen = &run->seen[i];

        if (run->set->members[seen->member].file.head.rank == rank &&
            seen->end_ns <= failure->end_ns) {
            begin_ns = seen->begin_ns;
        }
    }
    return begin_ns;
}

/* The end of a run that failed. */
static void show_end(struct report_run *run)
{
    struct shown_step *shown = &run->shown[run->n_shown];

    *shown = (struct shown_step){.begin_ns = UINT64_MAX};
    (void)snprintf(shown->label, sizeof shown->label, "the end");
    for (size_t i = 0; i < run->n_failures; i++) {
        const struct report_failure *failure = &run->failures[i];
        const struct trace_member *member = &run->set->members[failure->member];
        struct shown_rank *rank = add_rank(shown);

        if (rank) {
            rank->rank = member->file.head.rank;
            rank->member = failure->member;
            rank->end_ns = failure->end_ns;
            rank->begin_ns = begin_of_end(run, failure);
            widen(shown, trace_set_time(member, rank->begin_ns),
                  trace_set_time(member, rank->end_ns));
        }
    }
    run->n_shown++;
}

bool report_choose(struct report_run *run)
{
    struct step_mean *sorted;
    size_t worst;

    if (!merge(run) || !(sorted = sort_steps(run))) {
        (void)fprintf(stderr, "%s: no memory is left\n", run->set->command);
        return false;
    }
    if (run->n_failures > 0) {
        show_end(run);
    }
    if (run->n_steps > 0) {
        worst = run->n_steps - 1;
        if (run->n_steps > STEPS_TO_SKIP_FIRST && sorted[worst].step == run->steps[0].step) {
            worst--;
        }
        show_step(run, "typical", sorted[run->n_steps / 2].step);
        show_step(run, "slowest", sorted[worst].step);
        show_step(run, "last", run->steps[run->n_steps - 1].step);
    }
    free(sorted);
    return true;
}

/* ---- the headline ---- */

double rank_waited_ns(const struct rank_figures *rank)
{
    return rank->n_witnesses > 0
               ? (rank->computes_ns + rank->lane_ns + rank->link_ns + rank->unknown_ns) /
                     (double)rank->n_witnesses
               : 0;
}

/* The part of the steps in which a rank was late. */
static double late_part(const struct rank_figures *rank)
{
    return rank->late.n > 0 ? (double)rank->late.n_late / (double)rank->late.n : 0;
}

/* Whether a rank is late in many more steps than any other: ranks that wait for each other in turn
 * are no stragglers, and neither is one that was very late a few times. Files without accounts tell
 * only the mean. */
static bool stands_out(const struct report_run *run, size_t rank, double mean_ns)
{
    const struct rank_figures *own = &run->ranks[rank];

    for (size_t r = 0; r < run->n_ranks; r++) {
        const struct rank_figures *other = &run->ranks[r];

        if (r != rank && own->late.n > 0 && late_part(own) < late_part(other) + LATE_STEPS_PART) {
            return false;
        }
        if (r != rank && own->late.n == 0 &&
            rank_waited_ns(own) < rank_waited_ns(other) + STRAGGLER_PART * mean_ns) {
            return false;
        }
    }
    return rank_waited_ns(own) > STRAGGLER_PART * mean_ns;
}

static void find_straggler(const struct report_run *run, struct headline *headline)
{
    headline->straggler = -1;
    for (size_t r = 0; r < run->n_ranks; r++) {
        if (stands_out(run, r, headline->mean_ns)) {
            headline->straggler = (int)r;
            headline->straggler_ns = rank_waited_ns(&run->ranks[r]);
        }
    }
}

static void add_all_steps(const struct report_run *run, struct headline *headline)
{
    double n_errors = 0;

    headline->error_max = -1;
    for (size_t i = 0; i < run->n_steps; i++) {
        const struct step_mean *step = &run->steps[i];

        headline->mean_ns += step->step_ns / (double)run->n_steps;
        headline->wire_bytes += step->wire_bytes / (double)run->n_steps;
        headline->plain_bytes += step->plain_bytes / (double)run->n_steps;
        headline->n_skipped += step->is_skipped;
        if (step->error >= 0) {
            headline->error += step->error;
            n_errors += 1;
            headline->error_max =
                step->error > headline->error_max ? step->error : headline->error_max;
        }
    }
    headline->error = n_errors > 0 ? headline->error / n_errors : -1;
}

bool report_headline(const struct report_run *run, struct headline *headline)
{
    struct step_mean *sorted = sort_steps(run);
    size_t first = run->n_steps / 4;
    size_t end = run->n_steps - first;
    double n = (double)(end - first);

    *headline = (struct headline){.n_steps = run->n_steps};
    if (!sorted) {
        return false;
    }
    for (size_t i = first; i < end; i++) {
        headline->step_ns += sorted[i].step_ns / n;
        headline->compute_ns += sorted[i].compute_ns / n;
        headline->exposed_ns += sorted[i].exposed_ns / n;
        headline->optimizer_ns += sorted[i].optimizer_ns / n;
        headline->comm_ns += sorted[i].comm_ns / n;
    }
    headline->p95_ns = sorted[(run->n_steps - 1) * 95 / 100].step_ns;
    free(sorted);
    add_all_steps(run, headline);
    find_straggler(run, headline);
    return true;
}

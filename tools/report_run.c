/* SPDX-License-Identifier: Apache-2.0 */
/* The first pass of `tally report`: steps, buckets, ranks, notes and failures. One thread. */
#include "tools/report_run.h"

#include <stdlib.h>
#include <string.h>

#define DDPS_MAX 256
#define UPDATES_MAX 64
#define NOTES_MAX 200

/* An update on the application's thread, whose step is not known yet. */
struct update {
    uint64_t thread;
    uint64_t begin_ns;
    uint64_t length_ns;
};

/* The time that a member waited for another rank, and in how many exchanges. */
struct waited {
    double ns;
    double n;
};

/* Reads one member. */
struct pass {
    struct report_run *run;
    size_t member;
    struct update updates[UPDATES_MAX];
    size_t n_updates;
    uint64_t wait_step[DDPS_MAX]; /* the last step that was waited for, and */
    double outside_ns[DDPS_MAX];  /* updates before that wait */
    struct rank_account accounts[DDPS_MAX];
    struct waited *waited[DDPS_MAX]; /* per rank of the world; NULL: the ddp never waited */
};

/* The last buckets of each ddp, over all members. */
struct layouts {
    struct bucket_figures *buckets[DDPS_MAX];
    size_t n[DDPS_MAX];
    uint32_t generation[DDPS_MAX];
    char hook[DDPS_MAX][64];
    struct report_choices *choices[DDPS_MAX];
};

void *report_grow(struct report_run *run, void *array, size_t *room, size_t n, size_t bytes)
{
    void *grown;
    size_t more = *room < 16 ? 16 : 2 * *room;

    if (n <= *room) {
        return array;
    }
    more = more < n ? n : more;
    grown = realloc(array, more * bytes);
    if (!grown) {
        run->failed = true;
        free(array);
        *room = 0;
        return NULL;
    }
    *room = more;
    return grown;
}

/* ---- steps ---- */

/* Updates before the wait are not part of it. */
static void note_wait(struct pass *pass, uint64_t thread, const struct tally__trace_event *wait)
{
    size_t left = 0;
    double outside_ns = 0;

    for (size_t i = 0; i < pass->n_updates; i++) {
        const struct update *update = &pass->updates[i];

        if (update->thread != thread) {
            pass->updates[left++] = *update;
        } else if (update->begin_ns < wait->begin_ns) {
            outside_ns += (double)update->length_ns;
        }
    }
    pass->n_updates = left;
    pass->wait_step[wait->ddp] = wait->step;
    pass->outside_ns[wait->ddp] = outside_ns;
}

static void note_wait_for_rank(struct pass *pass, const struct tally__trace_event *wait)
{
    struct waited **of = &pass->waited[wait->ddp];

    if (wait->peer < 0 || (size_t)wait->peer >= pass->run->n_ranks) {
        return;
    }
    if (!*of) {
        *of = calloc(pass->run->n_ranks, sizeof **of);
    }
    if (!*of) {
        pass->run->failed = true;
        return;
    }
    (*of)[wait->peer].ns += (double)(wait->end_ns - wait->begin_ns);
    (*of)[wait->peer].n += 1;
}

static void take_events(void *user, const struct tally__trace_thread *thread,
                        const struct tally__trace_event *events, size_t n)
{
    struct pass *pass = user;

    pass->run->n_lost += thread->n_lost;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TALLY__EVENT_UPDATE && pass->n_updates < UPDATES_MAX) {
            pass->updates[pass->n_updates++] = (struct update){
                thread->thread, events[i].begin_ns, events[i].end_ns - events[i].begin_ns};
        } else if (events[i].kind == TALLY__EVENT_WAIT) {
            note_wait(pass, thread->thread, &events[i]);
        } else if (events[i].kind == TALLY__EVENT_WAIT_RANK) {
            note_wait_for_rank(pass, &events[i]);
        }
    }
}

static double at_most(double value, double most)
{
    return value < most ? (value > 0 ? value : 0) : (most > 0 ? most : 0);
}

static void take_step(void *user, const struct tally__trace_step *step)
{
    struct pass *pass = user;
    struct report_run *run = pass->run;
    double length = (double)(step->end_ns - step->begin_ns);
    double exposed = at_most((double)step->exposed_ns, length);
    double wait = length - (double)step->forward_ns - (double)step->backward_ns;
    double update = at_most(wait - exposed, (double)step->update_ns);
    uint32_t ddp = step->ddp < DDPS_MAX ? step->ddp : 0;

    if (pass->wait_step[ddp] == step->step) {
        update += pass->outside_ns[ddp];
    }
    run->seen = report_grow(run, run->seen, &run->seen_room, run->n_seen + 1, sizeof *run->seen);
    if (run->seen) {
        run->seen[run->n_seen++] = (struct step_seen){
            .step = step->step,
            .begin_ns = step->begin_ns,
            .end_ns = step->end_ns,
            .member = pass->member,
            .exposed_ns = exposed,
            .optimizer_ns = at_most(update, length - exposed),
            .comm_ns = (double)step->comm_ns,
            .wire_bytes = (double)step->wire_bytes,
            .plain_bytes = (double)step->plain_bytes,
            .error = step->compression_error >= 0 ? step->compression_error : -1,
            .ddp = ddp,
            .is_skipped = step->is_skipped != 0,
        };
    } else {
        run->n_seen = 0;
    }
}

/* ---- facts ---- */

struct pass_and_layouts {
    struct pass pass;
    struct layouts *layouts;
};

static void take_buckets(void *user, const struct tally__trace_buckets *head,
                         const struct tally__trace_bucket *buckets)
{
    struct pass_and_layouts *both = user;
    struct layouts *layouts = both->layouts;
    uint32_t ddp = head->ddp < DDPS_MAX ? head->ddp : 0;
    struct bucket_figures *figures = calloc(head->n ? head->n : 1, sizeof *figures);

    if (!figures) {
        both->pass.run->failed = true;
        return;
    }
    for (uint32_t b = 0; b < head->n; b++) {
        figures[b].bytes = buckets[b].bytes;
        figures[b].n_params = buckets[b].n_params;
        memcpy(figures[b].name, buckets[b].first_param, sizeof figures[b].name);
    }
    free(layouts->buckets[ddp]);
    layouts->buckets[ddp] = figures;
    layouts->n[ddp] = head->n;
    layouts->generation[ddp] = head->generation;
    memcpy(layouts->hook[ddp], head->hook, sizeof head->hook);
}

static void take_choices(void *user, const struct tally__trace_choices *head,
                         const struct tally__trace_choice *choices)
{
    struct pass_and_layouts *both = user;
    uint32_t ddp = head->ddp < DDPS_MAX ? head->ddp : 0;
    struct report_choices **own = &both->layouts->choices[ddp];
    size_t bytes = head->n * sizeof *choices;

    free(*own);
    *own = malloc(sizeof **own + bytes);
    if (!*own) {
        both->pass.run->failed = true;
        return;
    }
    (*own)->head = *head;
    memcpy((*own)->rows, choices, bytes);
}

static void take_ranks(void *user, const struct tally__trace_ranks *head,
                       const struct tally__trace_rank *ranks)
{
    struct pass *pass = user;
    struct report_run *run = pass->run;
    uint32_t ddp = head->ddp < DDPS_MAX ? head->ddp : 0;
    double step_ns = 0;

    if (run->n_seen > 0) {
        step_ns = (double)(run->seen[run->n_seen - 1].end_ns - run->seen[run->n_seen - 1].begin_ns);
    }
    if (!report_account_take(&pass->accounts[ddp], head, ranks, step_ns)) {
        run->failed = true;
    }
}

/* All ranks have most notes in common, so each is kept once. */
static void take_note(void *user, const struct tally__trace_note *note)
{
    struct report_run *run = ((struct pass *)user)->run;
    struct report_note *grown;

    if (strcmp(note->key, "TALLY_RANK") == 0) {
        return;
    }
    for (size_t i = 0; i < run->n_notes; i++) {
        if (strcmp(run->notes[i].key, note->key) == 0 &&
            strcmp(run->notes[i].value, note->value) == 0) {
            return;
        }
    }
    grown =
        run->n_notes < NOTES_MAX ? realloc(run->notes, (run->n_notes + 1) * sizeof *grown) : NULL;
    if (grown) {
        run->notes = grown;
        memcpy(grown[run->n_notes].key, note->key, sizeof grown->key);
        memcpy(grown[run->n_notes].value, note->value, sizeof grown->value);
        run->n_notes++;
    }
}

static void take_error(void *user, const struct tally__trace_error *error)
{
    struct pass *pass = user;
    struct report_run *run = pass->run;
    struct report_failure *grown = realloc(run->failures, (run->n_failures + 1) * sizeof *grown);

    if (!grown) {
        run->failed = true;
        return;
    }
    run->failures = grown;
    grown[run->n_failures++] =
        (struct report_failure){.member = pass->member, .error = *error, .end_ns = error->at_ns};
}

static void take_lines(void *user, const struct tally__trace_lines *head,
                       const struct tally__trace_line *lines)
{
    struct pass *pass = user;
    struct report_run *run = pass->run;
    struct report_failure *failure =
        run->n_failures > 0 ? &run->failures[run->n_failures - 1] : NULL;

    if (!failure || failure->member != pass->member || failure->lines || head->n == 0) {
        return;
    }
    failure->lines = malloc(head->n * sizeof *lines);
    if (!failure->lines) {
        run->failed = true;
        return;
    }
    memcpy(failure->lines, lines, head->n * sizeof *lines);
    failure->n_lines = head->n;
}

/* ---- all members ---- */

/* Adds one member's account of the others. */
static void add_witness(struct report_run *run, const struct pass *pass)
{
    const struct rank_account *account = &pass->accounts[run->ddp];
    double n_steps = (double)account->n_steps;
    int self = run->set->members[pass->member].file.head.rank;
    double n_rounds = 0;

    for (size_t i = 0; i < account->n; i++) {
        n_rounds += (double)account->ranks[i].n_last;
    }
    for (size_t i = 0; i < account->n && n_steps > 0; i++) {
        const struct tally__trace_rank *rank = &account->ranks[i];
        struct rank_figures *figures;

        if (rank->rank < 0 || (size_t)rank->rank >= run->n_ranks) {
            continue;
        }
        figures = &run->ranks[rank->rank];
        figures->n_last += (double)rank->n_last;
        figures->n_rounds += n_rounds;
        if (rank->rank != self) {
            figures->computes_ns += (double)rank->computes_ns / n_steps;
            figures->lane_ns += (double)rank->lane_ns / n_steps;
            figures->link_ns += (double)rank->link_ns / n_steps;
            figures->n_witnesses++;
            figures->late.n_late += account->late[i].n_late;
            figures->late.n += account->late[i].n;
        }
    }
}

/* The same from a member's events, for a file without an account. */
static void add_waits(struct report_run *run, const struct pass *pass, double n_steps)
{
    const struct waited *waited = pass->waited[run->ddp];
    size_t self = (size_t)run->set->members[pass->member].file.head.rank;
    double n = 0;

    if (pass->accounts[run->ddp].ranks || n_steps <= 0) {
        return;
    }
    for (size_t r = 0; waited && r < run->n_ranks; r++) {
        n += waited[r].n;
    }
    for (size_t r = 0; r < run->n_ranks; r++) {
        if (r != self) {
            run->ranks[r].n_last += waited ? waited[r].n : 0;
            run->ranks[r].n_rounds += n;
            run->ranks[r].unknown_ns += waited ? waited[r].ns / n_steps : 0;
            run->ranks[r].n_witnesses++;
        }
    }
}

/* The ddp that sent most; of equals, the one with more steps, then the first. */
static void choose_ddp(struct report_run *run)
{
    double bytes[DDPS_MAX] = {0};
    double n[DDPS_MAX] = {0};

    for (size_t i = 0; i < run->n_seen; i++) {
        bytes[run->seen[i].ddp] += run->seen[i].wire_bytes;
        n[run->seen[i].ddp] += 1;
    }
    run->ddp = 1;
    for (uint32_t d = 0; d < DDPS_MAX; d++) {
        run->n_ddps += n[d] > 0;
        if (bytes[d] > bytes[run->ddp] || (bytes[d] >= bytes[run->ddp] && n[d] > n[run->ddp])) {
            run->ddp = d;
        }
    }
}

static void take_layout(struct report_run *run, struct layouts *layouts)
{
    run->buckets = layouts->buckets[run->ddp];
    layouts->buckets[run->ddp] = NULL;
    run->n_buckets = layouts->n[run->ddp];
    run->generation = layouts->generation[run->ddp];
    run->choices = layouts->choices[run->ddp];
    layouts->choices[run->ddp] = NULL;
    memcpy(run->hook, layouts->hook[run->ddp], sizeof run->hook);
}

/* The steps that a member has written and that count. */
static double n_steps_of(const struct report_run *run, size_t member)
{
    double n = 0;

    for (size_t i = 0; i < run->n_seen; i++) {
        n += run->seen[i].member == member && run->seen[i].ddp == run->ddp;
    }
    return n;
}

static bool gather_members(struct report_run *run, struct pass_and_layouts *passes,
                           struct layouts *layouts)
{
    for (size_t i = 0; i < run->set->n; i++) {
        const struct trace_visitor visitor = {
            .user = &passes[i],
            .events = take_events,
            .step = take_step,
            .buckets = take_buckets,
            .choices = take_choices,
            .ranks = take_ranks,
            .note = take_note,
            .error = take_error,
            .lines = take_lines,
        };

        passes[i].pass.run = run;
        passes[i].pass.member = i;
        passes[i].layouts = layouts;
        if (!trace_set_visit(run->set, i, &visitor)) {
            return false;
        }
    }
    return true;
}

/* The steps of a report after a failure are also in the trace of the same rank. */
static void drop_repeated(struct report_run *run)
{
    size_t kept = 0;

    for (size_t i = 0; i < run->n_seen; i++) {
        const struct trace_member *member = &run->set->members[run->seen[i].member];

        if (member->file.head.is_report && run->seen[i].member > 0 &&
            member[-1].file.head.rank == member->file.head.rank) {
            continue;
        }
        run->seen[kept++] = run->seen[i];
    }
    run->n_seen = kept;
}

bool report_gather(struct report_run *run, const struct trace_set *set)
{
    struct layouts *layouts = calloc(1, sizeof *layouts);
    struct pass_and_layouts *passes = calloc(set->n, sizeof *passes);
    bool good = layouts && passes;

    *run = (struct report_run){.set = set, .n_ranks = (size_t)set->members[0].file.head.world};
    run->ranks = calloc(run->n_ranks, sizeof *run->ranks);
    if (good && run->ranks) {
        good = gather_members(run, passes, layouts);
        drop_repeated(run);
        choose_ddp(run);
        take_layout(run, layouts);
        for (size_t i = 0; i < set->n && good; i++) {
            add_witness(run, &passes[i].pass);
            add_waits(run, &passes[i].pass, n_steps_of(run, i));
        }
    } else {
        run->failed = true;
    }
    for (size_t d = 0; d < DDPS_MAX; d++) {
        for (size_t i = 0; passes && i < set->n; i++) {
            report_account_free(&passes[i].pass.accounts[d]);
            free(passes[i].pass.waited[d]);
        }
        if (layouts) {
            free(layouts->buckets[d]);
            free(layouts->choices[d]);
        }
    }
    free(layouts);
    free(passes);
    if (run->failed) {
        (void)fprintf(stderr, "%s: no memory is left\n", set->command);
    }
    return good && !run->failed;
}

void report_free(struct report_run *run)
{
    for (size_t s = 0; s < run->n_shown; s++) {
        for (size_t r = 0; r < run->shown[s].n_ranks; r++) {
            for (size_t t = 0; t < run->shown[s].ranks[r].n_threads; t++) {
                free(run->shown[s].ranks[r].threads[t].spans);
            }
            free(run->shown[s].ranks[r].threads);
        }
        free(run->shown[s].ranks);
    }
    for (size_t i = 0; i < run->n_failures; i++) {
        free(run->failures[i].lines);
    }
    free(run->failures);
    free(run->seen);
    free(run->steps);
    free(run->buckets);
    free(run->choices);
    free(run->ranks);
    free(run->notes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a run for `tally report`, gathered from its trace files in two passes: facts and
 * steps first; then the spans of the steps that are shown, and figures of each bucket.
 *
 * All of it is about one ddp, the one that sent most.
 */
#ifndef TALLY_TOOLS_REPORT_RUN_H
#define TALLY_TOOLS_REPORT_RUN_H

#include "tools/report_account.h"
#include "tools/trace_set.h"
#include "tools/trace_tracks.h"

/* One step of one rank. Times in nanoseconds. */
struct step_seen {
    uint64_t step;
    uint64_t begin_ns; /* by the rank's own clock */
    uint64_t end_ns;
    size_t member; /* of the set */
    double exposed_ns;
    double optimizer_ns; /* the part that the application waits for */
    double comm_ns;
    double wire_bytes;
    double plain_bytes;
    double error; /* of compression; below 0: unknown */
    uint32_t ddp;
    bool is_skipped;
};

/* A step: the mean over its ranks. */
struct step_mean {
    uint64_t step;
    size_t n_ranks;
    double step_ns;
    double compute_ns;
    double exposed_ns;
    double optimizer_ns;
    double comm_ns;
    double wire_bytes;
    double plain_bytes;
    double error;
    bool is_skipped;
};

struct bucket_figures {
    uint64_t bytes;
    uint32_t n_params;
    char name[64];
    /* Sums over n exchanges, of all ranks. */
    double wire_bytes;
    double ready_ns;    /* from its last gradient, or its launch, to its mean */
    double exchange_ns; /* from the start on the lane to its mean */
    double waiting_ns;  /* of that, for another rank */
    double exposed_ns;  /* of that, while the application waited */
    double n;
};

/* A rank of the world, with or without a file. */
struct rank_figures {
    size_t n_steps;
    double step_ns; /* sums over its steps */
    double compute_ns;
    double exposed_ns;
    double optimizer_ns;
    double n_last; /* sums over the other ranks' files */
    double n_rounds;
    double computes_ns; /* per step: how long the others waited for it, by cause */
    double lane_ns;
    double link_ns;
    double unknown_ns;      /* the same, where files do not tell the cause */
    struct late_count late; /* sum over the witnesses */
    size_t n_witnesses;
    struct tally__trace_event last; /* that its files have; NONE: nothing */
    size_t last_member;             /* the member whose clock it has */
};

struct rank_spans {
    char name[48]; /* of the thread */
    struct tally__trace_event *spans;
    size_t n;
    size_t room;
};

/* A step, or the end of a run that failed, with the spans of all ranks. */
struct shown_step {
    char label[64];
    uint64_t step; /* 0: the end of the run */
    uint64_t begin_ns;
    uint64_t end_ns;
    struct shown_rank {
        int rank;
        size_t member;
        uint64_t begin_ns; /* by the rank's own clock */
        uint64_t end_ns;
        struct rank_spans *threads;
        size_t n_threads;
    } * ranks;
    size_t n_ranks;
    size_t n_left_out; /* ranks */
};

#define SHOWN_MAX 4

struct report_note {
    char key[32];
    char value[224];
};

/* The report of one rank after a failure. */
struct report_failure {
    size_t member;
    struct tally__trace_error error;
    struct tally__trace_line *lines;
    size_t n_lines;
    uint64_t end_ns; /* of the last event, by its own clock */
};

/* The choices of the hook auto, a row for each bucket. */
struct report_choices {
    struct tally__trace_choices head;
    struct tally__trace_choice rows[];
};

struct report_run {
    const struct trace_set *set;
    uint32_t ddp;
    uint32_t n_ddps;
    struct step_seen *seen;
    size_t n_seen;
    size_t seen_room;
    struct step_mean *steps; /* in order */
    size_t n_steps;
    struct bucket_figures *buckets;
    size_t n_buckets;
    uint32_t generation;
    char hook[64];
    struct report_choices *choices; /* the last ones; NULL: none */
    struct rank_figures *ranks;     /* one for each of the world */
    size_t n_ranks;
    struct shown_step shown[SHOWN_MAX];
    size_t n_shown;
    struct report_note *notes;
    size_t n_notes;
    struct report_failure *failures;
    size_t n_failures;
    uint64_t n_lost;
    bool failed; /* no memory was left */
};

/* First pass. False after a message. */
bool report_gather(struct report_run *run, const struct trace_set *set);

/* Second pass, after report_choose (report_steps.h). False after a message. */
bool report_gather_spans(struct report_run *run);

/* Grows an array; NULL, and run->failed, if no memory is left. */
void *report_grow(struct report_run *run, void *array, size_t *room, size_t n, size_t bytes);

void report_free(struct report_run *run);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks that run on this machine, and what they do, through /proc. */
#ifndef TALLY_TOOLS_TOP_JOBS_H
#define TALLY_TOOLS_TOP_JOBS_H

#include <sys/types.h>

#include "tools/top_page.h"

/* The process of a rank. */
enum top_process {
    TOP_RUNS,
    TOP_STOPPED, /* by SIGSTOP or a debugger */
    TOP_DEAD,    /* a zombie, or gone */
};

struct top_rank {
    pid_t pid;
    uint64_t start; /* of the process, in clock ticks: tells processes with one number apart */
    enum top_process process;
    struct top_page page;
};

struct top_ranks {
    struct top_rank *all; /* by job, then by rank */
    size_t n;
    size_t room;
    /* A process with a page that cannot be read, and the reason; "" if there is none. */
    char problem[300];
};

/* The jobs to look for. */
struct top_target {
    pid_t pid;     /* 0: all jobs of this user; otherwise the job of this process or its children */
    char job[128]; /* the key of that job, once it is known */
};

/*
 * Looks again. Ranks that were there before and have ended stay, as dead; without a target, only
 * until another job runs. False if the target
 * cannot be looked at: why says it as a whole sentence.
 */
bool top_jobs_look(struct top_ranks *ranks, struct top_target *target, char *why, size_t room);

void top_jobs_free(struct top_ranks *ranks);

/* The entry of a rank that tells most: that of the ddp with the most steps; NULL if it has none. */
const struct top_entry *top_main_entry(const struct top_rank *rank);

#endif

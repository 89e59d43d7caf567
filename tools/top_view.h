/* SPDX-License-Identifier: Apache-2.0 */
/* The view of `tally top`, as lines of text or as JSON. */
#ifndef TALLY_TOOLS_TOP_VIEW_H
#define TALLY_TOOLS_TOP_VIEW_H

#include <stdio.h>

#include "tools/top_jobs.h"

#define TOP_LINE_MAX 512

struct top_lines {
    char (*all)[TOP_LINE_MAX];
    size_t n;
    size_t room;
    size_t n_fixed; /* headings, which stay when the rest scrolls */
    size_t n_cut;   /* headings and table, which are cut at the width; sentences continue below */
};

/* Fills lines; now_ns is CLOCK_MONOTONIC. Of several jobs, one line each; of one job, its ranks. */
void top_view_lines(const struct top_ranks *ranks, uint64_t now_ns, struct top_lines *lines);

/* One JSON object. */
void top_view_json(const struct top_ranks *ranks, uint64_t now_ns, FILE *to);

void top_lines_free(struct top_lines *lines);

#endif

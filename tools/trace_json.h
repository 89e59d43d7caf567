/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the events of a set of trace files as Chrome trace JSON, one event per line. */
#ifndef TALLY_TOOLS_TRACE_JSON_H
#define TALLY_TOOLS_TRACE_JSON_H

#include "tools/trace_set.h"

/* The steps to write. */
struct trace_cut {
    uint64_t first;
    uint64_t last;
};

struct trace_written {
    uint64_t n_events; /* lines, with the names of tracks */
    uint64_t n_spans;  /* what the ranks did */
    /* Of the files, whether written or not; 0: none. */
    uint64_t first_step;
    uint64_t last_step;
    uint64_t n_lost; /* that the ranks overwrote before they were written to their files */
};

/* False after a message. The caller checks the output for errors. */
bool trace_json_write(const struct trace_set *set, const struct trace_cut *cut, FILE *to,
                      struct trace_written *written);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The trace files of one job: which ranks they are of, and one clock for all machines. */
#ifndef TALLY_TOOLS_TRACE_SET_H
#define TALLY_TOOLS_TRACE_SET_H

#include "tools/trace_read.h"

struct trace_member {
    const char *path;
    struct trace_file file;
    size_t machine;          /* its number, from 0; ranks of one machine share a clock */
    int64_t shift_ns;        /* added to its times, gives the clock of machine 0 */
    uint64_t uncertainty_ns; /* of shift_ns; UINT64_MAX: only the wall clocks are known */
};

struct trace_set {
    const char *command;          /* for messages: "tally trace" */
    struct trace_member *members; /* in the order of ranks; the report of a rank after its trace */
    size_t n;
    size_t n_machines;
};

/*
 * Opens and checks files of one job. With reports, a rank may have two files: one of them written
 * after a failure. False after a message on stderr.
 */
bool trace_set_open(struct trace_set *set, const char *command, char **paths, size_t n,
                    bool with_reports);

/* Reads all records of a member. False after a message. */
bool trace_set_visit(const struct trace_set *set, size_t member,
                     const struct trace_visitor *visitor);

/* A time of a member by the clock of machine 0. */
uint64_t trace_set_time(const struct trace_member *member, uint64_t ns);

/* The largest uncertainty between machines. */
uint64_t trace_set_uncertainty(const struct trace_set *set);

/* Opens the output; a trace file of the set is never overwritten. NULL after a message. */
FILE *trace_set_create(const struct trace_set *set, const char *path);

/* Closes the output. If it could not be written, or is not wanted because of another failure,
 * removes it; false after a message. */
bool trace_set_close(const struct trace_set *set, FILE *output, const char *path, bool is_wanted);

void trace_set_free(struct trace_set *set);

#endif

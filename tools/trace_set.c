/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace files of one job. Files are opened one at a time, since a job may have more ranks than
 * a process may open files. One thread.
 */
#include "tools/trace_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool refuse(const struct trace_set *set, const char *path, const char *why)
{
    (void)fprintf(stderr, "%s: %s %s\n", set->command, path, why);
    return false;
}

/* NULL after a message. */
static FILE *open_file(const struct trace_set *set, const char *path)
{
    /* Without O_NONBLOCK a FIFO would wait for somebody who writes. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *from = fd >= 0 ? fdopen(fd, "rb") : NULL;
    struct stat about;
    char why[200];

    if (from && fstat(fileno(from), &about) == 0 && S_ISREG(about.st_mode)) {
        return from;
    }
    (void)snprintf(why, sizeof why, from ? "is not a file" : "cannot be opened: %s",
                   strerror(errno));
    if (from) {
        (void)fclose(from);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    (void)refuse(set, path, why);
    return NULL;
}

/* ---- one job ---- */

static bool read_member(const struct trace_set *set, struct trace_member *member)
{
    char why[300];
    FILE *from = open_file(set, member->path);
    bool good;

    if (!from) {
        return false;
    }
    good = trace_file_read(from, &member->file, why, sizeof why);
    (void)fclose(from);
    if (!good) {
        return refuse(set, member->path, why);
    }
    if (member->file.is_cut_short) {
        (void)refuse(set, member->path, "is cut short; it is shown as far as it goes");
    }
    return true;
}

static int compare_members(const void *a, const void *b)
{
    const struct tally__trace_head *x = &((const struct trace_member *)a)->file.head;
    const struct tally__trace_head *y = &((const struct trace_member *)b)->file.head;

    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->is_report != 0) - (y->is_report != 0);
}

/* The difference between two files that shows that they are of different jobs, or NULL. */
static const char *difference(const struct tally__trace_head *a, const struct tally__trace_head *b)
{
    if (a->world != b->world) {
        return "another number of ranks";
    }
    if (strcmp(a->backend, b->backend) != 0) {
        return "another backend";
    }
    if (strcmp(a->program, b->program) != 0) {
        return "another program";
    }
    return strcmp(a->tally_version, b->tally_version) != 0 ? "another version of tally" : NULL;
}

static bool check_job(const struct trace_set *set, bool with_reports)
{
    for (size_t i = 0; i < set->n; i++) {
        const struct trace_member *member = &set->members[i];
        const struct tally__trace_head *head = &member->file.head;
        const char *other = difference(head, &set->members[0].file.head);
        char why[400];

        if (head->is_report && !with_reports) {
            return refuse(set, member->path,
                          "was written after a failure; tally report shows such files");
        }
        if (other) {
            (void)snprintf(why, sizeof why, "is of another job than %s: it has %s",
                           set->members[0].path, other);
            return refuse(set, member->path, why);
        }
        if (i > 0 && compare_members(member, member - 1) == 0) {
            (void)snprintf(why, sizeof why, "and %s are both of rank %d; give the files of one job",
                           member[-1].path, head->rank);
            return refuse(set, member->path, why);
        }
        if (i > 0 && head->rank == member[-1].file.head.rank &&
            head->pid != member[-1].file.head.pid) {
            (void)snprintf(why, sizeof why,
                           "is of another run than %s: both are of rank %d, but of processes %lld "
                           "and %lld",
                           member[-1].path, head->rank, (long long)head->pid,
                           (long long)member[-1].file.head.pid);
            return refuse(set, member->path, why);
        }
    }
    return true;
}

/* ---- clocks ---- */

static void number_machines(struct trace_set *set)
{
    set->n_machines = 0;
    for (size_t i = 0; i < set->n; i++) {
        size_t same = 0;

        while (same < i && strcmp(set->members[same].file.head.boot_id,
                                  set->members[i].file.head.boot_id) != 0) {
            same++;
        }
        set->members[i].machine = same < i ? set->members[same].machine : set->n_machines++;
    }
}

/* For take_offsets: the member whose file has the offsets. */
struct clocks {
    struct trace_set *set;
    size_t member;
};

static void set_shift(struct trace_set *set, size_t machine, int64_t shift_ns,
                      uint64_t uncertainty_ns)
{
    for (size_t i = 0; i < set->n; i++) {
        struct trace_member *member = &set->members[i];

        if (member->machine == machine && uncertainty_ns < member->uncertainty_ns) {
            member->shift_ns = shift_ns;
            member->uncertainty_ns = uncertainty_ns;
        }
    }
}

/* Offsets between machine 0 and another one, seen from either. */
static void take_offsets(void *user, const struct tally__trace_ranks *head,
                         const struct tally__trace_rank *ranks)
{
    const struct clocks *clocks = user;
    struct trace_set *set = clocks->set;
    size_t from = set->members[clocks->member].machine;

    for (uint32_t i = 0; i < head->n; i++) {
        for (size_t m = 0; m < set->n; m++) {
            size_t to = set->members[m].machine;

            if (set->members[m].file.head.rank != ranks[i].rank || !ranks[i].is_far || from == to) {
                continue;
            }
            if (from == 0) {
                set_shift(set, to, -ranks[i].offset_ns, ranks[i].uncertainty_ns);
            } else if (to == 0) {
                set_shift(set, from, ranks[i].offset_ns, ranks[i].uncertainty_ns);
            }
        }
    }
}

/* Starts from the wall clocks; offsets that ranks have measured are better. */
static bool align_clocks(struct trace_set *set)
{
    int64_t reference = set->members[0].file.head.realtime_minus_monotonic_ns;

    number_machines(set);
    for (size_t i = 0; i < set->n; i++) {
        struct trace_member *member = &set->members[i];

        member->shift_ns = 0;
        member->uncertainty_ns = 0;
        if (member->machine > 0) {
            member->shift_ns = (int64_t)((uint64_t)member->file.head.realtime_minus_monotonic_ns -
                                         (uint64_t)reference);
            member->uncertainty_ns = UINT64_MAX;
        }
    }
    for (size_t i = 0; i < set->n && set->n_machines > 1; i++) {
        struct clocks clocks = {set, i};
        const struct trace_visitor visitor = {.user = &clocks, .ranks = take_offsets};

        if (!trace_set_visit(set, i, &visitor)) {
            return false;
        }
    }
    return true;
}

uint64_t trace_set_time(const struct trace_member *member, uint64_t ns)
{
    return ns + (uint64_t)member->shift_ns;
}

uint64_t trace_set_uncertainty(const struct trace_set *set)
{
    uint64_t most = 0;

    for (size_t i = 0; i < set->n; i++) {
        if (set->members[i].uncertainty_ns > most) {
            most = set->members[i].uncertainty_ns;
        }
    }
    return most;
}

/* ---- one run ---- */

struct step_time {
    uint64_t step;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint32_t ddp;
};

/* The steps of one member, and how many of another member's steps have their numbers and happened
 * at the same time. */
struct step_times {
    struct step_time *all;
    size_t n;
    size_t room;
    bool has_failed; /* no memory is left */
    const struct trace_member *member;
    uint64_t slack_ns;
    size_t n_common;
    size_t n_meet;
};

static int compare_steps(const void *a, const void *b)
{
    const struct step_time *x = a;
    const struct step_time *y = b;

    if (x->ddp != y->ddp) {
        return x->ddp < y->ddp ? -1 : 1;
    }
    return (x->step > y->step) - (x->step < y->step);
}

static struct step_time time_of(const struct step_times *times,
                                const struct tally__trace_step *step)
{
    return (struct step_time){.step = step->step,
                              .begin_ns = trace_set_time(times->member, step->begin_ns),
                              .end_ns = trace_set_time(times->member, step->end_ns),
                              .ddp = step->ddp};
}

static void take_time(void *user, const struct tally__trace_step *step)
{
    struct step_times *times = user;

    if (times->n == times->room) {
        size_t more = times->room ? 2 * times->room : 1024;
        struct step_time *grown = realloc(times->all, more * sizeof *grown);

        if (!grown) {
            times->has_failed = true;
            return;
        }
        times->all = grown;
        times->room = more;
    }
    times->all[times->n++] = time_of(times, step);
}

static void compare_time(void *user, const struct tally__trace_step *step)
{
    struct step_times *times = user;
    const struct step_time here = time_of(times, step);
    const struct step_time *there =
        bsearch(&here, times->all, times->n, sizeof *times->all, compare_steps);

    if (there) {
        times->n_common++;
        times->n_meet += here.begin_ns <= there->end_ns + times->slack_ns &&
                         there->begin_ns <= here.end_ns + times->slack_ns;
    }
}

/* Ranks are in one step at the same time. If two files never are, one is of another run. */
static bool check_times(struct trace_set *set, struct step_times *times, size_t first)
{
    const struct trace_visitor visitor = {.user = times, .step = compare_time};

    for (size_t i = first + 1; i < set->n; i++) {
        const struct trace_member *member = &set->members[i];
        uint64_t most_ns = member->uncertainty_ns > set->members[first].uncertainty_ns
                               ? member->uncertainty_ns
                               : set->members[first].uncertainty_ns;
        char why[400];

        /* Clocks that were never compared may be hours apart. */
        if (most_ns == UINT64_MAX) {
            continue;
        }
        times->member = member;
        times->slack_ns = 2 * most_ns;
        times->n_common = times->n_meet = 0;
        if (!trace_set_visit(set, i, &visitor)) {
            return false;
        }
        if (times->n_common > 0 && times->n_meet == 0) {
            (void)snprintf(why, sizeof why,
                           "is of another run than %s: their steps have the same numbers, but were "
                           "at other times",
                           set->members[first].path);
            return refuse(set, member->path, why);
        }
    }
    return true;
}

static bool check_run(struct trace_set *set)
{
    struct step_times times = {0};
    const struct trace_visitor visitor = {.user = &times, .step = take_time};
    bool good = true;

    for (size_t i = 0; i + 1 < set->n && times.n == 0 && good; i++) {
        times.member = &set->members[i];
        good = trace_set_visit(set, i, &visitor);
        if (good && times.n > 0 && !times.has_failed) {
            qsort(times.all, times.n, sizeof *times.all, compare_steps);
            good = check_times(set, &times, i);
        }
    }
    free(times.all);
    return good;
}

/* ---- the set ---- */

bool trace_set_open(struct trace_set *set, const char *command, char **paths, size_t n,
                    bool with_reports)
{
    *set = (struct trace_set){.command = command};
    set->members = calloc(n, sizeof *set->members);
    if (!set->members) {
        (void)fprintf(stderr, "%s: no memory is left for %zu files\n", command, n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        set->members[i].path = paths[i];
        set->n = i + 1;
        if (!read_member(set, &set->members[i])) {
            return false;
        }
    }
    qsort(set->members, n, sizeof *set->members, compare_members);
    return check_job(set, with_reports) && align_clocks(set) && check_run(set);
}

bool trace_set_visit(const struct trace_set *set, size_t member,
                     const struct trace_visitor *visitor)
{
    const struct trace_member *read = &set->members[member];
    char why[200];
    FILE *from = open_file(set, read->path);
    bool good;

    if (!from) {
        return false;
    }
    good = trace_file_visit(from, &read->file, visitor, why, sizeof why);
    (void)fclose(from);
    return good || refuse(set, read->path, why);
}

FILE *trace_set_create(const struct trace_set *set, const char *path)
{
    struct stat output;
    FILE *to;

    if (stat(path, &output) == 0) {
        for (size_t i = 0; i < set->n; i++) {
            struct stat input;

            if (stat(set->members[i].path, &input) == 0 && input.st_dev == output.st_dev &&
                input.st_ino == output.st_ino) {
                (void)refuse(set, path, "is one of the trace files; choose another output with -o");
                return NULL;
            }
        }
    }
    to = fopen(path, "wb");
    if (!to) {
        (void)fprintf(stderr, "%s: cannot write %s: %s\n", set->command, path, strerror(errno));
    }
    return to;
}

bool trace_set_close(const struct trace_set *set, FILE *output, const char *path, bool is_wanted)
{
    struct stat about;
    bool is_file = fstat(fileno(output), &about) == 0 && S_ISREG(about.st_mode);
    bool failed = ferror(output) != 0;

    failed = fclose(output) != 0 || failed;
    if (failed && is_wanted) {
        (void)fprintf(stderr, "%s: cannot write %s: %s\n", set->command, path, strerror(errno));
    }
    /* A device, for example, stays. */
    if ((failed || !is_wanted) && is_file) {
        (void)remove(path);
    }
    return !failed && is_wanted;
}

void trace_set_free(struct trace_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        trace_file_free(&set->members[i].file);
    }
    free(set->members);
    set->members = NULL;
}

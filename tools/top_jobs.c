/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds status pages: in the descriptors of every process of this user, or of one process and its
 * children. Pages are read, not mapped, so that a page that shrinks is no signal. One thread.
 */
#include "tools/top_jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK "/memfd:" TALLY__STATUS_NAME " (deleted)"
#define ANCESTORS_MAX 64

/* ---- processes ---- */

struct process {
    pid_t pid;
    pid_t parent;
    char state;
    uint64_t start;
};

/* Behind the n-th blank from here on; NULL if there are fewer. */
static const char *skip_fields(const char *text, int n)
{
    for (; n > 0 && text; n--) {
        text = strchr(text, ' ');
        text = text ? text + 1 : NULL;
    }
    return text;
}

/* False if the process is gone. */
static bool read_process(pid_t pid, struct process *process)
{
    char path[64];
    char text[1024];
    const char *after;
    size_t n;
    FILE *from;
    const char *parent;
    const char *start;

    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    from = fopen(path, "r");
    if (!from) {
        return false;
    }
    n = fread(text, 1, sizeof text - 1, from);
    (void)fclose(from);
    text[n] = '\0';
    /* The name before this bracket may contain anything. The state is the third field. */
    after = strrchr(text, ')');
    parent = skip_fields(after, 4 - 2);
    start = skip_fields(after, 22 - 2);
    if (!parent || !start) {
        return false;
    }
    process->state = after[2];
    process->parent = (pid_t)strtol(parent, NULL, 10);
    process->start = strtoull(start, NULL, 10);
    process->pid = pid;
    return true;
}

static enum top_process classify(char state)
{
    switch (state) {
    case 'T':
    case 't':
        return TOP_STOPPED;
    case 'Z':
    case 'X':
    case 'x':
        return TOP_DEAD;
    default:
        return TOP_RUNS;
    }
}

static bool is_own_process(pid_t pid, uid_t *user)
{
    char path[64];
    struct stat about;

    *user = (uid_t)-1;
    (void)snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    if (stat(path, &about) != 0) {
        return false;
    }
    *user = about.st_uid;
    return about.st_uid == geteuid();
}

/* Whether pid is ancestor or one of its descendants. */
static bool descends(pid_t pid, pid_t ancestor)
{
    for (int depth = 0; depth < ANCESTORS_MAX && pid > 1; depth++) {
        struct process process;

        if (pid == ancestor) {
            return true;
        }
        if (!read_process(pid, &process)) {
            return false;
        }
        pid = process.parent;
    }
    return false;
}

/* ---- pages ---- */

/* Reads the page that a descriptor of a process refers to. False if it is not one that can be read;
 * why is set only if it looks like a page. */
static bool read_page(const char *path, struct top_page *page, char *why, size_t room)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat about;
    unsigned char *bytes = NULL;
    size_t n = 0;
    bool good = false;

    if (fd < 0) {
        return false;
    }
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        n = (size_t)about.st_size < TOP_PAGE_BYTES_MAX ? (size_t)about.st_size : TOP_PAGE_BYTES_MAX;
        bytes = malloc(2 * n);
    }
    if (bytes && pread(fd, bytes, n, 0) == (ssize_t)n && pread(fd, bytes + n, n, 0) == (ssize_t)n) {
        good = top_page_parse(bytes, bytes + n, n, page, why, room);
    }
    free(bytes);
    (void)close(fd);
    return good;
}

/* The rank that this page is of: one that was there before, or a new one. NULL without memory. */
static struct top_rank *place_for(struct top_ranks *ranks, const struct process *process,
                                  const struct top_page *page)
{
    struct top_rank *grown;
    size_t more = ranks->room < 16 ? 16 : 2 * ranks->room;

    for (size_t i = 0; i < ranks->n; i++) {
        struct top_rank *rank = &ranks->all[i];

        if (rank->pid == process->pid && rank->start == process->start &&
            rank->page.head.rank == page->head.rank &&
            strcmp(rank->page.head.job, page->head.job) == 0) {
            return rank;
        }
    }
    if (ranks->n == ranks->room) {
        grown = realloc(ranks->all, more * sizeof *grown);
        if (!grown) {
            return NULL;
        }
        ranks->all = grown;
        ranks->room = more;
    }
    return &ranks->all[ranks->n++];
}

/* Adds the ranks of a process. A page that cannot be read is a problem if it is the target's. */
static void read_pages(struct top_ranks *ranks, const struct process *process, pid_t target)
{
    char folder[64];
    DIR *open_files;
    const struct dirent *entry;

    (void)snprintf(folder, sizeof folder, "/proc/%ld/fd", (long)process->pid);
    open_files = opendir(folder);
    while (open_files && (entry = readdir(open_files)) != NULL) {
        char path[sizeof folder + sizeof entry->d_name + 2];
        char link[sizeof LINK + 8];
        char why[200] = "";
        struct top_page page;
        ssize_t length;

        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        length = readlink(path, link, sizeof link);
        if (length != (ssize_t)strlen(LINK) || memcmp(link, LINK, strlen(LINK)) != 0) {
            continue;
        }
        if (read_page(path, &page, why, sizeof why)) {
            /* A forked child has inherited its parent's pages. */
            struct top_rank *rank =
                page.head.pid == process->pid ? place_for(ranks, process, &page) : NULL;

            if (rank) {
                *rank = (struct top_rank){.pid = process->pid,
                                          .start = process->start,
                                          .process = classify(process->state),
                                          .page = page};
            }
        } else if (why[0] != '\0' && (target == 0 || descends(process->pid, target))) {
            (void)snprintf(ranks->problem, sizeof ranks->problem, "process %ld %s",
                           (long)process->pid, why);
        }
    }
    if (open_files) {
        (void)closedir(open_files);
    }
}

/* ---- looking ---- */

static int compare_ranks(const void *a, const void *b)
{
    const struct top_rank *x = a;
    const struct top_rank *y = b;
    int jobs = strcmp(x->page.head.job, y->page.head.job);

    if (jobs != 0) {
        return jobs;
    }
    if (x->page.head.rank != y->page.head.rank) {
        return x->page.head.rank < y->page.head.rank ? -1 : 1;
    }
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Ranks that are no longer there. */
static void mark_dead(struct top_ranks *ranks)
{
    for (size_t i = 0; i < ranks->n; i++) {
        struct process process;

        if (!read_process(ranks->all[i].pid, &process) || process.start != ranks->all[i].start) {
            ranks->all[i].process = TOP_DEAD;
        } else {
            ranks->all[i].process = classify(process.state);
        }
    }
}

/* Reads the pages of all processes of this user; root may look at those of others. */
static bool read_all(struct top_ranks *ranks, pid_t target)
{
    bool with_others = target != 0 && geteuid() == 0;
    DIR *folder = opendir("/proc");
    const struct dirent *entry;

    if (!folder) {
        return false;
    }
    while ((entry = readdir(folder)) != NULL) {
        long pid = strtol(entry->d_name, NULL, 10);
        struct process process;
        uid_t uid;

        if (pid > 0 && (is_own_process((pid_t)pid, &uid) || with_others) &&
            read_process((pid_t)pid, &process)) {
            read_pages(ranks, &process, target);
        }
    }
    (void)closedir(folder);
    return true;
}

/* Keeps the jobs of which at least one rank is wanted. */
static void keep_jobs(struct top_ranks *ranks,
                      bool (*is_wanted)(const struct top_rank *rank,
                                        const struct top_target *target),
                      const struct top_target *target)
{
    size_t kept = 0;
    size_t end;

    for (size_t first = 0; first < ranks->n; first = end) {
        const char *job = ranks->all[first].page.head.job;
        bool wanted = false;

        for (end = first; end < ranks->n && strcmp(ranks->all[end].page.head.job, job) == 0;
             end++) {
            wanted |= is_wanted(&ranks->all[end], target);
        }
        for (size_t i = first; i < end && wanted; i++) {
            ranks->all[kept++] = ranks->all[i];
        }
    }
    ranks->n = kept;
}

/* The target's job, or one that was started below it since. */
static bool is_of_target(const struct top_rank *rank, const struct top_target *target)
{
    return (target->job[0] != '\0' && strcmp(rank->page.head.job, target->job) == 0) ||
           descends(rank->pid, target->pid);
}

static bool lives(const struct top_rank *rank, const struct top_target *target)
{
    (void)target;
    return rank->process != TOP_DEAD;
}

static void keep_wanted(struct top_ranks *ranks, struct top_target *target)
{
    bool any_lives = false;

    for (size_t i = 0; i < ranks->n; i++) {
        any_lives |= lives(&ranks->all[i], target);
    }
    if (target->pid != 0) {
        keep_jobs(ranks, is_of_target, target);
    } else if (any_lives) {
        /* The others have ended; one of them may be the same program, before it was started again.
         */
        keep_jobs(ranks, lives, target);
    }
    if (target->pid != 0 && ranks->n > 0) {
        memcpy(target->job, ranks->all[0].page.head.job, sizeof target->job);
    }
}

static bool check_target(pid_t pid, char *why, size_t room)
{
    struct process process;
    uid_t uid;

    if (!read_process(pid, &process)) {
        (void)snprintf(why, room, "there is no process %ld", (long)pid);
        return false;
    }
    if (!is_own_process(pid, &uid) && geteuid() != 0) {
        const struct passwd *user = getpwuid(uid);

        (void)snprintf(why, room,
                       "process %ld belongs to user %s; only that user and root can look at it",
                       (long)pid, user ? user->pw_name : "unknown");
        return false;
    }
    if (classify(process.state) == TOP_DEAD) {
        (void)snprintf(why, room, "process %ld has ended", (long)pid);
        return false;
    }
    return true;
}

bool top_jobs_look(struct top_ranks *ranks, struct top_target *target, char *why, size_t room)
{
    bool is_first = ranks->n == 0;

    if (target->pid != 0 && is_first && !check_target(target->pid, why, room)) {
        return false;
    }
    ranks->problem[0] = '\0';
    if (!read_all(ranks, target->pid)) {
        (void)snprintf(why, room, "cannot read /proc: %s", strerror(errno));
        return false;
    }
    mark_dead(ranks);
    if (ranks->n > 0) {
        qsort(ranks->all, ranks->n, sizeof *ranks->all, compare_ranks);
    }
    keep_wanted(ranks, target);
    if (target->pid != 0 && ranks->n == 0) {
        if (ranks->problem[0] != '\0') {
            (void)snprintf(why, room, "%s", ranks->problem);
        } else {
            (void)snprintf(why, room,
                           "process %ld is not a rank of tally, and has started none, or it has no "
                           "ddp yet",
                           (long)target->pid);
        }
        return false;
    }
    return true;
}

void top_jobs_free(struct top_ranks *ranks)
{
    free(ranks->all);
    *ranks = (struct top_ranks){0};
}

const struct top_entry *top_main_entry(const struct top_rank *rank)
{
    const struct top_entry *most = NULL;

    for (size_t i = 0; i < rank->page.n_entries; i++) {
        const struct top_entry *entry = &rank->page.entries[i];

        if (!most || (most->state == TALLY__STATE_DONE && entry->state != TALLY__STATE_DONE) ||
            (entry->state != TALLY__STATE_DONE && entry->wire_bytes > most->wire_bytes)) {
            most = entry;
        }
    }
    return most;
}

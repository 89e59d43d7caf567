/* SPDX-License-Identifier: Apache-2.0 */
/* `tally top`: what the ranks of this machine are doing, while they do it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tools/command.h"
#include "tools/options.h"
#include "tools/top_screen.h"

#define NAME "tally top"
/* By which page up and page down scroll. */
#define PAGE_ROWS 10

struct top {
    struct top_target target;
    struct top_ranks ranks;
    struct top_lines lines;
    double interval_s;
    bool as_json;
    bool once;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* False after a message. */
static bool look(struct top *top)
{
    char why[400];

    if (!top_jobs_look(&top->ranks, &top->target, why, sizeof why)) {
        (void)fprintf(stderr, NAME ": %s\n", why);
        return false;
    }
    return true;
}

static void print(struct top *top)
{
    if (top->as_json) {
        top_view_json(&top->ranks, now_ns(), stdout);
        return;
    }
    top_view_lines(&top->ranks, now_ns(), &top->lines);
    for (size_t i = 0; i < top->lines.n; i++) {
        printf("%s\n", top->lines.all[i]);
    }
}

static void pause_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

/* Without a terminal, until nobody reads the output any more or no rank of the job is left. */
static bool follow(struct top *top)
{
    for (;;) {
        bool any = top->target.pid == 0;

        if (!look(top)) {
            return false;
        }
        print(top);
        if (fflush(stdout) != 0) {
            return false;
        }
        for (size_t i = 0; i < top->ranks.n; i++) {
            any |= top->ranks.all[i].process != TOP_DEAD;
        }
        if (top->once || !any) {
            return true;
        }
        pause_for(top->interval_s);
    }
}

static bool watch(struct top *top)
{
    size_t first = 0;
    enum top_event event = TOP_AGAIN;

    if (!look(top)) {
        return false;
    }
    if (!top_screen_open()) {
        return follow(top);
    }
    while (event != TOP_QUIT) {
        char why[400];

        top_view_lines(&top->ranks, now_ns(), &top->lines);
        top_screen_show(&top->lines, &first);
        event = top_screen_wait(top->interval_s);
        if (event == TOP_UP || event == TOP_PAGE_UP) {
            size_t by = event == TOP_UP ? 1 : PAGE_ROWS;

            first -= first < by ? first : by;
        } else if (event == TOP_DOWN || event == TOP_PAGE_DOWN) {
            first += event == TOP_DOWN ? 1 : PAGE_ROWS;
        } else if (event == TOP_AGAIN) {
            (void)top_jobs_look(&top->ranks, &top->target, why, sizeof why);
        }
    }
    top_screen_close();
    return true;
}

static bool read_pid(const char *text, pid_t *pid)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    *pid = (pid_t)value;
    return errno == 0 && end != text && *end == '\0' && value > 0 && *pid == value;
}

int cmd_top(int argc, char **argv)
{
    struct top top = {.interval_s = 1};
    const struct option options[] = {
        {"interval", OPTION_SECONDS, &top.interval_s, "SECONDS", "look again after this time (1)"},
        {"json", OPTION_FLAG, &top.as_json, NULL, "one JSON object per line, each time"},
        {"once", OPTION_FLAG, &top.once, NULL, "look once"},
    };
    const struct option_set set = {
        NAME,
        "shows what the ranks of a job on this machine do\n\n"
        "usage: " NAME " [PID] [OPTION...]\n\n"
        "Shows their steps, the bucket they are in, and the rank they wait for. PID is a rank, or\n"
        "the launcher that started the ranks. Without PID it shows the jobs of this user. It\n"
        "needs nothing from the job, which may hang or be stopped. q ends it.",
        NAME " --once --json", options, 3};
    size_t n;
    enum option_result parsed = options_read_words(&set, argc, argv, &n);
    bool good;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (n > 1 || (n == 1 && !read_pid(argv[0], &top.target.pid))) {
        (void)fprintf(stderr, NAME ": '%s' is not accepted; give the number of one process\n",
                      argv[n - 1]);
        return EXIT_USAGE;
    }
    good = top.as_json || top.once ? follow(&top) : watch(&top);
    top_jobs_free(&top.ranks);
    top_lines_free(&top.lines);
    return good ? EXIT_DONE : EXIT_FAILED;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally plan`: forecasts of the time of a step, from a profile, on machines that one does not
 * have. The rows come from bench/plan_rows.h. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/lists.h"
#include "tools/options.h"
#include "tools/plan_output.h"

#define NAME "tally plan"

/* The options as given, not parsed yet. */
struct words {
    const char *profile;
    const char *hosts;
    const char *ranks_per_host;
    const char *gbit;
    const char *latency_us;
    const char *hooks;
    const char *periods;
    const char *page;
    bool as_json;
};

/* The lists among them. */
struct lists {
    struct real_list hosts;
    struct real_list ranks_per_host;
    struct real_list gbit;
    struct real_list latency_us;
    struct real_list periods; /* empty: not given */
};

static enum option_result read_words(int argc, char **argv, struct words *words)
{
    const struct option options[] = {
        {"profile", OPTION_TEXT, &words->profile, "FILE",
         "what was measured: written by `tally bench profile -o FILE`"},
        {"hosts", OPTION_TEXT, &words->hosts, "LIST", "numbers of hosts (as measured)"},
        {"ranks-per-host", OPTION_TEXT, &words->ranks_per_host, "LIST",
         "ranks on each host, which share its link (as measured)"},
        {"gbit", OPTION_TEXT, &words->gbit, "LIST",
         "rates of a host's link in Gbit/s (as measured)"},
        {"latency-us", OPTION_TEXT, &words->latency_us, "LIST",
         "times of a small message, in microseconds (as measured)"},
        {"hook", OPTION_TEXT, &words->hooks, "LIST",
         "hooks of the profile, with + between them, alone or inside hosts(), postlocal() or "
         "diloco() (all)"},
        {"period", OPTION_TEXT, &words->periods, "LIST",
         "steps between averagings (postlocal 16, diloco 500)"},
        {"json", OPTION_FLAG, &words->as_json, NULL, "one JSON object per line"},
        {"o", OPTION_TEXT, &words->page, "FILE", "also write an HTML page"},
    };
    const struct option_set set = {
        NAME,
        "forecasts the time of a training step on other machines, from a profile\n\n"
        "usage: " NAME " --profile FILE [OPTION...]\n\n"
        "Replays the step of the profile for each hook, with the messages that tally would send\n"
        "there. It does not predict the loss.",
        NAME " --profile run.json --hosts 2,8,64 --gbit 1,10,100 --hook allreduce+int8", options,
        sizeof options / sizeof options[0]};

    return options_read(&set, argc, argv);
}

static bool read_reals(const char *option, const char *text, double least, double most,
                       struct real_list *list)
{
    if (text && !real_list_read(text, least, most, list)) {
        (void)fprintf(stderr,
                      NAME ": --%s takes at most %d numbers from %g to %g, separated by commas, "
                           "such as 0.1,1,10; not '%.60s'\n",
                      option, LIST_MAX, least, most, text);
        return false;
    }
    return true;
}

static bool read_wholes(const char *option, const char *text, struct real_list *list)
{
    struct size_list whole = {.n = 0};

    if (text && !size_list_read(text, &whole)) {
        (void)fprintf(stderr,
                      NAME ": --%s takes at most %d whole numbers from 1 on, separated by commas, "
                           "such as 2,4,8; not '%.60s'\n",
                      option, LIST_MAX, text);
        return false;
    }
    list->n = whole.n;
    for (size_t i = 0; i < whole.n; i++) {
        list->values[i] = (double)whole.values[i];
    }
    return true;
}

static bool read_lists(const struct words *words, struct lists *lists)
{
    if (!words->profile) {
        (void)fprintf(stderr, NAME ": give --profile FILE, which `tally bench profile -o FILE` "
                                   "writes\n");
        return false;
    }
    return read_wholes("hosts", words->hosts, &lists->hosts) &&
           read_wholes("ranks-per-host", words->ranks_per_host, &lists->ranks_per_host) &&
           read_reals("gbit", words->gbit, 1e-6, 1e5, &lists->gbit) &&
           read_reals("latency-us", words->latency_us, 1e-3, 1e7, &lists->latency_us) &&
           read_wholes("period", words->periods, &lists->periods);
}

static void fall_back(struct real_list *list, double measured)
{
    if (list->n == 0) {
        *list = (struct real_list){{measured}, 1};
    }
}

static int make_plan(const struct words *words, struct lists *lists, struct plan *plan)
{
    bool is_shared = false;
    int rc = plan_read(plan);

    fall_back(&lists->hosts, plan->profile.hosts);
    fall_back(&lists->ranks_per_host, plan->profile.ranks_per_host);
    fall_back(&lists->gbit, plan->profile.link.gbit);
    fall_back(&lists->latency_us, 1e6 * plan->profile.link.latency_s);
    for (size_t i = 0; i < lists->ranks_per_host.n; i++) {
        is_shared = is_shared || lists->ranks_per_host.values[i] > 1;
    }
    if (rc == TALLY_OK) {
        rc = plan_ways(plan, words->hooks, lists->periods.values, lists->periods.n, is_shared);
    }
    if (rc == TALLY_OK) {
        rc = plan_compute(plan, &(struct plan_machines){lists->hosts.values, lists->hosts.n,
                                                        lists->ranks_per_host.values,
                                                        lists->ranks_per_host.n, lists->gbit.values,
                                                        lists->gbit.n, lists->latency_us.values,
                                                        lists->latency_us.n});
    }
    if (rc != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
    }
    return rc == TALLY_OK ? EXIT_DONE : rc == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
}

static int write_page(const struct plan *plan, const char *path)
{
    FILE *file = fopen(path, "w");
    bool failed = !file;

    if (file) {
        plan_write_page(plan, file);
        failed = ferror(file) != 0;
        failed = fclose(file) != 0 || failed;
    }
    if (failed) {
        (void)fprintf(stderr, NAME ": cannot write %s: %s\n", path, strerror(errno));
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

int cmd_plan(int argc, char **argv)
{
    struct words words = {.profile = NULL};
    struct lists lists = {.hosts.n = 0};
    struct plan plan = {.file = NULL};
    enum option_result parsed = read_words(argc, argv, &words);
    int done;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (!read_lists(&words, &lists)) {
        return EXIT_USAGE;
    }
    plan.file = words.profile;
    done = make_plan(&words, &lists, &plan);
    if (done == EXIT_DONE) {
        (words.as_json ? plan_print_json : plan_print_table)(&plan);
        done = words.page ? write_page(&plan, words.page) : EXIT_DONE;
    }
    plan_free(&plan);
    return done;
}

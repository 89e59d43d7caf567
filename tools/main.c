/* SPDX-License-Identifier: Apache-2.0 */
/* The `tally` command: finds the subcommand and calls it. */
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

static int cmd_version(int argc, char **argv)
{
    bool as_json = false;
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "as a JSON object"},
    };
    const struct option_set set = {"tally version", "prints the version", "tally version --json",
                                   options, 1};
    enum option_result result = options_read(&set, argc, argv);

    if (result != OPTIONS_OK) {
        return result == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (as_json) {
        struct json json = json_begin(stdout);

        json_text(&json, "version", tally_version());
        json_end(&json);
    } else {
        printf("tally %s\n", tally_version());
    }
    return EXIT_DONE;
}

static void print_commands(FILE *to, const struct command_set *set)
{
    (void)fprintf(to, "usage: %s COMMAND [OPTION...]\n\n", set->name);
    for (size_t i = 0; i < set->n; i++) {
        (void)fprintf(to, "  %-11s %s\n", set->commands[i].name, set->commands[i].summary);
    }
    (void)fprintf(to, "\n'%s COMMAND --help' explains a command and gives an example.\n\n",
                  set->name);
    (void)fprintf(to, "Example: %s\n", set->example);
}

static void reject_command(const struct command_set *set, const char *word)
{
    (void)fprintf(stderr, "%s: unknown command '%s'; accepted:", set->name, word);
    for (size_t i = 0; i < set->n; i++) {
        (void)fprintf(stderr, " %s", set->commands[i].name);
    }
    (void)fprintf(stderr, "\n");
}

int command_dispatch(const struct command_set *set, int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr, set);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout, set);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (strcmp(argv[1], set->commands[i].name) == 0) {
            return set->commands[i].run(argc - 1, argv + 1);
        }
    }
    reject_command(set, argv[1]);
    return EXIT_USAGE;
}

/* Output that cannot be written, for example to a full disk, is a failure. */
static int flush_output(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("tally: cannot write to standard output");
        return status == EXIT_DONE ? EXIT_FAILED : status;
    }
    return status;
}

int main(int argc, char **argv)
{
    static const struct command commands[] = {
        {"bench", "measure what this machine does with tally", cmd_bench},
        {"checkpoint", "show and verify a checkpoint", cmd_checkpoint},
        {"env", "list the environment variables tally reads", cmd_env},
        {"hooks", "list the hooks, when to use them, and their options", cmd_hooks},
        {"optimizers", "list the optimizers, when to use them, and their options", cmd_optimizers},
        {"plan", "forecast the time of a step on other machines, from a profile", cmd_plan},
        {"report", "make a page about a run from its trace files", cmd_report},
        {"run", "start a program as ranks that work together", cmd_run},
        {"top", "show what the ranks of a job are doing", cmd_top},
        {"trace", "merge trace files for a trace viewer", cmd_trace},
        {"version", "print the version", cmd_version},
    };
    static const struct command_set set = {"tally", "tally run -n 2 ./train", commands,
                                           sizeof commands / sizeof commands[0]};

    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        argv[1] = "version";
    }
    return flush_output(command_dispatch(&set, argc, argv));
}

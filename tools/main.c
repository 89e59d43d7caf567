/* SPDX-License-Identifier: Apache-2.0 */
/* The `tally` command: finds the sub-command and hands over. */
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "tools/command.h"

static int cmd_version(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        (void)fprintf(stderr, "tally version: takes no argument\n");
        return EXIT_USAGE;
    }
    printf("tally %s\n", tally_version());
    return EXIT_DONE;
}

static void print_commands(FILE *to, const char *of, const struct command *commands, size_t n)
{
    (void)fprintf(to, "usage: %s COMMAND [OPTION...]\n\n", of);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fprintf(to, "\n'%s COMMAND --help' explains a command and gives an example.\n", of);
}

static void reject_command(const char *of, const struct command *commands, size_t n,
                           const char *word)
{
    (void)fprintf(stderr, "%s: unknown command '%s'; accepted:", of, word);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(stderr, " %s", commands[i].name);
    }
    (void)fprintf(stderr, "\n");
}

int command_dispatch(const char *of, const struct command *commands, size_t n, int argc,
                     char **argv)
{
    if (argc < 2) {
        print_commands(stderr, of, commands, n);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout, of, commands, n);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    reject_command(of, commands, n, argv[1]);
    return EXIT_USAGE;
}

/* Output that did not reach its reader, a full disk say, is a failure like any other. */
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
        {"env", "list the environment variables tally reads", cmd_env},
        {"hooks", "list the hooks, when to use them, and their options", cmd_hooks},
        {"optimizers", "list the optimizers, when to use them, and their options", cmd_optimizers},
        {"run", "start a program as ranks that work together", cmd_run},
        {"version", "print the version", cmd_version},
    };

    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        argv[1] = "version";
    }
    return flush_output(
        command_dispatch("tally", commands, sizeof commands / sizeof commands[0], argc, argv));
}

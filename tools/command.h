/* SPDX-License-Identifier: Apache-2.0 */
/* A command of the `tally` program, and the exit codes of all commands. */
#ifndef TALLY_TOOLS_COMMAND_H
#define TALLY_TOOLS_COMMAND_H

#include <stddef.h>

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1, /* the work was tried and failed */
    EXIT_USAGE = 2,  /* the command line or the environment is wrong */
    /* As in shells, for a program that cannot be run. */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNALLED = 128, /* plus the number of the signal */
};

struct command {
    const char *name;
    const char *summary;               /* one line, for the list */
    int (*run)(int argc, char **argv); /* argv[0] is the name of the command */
};

struct command_set {
    const char *name;    /* for messages: "tally bench" */
    const char *example; /* an example of a command line */
    const struct command *commands;
    size_t n;
};

/* Runs the command named by argv[1], or prints the list of commands. */
int command_dispatch(const struct command_set *set, int argc, char **argv);

int cmd_bench(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_hooks(int argc, char **argv);
int cmd_optimizers(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_trace(int argc, char **argv);

#endif

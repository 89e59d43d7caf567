/* SPDX-License-Identifier: Apache-2.0 */
/* A command that lists hooks or optimizers: all or one, with options, as text or as JSON. */
#ifndef TALLY_TOOLS_LISTING_H
#define TALLY_TOOLS_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <tally.h>

struct listing_item {
    const char *name;
    const char *help;
    bool wraps; /* takes another one in brackets */
    size_t n_options;
};

struct listing {
    const char *command; /* "tally hooks" */
    const char *word;    /* "hook" */
    const char *summary;
    const char *example;
    const char *inside; /* name for the part in brackets, "HOOK"; NULL: there are no brackets */
    size_t (*count)(void);
    int (*describe)(size_t index, struct listing_item *item); /* returns a status */
    int (*describe_option)(size_t index, size_t option, tally_hook_option *described);
};

/* Runs the command; returns an exit code. */
int listing_run(const struct listing *listing, int argc, char **argv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds our children in /proc. One thread. A process gets a signal only while it is our child and
 * has not been waited for, so its number cannot have been reused.
 */
#include "tools/run_leftovers.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Reads the numbers of our children; NULL without /proc. */
static FILE *open_children(void)
{
    return fopen("/proc/thread-self/children", "re");
}

static bool next_child(FILE *children, pid_t *pid)
{
    char word[32];
    long number;

    if (fscanf(children, "%31s", word) != 1) {
        return false;
    }
    number = strtol(word, NULL, 10);
    *pid = (pid_t)number;
    return number > 0;
}

bool run_leftovers_adopt(struct run_leftovers *leftovers)
{
    FILE *children = open_children();
    bool complete = true;
    pid_t pid;

    *leftovers = (struct run_leftovers){0};
    /* Before we adopt orphans, to tell them from children that we have already. */
    while (complete && children && next_child(children, &pid)) {
        pid_t *more =
            realloc(leftovers->foreign, (leftovers->n_foreign + 1) * sizeof *leftovers->foreign);

        complete = more != NULL;
        if (more) {
            leftovers->foreign = more;
            leftovers->foreign[leftovers->n_foreign++] = pid;
        }
    }
    if (children) {
        (void)fclose(children);
    }
    return complete && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

static bool is_foreign(const struct run_leftovers *leftovers, pid_t pid)
{
    for (size_t i = 0; i < leftovers->n_foreign; i++) {
        if (leftovers->foreign[i] == pid) {
            return true;
        }
    }
    return false;
}

void run_leftovers_forget(struct run_leftovers *leftovers, pid_t pid)
{
    for (size_t i = 0; i < leftovers->n_foreign; i++) {
        if (leftovers->foreign[i] == pid) {
            leftovers->foreign[i] = leftovers->foreign[--leftovers->n_foreign];
            return;
        }
    }
}

size_t run_leftovers_signal(const struct run_leftovers *leftovers, int number)
{
    FILE *children = open_children();
    size_t n = 0;
    pid_t pid;

    if (!children) {
        return 0;
    }
    while (next_child(children, &pid)) {
        if (!is_foreign(leftovers, pid)) {
            (void)kill(pid, number);
            n++;
        }
    }
    (void)fclose(children);
    return n;
}

void run_leftovers_free(struct run_leftovers *leftovers)
{
    free(leftovers->foreign);
    *leftovers = (struct run_leftovers){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's sign of life, for other processes to look at: a page of a file without a name that
 * this process alone has mapped. The others hold the file's descriptor. When the process ends or
 * calls exec, however that comes about, the kernel removes the mapping.
 */
#ifndef TALLY_COMM_LIFE_H
#define TALLY_COMM_LIFE_H

#include <stdbool.h>

/* Makes the file and maps its page, here and not in children. *fd may be passed on and closed.
 * Errors: SYSTEM. */
int tally__life_begin(int *fd, void **page);

/* Takes the sign back; page may be NULL. */
void tally__life_end(void *page);

/* Whether this is the descriptor of a sign of life. */
bool tally__is_life(int fd);

/* Whether the process has ended. False for a descriptor that is closed, or that is of something
 * else by now: then nobody knows. Two system calls at most; any thread. */
bool tally__life_has_ended(int fd);

#endif

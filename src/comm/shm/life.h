/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's sign of life for other processes: a page of an unnamed file that only this process
 * has mapped. The others hold the file's descriptor. When the process ends or calls exec, in any
 * way, the kernel removes the mapping.
 */
#ifndef TALLY_COMM_LIFE_H
#define TALLY_COMM_LIFE_H

#include <stdbool.h>

/* Makes the file and maps its page, here and not in children. *fd may be sent and closed. Errors:
 * SYSTEM. */
int tally__life_begin(int *fd, void **page);

/* Removes the sign; page may be NULL. */
void tally__life_end(void *page);

/* Whether this is the descriptor of a sign of life. */
bool tally__is_life(int fd);

/* Whether the process has ended. False if the descriptor was closed or now belongs to another file:
 * then it is unknown. At most two system calls; any thread. */
bool tally__life_has_ended(int fd);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process, and the single rank of a world of one. */
#ifndef TALLY_COMM_THREAD_DOMAIN_H
#define TALLY_COMM_THREAD_DOMAIN_H

#include "comm/group.h"

/* Opens n groups over the heap; with n = 1 the backend is called "self". Errors: NOMEM, SYSTEM. */
int tally__open_threads(int n, int lanes, double timeout_s, tally_group **groups);

#endif

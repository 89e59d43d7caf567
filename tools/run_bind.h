/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores each rank may use. Built with or without hwloc: run_bind_hwloc.c, run_bind_none.c. */
#ifndef TALLY_TOOLS_RUN_BIND_H
#define TALLY_TOOLS_RUN_BIND_H

struct run_binding;

/*
 * Divides the cores this process may use among n ranks. On failure NULL, and *problem is one line
 * that says why; it is static or belongs to strerror.
 */
struct run_binding *run_binding_create(int n, const char **problem);

/* Pins the calling thread, and what it starts later, to the rank's cores: 0 or an error number. */
int run_binding_apply(const struct run_binding *binding, int rank);

/* NULL is accepted. */
void run_binding_free(struct run_binding *binding);

#endif

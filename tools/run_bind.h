/* SPDX-License-Identifier: Apache-2.0 */
/* The cores of each rank. Built with or without hwloc: run_bind_hwloc.c, run_bind_none.c. */
#ifndef TALLY_TOOLS_RUN_BIND_H
#define TALLY_TOOLS_RUN_BIND_H

struct run_binding;

/*
 * Divides the cores of this process among n ranks. On failure returns NULL and sets *problem to the
 * reason, a static text or one of strerror.
 */
struct run_binding *run_binding_create(int n, const char **problem);

/* Pins the calling thread, and threads it starts later, to the rank's cores: 0 or an errno. */
int run_binding_apply(const struct run_binding *binding, int rank);

/* NULL is accepted. */
void run_binding_free(struct run_binding *binding);

#endif

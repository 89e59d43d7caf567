/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces run_bind_hwloc.c in a build without hwloc: refuses to bind. */
#include <errno.h>
#include <stddef.h>

#include "tools/run_bind.h"

struct run_binding *run_binding_create(int n, const char **problem)
{
    (void)n;
    *problem = "this tally was built without hwloc; install libhwloc-dev and build again";
    return NULL;
}

int run_binding_apply(const struct run_binding *binding, int rank)
{
    (void)binding;
    (void)rank;
    return ENOTSUP;
}

void run_binding_free(struct run_binding *binding)
{
    (void)binding;
}

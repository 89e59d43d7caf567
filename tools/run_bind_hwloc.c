/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the cores among the ranks with hwloc: ranks with neighbouring numbers get neighbouring
 * cores, and ranks share a core only if there are too few. Only the CPUs that this process may use
 * are divided, so a binding by taskset or a batch system is respected. One thread; apply runs in
 * the forked child.
 */
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run_bind.h"

struct run_binding {
    hwloc_topology_t topology;
    hwloc_cpuset_t *cpus; /* of each rank */
    int n;
};

/* Removes the CPUs that this process may not use. */
static int restrict_to_ours(hwloc_topology_t topology)
{
    hwloc_cpuset_t ours = hwloc_bitmap_alloc();
    int rc = -1;

    if (!ours) {
        errno = ENOMEM;
        return -1;
    }
    if (hwloc_get_cpubind(topology, ours, HWLOC_CPUBIND_THREAD) == 0) {
        rc = hwloc_topology_restrict(topology, ours, 0);
    }
    hwloc_bitmap_free(ours);
    return rc;
}

static int divide(struct run_binding *binding)
{
    hwloc_obj_t machine;

    if (hwloc_topology_init(&binding->topology) != 0) {
        return -1;
    }
    if (hwloc_topology_load(binding->topology) != 0 || restrict_to_ours(binding->topology) != 0) {
        return -1;
    }
    machine = hwloc_get_root_obj(binding->topology);
    return hwloc_distrib(binding->topology, &machine, 1, binding->cpus, (unsigned)binding->n,
                         INT_MAX, 0);
}

struct run_binding *run_binding_create(int n, const char **problem)
{
    struct run_binding *binding = calloc(1, sizeof *binding);

    if (binding) {
        binding->n = n;
        binding->cpus = calloc((size_t)n, sizeof(hwloc_cpuset_t));
    }
    if (!binding || !binding->cpus) {
        *problem = strerror(ENOMEM);
    } else if (divide(binding) != 0) {
        *problem = strerror(errno);
    } else {
        return binding;
    }
    run_binding_free(binding);
    return NULL;
}

int run_binding_apply(const struct run_binding *binding, int rank)
{
    if (hwloc_set_cpubind(binding->topology, binding->cpus[rank], HWLOC_CPUBIND_THREAD) != 0) {
        return errno;
    }
    return 0;
}

void run_binding_free(struct run_binding *binding)
{
    if (!binding) {
        return;
    }
    for (int i = 0; binding->cpus && i < binding->n; i++) {
        hwloc_bitmap_free(binding->cpus[i]);
    }
    free(binding->cpus);
    if (binding->topology) {
        hwloc_topology_destroy(binding->topology);
    }
    free(binding);
}

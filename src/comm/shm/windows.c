/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address space for the ranks' files. Only mapped addresses count against a limit, so windows that
 * grow lie in the middle of the largest gap of the process, where the kernel places nothing by
 * itself; if something lies there after all, growing fails and replaces nothing. The caller holds a
 * lock.
 */
#include "comm/shm/windows.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define MIN_MAP_BYTES (UINT64_C(4) << 30)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Address space per rank where there is no limit: twice the machine's memory, more than any rank
 * can reserve; all ranks together use at most half of the address space. */
static size_t map_bytes(int n_ranks)
{
    const uint64_t most =
        (UINT64_C(1) << 46) / (uint64_t)n_ranks / TALLY__HUGE_PAGE_BYTES * TALLY__HUGE_PAGE_BYTES;
    uint64_t bytes = 2 * (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);

    bytes = (bytes / TALLY__HUGE_PAGE_BYTES + 1) * TALLY__HUGE_PAGE_BYTES;
    bytes = bytes < MIN_MAP_BYTES ? MIN_MAP_BYTES : bytes;
    return (size_t)(bytes < most ? bytes : most);
}

/* The limit of this process's address space, and the amount in use; false: unlimited. */
static bool address_limit(uint64_t *limit, uint64_t *used)
{
    struct rlimit allowed;
    unsigned long long pages = 0;
    FILE *file;

    if (getrlimit(RLIMIT_AS, &allowed) != 0 || allowed.rlim_cur == RLIM_INFINITY) {
        return false;
    }
    file = fopen("/proc/self/statm", "re");
    if (file) {
        (void)!fscanf(file, "%llu", &pages); // NOLINT(cert-err34-c): 0 where it is not a number
        (void)fclose(file);
    }
    *limit = allowed.rlim_cur;
    *used = pages * (uint64_t)sysconf(_SC_PAGE_SIZE);
    return true;
}

/* Fails with NOMEM for bytes that could not be mapped, naming the limit if there is one. */
static int fail_map(int error, uint64_t bytes, int n_ranks)
{
    uint64_t limit;
    uint64_t used;

    if (error != ENOMEM || !address_limit(&limit, &used)) {
        return tally__fail_errno(error == ENOMEM ? TALLY_NOMEM : TALLY_SYSTEM, error,
                                 "cannot map %llu bytes of group memory",
                                 (unsigned long long)bytes);
    }
    return tally__fail(TALLY_NOMEM,
                       "cannot map %llu bytes of group memory: this process uses %llu bytes of "
                       "address space and may use %llu bytes (ulimit -v); each rank maps the "
                       "memory of all %d",
                       (unsigned long long)bytes, (unsigned long long)used,
                       (unsigned long long)limit, n_ranks);
}

/* The largest range of addresses between two mappings of this process. */
static void find_gap(uint64_t *start, uint64_t *bytes)
{
    FILE *file = fopen("/proc/self/maps", "re");
    unsigned long long from;
    unsigned long long to;
    uint64_t end = 0;

    *bytes = 0;
    while (file && fscanf(file, "%llx-%llx%*[^\n]", &from, &to) == 2) { // NOLINT(cert-err34-c)
        /* Above the user's half there may be a page of the kernel. */
        if (end > 0 && from > end && from < UINT64_C(1) << 63 && from - end > *bytes) {
            *start = end;
            *bytes = from - end;
        }
        end = to;
    }
    if (file) {
        (void)fclose(file);
    }
}

int tally__windows_begin(struct tally__windows *windows, int n)
{
    uint64_t limit;
    uint64_t used;
    uint64_t gap = 0;
    uint64_t gap_bytes;

    windows->n = n;
    windows->bytes = map_bytes(n);
    windows->is_limited = address_limit(&limit, &used);
    windows->mapped = tally__alloc_array((size_t)n, sizeof *windows->mapped, "peers' memory");
    if (!windows->mapped) {
        return TALLY_NOMEM;
    }
    if (windows->is_limited) {
        uint64_t most;

        find_gap(&gap, &gap_bytes);
        most = gap_bytes / 2 / (uint64_t)n / TALLY__HUGE_PAGE_BYTES * TALLY__HUGE_PAGE_BYTES;
        windows->bytes = most < windows->bytes ? (size_t)most : windows->bytes;
        windows->first =
            (uintptr_t)((gap + gap_bytes / 4) / TALLY__HUGE_PAGE_BYTES * TALLY__HUGE_PAGE_BYTES);
    }
    return TALLY_OK;
}

void tally__windows_end(struct tally__windows *windows, const uintptr_t *base)
{
    for (int r = 0; windows->mapped && base && r < windows->n; r++) {
        if (windows->mapped[r] > 0) {
            (void)munmap((void *)base[r], windows->mapped[r]);
        }
    }
    tally__free(windows->mapped);
}

int tally__window_reach(struct tally__windows *windows, int rank, int fd, uint64_t end,
                        uintptr_t *base)
{
    uint64_t old = windows->mapped[rank];
    uint64_t wanted = windows->is_limited
                          ? (end + TALLY__PAGE_BYTES - 1) / TALLY__PAGE_BYTES * TALLY__PAGE_BYTES
                          : windows->bytes;
    int flags = MAP_SHARED | MAP_NORESERVE | (windows->is_limited ? MAP_FIXED_NOREPLACE : 0);
    uintptr_t start = windows->first + (uintptr_t)rank * windows->bytes;
    void *at = windows->is_limited ? (void *)(start + old) : NULL;
    void *map;

    if (end <= old) {
        return TALLY_OK;
    }
    if (end > windows->bytes) {
        return fail_map(ENOMEM, end, windows->n);
    }
    map = mmap(at, wanted - old, PROT_READ | PROT_WRITE, flags, fd, (off_t)old);
    if (map != MAP_FAILED && at && map != at) { /* before Linux 4.17 */
        (void)munmap(map, wanted - old);
        map = MAP_FAILED;
        errno = EEXIST;
    }
    if (map == MAP_FAILED) {
        return fail_map(errno, wanted - old, windows->n);
    }
    /* Keep the group memory out of core dumps. */
    (void)madvise(map, wanted - old, MADV_DONTDUMP);
    windows->mapped[rank] = wanted;
    base[rank] = windows->is_limited ? start : (uintptr_t)map;
    return TALLY_OK;
}

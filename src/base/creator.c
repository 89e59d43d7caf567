/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a forked child from its parent by a word that the kernel sets to zero in children
 * (MADV_WIPEONFORK). A process that finds zero takes the next number; the counter is copied by
 * fork, so a number never occurs twice in one line of descent. If the kernel has no such pages
 * (before 4.14), the number is the process id, by a system call. Any thread enters; keeps one page.
 */
#include "base/creator.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

typedef _Atomic uint64_t word;

/* A page with the number of this process, or all zero in a new child. Set once; release / acquire.
 */
static _Atomic(word *) page;
static atomic_bool has_no_page;
static word last_number; /* relaxed: only uniqueness matters */

static word *find_page(void)
{
    word *known = atomic_load_explicit(&page, memory_order_acquire);
    size_t bytes;
    word *made;

    if (known || atomic_load_explicit(&has_no_page, memory_order_relaxed)) {
        return known;
    }
    bytes = (size_t)sysconf(_SC_PAGESIZE);
    made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) {
        return NULL;
    }
    if (madvise(made, bytes, MADV_WIPEONFORK) != 0) {
        (void)munmap(made, bytes);
        atomic_store_explicit(&has_no_page, true, memory_order_relaxed);
        return NULL;
    }
    if (!atomic_compare_exchange_strong_explicit(&page, &known, made, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        (void)munmap(made, bytes); /* another thread was first */
        return known;
    }
    return made;
}

static uint64_t number_here(void)
{
    word *at = find_page();
    uint64_t number;
    uint64_t next;

    if (!at) {
        return (uint64_t)getpid();
    }
    number = atomic_load_explicit(at, memory_order_relaxed);
    if (number != 0) {
        return number;
    }
    next = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
    return atomic_compare_exchange_strong_explicit(at, &number, next, memory_order_relaxed,
                                                   memory_order_relaxed)
               ? next
               : number;
}

struct tally__creator tally__creator_here(void)
{
    return (struct tally__creator){.number = number_here(), .pid = getpid()};
}

bool tally__is_creator(const struct tally__creator *creator)
{
    return creator->number == number_here();
}

int tally__check_creator(const struct tally__creator *creator)
{
    if (tally__is_creator(creator)) {
        return TALLY_OK;
    }
    return tally__fail(TALLY_STATE,
                       "process %ld is a forked child and cannot use the group of its parent, "
                       "process %ld; call tally in the parent, or, except over MPI, open "
                       "another group in the child",
                       (long)getpid(), (long)creator->pid);
}

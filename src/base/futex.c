/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The futex system call. Words may lie in memory shared between processes, so the private form is
 * not used. Stateless; any thread enters.
 */
#include "base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void tally__futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t max_ns)
{
    struct timespec timeout = {(time_t)(max_ns / TALLY__NS_PER_SECOND),
                               (long)(max_ns % TALLY__NS_PER_SECOND)};
    int saved_errno = errno;

    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
    errno = saved_errno;
}

void tally__futex_wake(const _Atomic uint32_t *word)
{
    int saved_errno = errno;

    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = saved_errno;
}

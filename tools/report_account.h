/* SPDX-License-Identifier: Apache-2.0 */
/* The account that a member of a run writes of all ranks: how long it has waited for each of them.
 */
#ifndef TALLY_TOOLS_REPORT_ACCOUNT_H
#define TALLY_TOOLS_REPORT_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>

#include "trace/trace_format.h"

/* The others wait for a straggler for this part of the step. */
#define STRAGGLER_PART 0.1

/* The accounts in which a rank was the late one. */
struct late_count {
    size_t n_late;
    size_t n; /* all accounts that follow another */
};

/* The last account of a member, and how often each rank was late. Begins as all zero. */
struct rank_account {
    struct tally__trace_rank *ranks;
    struct late_count *late; /* per entry of ranks */
    size_t n;
    uint64_t n_steps;
};

/* Takes the next account of a member; step_ns is the time of its last step, 0 before the first.
 * False if memory is short. */
bool report_account_take(struct rank_account *account, const struct tally__trace_ranks *head,
                         const struct tally__trace_rank *ranks, double step_ns);

void report_account_free(struct rank_account *account);

#endif

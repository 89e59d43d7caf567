/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report_account.h"

#include <stdlib.h>
#include <string.h>

static double waited_between(const struct tally__trace_rank *before,
                             const struct tally__trace_rank *after)
{
    return (double)(after->computes_ns + after->lane_ns + after->link_ns) -
           (double)(before->computes_ns + before->lane_ns + before->link_ns);
}

/* Counts which rank was late between the last account and the next, which are steps_ns apart. */
static void count_late(struct rank_account *account, const struct tally__trace_rank *next,
                       double steps_ns)
{
    double most = 0;
    double second = 0;

    for (size_t i = 0; i < account->n; i++) {
        double waited = waited_between(&account->ranks[i], &next[i]);

        second = waited > most ? most : waited > second ? waited : second;
        most = waited > most ? waited : most;
    }
    for (size_t i = 0; i < account->n; i++) {
        double waited = waited_between(&account->ranks[i], &next[i]);

        account->late[i].n++;
        account->late[i].n_late += waited > second + STRAGGLER_PART * steps_ns;
    }
}

bool report_account_take(struct rank_account *account, const struct tally__trace_ranks *head,
                         const struct tally__trace_rank *ranks, double step_ns)
{
    if (account->n != head->n || !account->ranks) {
        report_account_free(account);
        account->ranks = malloc((head->n ? head->n : 1) * sizeof *account->ranks);
        account->late = calloc(head->n ? head->n : 1, sizeof *account->late);
        if (!account->ranks || !account->late) {
            report_account_free(account);
            return false;
        }
        account->n = head->n;
    } else if (step_ns > 0) {
        count_late(account, ranks, (double)(head->n_steps - account->n_steps) * step_ns);
    }
    memcpy(account->ranks, ranks, head->n * sizeof *ranks);
    account->n_steps = head->n_steps;
    return true;
}

void report_account_free(struct rank_account *account)
{
    free(account->ranks);
    free(account->late);
    *account = (struct rank_account){0};
}

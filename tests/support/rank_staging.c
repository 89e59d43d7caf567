/* SPDX-License-Identifier: Apache-2.0 */
/* A group whose exchanges always go through stages: its domain shares no memory. The rank's thread
 * enters. */
#include "comm/group.h"
#include "support/ranks.h"

static bool shares_nothing(const struct tally__domain *domain, const void *memory, size_t bytes)
{
    (void)domain;
    (void)memory;
    (void)bytes;
    return false;
}

/* Per thread: ranks may be threads, and each has its own domain. */
static _Thread_local struct tally__domain_ops staging_ops;
static _Thread_local const struct tally__domain_ops *real_ops;

void ranks_stage(tally_group *group, bool on)
{
    struct tally__domain *domain = group ? group->domain : NULL;

    if (domain && on && domain->ops != &staging_ops) {
        real_ops = domain->ops;
        staging_ops = *real_ops;
        staging_ops.shares = shares_nothing;
        domain->ops = &staging_ops;
    } else if (domain && !on && domain->ops == &staging_ops) {
        domain->ops = real_ops;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Groups from inside: one whose exchanges always go through stages, because its domain shares no
 * memory; and the limit of one phase. The rank's thread enters. */
#include "comm/group.h"
#include "exchange/two_phase.h"
#include "support/ranks_inner.h"

static size_t one_phase_bytes;

void ranks_note_one_phase(const tally_group *group)
{
    one_phase_bytes = tally__one_phase_bytes(group);
}

size_t ranks_one_phase_bytes(void)
{
    return one_phase_bytes ? one_phase_bytes : 2048;
}

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

/* SPDX-License-Identifier: Apache-2.0 */
#include "support/auto_pretence.h"

void auto_pretend(struct tally__profile *profile, struct tally__link link)
{
    profile->hosts = 4;
    profile->ranks_per_host = 1;
    profile->cpu_share = 0;
    profile->cpu_s_per_byte = 0;
    profile->forward_s = 0;
    profile->backward_s = 0;
    profile->link = link;
    for (size_t b = 0; b < profile->n_buckets; b++) {
        profile->buckets[b].ready_s = 0;
        for (size_t h = 0; h < profile->n_hooks; h++) {
            profile->hooks[h].coding[b].code_s = h > 0 ? 1e-9 * profile->buckets[b].bytes : 0;
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The blobs of the tests of optimizers. */
#include "support/opt_states.h"

#include <stdlib.h>
#include <string.h>

static void *save(tally_optimizer *optimizer, size_t *bytes)
{
    void *blob;

    if (tally_optimizer_save(optimizer, NULL, bytes) != TALLY_OK) {
        return NULL;
    }
    blob = malloc(*bytes);
    if (blob && tally_optimizer_save(optimizer, blob, bytes) != TALLY_OK) {
        free(blob);
        blob = NULL;
    }
    return blob;
}

/* Blob number r, from the rank that has it. */
static int share(tally_group *group, struct opt_states *states, size_t r)
{
    tally_future *future;

    CHECK_OK(group,
             tally_broadcast(group, &states->bytes[r], sizeof states->bytes[r], (int)r, &future));
    CHECK_OK(group, ranks_finish(future));
    if (!states->blob[r]) {
        states->blob[r] = malloc(states->bytes[r]);
    }
    CHECK(group, states->blob[r]);
    CHECK_OK(group, tally_broadcast(group, states->blob[r], states->bytes[r], (int)r, &future));
    CHECK_OK(group, ranks_finish(future));
    return 0;
}

int opt_states_take(tally_group *group, tally_optimizer *optimizer, size_t n,
                    struct opt_states *states)
{
    size_t rank = (size_t)tally_group_rank(group);

    *states = (struct opt_states){.n = n};
    if (rank < n) {
        states->blob[rank] = save(optimizer, &states->bytes[rank]);
        CHECK(group, states->blob[rank]);
    }
    for (size_t r = 0; r < n; r++) {
        CHECK_OK(group, share(group, states, r));
    }
    return 0;
}

int opt_states_consolidate(tally_group *group, tally_optimizer *optimizer,
                           struct opt_states *states)
{
    bool is_root = tally_group_rank(group) == 0;

    *states = (struct opt_states){.n = 1};
    CHECK_OK(group, tally_optimizer_consolidate(optimizer, 0, NULL, &states->bytes[0]));
    if (is_root) {
        states->blob[0] = malloc(states->bytes[0]);
        CHECK(group, states->blob[0]);
    }
    CHECK_OK(group, tally_optimizer_consolidate(optimizer, 0, states->blob[0], &states->bytes[0]));
    return share(group, states, 0);
}

void opt_states_free(struct opt_states *states)
{
    for (size_t r = 0; r < states->n; r++) {
        free(states->blob[r]);
    }
    states->n = 0;
}

int opt_states_load(tally_optimizer *optimizer, const struct opt_states *states)
{
    return tally_optimizer_load(optimizer, (const void *const *)states->blob, states->bytes,
                                states->n);
}

bool opt_states_same(tally_optimizer *optimizer, const struct opt_states *states, size_t r)
{
    size_t bytes;
    void *blob = save(optimizer, &bytes);
    bool same = blob && bytes == states->bytes[r] && memcmp(blob, states->blob[r], bytes) == 0;

    free(blob);
    return same;
}

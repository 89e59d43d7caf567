/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a real group that allocates memory, for the tests of limits: for each argument, that
 * number of MiB of group memory, which it fills and sums over all ranks. Prints the result, rank by
 * rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>

static int sum(tally_group *group, unsigned char *memory, size_t bytes)
{
    tally_future *future;
    int rc;

    memset(memory, 1, bytes);
    rc = tally_all_reduce(group, memory, bytes, TALLY_U8, TALLY_SUM, &future);
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    for (size_t i = 0; rc == TALLY_OK && i < bytes; i++) {
        rc = memory[i] == tally_group_size(group) ? TALLY_OK : TALLY_INTERNAL;
    }
    return rc;
}

static int take(tally_group *group, const char *mib)
{
    size_t bytes = (size_t)strtoull(mib, NULL, 10) << 20;
    void *memory;
    int rc = tally_group_alloc(group, bytes, &memory);
    int rank = tally_group_rank(group);

    if (rc == TALLY_OK) {
        rc = sum(group, memory, bytes);
        (void)tally_group_free(group, memory);
    }
    (void)printf("rank %d: %s MiB: %s%s%s\n", rank, mib, tally_status_name(rc), rc ? ": " : "",
                 rc ? tally_last_error() : "");
    return rc;
}

int main(int argc, char **argv)
{
    tally_group *group = NULL;
    tally_group *part = NULL;
    int rc = tally_group_open(NULL, &group);

    for (int i = 1; rc == TALLY_OK && i < argc; i++) {
        (void)take(group, argv[i]);
    }
    /* A group inside it still finds memory, and so do its ranks. */
    if (rc == TALLY_OK) {
        rc = tally_group_split(group, tally_group_rank(group) % 2, 0, &part);
    }
    if (rc == TALLY_OK) {
        rc = take(part, "1");
    }
    if (rc != TALLY_OK) {
        (void)fprintf(stderr, "%s: %s\n", tally_status_name(rc), tally_last_error());
    }
    (void)tally_group_close(part);
    (void)tally_group_close(group);
    return rc == TALLY_OK ? 0 : 1;
}

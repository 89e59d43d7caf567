/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank has an array and gets the mean of the arrays of all ranks. Run it with
 *
 *     tally run -n 4 build/examples/01_allreduce
 *
 * or alone, as a world of one.
 */
#include <stdio.h>
#include <tally_extend.h>

#define N 1000

/* Prints the error; the other ranks learn from the group that this one has left. */
static int fail(const char *doing, int rc)
{
    fprintf(stderr, "%s: %s: %s\n", doing, tally_status_name(rc), tally_last_error());
    return 1;
}

int main(void)
{
    tally_group *group;
    tally_future *future;
    void *memory;
    int rc = tally_group_open(NULL, &group);

    if (rc != TALLY_OK) {
        return fail("open", rc);
    }
    /* Other ranks read memory of the group directly; any other array works too, with a copy. */
    rc = tally_group_alloc(group, N * sizeof(float), &memory);
    if (rc != TALLY_OK) {
        return fail("alloc", rc);
    }
    float *x = memory;
    int rank = tally_group_rank(group);
    int size = tally_group_size(group);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(rank * i);
    }

    rc = tally_all_reduce(group, x, N, TALLY_F32, TALLY_MEAN, &future);
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    if (rc != TALLY_OK) {
        return fail("all-reduce", rc);
    }

    int wrong = 0;
    for (int i = 0; i < N; i++) {
        /* The sum 0 + i + 2i + ... is a small whole number, so the result is exact. */
        int sum = i * (size * (size - 1) / 2);

        wrong += x[i] != (float)sum / (float)size;
    }
    printf("rank %d of %d (%s): mean of x[10] is %g, %d wrong\n", rank, size,
           tally_group_backend(group), (double)x[10], wrong);
    tally_group_free(group, memory);
    tally_group_close(group);
    return wrong > 0;
}

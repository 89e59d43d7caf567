/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Your own job on a lane: several collectives one after the other, in straight-line code, while the
 * program does something else. Run it with
 *
 *     tally run -n 3 build/examples/02_futures
 */
#include <stdio.h>
#include <tally_extend.h>

#define N 4096

struct work {
    double sum_of_squares; /* before the job: this rank's; after it: that of all ranks */
    float x[N];
};

/* Runs on a lane thread: adds up the squares of all ranks, then scales x by them and sums it. */
static int normalise(tally_lane *lane, void *user)
{
    struct work *work = user;
    int rc = tally_lane_all_reduce(lane, &work->sum_of_squares, 1, TALLY_F64, TALLY_SUM);

    if (rc != TALLY_OK) {
        return rc;
    }
    if (work->sum_of_squares == 0) {
        return tally_job_fail(lane, TALLY_NUMERIC, "all ranks have only zeros");
    }
    for (int i = 0; i < N; i++) {
        work->x[i] /= (float)work->sum_of_squares;
    }
    return tally_lane_all_reduce(lane, work->x, N, TALLY_F32, TALLY_SUM);
}

static void say_done(void *user, int status, const char *text)
{
    printf("rank %d: the job is done: %s%s\n", *(int *)user, tally_status_name(status), text);
}

int main(void)
{
    static struct work work;
    tally_group *group;
    tally_future *future;
    int done = 0;
    long polls = 0;

    if (tally_group_open(NULL, &group) != TALLY_OK) {
        fprintf(stderr, "open: %s\n", tally_last_error());
        return 1;
    }
    int rank = tally_group_rank(group);
    for (int i = 0; i < N; i++) {
        work.x[i] = (float)(rank + 1);
        work.sum_of_squares += (double)work.x[i] * (double)work.x[i];
    }

    int rc = tally_submit(group, 0, normalise, &work, &future);
    if (rc == TALLY_OK) {
        tally_future_on_done(future, say_done, &rank);
        /* A real program would compute here; this one counts how often it has polled. */
        for (; !done && polls < 1000; polls++) {
            tally_future_test(future, &done);
        }
        rc = tally_future_wait(future);
        printf("rank %d: x[0] is %g after %ld polls; %llu bytes sent\n", rank, (double)work.x[0],
               polls, tally_future_bytes_sent(future));
        tally_future_free(future);
    }
    if (rc != TALLY_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, tally_status_name(rc), tally_last_error());
    }
    tally_group_close(group);
    return rc != TALLY_OK;
}

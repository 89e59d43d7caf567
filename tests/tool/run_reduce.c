/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a real group, for test_run.sh: all-reduces its number and prints the sum. With a
 * number R, rank R kills itself, or returns 0 when "return" follows, and the others go on until
 * they are told. With "leave" the main thread of every rank ends and leaves tally's threads behind.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>

static int all_reduce(tally_group *group, double *value)
{
    tally_future *future;
    int rc = tally_all_reduce(group, value, 1, TALLY_F64, TALLY_SUM, &future);

    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    return rc;
}

int main(int argc, char **argv)
{
    long victim = argc > 1 ? strtol(argv[1], NULL, 10) : -1;
    tally_group *group = NULL;
    double value;
    int rc = tally_group_open(NULL, &group);

    value = 1 + tally_group_rank(group);
    if (rc == TALLY_OK) {
        rc = all_reduce(group, &value);
    }
    if (rc == TALLY_OK && victim < 0) {
        printf("rank %d of %d: sum %g\n", tally_group_rank(group), tally_group_size(group), value);
    }
    if (rc == TALLY_OK && argc > 1 && strcmp(argv[1], "leave") == 0) {
        puts("left");
        (void)fflush(stdout);
        pthread_exit(NULL);
    }
    if (rc == TALLY_OK && victim == tally_group_rank(group)) {
        if (argc > 2 && strcmp(argv[2], "return") == 0) {
            return 0;
        }
        (void)raise(SIGKILL);
    }
    while (rc == TALLY_OK && victim >= 0) {
        rc = all_reduce(group, &value);
    }
    if (rc != TALLY_OK) {
        (void)fprintf(stderr, "%s: %s\n", tally_status_name(rc), tally_last_error());
    }
    (void)tally_group_close(group);
    return rc == TALLY_OK ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The observer of a ddp whose means only the application uses. Keeps no state. */
#include "ddp/observer.h"

#include "ddp/ddp.h"

static int prepare(void *user, tally_ddp *ddp)
{
    (void)user;
    (void)ddp;
    return TALLY_OK;
}

static int accept_hook(void *user, const tally_hook *hook)
{
    (void)user;
    (void)hook;
    return TALLY_OK;
}

static void values_changed(void *user)
{
    (void)user;
}

static int step_begin(void *user, tally_lane *lane, int root)
{
    (void)user;
    (void)lane;
    (void)root;
    return TALLY_OK;
}

static int reduce(void *user, tally_lane *lane, struct tally__bucket *bucket)
{
    (void)user;
    return tally__bucket_reduce(lane, bucket);
}

static int after_reduce(void *user, tally_lane *lane, struct tally__bucket *bucket)
{
    (void)user;
    (void)lane;
    (void)bucket;
    return TALLY_OK;
}

static int step_end(void *user, tally_lane *lane)
{
    (void)user;
    (void)lane;
    return TALLY_OK;
}

static uint64_t step_times(void *user, uint64_t called_ns)
{
    (void)user;
    (void)called_ns;
    return 0;
}

static int step_over(void *user, int status, bool counts)
{
    (void)user;
    (void)counts;
    return status;
}

static struct tally__observed ask(const void *user)
{
    (void)user;
    return (struct tally__observed){0};
}

const struct tally__observer tally__observer_none = {.prepare = prepare,
                                                     .accept_hook = accept_hook,
                                                     .values_changed = values_changed,
                                                     .step_begin = step_begin,
                                                     .reduce = reduce,
                                                     .after_reduce = after_reduce,
                                                     .step_end = step_end,
                                                     .step_times = step_times,
                                                     .step_over = step_over,
                                                     .ask = ask};

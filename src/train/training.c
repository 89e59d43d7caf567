/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating and freeing the application's ddps, and their observer: the calls of ddp are distributed
 * to mixed precision, the optimizer and the averager. Lanes enter, and the thread that trains.
 */
#include "train/training.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/threads.h"
#include "train/averager.h"
#include "train/checkpoint.h"
#include "train/loss_scale.h"
#include "train/optimizer.h"
#include "train/zero.h"

static int prepare(void *user, tally_ddp *ddp)
{
    struct tally__training *training = user;

    /* The message says that there was no memory for it. */
    if (!training) {
        return TALLY_NOMEM;
    }
    training->ddp = ddp;
    return tally__mixed_prepare(&training->mixed, ddp);
}

static int accept_hook(void *user, const tally_hook *hook)
{
    const struct tally__training *training = user;

    return tally__local_check(training, training->averager, hook);
}

static void values_changed(void *user)
{
    const struct tally__training *training = user;

    tally__mixed_refresh(training->ddp);
    tally__mixed_raise_buffers(training->ddp);
}

/* The rank with input may have changed the learning rates. */
static int step_begin(void *user, tally_lane *lane, int root)
{
    const tally_optimizer *optimizer = ((const struct tally__training *)user)->optimizer;

    return optimizer ? tally_lane_broadcast(lane, optimizer->lr,
                                            optimizer->n_groups * sizeof *optimizer->lr, root)
                     : TALLY_OK;
}

static int reduce(void *user, tally_lane *lane, struct tally__bucket *bucket)
{
    const struct tally__training *training = user;

    if (training->optimizer) {
        TRY(tally__loss_look(training->optimizer, lane, bucket));
    }
    if (bucket->skipped) {
        return TALLY_OK;
    }
    return bucket->sharded ? tally__zero_reduce(lane, bucket) : tally__bucket_reduce(lane, bucket);
}

static int after_reduce(void *user, tally_lane *lane, struct tally__bucket *bucket)
{
    const struct tally__training *training = user;

    return training->optimizer ? tally__update_bucket(training->optimizer, lane, bucket) : TALLY_OK;
}

static int step_end(void *user, tally_lane *lane)
{
    const struct tally__training *training = user;

    return training->optimizer ? tally__update_end(training->optimizer, lane) : TALLY_OK;
}

static uint64_t step_times(void *user, uint64_t called_ns)
{
    const struct tally__training *training = user;

    return training->optimizer ? tally__update_take(training->optimizer, called_ns) : 0;
}

static void step_facts(void *user, struct tally__trace_step *step)
{
    const tally_optimizer *optimizer = ((const struct tally__training *)user)->optimizer;

    if (optimizer) {
        step->update_ns = optimizer->loss.skips ? 0 : optimizer->times.update_ns;
        step->is_skipped = optimizer->loss.skips;
        step->loss_scale = optimizer->loss.last;
    }
}

static int step_over(void *user, int status, bool counts)
{
    const struct tally__training *training = user;

    if (counts) {
        tally__mixed_raise_buffers(training->ddp);
    }
    return training->optimizer ? tally__update_over(training->optimizer, status, counts) : status;
}

static struct tally__observed ask(const void *user)
{
    const struct tally__training *training = user;
    const tally_averager *averager = training->averager;
    struct tally__observed observed = {.averages = averager != NULL};

    if (averager) {
        observed.may_differ = averager->n_steps > (uint64_t)averager->warmup;
        observed.equal = averager->agreed_step == training->ddp->step + 1 ? averager->covers : NULL;
    }
    observed.skipped = training->optimizer ? training->optimizer->n_skipped : 0;
    return observed;
}

static void free_training(struct tally__training *training)
{
    if (training) {
        if (training->optimizer) {
            training->optimizer->ddp = NULL;
        }
        tally__mixed_free(&training->mixed);
    }
    tally__free(training);
}

int tally_ddp_create(tally_group *group, const tally_param *params, size_t n,
                     const tally_ddp_config *config, tally_ddp **ddp)
{
    struct tally__training *training = tally__alloc(sizeof *training, "a ddp");
    const struct tally__observer observer = {.user = training,
                                             .prepare = prepare,
                                             .accept_hook = accept_hook,
                                             .values_changed = values_changed,
                                             .step_begin = step_begin,
                                             .reduce = reduce,
                                             .after_reduce = after_reduce,
                                             .step_end = step_end,
                                             .step_times = step_times,
                                             .step_facts = step_facts,
                                             .step_over = step_over,
                                             .ask = ask};
    int rc = tally__ddp_create(group, params, n, config, &observer, ddp);

    if (rc != TALLY_OK) {
        free_training(training);
        return rc;
    }
    tally__mixed_start(&training->mixed, *ddp);
    return TALLY_OK;
}

int tally_ddp_free(tally_ddp *ddp)
{
    struct tally__training *training;

    if (!ddp || !tally__is_creator(&ddp->group->creator)) {
        return TALLY_OK;
    }
    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "tally_ddp_free: not from a job on a lane");
    }
    training = tally__training_of(ddp);
    if (training->averager) {
        return tally__fail(TALLY_STATE, "tally_ddp_free: its averager must be freed first");
    }
    tally__checkpoints_free(training->checkpoints);
    tally__ddp_free(ddp);
    free_training(training);
    return TALLY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving checkpoints. A save collects parts (checkpoint_collect.c). A job then writes them: on the
 * ddp's lane, or, for an asynchronous save, on the lane of a separate group, so that it never
 * delays a bucket. The application's thread enters, and that lane.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/group.h"
#include "comm/threads.h"
#include "train/checkpoint.h"

#define CALL "tally_checkpoint_save"

/* The nice value of a thread that writes during training. */
#define BEHIND_NICE 10

/* ---- the saves of a ddp ---- */

int tally__checkpoints_wait(struct tally__checkpoints *checkpoints)
{
    int rc;

    if (!checkpoints || !checkpoints->future) {
        return TALLY_OK;
    }
    atomic_store(&checkpoints->is_awaited, true);
    rc = tally_future_wait(checkpoints->future);
    tally_future_free(checkpoints->future);
    checkpoints->future = NULL;
    tally__checkpoint_release(checkpoints);
    return rc;
}

void tally__checkpoints_free(struct tally__checkpoints *checkpoints)
{
    struct tally__aside before;

    if (!checkpoints) {
        return;
    }
    tally__put_aside(&before);
    if (tally__checkpoints_wait(checkpoints) != TALLY_OK) {
        tally__log(TALLY_LOG_ERROR, "checkpoint: the last asynchronous save failed: %s",
                   tally_last_error());
    }
    (void)tally_group_close(checkpoints->group);
    tally__folder_unlock(checkpoints->lock_fd);
    tally__checkpoint_release(checkpoints);
    tally__free(checkpoints->directory);
    tally__free(checkpoints->memory);
    tally__free(checkpoints);
    (void)tally__take_back(&before, TALLY_OK);
}

/* The saves of this ddp, for a directory: another one has another lock. */
static int prepare(struct tally__training *training, const char *directory)
{
    struct tally__checkpoints *checkpoints = training->checkpoints;
    char *copy;

    if (!directory || directory[0] == '\0') {
        return tally__fail(TALLY_ARG, CALL ": directory is %s", directory ? "empty" : "NULL");
    }
    if (!checkpoints) {
        checkpoints = tally__alloc(sizeof *checkpoints, "checkpoints");
        if (!checkpoints) {
            return TALLY_NOMEM;
        }
        checkpoints->lock_fd = -1;
        training->checkpoints = checkpoints;
    }
    if (checkpoints->directory && strcmp(checkpoints->directory, directory) == 0) {
        return TALLY_OK;
    }
    copy = tally__alloc_text(directory, "the name of a directory");
    if (!copy) {
        return TALLY_NOMEM;
    }
    tally__free(checkpoints->directory);
    tally__folder_unlock(checkpoints->lock_fd);
    checkpoints->directory = copy;
    checkpoints->lock_fd = -1;
    return TALLY_OK;
}

/* ---- saving ---- */

static int save_job(tally_lane *lane, void *user)
{
    struct tally__checkpoints *checkpoints = user;

    if (checkpoints->saving.is_behind) {
        /* Training goes first, where there are not enough CPUs. On Linux this is the calling
         * thread, which does nothing else. */
        (void)setpriority(PRIO_PROCESS, 0, BEHIND_NICE);
    }
    if (lane->group->size > 1 && checkpoints->whole < checkpoints->objects.n) {
        TRY(tally__checkpoint_share(lane, checkpoints));
    }
    return tally__container_save(lane, &checkpoints->saving);
}

static int save_now(tally_ddp *ddp, struct tally__checkpoints *checkpoints)
{
    int rc;

    checkpoints->saving.is_behind = false;
    rc = tally__ddp_run(ddp, save_job, checkpoints);
    tally__checkpoint_release(checkpoints);
    tally__free(checkpoints->memory);
    checkpoints->memory = NULL;
    checkpoints->memory_bytes = 0;
    return rc;
}

/* In a separate group, so that its jobs run at the same time as those of the ddp. */
static int save_behind(tally_ddp *ddp, struct tally__checkpoints *checkpoints)
{
    if (!checkpoints->group) {
        TRY(tally__group_split(ddp->group->parent, 0, tally_group_rank(ddp->group),
                               TALLY__THREADS_OWN, &checkpoints->group));
    }
    checkpoints->saving.is_behind = true;
    checkpoints->saving.is_awaited = &checkpoints->is_awaited;
    atomic_store(&checkpoints->is_awaited, false);
    return tally_submit(checkpoints->group, 0, save_job, checkpoints, &checkpoints->future);
}

/* A checkpoint has no gradients: those of passes under no_sync would be lost. */
static int check_accumulated(tally_ddp *ddp)
{
    const char *name = NULL;

    (void)pthread_mutex_lock(&ddp->mutex);
    for (size_t i = 0; i < ddp->n_params && !name; i++) {
        name = ddp->params[i].now.accumulated ? ddp->params[i].name : NULL;
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
    return name ? tally__fail(TALLY_STATE,
                              CALL ": the gradient of '%.200s' was accumulated since "
                                   "tally_ddp_no_sync_begin, and a checkpoint has no gradients: "
                                   "save after tally_ddp_wait",
                              name)
                : TALLY_OK;
}

/* Files of safetensors have their own entry with this name. */
static int check_names(const tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        if (strcmp(ddp->params[i].name, TALLY__METADATA_NAME) == 0) {
            return tally__fail(TALLY_ARG,
                               CALL ": parameter %zu has the name '" TALLY__METADATA_NAME
                                    "', which safetensors files reserve: give it another name",
                               i);
        }
    }
    return TALLY_OK;
}

/* The part that needs no other rank. */
static int collect_here(tally_ddp *ddp, const char *directory, const tally_checkpoint_config *given,
                        tally_checkpoint_config *config)
{
    struct tally__training *training = tally__training_of(ddp);

    *config = (tally_checkpoint_config){0};
    TRY(tally__checkpoints_wait(training->checkpoints));
    TRY(tally__checkpoint_config(CALL, given, config));
    TRY(prepare(training, directory));
    TRY(check_accumulated(ddp));
    TRY(check_names(ddp));
    return tally__checkpoint_collect(ddp, config, training->checkpoints);
}

int tally_checkpoint_save(tally_ddp *ddp, const char *directory,
                          const tally_checkpoint_config *config)
{
    tally_checkpoint_config copy;
    struct tally__checkpoint_call call = {CALL, directory, &copy};
    struct tally__checkpoints *checkpoints;
    uint64_t begin_ns = tally__now_ns();
    int rc;

    TRY(tally__check_between_steps(ddp, CALL));
    tally__show_state(ddp, TALLY__STATE_CHECKPOINT, CALL);
    rc = collect_here(ddp, directory, config, &copy);
    rc = tally__ddp_agree(ddp, rc, tally__checkpoint_compare, &call);
    checkpoints = tally__training_of(ddp)->checkpoints;
    if (rc == TALLY_OK && copy.async && tally__threads_count(ddp->group->threads) > 0) {
        rc = save_behind(ddp, checkpoints);
    } else if (rc == TALLY_OK) {
        rc = save_now(ddp, checkpoints);
    }
    if (rc != TALLY_OK && checkpoints && !checkpoints->future) {
        tally__checkpoint_release(checkpoints);
    }
    tally__ddp_trace_checkpoint(ddp, begin_ns);
    return tally__stats_note(ddp, rc);
}

int tally_checkpoint_wait(tally_ddp *ddp)
{
    TRY(tally__check_ddp(ddp, "tally_checkpoint_wait"));
    return tally__stats_note(ddp, tally__checkpoints_wait(tally__training_of(ddp)->checkpoints));
}

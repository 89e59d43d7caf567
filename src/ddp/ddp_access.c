/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's access to parameters and gradients between steps: addresses, zeroing, averaging
 * scalars such as a loss, and steps without communication. One thread of the application enters at
 * a time.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"

size_t tally_ddp_n_params(const tally_ddp *ddp)
{
    return ddp ? ddp->n_params : 0;
}

const char *tally_ddp_param_name(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? ddp->params[i].name : NULL;
}

size_t tally_ddp_param_count(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? ddp->params[i].n : 0;
}

void *tally_ddp_data(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? ddp->params[i].data : NULL;
}

void *tally_ddp_grad(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? ddp->params[i].grad.array : NULL;
}

void *tally_ddp_mean(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? ddp->params[i].mean.array : NULL;
}

int tally_ddp_is_unused(const tally_ddp *ddp, int i, int *unused)
{
    TRY(tally__check_ddp(ddp, "tally_ddp_is_unused"));
    if (!tally__has_param(ddp, i) || !unused) {
        return tally__fail(TALLY_ARG, "tally_ddp_is_unused: %s",
                           unused ? "no such parameter" : "unused is NULL");
    }
    *unused = ddp->params[i].unused;
    return TALLY_OK;
}

/* Sets no_sync and returns its old value. */
static bool exchange_no_sync(tally_ddp *ddp, bool no_sync)
{
    bool before;

    (void)pthread_mutex_lock(&ddp->mutex);
    before = ddp->no_sync;
    ddp->no_sync = no_sync;
    (void)pthread_mutex_unlock(&ddp->mutex);
    return before;
}

bool tally__is_no_sync(tally_ddp *ddp)
{
    bool no_sync;

    (void)pthread_mutex_lock(&ddp->mutex);
    no_sync = ddp->no_sync;
    (void)pthread_mutex_unlock(&ddp->mutex);
    return no_sync;
}

int tally_ddp_no_sync_begin(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_no_sync_begin"));
    return exchange_no_sync(ddp, true)
               ? tally__fail(TALLY_STATE, "tally_ddp_no_sync_begin: begun already")
               : TALLY_OK;
}

int tally_ddp_no_sync_end(tally_ddp *ddp)
{
    TRY(tally__check_ddp(ddp, "tally_ddp_no_sync_end"));
    return exchange_no_sync(ddp, false)
               ? TALLY_OK
               : tally__fail(TALLY_STATE,
                             "tally_ddp_no_sync_end: call tally_ddp_no_sync_begin first");
}

int tally_ddp_zero_grad(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_zero_grad"));
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        memset(param->grad.array, 0, param->grad.bytes);
        (void)pthread_mutex_lock(&ddp->mutex);
        param->now.accumulated = false;
        (void)pthread_mutex_unlock(&ddp->mutex);
    }
    return TALLY_OK;
}

struct scalars {
    double *values;
    size_t n;
};

static int mean_job(tally_lane *lane, void *user)
{
    struct scalars *scalars = user;

    return tally_lane_all_reduce(lane, scalars->values, scalars->n, TALLY_F64, TALLY_MEAN);
}

/* Averages the values of the call's parameter NAME. A copy travels, so that values change on
 * success only. */
static int mean_of(tally_ddp *ddp, const char *call, const char *name, double *values, size_t n)
{
    double few[16];
    double *many = NULL;
    struct scalars scalars = {.n = n, .values = few};
    int rc = values || n == 0 ? TALLY_OK : tally__fail(TALLY_ARG, "%s: %s is NULL", call, name);

    TRY(tally__check_between_steps(ddp, call));
    if (rc == TALLY_OK && n > sizeof few / sizeof *few) {
        many = tally__alloc_array(n, sizeof *many, "values to be averaged");
        rc = many ? TALLY_OK : TALLY_NOMEM;
        scalars.values = many;
    }
    if (rc == TALLY_OK && values) {
        memcpy(scalars.values, values, n * sizeof *values);
    }
    rc = tally__ddp_agree(ddp, rc, mean_job, &scalars);
    if (rc == TALLY_OK && values) {
        memcpy(values, scalars.values, n * sizeof *values);
    }
    tally__free(many);
    return tally__stats_note(ddp, rc);
}

int tally_ddp_mean_scalars(tally_ddp *ddp, double *values, size_t n)
{
    return mean_of(ddp, "tally_ddp_mean_scalars", "values", values, n);
}

int tally_ddp_mean_scalar(tally_ddp *ddp, double *value)
{
    return mean_of(ddp, "tally_ddp_mean_scalar", "value", value, 1);
}

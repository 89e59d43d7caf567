/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the tests of reducers. Keeps no state: every rank has its own framework. */
#include "support/framework_model.h"

#include <string.h>

int framework_make(tally_group *group, const struct ddp_spec *specs, size_t n, const char *hook,
                   struct framework *framework)
{
    CHECK(group, ddp_model_make(&framework->model, specs, n, false) == 0);
    return tally_reducer_create(group, framework->model.params, n, hook, &framework->reducer);
}

int framework_end(tally_group *group, struct framework *framework)
{
    CHECK_OK(group, tally_reducer_free(framework->reducer));
    ddp_model_free(&framework->model);
    return 0;
}

static void put(int dtype, double value, void *at)
{
    if (dtype == TALLY_F64) {
        memcpy(at, &value, sizeof value);
    } else {
        float narrow = (float)value;

        memcpy(at, &narrow, sizeof narrow);
    }
}

/* Fills a bucket of fp32 or fp64 and submits it. Returns the number of entries it took. */
static int submit_bucket(const tally_group *group, struct framework *framework, const int *params,
                         unsigned seed, unsigned char **at, tally_future **future)
{
    const struct ddp_model *model = &framework->model;
    unsigned char *data = *at;
    size_t n = 0;

    for (; params[n] >= 0; n++) {
        size_t i = (size_t)params[n];
        size_t bytes = tally_dtype_bytes(model->spec[i].dtype);

        framework->mean[i] = *at;
        for (size_t e = 0; e < model->count[i]; e++, *at += bytes) {
            put(model->spec[i].dtype,
                ddp_value(model->spec[i].dtype, seed, tally_group_rank(group), i, e), *at);
        }
    }
    return tally_reducer_reduce(framework->reducer, params, n, data, params[n + 1] == -2, 0,
                                future);
}

int framework_step(const tally_group *group, struct framework *framework, const int *layout,
                   unsigned seed, size_t shift)
{
    unsigned char *at = framework->room[seed % 2] + shift * sizeof(double);
    tally_future *futures[DDP_MAX_PARAMS];
    size_t n = 0;
    int rc = TALLY_OK;

    for (const int *next = layout; rc == TALLY_OK && *next != -2;) {
        rc = submit_bucket(group, framework, next, seed, &at, &futures[n]);
        n += rc == TALLY_OK;
        framework->refused = rc;
        while (*next++ >= 0) {
        }
        at += (64 - (uintptr_t)at % 64) % 64;
    }
    for (size_t k = 0; k < n; k++) {
        int status = ranks_finish(futures[k]);

        rc = rc == TALLY_OK ? status : rc;
    }
    return rc;
}

uint64_t framework_hash(const struct framework *framework)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < framework->model.n; i++) {
        hash = ranks_hash(hash, framework->mean[i],
                          framework->model.count[i] *
                              tally_dtype_bytes(framework->model.spec[i].dtype));
    }
    return hash;
}

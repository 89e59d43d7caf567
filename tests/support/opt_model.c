/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the tests of optimizers. Keeps no state: every rank has its own runs. */
#include "support/opt_model.h"

#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"

const struct ddp_spec opt_specs[OPT_N_PARAMS] = {
    {"scale", TALLY_F32, 0, 0, {0}},       {"fc1.weight", TALLY_F32, 0, 2, {17, 9}},
    {"fc1.bias", TALLY_F32, 0, 1, {17}},   {"nothing", TALLY_F32, 0, 2, {0, 3}},
    {"conv", TALLY_F32, 0, 3, {3, 5, 7}},  {"fc2.weight", TALLY_F32, 0, 2, {67, 71}},
    {"fc2.bias", TALLY_F32, 0, 1, {1033}},
};

static int make_optimizer(struct opt_run *run, const struct opt_setup *setup)
{
    if (setup->text || setup->config) {
        CHECK_OK(run->group,
                 tally_optimizer_create(run->ddp, setup->text, setup->config, &run->optimizer));
    }
    return 0;
}

static int set_hook(struct opt_run *run, const tally_hook_table *table)
{
    tally_hook *hook;

    if (table) {
        CHECK_OK(run->group, tally_hook_create(table, NULL, &hook));
        CHECK_OK(run->group, tally_ddp_attach_hook(run->ddp, hook));
        tally_hook_free(hook);
    }
    return 0;
}

/* Memory of tally's has the values of memory of our own. */
static int take_memory(struct opt_run *run)
{
    for (size_t i = 0; i < run->model.n; i++) {
        void *data = tally_ddp_data(run->ddp, (int)i);

        if (!run->model.params[i].data && data) {
            run->model.params[i].data = data;
            ddp_fill_data(&run->model, i, 77, 0);
        }
    }
    return 0;
}

int opt_start(tally_group *group, const struct opt_setup *setup, struct opt_run *run)
{
    const struct ddp_spec *specs = setup->specs ? setup->specs : opt_specs;
    tally_ddp_config config;

    *run = (struct opt_run){.group = group, .provided = setup->provided};
    tally_ddp_config_init(&config, sizeof config);
    if (setup->ddp) {
        config = *setup->ddp;
    } else {
        config.bucket_cap_bytes = 4000;
    }
    config.hook = setup->hook;
    CHECK(group, ddp_model_make(&run->model, specs, setup->specs ? setup->n_specs : OPT_N_PARAMS,
                                setup->copies) == 0);
    for (size_t i = 0; i < run->model.n; i++) {
        ddp_fill_data(&run->model, i, 77, 0);
        if (run->model.spec[i].flags & TALLY_PARAM_IGNORED) {
            run->model.params[i].grad = calloc(run->model.count[i], sizeof(float));
        }
        if (setup->provided) {
            free(run->model.params[i].data);
            run->model.params[i].data = NULL;
        }
    }
    CHECK_OK(group, tally_ddp_create(group, run->model.params, run->model.n, &config, &run->ddp));
    CHECK_OK(group, take_memory(run));
    CHECK_OK(group, set_hook(run, setup->own_hook));
    return make_optimizer(run, setup);
}

int opt_end(struct opt_run *run)
{
    CHECK_OK(run->group, tally_optimizer_free(run->optimizer));
    CHECK_OK(run->group, tally_ddp_free(run->ddp));
    for (size_t i = 0; i < run->model.n && run->provided; i++) {
        run->model.params[i].data = NULL;
    }
    ddp_model_free(&run->model);
    return 0;
}

void opt_gradient(const struct opt_run *run, size_t i, unsigned seed, bool adds)
{
    int rank = tally_group_rank(run->group);
    const float *data = run->model.params[i].data;
    float *grad = run->model.spec[i].flags & TALLY_PARAM_IGNORED ? run->model.params[i].grad
                                                                 : tally_ddp_grad(run->ddp, (int)i);

    for (size_t e = 0; e < run->model.count[i]; e++) {
        float noise = (float)ddp_value(TALLY_F32, seed, rank, i, e);

        grad[e] = (adds ? grad[e] : 0) + 0.25f * data[e] + noise;
    }
}

int opt_step(struct opt_run *run, unsigned seed, unsigned absent)
{
    for (size_t i = run->model.n; i-- > 0;) {
        bool is_there = !(absent >> i & 1) && !(run->model.spec[i].flags & TALLY_PARAM_DELAYED);

        if (run->model.spec[i].flags & TALLY_PARAM_IGNORED) {
            opt_gradient(run, i, seed, false);
        } else if (ddp_has_gradient(&run->model, i) && is_there) {
            opt_gradient(run, i, seed, false);
            CHECK_OK(run->group, tally_ddp_grad_ready(run->ddp, (int)i));
        }
    }
    CHECK_OK(run->group, tally_ddp_wait(run->ddp));
    return 0;
}

int opt_accumulated_step(struct opt_run *run, unsigned seed, int n_passes)
{
    for (int pass = 0; pass < n_passes; pass++) {
        bool is_last = pass + 1 == n_passes;

        for (size_t i = run->model.n; i-- > 0;) {
            opt_gradient(run, i, seed * 16 + (unsigned)pass, pass > 0);
            if (is_last) {
                CHECK_OK(run->group, tally_ddp_grad_ready(run->ddp, (int)i));
            }
        }
    }
    CHECK_OK(run->group, tally_ddp_wait(run->ddp));
    return 0;
}

size_t opt_differ(const struct opt_run *a, const struct opt_run *b)
{
    size_t n = 0;

    for (size_t i = 0; i < a->model.n; i++) {
        const float *x = a->model.params[i].data;
        const float *y = b->model.params[i].data;

        for (size_t e = 0; e < a->model.count[i]; e++) {
            uint32_t bits[2];

            memcpy(&bits[0], &x[e], sizeof bits[0]);
            memcpy(&bits[1], &y[e], sizeof bits[1]);
            n += bits[0] != bits[1];
        }
    }
    return n;
}

uint64_t opt_hash(const struct opt_run *run)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < run->model.n; i++) {
        if (!(run->model.spec[i].flags & TALLY_PARAM_IGNORED)) {
            hash = ranks_hash(hash, run->model.params[i].data,
                              run->model.count[i] * tally_dtype_bytes(run->model.spec[i].dtype));
        }
    }
    return hash;
}

int opt_worlds(const char *name, ranks_body *body, void *user, int lanes, const int *worlds)
{
    const struct ranks ranks = {.lanes = lanes, .timeout_s = 60};

    oracle_start();
    return ranks_run_worlds(name, &ranks, worlds, body, user);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Making the models of the step bench. The application's thread of a rank enters. */
#include "bench/step_model.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

void step_slices_cut(const struct step_bench *bench, struct step_slice *slices)
{
    size_t n = bench->bytes / sizeof(float);
    size_t first = 0;

    for (size_t i = 0; i < bench->n_params; i++) {
        struct step_slice *slice = &slices[i];

        slice->first = first;
        slice->n = n / bench->n_params + (i < n % bench->n_params);
        first += slice->n;
        (void)snprintf(slice->name, sizeof slice->name, "parameter %zu", i);
    }
}

static int make_ddp(tally_group *group, const struct step_bench *bench,
                    const struct step_slice *slices, struct step_model *model)
{
    tally_param *params = tally__alloc_array(bench->n_params, sizeof *params, "the step bench");
    tally_ddp_config config;
    uint64_t start_ns;
    int rc;

    TRY(params ? TALLY_OK : TALLY_NOMEM);
    for (size_t i = 0; i < bench->n_params; i++) {
        const struct step_slice *slice = &slices[i];

        params[i] = (tally_param){.size = sizeof *params,
                                  .name = slice->name,
                                  .n_dims = 1,
                                  .shape = &slice->n,
                                  .dtype = TALLY_F32,
                                  .data = model->data + slice->first,
                                  .grad = model->own ? model->own + slice->first : NULL};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = bench->bucket_bytes;
    start_ns = tally__now_ns();
    rc = tally_ddp_create(group, params, bench->n_params, &config, &model->ddp);
    model->create_ms = (double)(tally__now_ns() - start_ns) * 1e-6;
    tally__free(params);
    return rc;
}

static int make_optimizer(const struct step_bench *bench, enum step_update update,
                          struct step_model *model)
{
    tally_optimizer_config config;

    if (update == STEP_NO_UPDATE) {
        return TALLY_OK;
    }
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = update == STEP_BEHIND_HOOK;
    return tally_optimizer_create(model->ddp, bench->optimizer, &config, &model->optimizer);
}

int step_model_make(tally_group *group, const struct step_bench *bench,
                    const struct step_slice *slices, enum step_update update,
                    struct step_model *model)
{
    *model = (struct step_model){0};
    model->data = tally__alloc(bench->bytes, "the step bench");
    model->own = bench->copies ? tally__alloc(bench->bytes, "the step bench") : NULL;
    model->gradient =
        tally__alloc_array(bench->n_params, sizeof *model->gradient, "the step bench");
    if (!model->data || !model->gradient || (bench->copies && !model->own)) {
        return TALLY_NOMEM;
    }
    TRY(make_ddp(group, bench, slices, model));
    for (size_t i = 0; i < bench->n_params; i++) {
        model->gradient[i] = tally_ddp_grad(model->ddp, (int)i);
    }
    return make_optimizer(bench, update, model);
}

int step_model_free(struct step_model *model)
{
    TRY(tally_optimizer_free(model->optimizer));
    TRY(tally_ddp_free(model->ddp));
    tally__free(model->data);
    tally__free(model->own);
    tally__free(model->gradient);
    *model = (struct step_model){0};
    return TALLY_OK;
}

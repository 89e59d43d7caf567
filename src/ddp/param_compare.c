/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing the parameters, buffers and config of all ranks. Inside a job. */
#include "base/status.h"
#include "ddp/check.h"
#include "ddp/compare.h"
#include "ddp/ddp.h"
#include "num/reduce.h"

/* Of mixed precision, where 0 is none. */
static const char *low_dtype_name(int dtype)
{
    return dtype ? tally__dtype_name(dtype) : "0";
}

static void describe_param(const void *of, size_t i, struct tally__description *about)
{
    const struct tally__param *param = &((const tally_ddp *)of)->params[i];

    tally__describe_numbered(about, "parameter", i);
    tally__describe_name(about, param->name);
    tally__describe_list(about, "shape", (size_t)param->n_dims, param->shape);
    tally__describe_field(about, "dtype", tally__dtype_name(param->dtype));
    tally__describe_number(about, "flags", param->flags);
    tally__describe_field(about, "data", param->provided ? "NULL" : "given");
    tally__describe_field(about, "order of elements", param->permuted ? "permuted" : "row-major");
    tally__describe_number(about, "checksum of strides", (long long)(param->strides >> 32));
}

static void describe_buffer(const void *of, size_t i, struct tally__description *about)
{
    const tally_buffer *buffer = &((const tally_ddp *)of)->buffers[i];

    tally__describe_numbered(about, "buffer", i);
    tally__describe_name(about, buffer->name ? buffer->name : "");
    tally__describe_number(about, "bytes", (long long)buffer->bytes);
    tally__describe_field(about, "dtype", tally__dtype_name(buffer->dtype));
}

static void describe_caps(const tally_ddp *ddp, struct tally__description *about)
{
    if (ddp->config.n_bucket_caps > 0) {
        tally__describe_number(about, "n_bucket_caps", (long long)ddp->n_caps);
        tally__describe_list(about, "bucket_caps", ddp->n_caps, ddp->caps);
        return;
    }
    tally__describe_number(about, "n_bucket_caps", 0);
    tally__describe_number(about, "bucket_cap_bytes", (long long)ddp->caps[1]);
    tally__describe_number(about, "first_bucket_bytes", (long long)ddp->caps[0]);
}

static void describe_config(const void *of, size_t i, struct tally__description *about)
{
    const tally_ddp *ddp = of;
    const tally_ddp_config *config = &ddp->config;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"keep_parameters", config->keep_parameters != 0},
        {"keep_buffers", config->keep_buffers != 0},
        {"find_unused", config->find_unused != 0},
        {"static_graph", config->static_graph != 0},
        {"skip_unused", config->skip_unused != 0},
        {"join", config->join != 0},
        {"join_stops", config->join_stops != 0},
        {"join_divides_by_active", config->join_divides_by_active != 0},
    };

    (void)i;
    tally__describe_thing(about, "config");
    describe_caps(ddp, about);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        tally__describe_number(about, numbers[k].name, numbers[k].value);
    }
    tally__describe_number(about, "check", tally__checks_every(ddp));
    tally__describe_field(about, "param_dtype", low_dtype_name(config->param_dtype));
    tally__describe_field(about, "reduce_dtype", low_dtype_name(config->reduce_dtype));
    tally__describe_field(about, "buffer_dtype", low_dtype_name(config->buffer_dtype));
    tally__describe_field(about, "buffer_hook", config->buffer_hook ? "set" : "NULL");
    tally__describe_field(about, "memory of gradients",
                          ddp->provides ? "provided by tally (no grad given)"
                                        : "the application's arrays (grad given)");
}

int tally__params_compare(tally_lane *lane, const tally_ddp *ddp)
{
    const struct tally__compared compared[] = {
        {.plural = "parameters", .n = ddp->n_params, .of = ddp, .describe = describe_param},
        {.plural = "buffers", .n = ddp->n_buffers, .of = ddp, .describe = describe_buffer},
        {.plural = "configs", .n = 1, .of = ddp, .describe = describe_config},
    };

    return tally__compare(lane, compared, sizeof compared / sizeof *compared);
}

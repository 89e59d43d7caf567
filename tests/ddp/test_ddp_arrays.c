/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that two parameters share: one array given twice, parts that overlap, a buffer that is a
 * parameter, an address that is not aligned. Each is ARG on all ranks, with both names; arrays that
 * only touch, empty ones, and a tied weight that is ignored the second time are accepted.
 */
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 4

/* Three parameters of four floats, one of two doubles; memory with room around it. */
struct arrays {
    double memory[64];
    float *floats;
    size_t shape[N];
    tally_param params[N];
    tally_buffer buffers[2];
    tally_ddp_config config;
};

static void prepare(struct arrays *arrays)
{
    static const char *const names[N] = {"wte", "bias", "lm_head", "scale"};

    memset(arrays, 0, sizeof *arrays);
    arrays->floats = (float *)(void *)arrays->memory;
    for (size_t i = 0; i < N; i++) {
        arrays->shape[i] = i == 3 ? 2 : 4;
        arrays->params[i] = (tally_param){.size = sizeof(tally_param),
                                          .name = names[i],
                                          .n_dims = 1,
                                          .shape = &arrays->shape[i],
                                          .dtype = i == 3 ? TALLY_F64 : TALLY_F32,
                                          .data = arrays->floats + 8 * i,
                                          .grad = arrays->floats + 40 + 8 * i};
    }
    for (size_t i = 0; i < 2; i++) {
        arrays->buffers[i] = (tally_buffer){.size = sizeof(tally_buffer),
                                            .name = i ? "variance" : "mean",
                                            .data = arrays->floats + 80 + 4 * i,
                                            .bytes = 16,
                                            .dtype = TALLY_F32};
    }
    tally_ddp_config_init(&arrays->config, sizeof arrays->config);
    arrays->config.buffers = arrays->buffers;
    arrays->config.n_buffers = 2;
}

/* ---- refused ---- */

static void same_data(struct arrays *arrays)
{
    arrays->params[2].data = arrays->params[0].data;
}

static void same_grad(struct arrays *arrays)
{
    arrays->params[2].grad = arrays->params[0].grad;
}

static void same_both(struct arrays *arrays)
{
    same_data(arrays);
    same_grad(arrays);
}

static void data_overlaps(struct arrays *arrays)
{
    arrays->params[1].data = arrays->floats + 3;
}

static void data_is_inside(struct arrays *arrays)
{
    arrays->shape[0] = 24;
    arrays->params[2].data = arrays->floats + 20;
    arrays->params[1].data = arrays->floats + 36;
    arrays->params[3].data = arrays->floats + 32;
    for (size_t i = 0; i < N; i++) {
        arrays->params[i].grad = NULL;
    }
}

static void grad_is_data(struct arrays *arrays)
{
    arrays->params[1].grad = arrays->params[1].data;
}

static void grad_overlaps_data(struct arrays *arrays)
{
    arrays->params[2].grad = arrays->floats + 9;
}

static void buffer_is_param(struct arrays *arrays)
{
    arrays->buffers[1].data = arrays->params[1].data;
}

static void buffer_twice(struct arrays *arrays)
{
    arrays->buffers[1].data = arrays->buffers[0].data;
}

static void frozen_twice(struct arrays *arrays)
{
    arrays->params[0].flags = TALLY_PARAM_FROZEN;
    same_data(arrays);
}

static void odd_data(struct arrays *arrays)
{
    arrays->params[1].data = (char *)arrays->params[1].data + 2;
}

static void odd_grad(struct arrays *arrays)
{
    arrays->params[3].grad = (char *)arrays->params[3].grad + 4;
}

static const struct refused {
    void (*make)(struct arrays *arrays);
    const char *parts[3];
} refused[] = {
    {same_data,
     {"data of parameter 0 ('wte') and data of parameter 2 ('lm_head') are one array",
      "tied weights", "ONE parameter"}},
    {same_grad,
     {"grad of parameter 0 ('wte') and grad of parameter 2 ('lm_head') are one array", "tied", ""}},
    {same_both, {"parameter 0 ('wte') and", "parameter 2 ('lm_head') are one array", ""}},
    {data_overlaps,
     {"data of parameter 0 ('wte') and data of parameter 1 ('bias') share 4 bytes of memory", "",
      ""}},
    {data_is_inside,
     {"data of parameter 0 ('wte') and data of parameter 2 ('lm_head') share 16 bytes", "", ""}},
    {grad_is_data,
     {"data of parameter 1 ('bias') and grad of parameter 1 ('bias') share 16 bytes", "", ""}},
    {grad_overlaps_data,
     {"data of parameter 1 ('bias') and grad of parameter 2 ('lm_head') share 12 bytes", "", ""}},
    {buffer_is_param, {"parameter 1 ('bias')", "buffer 1 ('variance')", "share 16 bytes"}},
    {buffer_twice, {"buffer 0 ('mean')", "buffer 1 ('variance')", "share 16 bytes"}},
    {frozen_twice, {"parameter 0 ('wte')", "parameter 2 ('lm_head')", "tied"}},
    {odd_data, {"parameter 'bias': data is at address", "not a multiple of the 4 bytes", ""}},
    {odd_grad, {"parameter 'scale': grad is at address", "not a multiple of the 8 bytes", ""}},
};

static int refuse(tally_group *group, const struct refused *refused_here, int whose)
{
    struct arrays arrays;
    tally_ddp *ddp = NULL;

    prepare(&arrays);
    if (whose < 0 || tally_group_rank(group) == whose) {
        refused_here->make(&arrays);
    }
    CHECK_STATUS(group, tally_ddp_create(group, arrays.params, N, &arrays.config, &ddp), TALLY_ARG);
    CHECK(group, ddp == NULL);
    for (int k = 0; k < 3; k++) {
        CHECK_TEXT(group, tally_last_error(), refused_here->parts[k]);
    }
    return 0;
}

/* ---- accepted ---- */

static void as_they_are(struct arrays *arrays)
{
    (void)arrays;
}

static void one_after_the_other(struct arrays *arrays)
{
    arrays->params[2].data = arrays->floats + 4;
    arrays->params[1].data = arrays->floats + 8;
    arrays->params[3].data = arrays->floats + 12;
}

static void second_is_ignored(struct arrays *arrays)
{
    same_data(arrays);
    arrays->params[2].flags = TALLY_PARAM_IGNORED;
}

static void empty_inside(struct arrays *arrays)
{
    arrays->shape[1] = 0;
    arrays->params[1].data = arrays->floats + 1;
    arrays->params[1].grad = arrays->floats + 1;
}

static void (*const accepted[])(struct arrays *arrays) = {as_they_are, one_after_the_other,
                                                          second_is_ignored, empty_inside};

static int body(tally_group *group, void *user)
{
    (void)user;
    for (size_t r = 0; r < sizeof refused / sizeof *refused; r++) {
        CHECK(group, refuse(group, &refused[r], -1) == 0);
        CHECK(group, refuse(group, &refused[r], tally_group_size(group) - 1) == 0);
    }
    for (size_t a = 0; a < sizeof accepted / sizeof *accepted; a++) {
        struct arrays arrays;
        tally_ddp *ddp;

        prepare(&arrays);
        accepted[a](&arrays);
        CHECK_OK(group, tally_ddp_create(group, arrays.params, N, &arrays.config, &ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
    }
    return 0;
}

int main(void)
{
    return ddp_run_seven("arrays", body, NULL, 1) != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs that 0.1.0 saved still load, and their bytes stay: an object that has loaded them saves the
 * same bytes. For a ddp, an optimizer, and the averager inside.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ddp_model.h"
#include "support/old_blobs.h"

#define N_RANKS 2
#define MAX_BYTES 4096

struct blobs {
    _Alignas(8) unsigned char room[N_RANKS][MAX_BYTES];
    const void *blob[N_RANKS];
    size_t bytes[N_RANKS];
};

static void read_digits(const char *const *digits, struct blobs *blobs)
{
    for (size_t r = 0; r < N_RANKS; r++) {
        blobs->blob[r] = blobs->room[r];
        blobs->bytes[r] = strlen(digits[r]) / 2;
        for (size_t i = 0; i < blobs->bytes[r] && i < MAX_BYTES; i++) {
            const char byte[] = {digits[r][2 * i], digits[r][2 * i + 1], '\0'};

            blobs->room[r][i] = (unsigned char)strtoul(byte, NULL, 16);
        }
    }
}

/* Whether the two are the same; says where they differ. */
static bool is_same(const unsigned char *saved, size_t bytes, const struct blobs *old, size_t rank)
{
    size_t i = 0;

    while (i < bytes && i < old->bytes[rank] && saved[i] == old->room[rank][i]) {
        i++;
    }
    if (i < bytes || i < old->bytes[rank]) {
        (void)fprintf(stderr, "%zu bytes, then %zu: they differ at byte %zu\n", old->bytes[rank],
                      bytes, i);
        return false;
    }
    return true;
}

struct model {
    float w[15];
    float bias[4];
    tally_ddp *ddp;
    tally_averager *averager;
    tally_optimizer *optimizer;
};

static int start(tally_group *group, struct model *model)
{
    static const size_t w_shape[] = {3, 5};
    static const size_t w_strides[] = {1, 3};
    static const size_t bias_shape[] = {4};
    static const tally_averager_level level = {2, 0};
    const tally_param params[] = {{.size = sizeof params[0],
                                   .name = "w",
                                   .n_dims = 2,
                                   .shape = w_shape,
                                   .strides = w_strides,
                                   .dtype = TALLY_F32,
                                   .data = model->w},
                                  {.size = sizeof params[0],
                                   .name = "bias",
                                   .n_dims = 1,
                                   .shape = bias_shape,
                                   .dtype = TALLY_F32,
                                   .data = model->bias}};
    tally_ddp_config ddp;
    tally_averager_config averager;
    tally_optimizer_config optimizer;

    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.hook = "int8:exempt=none";
    CHECK_OK(group, tally_ddp_create(group, params, 2, &ddp, &model->ddp));
    tally_averager_config_init(&averager, sizeof averager);
    averager.levels = &level;
    averager.n_levels = 1;
    averager.hook = "powersgd:rank=1,start=1,min_rate=0";
    averager.outer = "sgd:lr=0.7,momentum=0.9,nesterov=1";
    CHECK_OK(group, tally_averager_create(model->ddp, &averager, &model->averager));
    tally_optimizer_config_init(&optimizer, sizeof optimizer);
    optimizer.averager = model->averager;
    optimizer.overlap = 1;
    CHECK_OK(group, tally_optimizer_create(model->ddp, "sgd:lr=0.1,momentum=0.9", &optimizer,
                                           &model->optimizer));
    return 0;
}

static int body(tally_group *group, void *user)
{
    size_t rank = (size_t)tally_group_rank(group);
    unsigned char saved[MAX_BYTES];
    size_t bytes = sizeof saved;
    struct model model = {0};
    struct blobs old;

    (void)user;
    CHECK_OK(group, start(group, &model));
    read_digits(old_ddp, &old);
    CHECK_OK(group, tally_ddp_load(model.ddp, old.blob, old.bytes, N_RANKS));
    CHECK_OK(group, tally_ddp_save(model.ddp, saved, &bytes));
    CHECK(group, is_same(saved, bytes, &old, rank));
    read_digits(old_optimizer, &old);
    CHECK_OK(group, tally_optimizer_load(model.optimizer, old.blob, old.bytes, N_RANKS));
    bytes = sizeof saved;
    CHECK_OK(group, tally_optimizer_save(model.optimizer, saved, &bytes));
    CHECK(group, is_same(saved, bytes, &old, rank));
    CHECK(group, tally_averager_steps(model.averager) == 5);
    CHECK_OK(group, tally_optimizer_free(model.optimizer));
    CHECK_OK(group, tally_averager_free(model.averager));
    CHECK_OK(group, tally_ddp_free(model.ddp));
    return 0;
}

int main(void)
{
    const uint32_t one = 1;
    unsigned char first;

    memcpy(&first, &one, 1);
    return first == 1 && ddp_run_world("old blobs", body, NULL, 1, N_RANKS) != 0;
}

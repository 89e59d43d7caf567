/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The config of checkpoints, its comparison between ranks, and the objects of a ddp that have a
 * state: what saving and loading have in common. Keeps no state. The application's thread enters,
 * and a lane to compare.
 */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "ddp/compare.h"
#include "train/averager.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"

void tally_checkpoint_config_init(tally_checkpoint_config *config, size_t size)
{
    const tally_checkpoint_config unset = {0};

    tally__sized_init(TALLY__CHECKPOINT_CONFIG, &unset, config, size);
}

int tally__checkpoint_blob(const tally_checkpoint_config *config, size_t i,
                           tally_checkpoint_blob *blob)
{
    *blob = (tally_checkpoint_blob){0};
    TRY(tally__sized_read_entry(TALLY__CHECKPOINT_BLOB, "blob", config->blobs, i, blob));
    if (!blob->name || blob->name[0] == '\0') {
        return tally__fail(TALLY_ARG, "blob %zu has no name", i);
    }
    return blob->data || blob->bytes == 0
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "blob '%.200s' has no data", blob->name);
}

static int check_blobs(const tally_checkpoint_config *config)
{
    tally_checkpoint_blob blob;
    tally_checkpoint_blob other;

    for (size_t i = 0; i < config->n_blobs; i++) {
        TRY(tally__checkpoint_blob(config, i, &blob));
        for (size_t k = 0; k < i; k++) {
            TRY(tally__checkpoint_blob(config, k, &other));
            if (strcmp(blob.name, other.name) == 0) {
                return tally__fail(TALLY_ARG, "two blobs have the name '%.200s'", blob.name);
            }
        }
    }
    return TALLY_OK;
}

int tally__checkpoint_config(const char *call, const tally_checkpoint_config *given,
                             tally_checkpoint_config *config)
{
    *config = (tally_checkpoint_config){.size = sizeof *config};
    if (given) {
        TRY(tally__sized_read(TALLY__CHECKPOINT_CONFIG, "config", given, config));
    }
    if (config->keep < 0) {
        return tally__fail(TALLY_ARG, "%s: config.keep is %d", call, config->keep);
    }
    if (config->n_blobs > 0 && !config->blobs) {
        return tally__fail(TALLY_ARG, "%s: %zu blobs, but config.blobs is NULL", call,
                           config->n_blobs);
    }
    return check_blobs(config);
}

static void describe_call(const void *of, size_t i, struct tally__description *about)
{
    const struct tally__checkpoint_call *call = of;
    const tally_checkpoint_config *config = call->config;

    (void)i;
    tally__describe_thing(about, call->call);
    tally__describe_text(about, "directory", call->directory);
    tally__describe_text(about, "name", config->name ? config->name : "");
    tally__describe_number(about, "keep", config->keep);
    tally__describe_number(about, "async", config->async != 0);
    tally__describe_number(about, "params_only", config->params_only != 0);
}

static void describe_blob(const void *of, size_t i, struct tally__description *about)
{
    const struct tally__checkpoint_call *call = of;
    tally_checkpoint_blob blob;

    (void)tally__checkpoint_blob(call->config, i, &blob);
    tally__describe_numbered(about, "blob", i);
    tally__describe_name(about, blob.name);
}

int tally__checkpoint_compare(tally_lane *lane, void *user)
{
    const struct tally__checkpoint_call *call = user;
    const struct tally__compared compared[] = {
        {.plural = "configs", .n = 1, .of = call, .describe = describe_call},
        {.plural = "blobs", .n = call->config->n_blobs, .of = call, .describe = describe_blob}};

    return tally__compare(lane, compared, sizeof compared / sizeof *compared);
}

void tally__objects_find(tally_ddp *ddp, bool to_save, struct tally__objects *objects)
{
    const struct tally__training *training = tally__training_of(ddp);
    tally_optimizer *optimizer = training->optimizer;

    objects->n = 1;
    objects->kinds[0] = TALLY__PART_DDP;
    objects->states[0][0] = tally__ddp_state(ddp);
    if (optimizer) {
        objects->kinds[objects->n] = TALLY__PART_OPTIMIZER;
        tally__optimizer_state(optimizer,
                               to_save && !optimizer->zero && !optimizer->config.averager,
                               objects->states[objects->n++]);
    }
    if (training->averager && !(optimizer && optimizer->config.averager)) {
        objects->kinds[objects->n] = TALLY__PART_AVERAGER;
        tally__averager_state(training->averager, false, objects->states[objects->n++]);
    }
}

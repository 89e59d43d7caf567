/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizer object: its groups, made and compared between ranks, and their learning rates. Not
 * responsible for updates (update.c). One thread of the application enters at a time.
 */
#include "train/optimizer.h"

#include <string.h>

#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "comm/threads.h"
#include "ddp/compare.h"
#include "train/averager.h"
#include "train/training.h"

#define OPTIMIZER_CONFIG TALLY__SIZED(tally_optimizer_config, max_norm)

void tally_optimizer_config_init(tally_optimizer_config *config, size_t size)
{
    const tally_optimizer_config unset = {0};

    tally__sized_init(OPTIMIZER_CONFIG, &unset, config, size);
}

/* ---- groups ---- */

/* The application's description of group g: the size in each entry is the stride of the array. */
static const tally_optimizer_group *group_at(const tally_optimizer_config *config, size_t g)
{
    return tally__sized_at(config->groups, g);
}

static int check_group(const tally_optimizer_group *group, size_t g)
{
    if (!group->text == !group->table) {
        return tally__fail(TALLY_ARG, "group %zu: %s", g,
                           group->text ? "text and table are both set"
                                       : "neither text nor table is set");
    }
    if (group->table && !tally__is_lr(group->lr)) {
        return tally__fail(TALLY_ARG, "group %zu: lr takes " TALLY__LR_RANGE ", not %g", g,
                           group->lr);
    }
    if (!group->params && group->n_params > 0) {
        return tally__fail(TALLY_ARG, "group %zu has %zu parameters, but params is NULL", g,
                           group->n_params);
    }
    return TALLY_OK;
}

/* Puts parameter i into group g, unless it is frozen. */
static int claim(tally_optimizer *optimizer, size_t i, size_t g)
{
    const struct tally__param *param = &optimizer->ddp->params[i];

    if (optimizer->updated[i].group >= 0) {
        return tally__fail(TALLY_ARG, "parameter '%s' is in groups %d and %zu", param->name,
                           optimizer->updated[i].group, g);
    }
    if (param->flags & TALLY_PARAM_FROZEN) {
        return TALLY_OK;
    }
    if (param->dtype != TALLY_F32) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "parameter '%s' is not fp32: optimizers update fp32 parameters only; "
                           "name the parameters of each group to leave it out",
                           param->name);
    }
    if ((param->flags & TALLY_PARAM_IGNORED) && !(param->grad.local && param->data)) {
        return tally__fail(TALLY_ARG,
                           "parameter '%s' is ignored: to be updated it needs data and grad",
                           param->name);
    }
    optimizer->updated[i].group = (int)g;
    return TALLY_OK;
}

static int claim_named(tally_optimizer *optimizer, const tally_optimizer_group *group, size_t g)
{
    for (size_t k = 0; k < group->n_params; k++) {
        int i = group->params[k];

        if (i < 0 || (size_t)i >= optimizer->ddp->n_params) {
            return tally__fail(TALLY_ARG, "group %zu: there is no parameter %d: they are 0..%zu", g,
                               i, optimizer->ddp->n_params - 1);
        }
        TRY(claim(optimizer, (size_t)i, g));
    }
    return TALLY_OK;
}

/* Puts all parameters that have a gradient and are in no group into group g. */
static int claim_rest(tally_optimizer *optimizer, size_t g)
{
    for (size_t i = 0; i < optimizer->ddp->n_params; i++) {
        if (optimizer->updated[i].group < 0 && optimizer->ddp->params[i].bucket >= 0) {
            TRY(claim(optimizer, i, g));
        }
    }
    return TALLY_OK;
}

static int make_group(tally_optimizer *optimizer, const tally_optimizer_group *group, size_t g)
{
    TRY(check_group(group, g));
    TRY(group->text ? tally__rule_parse(group->text, &optimizer->rules[g])
                    : tally__rule_make(group->table, group->user, group->lr, &optimizer->rules[g]));
    optimizer->lr[g] = optimizer->rules[g]->lr;
    return group->params ? claim_named(optimizer, group, g) : TALLY_OK;
}

static int make_groups(tally_optimizer *optimizer, const tally_optimizer_config *config)
{
    ptrdiff_t rest = -1;

    for (size_t g = 0; g < config->n_groups; g++) {
        tally_optimizer_group group = {0};

        TRY(tally__sized_read_entry(TALLY__SIZED(tally_optimizer_group, n_params), "group",
                                    config->groups, g, &group));
        TRY(make_group(optimizer, &group, g));
        if (!group.params && rest >= 0) {
            return tally__fail(TALLY_ARG, "groups %td and %zu both take what is not named", rest,
                               g);
        }
        rest = group.params ? rest : (ptrdiff_t)g;
    }
    return rest >= 0 ? claim_rest(optimizer, (size_t)rest) : TALLY_OK;
}

/* Whether the optimizer updates parameters by gradients that are never announced: the application
 * may write these until wait. */
static bool uses_local_gradients(const tally_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->n_params; i++) {
        if (optimizer->updated[i].group >= 0 &&
            (optimizer->ddp->params[i].flags & TALLY_PARAM_IGNORED)) {
            return true;
        }
    }
    return false;
}

/* Allocates the state of all updated parameters: nothing is allocated later. */
static int cover(tally_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->ddp->n_params; i++) {
        struct tally__updated *updated = &optimizer->updated[i];
        bool is_sharded = optimizer->config.shard && optimizer->ddp->params[i].bucket >= 0;

        if (updated->group >= 0 && !is_sharded) {
            TRY(tally__moments_cover(&updated->moments,
                                     optimizer->rules[updated->group]->table.n_states, 0,
                                     optimizer->ddp->params[i].n));
        }
    }
    return TALLY_OK;
}

/* ---- making it ---- */

static int check_config(const tally_ddp *ddp, const char *text,
                        const tally_optimizer_config *config)
{
    const struct tally__training *training = tally__training_of(ddp);

    if (!text == !(config->groups && config->n_groups > 0)) {
        return tally__fail(TALLY_ARG, "tally_optimizer_create: %s",
                           text ? "text and config->groups are both set"
                                : "neither text nor config->groups is set");
    }
    if (!(config->max_norm >= 0)) {
        return tally__fail(TALLY_ARG, "config->max_norm takes 0 or more, not %g", config->max_norm);
    }
    TRY(tally__loss_check_config(config));
    if (ddp->config.join && !config->overlap && !config->shard) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "the ddp was made with config.join: an optimizer needs overlap then, so "
                           "that ranks without input update their parameters too");
    }
    if (config->averager && config->averager->app_ddp != ddp) {
        return tally__fail(TALLY_ARG, "config->averager is of another ddp");
    }
    if (config->shard && (training->averager || tally__hook_local(ddp->hook))) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "config->shard: parameters must be the same on all ranks, but the ddp "
                           "has %s",
                           training->averager ? "an averager" : ddp->hook->table.name);
    }
    return training->optimizer ? tally__fail(TALLY_STATE, "the ddp has an optimizer already")
                               : TALLY_OK;
}

static int fill(tally_optimizer *optimizer, const char *text, const tally_optimizer_config *config)
{
    const tally_optimizer_group all = {.size = sizeof all, .text = text};
    tally_optimizer_config copy = {.size = sizeof copy};
    size_t n_params = optimizer->ddp->n_params;

    if (config) {
        TRY(tally__sized_read(OPTIMIZER_CONFIG, "tally_optimizer_create: config", config, &copy));
    }
    TRY(check_config(optimizer->ddp, text, &copy));
    if (text) {
        copy.groups = &all;
        copy.n_groups = 1;
    }
    optimizer->rules = tally__alloc_array(copy.n_groups, sizeof(struct tally__rule *), "groups");
    optimizer->lr = tally__alloc_array(copy.n_groups, sizeof *optimizer->lr, "groups");
    optimizer->updated = tally__alloc_array(n_params, sizeof *optimizer->updated, "groups");
    if (!optimizer->rules || !optimizer->lr || !optimizer->updated) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < n_params; i++) {
        optimizer->updated[i].group = -1;
    }
    optimizer->n_groups = copy.n_groups;
    TRY(make_groups(optimizer, &copy));
    optimizer->config = copy;
    optimizer->config.groups = NULL;
    optimizer->overlaps = copy.overlap || copy.shard;
    optimizer->waits = copy.max_norm > 0 || copy.loss_scale > 0;
    TRY(tally__loss_make(optimizer));
    return cover(optimizer);
}

/* Shards the buckets, in the layout of the plan, so that shards do not depend on the order of
 * announcement. Collective. */
static int shard(tally_optimizer *optimizer)
{
    TRY(tally__layout_restore_plan(optimizer->ddp));
    return tally__ddp_agree(optimizer->ddp, tally__zero_make(optimizer), NULL, NULL);
}

/* If creation fails, the application keeps its tables: they are not destroyed. */
static void give_back(tally_optimizer *optimizer, const tally_optimizer_config *config)
{
    for (size_t g = 0; optimizer && optimizer->rules && g < optimizer->n_groups; g++) {
        if (optimizer->rules[g] && config && config->groups && group_at(config, g)->table) {
            optimizer->rules[g]->table.destroy = NULL;
        }
    }
}

static void unmake(tally_optimizer *optimizer)
{
    if (!optimizer) {
        return;
    }
    for (size_t g = 0; optimizer->rules && g < optimizer->n_groups; g++) {
        tally__rule_free(optimizer->rules[g]);
    }
    tally__zero_free(optimizer);
    tally__loss_free(optimizer);
    for (size_t i = 0; optimizer->updated && i < optimizer->n_params; i++) {
        tally__moments_clear(&optimizer->updated[i].moments);
    }
    tally__free(optimizer->rules);
    tally__free(optimizer->lr);
    tally__free(optimizer->updated);
    tally__free(optimizer);
}

/* ---- comparing ---- */

static void describe_config(const void *of, size_t i, struct tally__description *about)
{
    const tally_optimizer_config *config = &((const tally_optimizer *)of)->config;

    (void)i;
    tally__describe_thing(about, "the optimizer's config");
    tally__describe_number(about, "overlap", config->overlap != 0);
    tally__describe_number(about, "shard", config->shard != 0);
    tally__describe_number(about, "release_gradients", config->release_gradients != 0);
    tally__describe_field(about, "averager", config->averager ? "set" : "NULL");
    tally__describe_real(about, "max_norm", config->max_norm);
    tally__describe_real(about, "loss_scale", config->loss_scale);
    tally__describe_real(about, "loss_scale_growth", config->loss_scale_growth);
    tally__describe_real(about, "loss_scale_backoff", config->loss_scale_backoff);
    tally__describe_number(about, "loss_scale_interval", config->loss_scale_interval);
}

static void describe_group(const void *of, size_t g, struct tally__description *about)
{
    const tally_optimizer *optimizer = of;
    const struct tally__rule *rule = optimizer->rules[g];

    tally__describe_numbered(about, "optimizer group", g);
    tally__describe_name(about, rule->name);
    tally__describe_real(about, "lr", optimizer->lr[g]);
    tally__describe_number(about, "elementwise", rule->table.elementwise != 0);
    tally__describe_number(about, "n_states", rule->table.n_states);
}

static void describe_updated(const void *of, size_t i, struct tally__description *about)
{
    const tally_optimizer *optimizer = of;

    tally__describe_numbered(about, "parameter", i);
    tally__describe_name(about, optimizer->ddp->params[i].name);
    tally__describe_number(about, "optimizer group", optimizer->updated[i].group);
}

static int create_job(tally_lane *lane, void *user)
{
    const tally_optimizer *made = user;
    const struct tally__compared compared[] = {
        {.plural = "configs", .n = 1, .of = made, .describe = describe_config},
        {.plural = "groups", .n = made->n_groups, .of = made, .describe = describe_group},
        {.plural = "parameters", .n = made->n_params, .of = made, .describe = describe_updated}};

    return tally__compare(lane, compared, sizeof compared / sizeof *compared);
}

static int create(tally_ddp *ddp, const char *text, const tally_optimizer_config *config,
                  tally_optimizer **optimizer)
{
    tally_optimizer *made = tally__alloc(sizeof *made, "an optimizer");
    int rc = TALLY_NOMEM;

    if (made) {
        made->ddp = ddp;
        made->n_params = ddp->n_params;
        rc = optimizer ? fill(made, text, config)
                       : tally__fail(TALLY_ARG, "tally_optimizer_create: optimizer is NULL");
    }
    rc = tally__ddp_agree(ddp, rc, create_job, made);
    if (rc == TALLY_OK && made && made->config.shard) {
        rc = shard(made);
    }
    if (rc != TALLY_OK || !optimizer || !made) {
        give_back(made, config);
        unmake(made);
        return rc;
    }
    tally__training_of(ddp)->optimizer = made;
    ddp->ends_in_wait = uses_local_gradients(made);
    tally__zero_mark(made, true);
    *optimizer = made;
    return TALLY_OK;
}

int tally_optimizer_create(tally_ddp *ddp, const char *text, const tally_optimizer_config *config,
                           tally_optimizer **optimizer)
{
    TRY(tally__check_between_steps(ddp, "tally_optimizer_create"));
    return tally__stats_note(ddp, create(ddp, text, config, optimizer));
}

int tally__optimizer_check(const tally_optimizer *optimizer, const char *call)
{
    if (!optimizer) {
        return tally__fail(TALLY_ARG, "%s: optimizer is NULL", call);
    }
    return optimizer->ddp ? tally__check_between_steps(optimizer->ddp, call)
                          : tally__fail(TALLY_STATE, "%s: its ddp was freed", call);
}

int tally_optimizer_free(tally_optimizer *optimizer)
{
    if (!optimizer || (optimizer->ddp && !tally__is_creator(&optimizer->ddp->group->creator))) {
        return TALLY_OK;
    }
    if (optimizer->ddp) {
        if (tally__is_lane_thread()) {
            return tally__fail(TALLY_STATE, "tally_optimizer_free: not from a job on a lane");
        }
        TRY(tally__check_between_steps(optimizer->ddp, "tally_optimizer_free"));
        tally__zero_mark(optimizer, false);
        tally__training_of(optimizer->ddp)->optimizer = NULL;
        optimizer->ddp->ends_in_wait = false;
    }
    unmake(optimizer);
    return TALLY_OK;
}

/* ---- learning rates ---- */

int tally_optimizer_set_lr(tally_optimizer *optimizer, int group, double lr)
{
    TRY(tally__optimizer_check(optimizer, "tally_optimizer_set_lr"));
    if (group < -1 || (group >= 0 && (size_t)group >= optimizer->n_groups)) {
        return tally__fail(TALLY_ARG, "tally_optimizer_set_lr: there is no group %d", group);
    }
    if (!tally__is_lr(lr)) {
        return tally__fail(TALLY_ARG,
                           "tally_optimizer_set_lr: lr takes " TALLY__LR_RANGE ", not %g", lr);
    }
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        if (group < 0 || (size_t)group == g) {
            optimizer->lr[g] = lr;
        }
    }
    return TALLY_OK;
}

double tally_optimizer_lr(const tally_optimizer *optimizer, int group)
{
    return optimizer && group >= 0 && (size_t)group < optimizer->n_groups ? optimizer->lr[group]
                                                                          : -1;
}

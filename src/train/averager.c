/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The averager object: creating it, comparing it between ranks, freeing it. Not responsible for
 * averaging (averager_step.c). One thread of the application enters at a time.
 */
#include "train/averager.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "comm/threads.h"
#include "ddp/compare.h"
#include "train/optimizer.h"

#define AVERAGER_CONFIG TALLY__SIZED(tally_averager_config, outer)

void tally_averager_config_init(tally_averager_config *config, size_t size)
{
    const tally_averager_config unset = {0};

    tally__sized_init(AVERAGER_CONFIG, &unset, config, size);
}

/* ---- what this rank can check and make by itself ---- */

static int check_level(const tally_averager_level *level, size_t k, int n_ranks)
{
    if (level->period < 1) {
        return tally__fail(TALLY_ARG, "averager: level %zu has period %d, it is 1 or more", k,
                           level->period);
    }
    if (level->group < 0) {
        return tally__fail(TALLY_ARG, "averager: level %zu has groups of %d ranks", k,
                           level->group);
    }
    if (level->group > 0 && n_ranks % level->group != 0) {
        return tally__fail(TALLY_ARG, "averager: level %zu: groups of %d do not divide %d ranks", k,
                           level->group, n_ranks);
    }
    return TALLY_OK;
}

static int size_of(const tally_averager_level *level, int n_ranks)
{
    return level->group > 0 ? level->group : n_ranks;
}

static int check_levels(const tally_averager_level *levels, size_t n, int n_ranks)
{
    if (!levels || n == 0) {
        return tally__fail(TALLY_ARG, "averager: there are no levels");
    }
    for (size_t k = 0; k < n; k++) {
        TRY(check_level(&levels[k], k, n_ranks));
        if (k > 0 && levels[k].period <= levels[k - 1].period) {
            return tally__fail(TALLY_ARG,
                               "averager: level %zu has period %d, not more than the %d of level "
                               "%zu",
                               k, levels[k].period, levels[k - 1].period, k - 1);
        }
        if (k > 0 && size_of(&levels[k], n_ranks) % size_of(&levels[k - 1], n_ranks) != 0) {
            return tally__fail(TALLY_ARG,
                               "averager: level %zu has groups of %d ranks, which are not made of "
                               "level %zu's groups of %d",
                               k, size_of(&levels[k], n_ranks), k - 1,
                               size_of(&levels[k - 1], n_ranks));
        }
    }
    if (size_of(&levels[n - 1], n_ranks) != n_ranks) {
        return tally__fail(TALLY_ARG,
                           "averager: the last level has groups of %d ranks, but must have all %d",
                           levels[n - 1].group, n_ranks);
    }
    return TALLY_OK;
}

static int check_config(const tally_ddp *ddp, const tally_averager_config *config)
{
    const struct tally__training *training = tally__training_of(ddp);

    if (config->warmup < 0) {
        return tally__fail(TALLY_ARG, "averager: warmup is %d: it is below 0", config->warmup);
    }
    if (ddp->config.join) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "the ddp was made with config.join: an averager needs all ranks in "
                           "every step");
    }
    if (training->averager) {
        return tally__fail(TALLY_STATE, "the ddp has an averager already");
    }
    if (training->optimizer && training->optimizer->config.shard) {
        return tally__fail(TALLY_UNSUPPORTED, "averager: parameters of a sharded optimizer are the "
                                              "same on all ranks as it is");
    }
    return check_levels(config->levels, config->n_levels, tally_group_size(ddp->group));
}

static int copy_levels(tally_averager *averager, const tally_averager_config *config)
{
    averager->levels =
        tally__alloc_array(config->n_levels, sizeof *averager->levels, "an averager's levels");
    if (!averager->levels) {
        return TALLY_NOMEM;
    }
    averager->n_levels = config->n_levels;
    averager->warmup = config->warmup;
    for (size_t k = 0; k < config->n_levels; k++) {
        const tally_averager_level *level = &config->levels[k];

        averager->levels[k].period = level->period;
        averager->levels[k].n_ranks =
            level->group > 0 ? level->group : tally_group_size(averager->app_ddp->group);
    }
    return TALLY_OK;
}

static int choose(tally_averager *averager, size_t i)
{
    const struct tally__param *param = &averager->app_ddp->params[i];

    if (averager->covers[i]) {
        return tally__fail(TALLY_ARG, "averager: parameter '%s' is named twice", param->name);
    }
    averager->covers[i] = true;
    if (param->bucket < 0) {
        return tally__fail(TALLY_ARG,
                           "averager: parameter '%s' is frozen or ignored: nothing trains it",
                           param->name);
    }
    if (averager->outer && param->dtype != TALLY_F32) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "averager: parameter '%s' is not fp32: an outer optimizer updates fp32 "
                           "only",
                           param->name);
    }
    averager->params[averager->n_params++].index = i;
    return TALLY_OK;
}

static int choose_named(tally_averager *averager, const tally_averager_config *config)
{
    for (size_t k = 0; k < config->n_params; k++) {
        int i = config->params[k];

        if (i < 0 || (size_t)i >= averager->app_ddp->n_params) {
            return tally__fail(TALLY_ARG, "averager: there is no parameter %d: they are 0..%zu", i,
                               averager->app_ddp->n_params - 1);
        }
        TRY(choose(averager, (size_t)i));
    }
    return averager->n_params > 0 ? TALLY_OK
                                  : tally__fail(TALLY_ARG, "averager: params names none");
}

/* Chooses all trained parameters, or those that config names. */
static int choose_params(tally_averager *averager, const tally_averager_config *config)
{
    const tally_ddp *ddp = averager->app_ddp;
    size_t most = config->params ? config->n_params : ddp->n_params;

    averager->params = tally__alloc_array(most, sizeof *averager->params, "an averager");
    averager->covers = tally__alloc_array(ddp->n_params, sizeof *averager->covers, "an averager");
    if (!averager->params || !averager->covers) {
        return TALLY_NOMEM;
    }
    if (config->params) {
        return choose_named(averager, config);
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        if (ddp->params[i].bucket >= 0) {
            TRY(choose(averager, i));
        }
    }
    return TALLY_OK;
}

/* Allocates anchors and the outer optimizer's state: nothing is allocated later. */
static int cover(tally_averager *averager)
{
    for (size_t k = 0; k < averager->n_params; k++) {
        struct tally__averaged *averaged = &averager->params[k];
        const struct tally__param *param = &averager->app_ddp->params[averaged->index];

        if (param->dtype != TALLY_F32 || !(averager->is_lossy || averager->outer)) {
            continue;
        }
        averaged->anchor = tally__alloc_array(param->n, sizeof *averaged->anchor, "an anchor");
        if (!averaged->anchor) {
            return TALLY_NOMEM;
        }
        if (averager->outer) {
            TRY(tally__moments_cover(&averaged->moments, averager->outer->table.n_states, 0,
                                     param->n));
        }
    }
    return TALLY_OK;
}

static int make_hook(tally_averager *averager, const char *text)
{
    tally_hook *inner;
    int rc;

    TRY(tally_hook_parse(text ? text : "allreduce", &inner));
    averager->is_lossy = !inner->private.is_exact;
    rc = inner->private.divides
             ? tally__fail(TALLY_ARG,
                           "averager: hook '%s' divides the ranks into groups, but the averager's "
                           "levels do that: choose a hook without hosts and postlocal",
                           inner->table.name)
             : tally__averager_wrap(averager, inner);
    tally_hook_free(inner);
    return rc;
}

int tally__local_check(const struct tally__training *training, const tally_averager *averager,
                       const tally_hook *hook)
{
    const tally_hook *local = tally__hook_local(hook);

    if (!local) {
        return TALLY_OK;
    }
    if (training->optimizer && training->optimizer->config.shard) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "hook '%s' lets parameters differ between ranks, but those of a sharded "
                           "optimizer are the same on all",
                           local->table.name);
    }
    if (!averager || local->private.local_start == (uint64_t)averager->warmup) {
        return TALLY_OK;
    }
    return tally__fail(TALLY_ARG,
                       "hook '%s' exchanges among few ranks from step %llu on, but the averager's "
                       "warmup is %d: they must be the same",
                       local->table.name, (unsigned long long)local->private.local_start,
                       averager->warmup);
}

int tally__averager_check(const tally_averager *averager, const char *call)
{
    return averager ? tally__check_between_steps(averager->app_ddp, call)
                    : tally__fail(TALLY_ARG, "%s: averager is NULL", call);
}

bool tally__averager_is_run(const tally_averager *averager)
{
    const tally_optimizer *optimizer = tally__training_of(averager->app_ddp)->optimizer;

    return optimizer && optimizer->config.averager == averager;
}

static int fill(tally_averager *averager, const tally_averager_config *given)
{
    tally_averager_config copy = {0};
    const tally_averager_config *config = &copy;

    if (!given) {
        return tally__fail(TALLY_ARG, "tally_averager_create: config is NULL");
    }
    TRY(tally__sized_read(AVERAGER_CONFIG, "tally_averager_create: config", given, &copy));
    TRY(check_config(averager->app_ddp, config));
    TRY(copy_levels(averager, config));
    TRY(tally__local_check(tally__training_of(averager->app_ddp), averager,
                           averager->app_ddp->hook));
    if (config->outer) {
        TRY(tally__rule_parse(config->outer, &averager->outer));
    }
    TRY(make_hook(averager, config->hook));
    TRY(choose_params(averager, config));
    if (averager->levels[averager->n_levels - 1].period == 1) {
        tally__log(TALLY_LOG_WARN, "averager: with period 1 all parameters travel in every step; "
                                   "gradients would do");
    }
    return cover(averager);
}

/* ---- comparing ---- */

static void describe(const void *of, size_t i, struct tally__description *about)
{
    const tally_averager *averager = of;

    (void)i;
    tally__describe_thing(about, "the averager");
    tally__describe_number(about, "warmup", averager->warmup);
    tally__describe_text(about, "hook", averager->hook->table.name);
    tally__describe_text(about, "outer", averager->outer ? averager->outer->name : "");
}

static void describe_level(const void *of, size_t i, struct tally__description *about)
{
    const struct tally__averager_level *level = &((const tally_averager *)of)->levels[i];

    tally__describe_numbered(about, "the averager's level", i);
    tally__describe_number(about, "period", level->period);
    tally__describe_number(about, "group", level->n_ranks);
}

static void describe_param(const void *of, size_t i, struct tally__description *about)
{
    const tally_averager *averager = of;

    tally__describe_numbered(about, "the averager's parameter", i);
    tally__describe_name(about, averager->app_ddp->params[averager->params[i].index].name);
}

struct creation {
    tally_averager *averager;
    tally_param *params; /* for the averager's own ddp */
};

static int create_job(tally_lane *lane, void *user)
{
    struct creation *creation = user;
    const tally_averager *averager = creation->averager;
    const struct tally__compared compared[] = {
        {.plural = "averagers", .n = 1, .of = averager, .describe = describe},
        {.plural = "levels", .n = averager->n_levels, .of = averager, .describe = describe_level},
        {.plural = "parameters",
         .n = averager->n_params,
         .of = averager,
         .describe = describe_param}};

    return tally__compare(lane, compared, sizeof compared / sizeof *compared);
}

/* ---- making it ---- */

/* Describes the parameters for the averager's own ddp, which provides the gradients. */
static int list_params(struct creation *creation)
{
    const tally_averager *averager = creation->averager;

    creation->params =
        tally__alloc_array(averager->n_params, sizeof *creation->params, "an averager");
    if (!creation->params) {
        return TALLY_NOMEM;
    }
    for (size_t k = 0; k < averager->n_params; k++) {
        const struct tally__param *param = &averager->app_ddp->params[averager->params[k].index];

        creation->params[k] = (tally_param){.size = sizeof(tally_param),
                                            .name = param->name,
                                            .n_dims = param->n_dims,
                                            .shape = param->shape,
                                            .dtype = param->dtype,
                                            .data = param->data};
    }
    return TALLY_OK;
}

static int divide(tally_averager *averager)
{
    int rank = tally_group_rank(averager->ddp->group);

    for (size_t k = 0; k < averager->n_levels; k++) {
        struct tally__averager_level *level = &averager->levels[k];

        if (level->n_ranks < tally_group_size(averager->ddp->group)) {
            TRY(tally_group_split(averager->ddp->group, rank / level->n_ranks, rank,
                                  &level->group));
        }
    }
    return TALLY_OK;
}

/* Creates the averager's ddp and the groups of its levels. Collective. */
static int start(const struct creation *creation)
{
    tally_averager *averager = creation->averager;
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = "allreduce";
    config.keep_parameters = 1;
    config.check = -1;
    TRY(tally__ddp_create(averager->app_ddp->group, creation->params, averager->n_params, &config,
                          &tally__observer_none, &averager->ddp));
    averager->ddp->words = (struct tally__ddp_words){"averager", "averages", "tally_averager_step"};
    TRY(divide(averager));
    return tally_ddp_attach_hook(averager->ddp, averager->hook);
}

static void unmake(tally_averager *averager)
{
    if (!averager) {
        return;
    }
    for (size_t k = 0; averager->levels && k < averager->n_levels; k++) {
        (void)tally_group_close(averager->levels[k].group);
    }
    tally__ddp_free(averager->ddp);
    tally_hook_free(averager->hook);
    tally__rule_free(averager->outer);
    for (size_t k = 0; k < averager->n_params; k++) {
        tally__free(averager->params[k].anchor);
        tally__moments_clear(&averager->params[k].moments);
    }
    tally__free(averager->params);
    tally__free(averager->covers);
    tally__free(averager->levels);
    tally__free(averager);
}

static int create(tally_ddp *ddp, const tally_averager_config *config, tally_averager **averager)
{
    struct creation creation = {.averager = tally__alloc(sizeof **averager, "an averager")};
    int rc = TALLY_NOMEM;

    if (creation.averager) {
        creation.averager->app_ddp = ddp;
        rc = averager ? fill(creation.averager, config)
                      : tally__fail(TALLY_ARG, "tally_averager_create: averager is NULL");
        rc = rc == TALLY_OK ? list_params(&creation) : rc;
    }
    rc = tally__ddp_agree(ddp, rc, create_job, &creation);
    if (rc == TALLY_OK) {
        rc = start(&creation);
    }
    tally__free(creation.params);
    if (rc != TALLY_OK || !averager) {
        struct tally__outcome outcome = tally__outcome_of(rc);

        unmake(creation.averager);
        return tally__outcome_return(&outcome);
    }
    tally__training_of(ddp)->averager = creation.averager;
    *averager = creation.averager;
    return TALLY_OK;
}

int tally_averager_create(tally_ddp *ddp, const tally_averager_config *config,
                          tally_averager **averager)
{
    TRY(tally__check_between_steps(ddp, "tally_averager_create"));
    return tally__stats_note(ddp, create(ddp, config, averager));
}

int tally_averager_free(tally_averager *averager)
{
    if (!averager || !tally__is_creator(&averager->app_ddp->group->creator)) {
        return TALLY_OK;
    }
    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "tally_averager_free: not from a job on a lane");
    }
    if (tally__averager_is_run(averager)) {
        return tally__fail(TALLY_STATE, "tally_averager_free: the optimizer that calls it must be "
                                        "freed first");
    }
    tally__training_of(averager->app_ddp)->averager = NULL;
    unmake(averager);
    return TALLY_OK;
}

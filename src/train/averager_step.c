/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averaging: when, among which ranks, and the new values of the parameters. The thread that trains
 * enters, between steps; exchanges run on the lanes of the averager's own ddp, whose hook runs the
 * hook that config names among the ranks of the level that is due.
 */
#include "base/cpu.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "hook/wrapper.h"
#include "num/num.h"
#include "train/averager.h"
#include "train/mixed.h"

/* Whether an averaging is due, and of which level: the last level whose period has passed. */
static bool find_due(const tally_averager *averager, size_t *due)
{
    if (averager->n_steps < (uint64_t)averager->warmup) {
        return false;
    }
    for (size_t k = averager->n_levels; k-- > 0;) {
        uint64_t since_warmup = averager->n_steps - (uint64_t)averager->warmup;

        if (since_warmup % (uint64_t)averager->levels[k].period == 0) {
            *due = k;
            return true;
        }
    }
    return false;
}

static bool is_of_all(const tally_averager *averager)
{
    return averager->due == averager->n_levels - 1;
}

/* Whether a parameter travels as its change since the anchor. */
static bool sends_change(const tally_averager *averager, const struct tally__averaged *averaged)
{
    return averaged->anchor && averager->has_anchor && (averager->is_lossy || is_of_all(averager));
}

static void copy_f32(size_t n, const float *from, float *to)
{
    tally__copy(n * sizeof *from, (const void *)from, (void *)to);
}

static void put(const tally_averager *averager, size_t k)
{
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->app_ddp->params[averaged->index];
    void *gradient = tally_ddp_grad(averager->ddp, (int)k);

    if (sends_change(averager, averaged)) {
        tally__sub_f32(param->n, averaged->anchor, param->data, gradient);
    } else {
        tally__copy(param->bytes, param->data, gradient);
    }
}

/* The outer optimizer moves the anchor, by the mean of the changes. */
static int move_anchor(const tally_averager *averager, struct tally__averaged *averaged,
                       const float *mean)
{
    const struct tally__param *param = &averager->app_ddp->params[averaged->index];
    const tally_step_param seen = {.size = sizeof seen,
                                   .index = (int)averaged->index,
                                   .name = param->name,
                                   .n_dims = param->n_dims,
                                   .shape = param->shape,
                                   .data = averaged->anchor,
                                   .gradient = mean,
                                   .lr = averager->outer->lr};

    TRY(tally__moments_step(&averaged->moments, averager->outer, &seen, 1, false));
    copy_f32(param->n, averaged->anchor, param->data);
    return TALLY_OK;
}

/* Sets one parameter to its new value. */
static int set_param(const tally_averager *averager, size_t k)
{
    struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->app_ddp->params[averaged->index];
    const void *mean = tally_ddp_grad(averager->ddp, (int)k);

    if (!sends_change(averager, averaged)) {
        tally__copy(param->bytes, mean, param->data);
    } else if (averager->outer && is_of_all(averager)) {
        return move_anchor(averager, averaged, mean);
    } else {
        tally__sub_f32(param->n, averaged->anchor, mean, param->data);
    }
    if (averaged->anchor && is_of_all(averager)) {
        copy_f32(param->n, param->data, averaged->anchor);
    }
    return TALLY_OK;
}

static int take(const tally_averager *averager, size_t k)
{
    TRY(set_param(averager, k));
    tally__mixed_refresh_param(averager->app_ddp, averager->params[k].index);
    return TALLY_OK;
}

/* A step of the averager's ddp. If an announcement fails, wait aborts the step on all ranks. */
static int exchange(tally_averager *averager)
{
    tally__fpenv saved = tally__fpenv_enter();

    for (size_t k = averager->n_params; k-- > 0;) {
        put(averager, k);
        (void)tally_ddp_grad_ready(averager->ddp, (int)k);
    }
    tally__fpenv_leave(saved);
    return tally_ddp_wait(averager->ddp);
}

static int average(tally_averager *averager)
{
    tally__fpenv saved;
    int rc = TALLY_OK;

    TRY(exchange(averager));
    saved = tally__fpenv_enter();
    for (size_t k = 0; k < averager->n_params && rc == TALLY_OK; k++) {
        rc = take(averager, k);
    }
    tally__fpenv_leave(saved);
    TRY(rc);
    if (is_of_all(averager)) {
        averager->agreed_step = averager->app_ddp->step + 1;
    }
    averager->n_averagings++;
    averager->has_anchor = averager->has_anchor || averager->is_lossy || averager->outer;
    return TALLY_OK;
}

int tally__averager_run(tally_averager *averager, int *n_averaged)
{
    bool is_due = find_due(averager, &averager->due);

    /* Changes need an anchor, and that needs all ranks. */
    if (!averager->has_anchor && (averager->is_lossy || averager->outer)) {
        averager->due = averager->n_levels - 1;
    }
    if (is_due) {
        TRY(average(averager));
    }
    averager->n_steps++;
    if (n_averaged) {
        *n_averaged = is_due ? averager->levels[averager->due].n_ranks : 0;
    }
    return TALLY_OK;
}

int tally_averager_step(tally_averager *averager, int *n_averaged)
{
    TRY(tally__averager_check(averager, "tally_averager_step"));
    if (tally__averager_is_run(averager)) {
        return tally__fail(TALLY_STATE, "tally_averager_step: an optimizer calls this averager");
    }
    return tally__stats_note(averager->app_ddp, tally__averager_run(averager, n_averaged));
}

int tally_averager_average(tally_averager *averager)
{
    TRY(tally__averager_check(averager, "tally_averager_average"));
    averager->due = averager->n_levels - 1;
    return tally__stats_note(averager->app_ddp, average(averager));
}

unsigned long long tally_averager_steps(const tally_averager *averager)
{
    return averager ? averager->n_steps : 0;
}

int tally_averager_get_stats(tally_averager *averager, tally_averager_stats *stats)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_averager_stats, mean_average_s);
    tally_ddp_stats of_ddp = {.size = sizeof of_ddp};
    tally_averager_stats answer;

    if (!averager) {
        return tally__fail(TALLY_ARG, "tally_averager_get_stats: averager is NULL");
    }
    TRY(tally__answer_check(kind, "tally_averager_get_stats", stats));
    TRY(tally_ddp_get_stats(averager->ddp, &of_ddp));
    answer = (tally_averager_stats){.step = averager->n_steps,
                                    .n_averagings = averager->n_averagings,
                                    .wire_bytes = of_ddp.wire_bytes,
                                    .total_wire_bytes = of_ddp.total_wire_bytes,
                                    .total_other_wire_bytes = of_ddp.total_other_wire_bytes,
                                    .average_s = of_ddp.exposed_s,
                                    .mean_average_s = of_ddp.mean_exposed_s,
                                    .host_bytes = of_ddp.host_bytes,
                                    .total_host_bytes = of_ddp.total_host_bytes};
    tally__sized_write(kind, &answer, stats);
    return TALLY_OK;
}

/* ---- the hook of the averager's ddp, on lanes; the level that is due stays during a step ---- */

struct level_hook {
    struct tally__wrapper wrapper;
    const tally_averager *averager;
};

static bool stays(const void *user, int n_ranks)
{
    const tally_averager *averager = user;

    for (size_t k = 0; k < averager->n_levels; k++) {
        if (averager->levels[k].n_ranks == n_ranks) {
            return true;
        }
    }
    return false;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct level_hook *hook = state;
    const tally_averager *averager = hook->averager;
    const struct tally__averager_level *level = &averager->levels[averager->due];
    const tally_hook *inner = hook->wrapper.inner;
    struct tally__residuals *residuals = tally__reduction_here()->residuals;
    const struct tally__moving passing = {TALLY__MOVE_SENT, bucket, stays, averager};

    /* Residuals left by the levels of another averager. */
    if (tally__residuals_must_move(residuals, &passing)) {
        TRY(tally__residuals_move(lane, residuals, &passing));
    }
    if (averager->is_lossy && !averager->has_anchor) {
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    return level->group ? tally__hook_reduce_in_subgroup(inner, lane, level->group,
                                                         TALLY__DIVISOR_OF_GROUP, bucket)
                        : tally__hook_reduce(inner, lane, bucket, NULL);
}

int tally__averager_wrap(tally_averager *averager, tally_hook *inner)
{
    struct tally__wrapper_table table = tally__wrapper_table(inner->table.name, inner);
    struct level_hook *made = tally__alloc(sizeof *made, "a hook");

    if (!made) {
        return TALLY_NOMEM;
    }
    made->averager = averager;
    table.table.reduce = reduce;
    return tally__wrapper_make(&table, &made->wrapper, inner, &averager->hook);
}

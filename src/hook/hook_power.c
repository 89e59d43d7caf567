/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hooks powersgd and batched_powersgd: options, making, attaching and detaching. power_step.c
 * has the step. Application threads enter, between steps.
 */
#include "base/memory.h"
#include "base/status.h"
#include "hook/hook.h"
#include "hook/kind.h"
#include "hook/power.h"

static void clear(struct tally__power *power)
{
    for (size_t i = 0; i < power->n_params; i++) {
        tally__power_matrix_clear(&power->matrices[i]);
        tally__power_plan_clear(&power->plans[i]);
    }
    tally__free(power->matrices);
    tally__free(power->plans);
    power->matrices = NULL;
    power->plans = NULL;
    power->n_params = 0;
}

static int attach(void *state, tally_ddp *ddp)
{
    struct tally__power *power = state;
    size_t n = tally_ddp_n_params(ddp);

    if (power->attached) {
        return tally__fail(TALLY_STATE, "a PowerSGD hook serves one ddp at a time");
    }
    if (power->n_params != n) {
        clear(power);
        power->matrices = tally__alloc_array(n, sizeof *power->matrices, "PowerSGD's state");
        power->plans = tally__alloc_array(n, sizeof *power->plans, "PowerSGD's state");
        if (!power->matrices || !power->plans) {
            clear(power);
            return TALLY_NOMEM;
        }
        power->n_params = n;
    }
    power->own_rank = (size_t)tally_group_rank(tally_ddp_group(ddp));
    power->n_ranks = (size_t)tally_group_size(tally_ddp_group(ddp));
    power->attached = true;
    return TALLY_OK;
}

/* Residuals are plain now, or no longer needed. The steps of the next ddp make new plans and find
 * its residuals. */
static void detach(void *state, tally_ddp *ddp)
{
    struct tally__power *power = state;

    (void)ddp;
    for (size_t i = 0; i < power->n_params; i++) {
        tally__free(power->matrices[i].corrected);
        power->matrices[i].corrected = NULL;
        tally__power_plan_clear(&power->plans[i]);
    }
    power->n_steps = tally__power_steps(power);
    power->running = false;
    power->attached = false;
}

static void destroy(void *state)
{
    struct tally__power *power = state;

    clear(power);
    (void)pthread_mutex_destroy(&power->mutex);
    tally__free(power);
}

static int make_power(const char *name, struct tally__power_options options, tally_hook **hook)
{
    const tally_hook_table table = {
        .size = sizeof table,
        .name = name,
        .concurrent = 1,
        .feedback = options.feedback,
        .attach = attach,
        .reduce = tally__power_reduce,
        .detach = detach,
        .save = tally__power_save,
        .load = tally__power_load,
        .destroy = destroy,
    };
    const struct tally__hook_private private = {.layout_bound = options.batched,
                                                .get_error = tally__power_error};
    struct tally__power *power = tally__alloc(sizeof *power, "a hook");

    if (!power) {
        return TALLY_NOMEM;
    }
    power->options = options;
    (void)pthread_mutex_init(&power->mutex, NULL);
    return tally__hook_make(&table, &private, power, hook);
}

/* In the order of the options below; the batched form has the first six. */
enum { RANK, START, FEEDBACK, WARM_START, SEED, REPORT_EVERY, MIN_RATE, EPSILON };

static struct tally__power_options options_of(const double *values)
{
    return (struct tally__power_options){
        .rank = (size_t)values[RANK],
        .start = (uint64_t)values[START],
        .feedback = values[FEEDBACK] != 0,
        .warm_start = values[WARM_START] != 0,
        .seed = (uint64_t)values[SEED],
        .report_every = (uint64_t)values[REPORT_EVERY],
    };
}

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const double *values = setting->values;
    struct tally__power_options options = options_of(values);

    (void)inner;
    options.min_rate = values[MIN_RATE];
    options.epsilon = values[EPSILON];
    return make_power(name, options, hook);
}

static int make_batched(const char *name, const struct tally__setting *setting, tally_hook *inner,
                        tally_hook **hook)
{
    const double *values = setting->values;
    struct tally__power_options options = options_of(values);

    (void)inner;
    options.batched = true;
    return make_power(name, options, hook);
}

#define SHARED_OPTIONS                                                                            \
    TALLY__COUNT_OPTION("rank", 1, 1024, "1..1024", "1",                                          \
                        "columns of P and Q: more is more exact"),                                \
        TALLY__COUNT_OPTION(                                                                      \
            "start", 0, 1e15, "0 or more", "1000",                                                \
            "steps that travel uncompressed first; about a tenth of the training is good"),       \
        TALLY__CHOICE_OPTION("feedback", "0|1", "1", "add what one step leaves out to the next"), \
        TALLY__CHOICE_OPTION("warm_start", "0|1", "1", "start from the last step's Q"),           \
        TALLY__COUNT_OPTION("seed", 0, 4294967295, "0..4294967295", "0", "of the first Q"),       \
        TALLY__COUNT_OPTION("report_every", 1, 1e15, "1 or more", "10000",                        \
                            "steps between two lines in the log on what compression saves")

static const struct tally__option options_list[] = {
    SHARED_OPTIONS,
    TALLY__REAL_OPTION("min_rate", 0, 1e6, "0..1e6", "2",
                       "compress a matrix only if that makes it smaller by more than this factor"),
    TALLY__REAL_OPTION("epsilon", 0, 1, "0..1", "0", "added to the norms of columns"),
    TALLY__CHOICE_OPTION("batch", "0|1", "0",
                         "for PyTorch's sake; matrices of a bucket always travel together"),
};

const struct tally__hook_kind tally__hook_kind_power = {
    .row.name = "powersgd",
    .row.help = "a hundredth of the bytes and less, lossy: for slow links and large matrices",
    .row.n_options = sizeof options_list / sizeof options_list[0],
    .row.options = options_list,
    .make = make,
};

static const struct tally__option batched_options[] = {SHARED_OPTIONS};

const struct tally__hook_kind tally__hook_kind_batched_power = {
    .row.name = "batched_powersgd",
    .row.help = "a bucket as one square matrix: fewer bytes than powersgd, and less exact",
    .row.n_options = sizeof batched_options / sizeof batched_options[0],
    .row.options = batched_options,
    .make = make_batched,
};

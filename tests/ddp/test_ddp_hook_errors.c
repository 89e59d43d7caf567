/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that fail: on one rank, at any bucket, with and without a text, before, after and instead
 * of the exchange. All ranks get the same status and text, and the next step works. And hooks that
 * ranks do not agree about, or that one of them cannot attach: the old one stays.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define CAP 300

enum moment { BEFORE, AFTER };

struct plan {
    int status; /* to fail with; TALLY_OK: not at all */
    int rank;
    int bucket;
    enum moment moment;
    bool silent; /* without a text */
    atomic_int n_reduced;
    int attach_status;
    int n_attached;
    int n_detached;
};

static int fail(const struct plan *plan, tally_lane *lane)
{
    return plan->silent ? plan->status : tally_job_fail(lane, plan->status, "the hook's own words");
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct plan *plan = state;
    bool fails = plan->status != TALLY_OK && bucket->index == plan->bucket &&
                 tally_group_rank(tally_lane_group(lane)) == plan->rank;
    int rc;

    if (fails && plan->moment == BEFORE) {
        return fail(plan, lane);
    }
    rc = tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
    if (rc == TALLY_OK && fails) {
        return fail(plan, lane);
    }
    atomic_fetch_add(&plan->n_reduced, rc == TALLY_OK);
    return rc;
}

static int attach(void *state, tally_ddp *ddp)
{
    struct plan *plan = state;

    (void)ddp;
    if (plan->attach_status != TALLY_OK) {
        return tally_job_fail(NULL, plan->attach_status, "no room for the residuals");
    }
    plan->n_attached++;
    return TALLY_OK;
}

static void detach(void *state, tally_ddp *ddp)
{
    (void)ddp;
    ((struct plan *)state)->n_detached++;
}

static int make_hook(const char *name, struct plan *plan, int concurrent, tally_hook **hook)
{
    const tally_hook_table table = {.size = sizeof table,
                                    .name = name,
                                    .concurrent = concurrent,
                                    .attach = attach,
                                    .reduce = reduce,
                                    .detach = detach};

    return tally_hook_create(&table, plan, hook);
}

static int start(tally_group *group, struct ddp_model *model, bool copies, tally_ddp **ddp)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = CAP;
    CHECK(group, ddp_model_make(model, ddp_mixed, DDP_N_MIXED, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}

/* Announces everything in order; a rank may hear of a failure early. */
static int failing_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                        const struct plan *plan)
{
    char text[256];

    for (int i = DDP_N_MIXED - 3; i >= 0; i--) {
        ddp_fill_grad(model, ddp, (size_t)i, 9, tally_group_rank(group));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
    }
    CHECK_STATUS(group, tally_ddp_wait(ddp), plan->status);
    (void)snprintf(text, sizeof text, "rank %d: %s", plan->rank,
                   plan->silent ? tally_status_text(plan->status) : "the hook's own words");
    if (strcmp(tally_last_error(), text) != 0) {
        return ranks_fail_text(group, __FILE__, __LINE__, tally_last_error(), text);
    }
    ranks_note(group, 0, ranks_hash(0, tally_last_error(), strlen(tally_last_error())));
    return 0;
}

static int reduce_body(tally_group *group, void *user)
{
    static const int statuses[] = {TALLY_NUMERIC, TALLY_NOMEM, TALLY_STATE, TALLY_SYSTEM};

    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        struct plan plan = {0};
        tally_ddp_stats stats = {.size = sizeof stats};
        tally_hook *hook = NULL;
        tally_ddp *ddp = NULL;

        CHECK_OK(group, start(group, &model, copies, &ddp));
        CHECK_OK(group, make_hook("fails", &plan, *(const int *)user, &hook));
        CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
        tally_hook_free(hook);
        for (int trial = 0; trial < 16; trial++) {
            int n_buckets;

            CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
            n_buckets = (int)stats.n_buckets;
            CHECK(group, n_buckets > 3);
            plan.status = statuses[trial % 4];
            plan.rank = trial / 2 % tally_group_size(group);
            plan.bucket = trial % 3 == 2 ? n_buckets - 1 : trial % 3;
            plan.moment = trial & 1 ? AFTER : BEFORE;
            plan.silent = trial % 5 == 0;
            CHECK_OK(group, failing_step(group, ddp, &model, &plan));
            plan.status = TALLY_OK;
            plan.n_reduced = 0;
            /* Two in a row must not be needed. */
            if (trial % 4 != 1) {
                CHECK_OK(group, ddp_right_step(group, ddp, &model, (unsigned)trial));
                CHECK(group, plan.n_reduced == n_buckets);
            }
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        CHECK(group, plan.n_attached == 1 && plan.n_detached == 1);
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- attaching ---- */

static int still_there(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                       struct plan *plan)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, strcmp(stats.hook, "old") == 0);
    plan->n_reduced = 0;
    CHECK_OK(group, ddp_right_step(group, ddp, model, 5));
    CHECK(group, plan->n_reduced == (int)stats.n_buckets);
    return 0;
}

static int attach_body(tally_group *group, void *user)
{
    int last = tally_group_size(group) - 1;
    bool odd = last > 0 && tally_group_rank(group) == last;
    struct ddp_model model;
    struct plan old = {0};
    struct plan new = {0};
    tally_hook *hook = NULL;
    tally_hook *other = NULL;
    tally_ddp *ddp = NULL;

    (void)user;
    CHECK_OK(group, start(group, &model, false, &ddp));
    CHECK_OK(group, make_hook("old", &old, 0, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    tally_hook_free(hook);
    CHECK_OK(group, still_there(group, ddp, &model, &old));

    /* Different names. */
    if (last > 0) {
        CHECK_OK(group, make_hook(odd ? "that" : "this", &new, 0, &other));
        CHECK_STATUS(group, tally_ddp_attach_hook(ddp, other), TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(), "'that'");
        CHECK_TEXT(group, tally_last_error(), "'this'");
        tally_hook_free(other);
        CHECK(group, new.n_attached == 0 && old.n_detached == 0);
        CHECK_OK(group, still_there(group, ddp, &model, &old));
    }

    /* One rank cannot attach. */
    CHECK_OK(group, make_hook("new", &new, 0, &other));
    new.attach_status = odd || last == 0 ? TALLY_NOMEM : TALLY_OK;
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, other), TALLY_NOMEM);
    CHECK_TEXT(group, tally_last_error(), "no room for the residuals");
    CHECK(group, new.n_attached == new.n_detached &&old.n_detached == 0);
    CHECK_OK(group, still_there(group, ddp, &model, &old));

    /* And then it can. */
    new.attach_status = TALLY_OK;
    new.n_attached = 0;
    new.n_detached = 0;
    CHECK_OK(group, tally_ddp_attach_hook(ddp, other));
    tally_hook_free(other);
    CHECK(group, new.n_attached == 1 && new.n_detached == 0 && old.n_detached == 1);
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 6));
    CHECK_OK(group, tally_ddp_free(ddp));
    CHECK(group, new.n_detached == 1);
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int concurrent = 0;
    int n_failures = ddp_run("failing reduce", reduce_body, &concurrent, 1);

    n_failures += ddp_run("failing reduce", reduce_body, &concurrent, 0);
    concurrent = 1;
    n_failures += ddp_run("failing reduce, several at once", reduce_body, &concurrent, 3);
    n_failures += ddp_run("attaching", attach_body, NULL, 1);
    return n_failures != 0;
}

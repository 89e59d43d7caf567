/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank dies in the middle of a sharded update, and its shard, which no other rank has, is lost.
 * The others' wait names the rank, and they can free and close everything.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_support.h"

#define WORLD 3
#define VICTIM 1
#define N 3000
#define HANG_S 20.0

struct scene {
    char rendezvous[64];
    double max_norm; /* 0: the update is on the lane; otherwise at the end of the step */
};

/* The victim's third update is its last. */
static int descend(void *user, const tally_step_param *param)
{
    if (*(const int *)user == VICTIM && param->step == 3) {
        (void)raise(SIGKILL);
    }
    for (size_t e = 0; e < param->n; e++) {
        param->data[e] -= (float)param->lr * param->gradient[e];
    }
    return TALLY_OK;
}

static const tally_optimizer_table table = {
    .size = sizeof table, .name = "descend", .elementwise = 1, .step_param = descend};

static int make(tally_group *group, void *rank, double max_norm, tally_ddp **ddp,
                tally_optimizer **optimizer)
{
    static const size_t shape[] = {N};
    const tally_param params[] = {
        {.size = sizeof *params, .name = "a", .n_dims = 1, .shape = shape},
        {.size = sizeof *params, .name = "b", .n_dims = 1, .shape = shape},
    };
    const tally_optimizer_group one = {
        .size = sizeof one, .table = &table, .user = rank, .lr = 0.1};
    tally_optimizer_config config;
    int rc = tally_ddp_create(group, params, 2, NULL, ddp);

    tally_optimizer_config_init(&config, sizeof config);
    config.groups = &one;
    config.n_groups = 1;
    config.shard = 1;
    config.max_norm = max_norm;
    return rc == TALLY_OK ? tally_optimizer_create(*ddp, NULL, &config, optimizer) : rc;
}

static int train(int rank, struct fault_report *report, void *user)
{
    const struct scene *scene = user;
    const tally_group_config config = fault_config(rank, WORLD, scene->rendezvous, 30, 10);
    tally_optimizer *optimizer = NULL;
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;
    int rc = tally_group_open(&config, &group);

    if (rc == TALLY_OK) {
        rc = make(group, &rank, scene->max_norm, &ddp, &optimizer);
    }
    if (rc != TALLY_OK) {
        fault_complain(report, "cannot begin: %s", tally_last_error());
        return 1;
    }
    while (rc == TALLY_OK && report->n_done < 10) {
        memset(tally_ddp_grad(ddp, 0), 0, N * sizeof(float));
        memset(tally_ddp_grad(ddp, 1), 0, N * sizeof(float));
        rc = tally_ddp_grad_ready(ddp, 1);
        rc = rc == TALLY_OK ? tally_ddp_grad_ready(ddp, 0) : rc;
        rc = rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
        report->n_done += rc == TALLY_OK;
    }
    fault_note_failure(report, rc);
    if (tally_optimizer_free(optimizer) != TALLY_OK || tally_ddp_free(ddp) != TALLY_OK ||
        tally_group_close(group) != TALLY_OK) {
        fault_complain(report, "cannot free: %s", tally_last_error());
    }
    fault_set_milestone(report, FAULT_CLOSED);
    return 0;
}

static void death(double max_norm)
{
    struct scene scene = {.max_norm = max_norm};
    struct fault_crew crew;
    const char *left;

    (void)snprintf(scene.rendezvous, sizeof scene.rendezvous, "@tally-fault-%d-%d", (int)getpid(),
                   (int)max_norm);
    assert_true(fault_crew_run(&crew, WORLD, train, &scene, HANG_S));
    for (int r = 0; r < WORLD; r++) {
        const struct fault_report *report = &crew.report[r];

        assert_string_equal(report->complaint, "");
        if (r != VICTIM) {
            assert_int_equal(report->n_done, 2);
            assert_int_equal(report->failure[0].status, TALLY_PEER);
            assert_true(fault_blames(report->failure[0].text, VICTIM));
            assert_int_equal(crew.member[r].exit_status, 0);
        }
    }
    fault_crew_free(&crew);
    left = fault_leftovers(scene.rendezvous + 1);
    if (left) {
        fail_msg("%s", left);
    }
}

static void on_the_lane(void **state)
{
    (void)state;
    death(0);
}

static void at_the_end(void **state)
{
    (void)state;
    death(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_lane),
        cmocka_unit_test(at_the_end),
    };

    fault_leftovers_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

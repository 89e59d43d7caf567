/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compression error that traces have of PowerSGD: that of matrices of which it is known, in the
 * steps that are measured.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/trace_reader.h"

#define SIDE 32
#define N_REST 8
#define N_STEPS 40
#define START 2
#define MEASURED_EVERY 32

static char folder[] = "/tmp/tally-power-XXXXXX";

struct run {
    const char *name;
    const char *hook;
    bool is_diagonal; /* of rank SIDE; otherwise of rank 1 */
    float rest;       /* every element of the parameter that travels unchanged */
    double expected;  /* the square of the error in the first step that is compressed; -1: none */
    int n_steps;
};

/* The square of the error: of SIDE equal singular values one travels; or all that there is travels;
 * or half of it is in the rest. */
static const struct run runs[] = {
    {"diagonal", "powersgd:start=2,feedback=0", true, 0, 31.0 / 32, 0},
    {"feedback", "powersgd:start=2", true, 0, 31.0 / 32, 0},
    {"wrapped", "bf16(powersgd:start=2,feedback=0)", true, 0, 31.0 / 32, 0},
    {"product", "powersgd:start=2", false, 0, 0, 0},
    {"rest", "powersgd:start=2,feedback=0", true, 2, 31.0 / 64, 0},
    {"exact", "allreduce", true, 0, -1, 0},
};

/* The gradients of a step: the hook has replaced those of the step before by means. */
static void fill(const struct run *run, float *matrix, float *rest)
{
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++) {
        size_t row = i / SIDE;
        size_t column = i % SIDE;

        matrix[i] = run->is_diagonal ? (float)(row == column) : (float)((1 + row) * (1 + column));
    }
    for (size_t i = 0; i < N_REST; i++) {
        rest[i] = run->rest;
    }
}

static int train(tally_group *group, const struct run *run)
{
    static const size_t shape[] = {SIDE, SIDE};
    static const size_t length = N_REST;
    static _Thread_local float values[SIDE * SIDE + N_REST];
    static _Thread_local float grads[SIDE * SIDE + N_REST];
    tally_param params[2] = {{.size = sizeof(tally_param),
                              .name = "matrix",
                              .n_dims = 2,
                              .shape = shape,
                              .dtype = TALLY_F32,
                              .data = values,
                              .grad = grads},
                             {.size = sizeof(tally_param),
                              .name = "rest",
                              .n_dims = 1,
                              .shape = &length,
                              .dtype = TALLY_F32,
                              .data = values + SIDE * SIDE,
                              .grad = grads + SIDE * SIDE}};
    tally_ddp *ddp;

    CHECK_OK(group, tally_ddp_create(group, params, 2, NULL, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, run->hook));
    for (int s = 0; s < N_STEPS; s++) {
        fill(run, grads, grads + SIDE * SIDE);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

static int check_step(tally_group *group, const struct tally__trace_record *record,
                      const unsigned char *payload, void *user)
{
    struct run *run = user;
    struct tally__trace_step step;
    bool is_measured;

    if (record->kind != TALLY__RECORD_STEP) {
        return 0;
    }
    memcpy(&step, payload, sizeof step);
    run->n_steps++;
    is_measured =
        run->expected >= 0 && step.step > START && (step.step - 1 - START) % MEASURED_EVERY == 0;
    if (!is_measured) {
        CHECK(group, step.compression_error < 0);
    } else if (step.step == START + 1) {
        CHECK(group, fabs(step.compression_error - sqrt(run->expected)) < 2e-3);
    } else {
        /* With feedback, this also has what the steps before have left out. */
        CHECK(group, step.compression_error >= 0 && step.compression_error <= 1);
    }
    return 0;
}

static int errors_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct run run = runs[i];
        struct trace trace;
        char name[64];
        char path[80];

        (void)snprintf(name, sizeof name, "%s/%s", folder, run.name);
        (void)snprintf(path, sizeof path, "%s.%d", name, tally_group_rank(group));
        (void)unlink(path);
        CHECK_OK(group, tally_trace_start(group, name, 0));
        CHECK_OK(group, train(group, &run));
        CHECK_OK(group, tally_trace_stop(group));
        CHECK_OK(group, trace_read(group, path, &trace));
        CHECK_OK(group, trace_each(group, &trace, check_step, &run));
        CHECK(group, run.n_steps == N_STEPS);
        free(trace.bytes);
    }
    return 0;
}

static void test_errors(void **state)
{
    (void)state;
    for (int world = 1; world <= 3; world++) {
        const struct ranks ranks = {.kind = RANKS_THREADS, .world = world, .lanes = 1};

        assert_int_equal(ranks_run(&ranks, errors_body, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
    };

    if (!mkdtemp(folder)) {
        return 1;
    }
    return trace_end_in(folder, cmocka_run_group_tests(tests, NULL, NULL));
}

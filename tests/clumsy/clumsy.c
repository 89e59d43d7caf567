/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training programs with one mistake each, for docs/troubleshooting.md: clumsy MISTAKE. A rank
 * prints what a careful program prints, "rank R: STATUS: text", with "ok" for a call that succeeds,
 * and ends with status 0, so that the launcher does not end the others before they have spoken.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clumsy/clumsy.h"

tally_group *group;
tally_ddp *ddp;
struct model model;
static float slope = 0.5f; /* of the loss: what backward writes */

/* All ranks have said what they have to say. */
static void meet(void)
{
    tally_future *future = NULL;

    if (tally_barrier(group, &future) == TALLY_OK) {
        (void)tally_future_wait(future);
    }
    tally_future_free(future);
}

static int is_rank(int rank)
{
    return tally_group_rank(group) == rank;
}

/* The launcher's number of this rank, also without a group. */
static const char *launched_as(void)
{
    const char *rank = getenv("TALLY_RANK");

    rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
    return rank ? rank : "0";
}

/* For mistakes after which a warning is the only text. */
static int says_warnings;

/* Prints a failure; the last thing a rank does about it. */
static void say(int status)
{
    if (status != TALLY_OK) {
        (void)fprintf(stderr, "rank %s: %s: %s\n", launched_as(), tally_status_name(status),
                      tally_last_error());
    }
}

static void say_warning(void *user, int level, const char *text)
{
    (void)user;
    if (says_warnings && level <= TALLY_LOG_WARN) {
        (void)fprintf(stderr, "rank %s: warning: %s\n", launched_as(), text);
    }
}

static void fill_model(void)
{
    static const char *const names[N_PARAMS] = {"wte", "attention.weight", "head.bias"};

    model.shape[0] = 20;
    model.shape[1] = N_ELEMENTS / 20;
    model.n_params = N_PARAMS;
    for (int i = 0; i < N_PARAMS; i++) {
        model.params[i] = (tally_param){.size = sizeof model.params[i],
                                        .name = names[i],
                                        .n_dims = 2,
                                        .shape = model.shape,
                                        .dtype = TALLY_F32,
                                        .data = model.data[i]};
    }
    tally_ddp_config_init(&model.config, sizeof model.config);
}

int create(void)
{
    return tally_ddp_create(group, model.params, model.n_params, &model.config, &ddp);
}

static int backward(void)
{
    for (int i = (int)model.n_params - 1; i >= 0; i--) {
        float *gradient = tally_ddp_grad(ddp, i);
        int status;

        for (int k = 0; k < N_ELEMENTS; k++) {
            gradient[k] = slope;
        }
        status = tally_ddp_grad_ready(ddp, i);
        if (status != TALLY_OK) {
            return status;
        }
    }
    return TALLY_OK;
}

static int take_steps(int n)
{
    for (int step = 0; step < n; step++) {
        int status = backward();

        if (status == TALLY_OK) {
            status = tally_ddp_wait(ddp);
        }
        if (status != TALLY_OK) {
            return status;
        }
    }
    return TALLY_OK;
}

/* create, then steps: what most programs do before and after their mistake. */
int train(int n)
{
    int status = create();

    return status == TALLY_OK ? take_steps(n) : status;
}

/* ---- starting ---- */

static int only_open(void)
{
    void *memory; /* goes with the group */

    return tally_group_alloc(group, (size_t)64 << 20, &memory);
}

static int hook_text(void)
{
    model.config.hook = "powersgd:rnak=2";
    return create();
}

/* ---- describing the model ---- */

static int one_array_twice(void)
{
    model.params[2].data = model.data[0];
    return create();
}

static int same_name(void)
{
    model.params[2].name = "wte";
    return create();
}

static int size_forgotten(void)
{
    model.params[1].size = 0;
    return create();
}

static int fewer_parameters(void)
{
    model.n_params -= (size_t)is_rank(1);
    return create();
}

static int other_shape(void)
{
    static const size_t shape[2] = {30, 20};

    if (is_rank(1)) {
        model.params[1].shape = shape;
    }
    return create();
}

static int other_cap(void)
{
    model.config.bucket_cap_bytes = is_rank(1) ? 4096 : 1 << 20;
    return create();
}

static int other_hook(void)
{
    model.config.hook = is_rank(1) ? "int8" : "bf16";
    return create();
}

/* ---- steps ---- */

static int uneven_steps(void)
{
    return train(is_rank(1) ? 5 : 7);
}

static int forgotten_wait(void)
{
    int status = train(2);

    status = status == TALLY_OK ? backward() : status;
    return status == TALLY_OK ? backward() : status;
}

static int forgotten_gradient(void)
{
    int status = train(2);

    status = status == TALLY_OK ? tally_ddp_grad_ready(ddp, 2) : status;
    status = status == TALLY_OK ? tally_ddp_grad_ready(ddp, 0) : status;
    return status == TALLY_OK ? tally_ddp_wait(ddp) : status;
}

static int wrong_number(void)
{
    int status = create();

    return status == TALLY_OK ? tally_ddp_grad_ready(ddp, N_PARAMS) : status;
}

static int wait_alone(void)
{
    int status = train(1);

    return status == TALLY_OK ? tally_ddp_wait(ddp) : status;
}

static int not_a_number(void)
{
    model.config.hook = "int8";
    slope = is_rank(1) ? NAN : slope;
    return train(1);
}

static int scalar_of_one(void)
{
    double loss = 1;
    int status = train(2);

    if (is_rank(0) && status == TALLY_OK) {
        status = tally_ddp_mean_scalar(ddp, &loss);
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

static int changed_hook(void)
{
    int status = train(2);

    return status == TALLY_OK ? tally_ddp_set_hook(ddp, is_rank(1) ? "int8" : "bf16") : status;
}

static int hook_on_one(void)
{
    int status = train(2);

    if (is_rank(0) && status == TALLY_OK) {
        status = tally_ddp_set_hook(ddp, "bf16");
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

static int no_averager(void)
{
    says_warnings = 1;
    model.config.hook = "postlocal:start=1";
    return train(4);
}

static int close_before_free(void)
{
    int status = train(1);

    return status == TALLY_OK ? tally_group_close(group) : status;
}

/* ---- ranks that leave ---- */

static int early_return(void)
{
    int status = train(2);

    if (is_rank(1)) {
        exit(0); /* without tally_ddp_free and tally_group_close */
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

static int killed(void)
{
    int status = train(2);

    if (is_rank(1)) {
        (void)kill(getpid(), SIGKILL);
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

static int late(void)
{
    int status = train(2);

    if (is_rank(1)) {
        (void)sleep(5);
        (void)take_steps(1); /* it reads different values each time */
        return TALLY_OK;
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

/* Until it is ended. */
static int endless(void)
{
    int status = train(1);

    if (is_rank(0)) {
        (void)printf("trains\n");
        (void)fflush(stdout);
    }
    while (status == TALLY_OK) {
        (void)usleep(10000);
        status = take_steps(1);
    }
    /* The text of a rank depends on which rank ends first. */
    return TALLY_OK;
}

static int alone_in_trouble(void)
{
    int status = train(2);

    if (is_rank(1)) {
        return status; /* its disk is full, say: it frees, closes and ends */
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

static int forked_child(void)
{
    int status = train(1);
    int child_status = 0;

    if (status == TALLY_OK && is_rank(0)) {
        pid_t child = fork();

        if (child == 0) {
            say(tally_ddp_wait(ddp));
            _exit(0);
        }
        (void)waitpid(child, &child_status, 0);
    }
    return status == TALLY_OK ? take_steps(1) : status;
}

/* ---- which ---- */

static const struct mistake {
    const char *name;
    int (*run)(void);
} mistakes[] = {
    {"only-open", only_open},
    {"hook-text", hook_text},
    {"one-array-twice", one_array_twice},
    {"same-name", same_name},
    {"size-forgotten", size_forgotten},
    {"fewer-parameters", fewer_parameters},
    {"other-shape", other_shape},
    {"other-cap", other_cap},
    {"other-hook", other_hook},
    {"uneven-steps", uneven_steps},
    {"forgotten-wait", forgotten_wait},
    {"forgotten-gradient", forgotten_gradient},
    {"wrong-number", wrong_number},
    {"wait-alone", wait_alone},
    {"not-a-number", not_a_number},
    {"scalar-of-one", scalar_of_one},
    {"changed-hook", changed_hook},
    {"hook-on-one", hook_on_one},
    {"no-averager", no_averager},
    {"close-before-free", close_before_free},
    {"early-return", early_return},
    {"killed", killed},
    {"late", late},
    {"endless", endless},
    {"alone-in-trouble", alone_in_trouble},
    {"forked-child", forked_child},
    {"damaged-checkpoint", damaged_checkpoint},
    {"missing-checkpoint", missing_checkpoint},
    {"other-model", other_model},
};

static int run(const char *name)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        if (strcmp(mistakes[i].name, name) == 0) {
            int status = tally_group_open(NULL, &group);

            say(status);
            if (status == TALLY_OK) {
                fill_model();
                status = mistakes[i].run();
                say(status);
                if (status == TALLY_STATE || status == TALLY_ARG) {
                    meet(); /* a mistake of all ranks: none frees what another is still to use */
                }
                (void)tally_ddp_free(ddp);
                (void)tally_group_close(group);
            }
            return 0;
        }
    }
    (void)fprintf(stderr, "clumsy: no mistake is called %s\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    (void)tally_log_set(say_warning, NULL, TALLY_LOG_WARN);
    return argc == 2 ? run(argv[1]) : 2;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a network to read handwritten digits, once with each of several hooks, from the same
 * initial weights, and compares their cost and their results. No rank has images of all digits: of
 * two ranks, one has 0 to 4 and the other 5 to 9. The arithmetic is in digits/digits_net.c; this
 * file shows what tally adds to it. Run it with
 *
 *     tally run -n 2 build/examples/05_digits
 */
#include "examples/digits/digits_net.h"
#include "examples/digits/digits_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tally.h>

enum { N_PARAMS = 2 * DIGITS_LAYERS, TURN = 20 /* steps with one hook before the next hook */ };

struct training {
    struct digits_run *run;
    struct digits_net net;
    tally_ddp *ddp;
    tally_averager *averager; /* of post-local SGD; NULL with other hooks */
    unsigned seed;            /* of the next batch */
};

static struct digit digits[DIGITS_IMAGES];
static struct training trainings[DIGITS_MAX_RUNS];
static int rank, n_ranks;

/* Any failure ends this rank; the other ranks then fail too, and name it. */
static void check(int rc)
{
    if (rc != TALLY_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, tally_status_name(rc), tally_last_error());
        exit(1);
    }
}

/* Creates the ddp. The weights of layer l are parameter 2 l, its biases 2 l + 1. */
static void start(struct training *training, tally_group *group, unsigned seed)
{
    static const char *const names[] = {"w0", "b0", "w1", "b1", "w2", "b2"};
    tally_param params[N_PARAMS];
    tally_ddp_config config;

    training->seed = seed + 4;
    digits_net_start(&training->net, seed);
    for (int i = 0; i < N_PARAMS; i += 2) {
        const struct digits_layer *at = &training->net.layers[i / 2];

        params[i] = (tally_param){sizeof *params, names[i],         2, at->shape, NULL, TALLY_F32,
                                  at->weights,    at->weights_grad, 0};
        params[i + 1] =
            (tally_param){sizeof *params, names[i + 1],    1, at->shape + 1, NULL, TALLY_F32,
                          at->biases,     at->biases_grad, 0};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.hook = training->run->hook;
    config.bucket_cap_bytes = 4096; /* the network is small: one bucket for each layer */
    check(tally_ddp_create(group, params, N_PARAMS, &config, &training->ddp));
    if (training->run->period > 0) {
        const tally_averager_level all = {.period = training->run->period};
        tally_averager_config averages;

        tally_averager_config_init(&averages, sizeof averages);
        averages.levels = &all;
        averages.n_levels = 1;
        averages.warmup = training->run->warmup;
        check(tally_averager_create(training->ddp, &averages, &training->averager));
    }
}

/* One step. All ranks draw the same batch; each has only the images of its digits. */
static void step(struct training *training)
{
    int n = 0, n_right = 0;
    const float scale = (float)n_ranks / DIGITS_BATCH; /* tally_ddp_wait divides by n_ranks */

    for (int s = 0; s < DIGITS_BATCH; s++) {
        const struct digit *digit = &digits[digits_random(&training->seed) % DIGITS_TRAIN];
        if (digit->owner == rank) {
            digits_net_forward(&training->net, n++, digit, scale, &n_right);
        }
    }
    for (int l = DIGITS_LAYERS - 1; l >= 0; l--) {
        digits_net_backward(&training->net, l, n);
        check(tally_ddp_grad_ready(training->ddp, 2 * l + 1)); /* this layer travels */
        check(tally_ddp_grad_ready(training->ddp, 2 * l));     /* while the next is computed */
    }
    check(tally_ddp_wait(training->ddp)); /* all gradients are now the mean over the ranks */
    digits_net_update(&training->net);
    if (training->averager) {
        check(tally_averager_step(training->averager, NULL));
    }
}

/* Trains steps first..end-1. */
static void train(struct training *training, int first, int end)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_averager_stats averages = {.size = sizeof averages};
    struct digits_run *run = training->run;

    for (int k = first; k < end; k++) {
        step(training);
        check(tally_ddp_get_stats(training->ddp, &stats));
        run->each_step_s[k] = stats.forward_s + stats.backward_s + stats.exposed_s;
        run->each_exposed_s[k] = stats.exposed_s;
    }
    if (training->averager) {
        check(tally_averager_get_stats(training->averager, &averages));
    }
    run->bytes = (double)(stats.total_wire_bytes + averages.total_wire_bytes) / end;
}

/* Every rank tests its own network, with images of all digits; the networks should be equal. */
static void finish(struct training *training)
{
    struct digits_run *run = training->run;
    double means[2], loss = 0;
    int n_right = 0;

    if (training->averager) {
        check(tally_averager_average(training->averager));
    }
    for (int k = DIGITS_TRAIN; k < DIGITS_IMAGES; k++) {
        loss += digits_net_forward(&training->net, 0, &digits[k], 0, &n_right) / DIGITS_TEST;
    }
    means[0] = (double)n_right / DIGITS_TEST;
    means[1] = loss;
    check(tally_ddp_mean_scalars(training->ddp, means, 2));
    run->accuracy = means[0];
    run->loss = means[1];
    run->agree = fabs(loss - run->loss) <= 1e-12 * run->loss;
    check(tally_averager_free(training->averager));
    check(tally_ddp_free(training->ddp));
}

int main(int argc, char **argv)
{
    static struct digits_options options;
    tally_group *group;

    if (digits_options(argc, argv, &options) != 0 || digits_load(options.data, digits) != 0) {
        return 2;
    }
    check(tally_group_open(NULL, &group));
    rank = tally_group_rank(group);
    n_ranks = tally_group_size(group);
    digits_deal(digits, n_ranks);
    for (int i = 0; i < options.n_runs; i++) {
        trainings[i].run = &options.runs[i];
        start(&trainings[i], group, (unsigned)options.seed);
    }
    /* The hooks take turns, so that other load on the machine affects all of them equally. */
    for (int done = 0, end; done < options.n_steps; done = end) {
        end = done + TURN < options.n_steps ? done + TURN : options.n_steps;
        for (int i = 0; i < options.n_runs; i++) {
            train(&trainings[i], done, end);
        }
        digits_progress(&options, rank, done, end);
    }
    for (int i = 0; i < options.n_runs; i++) {
        finish(&trainings[i]);
    }
    if (rank == 0) {
        digits_report(&options, n_ranks);
    }
    return tally_group_close(group) != TALLY_OK;
}

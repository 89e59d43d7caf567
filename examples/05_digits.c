/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network learns to read handwritten digits, with one hook after the other from the same start:
 * what does each cost, and what does it do to the result? The arithmetic is in digits/digits_net.c;
 * here is what tally adds to it. Run it with
 *
 *     tally run -n 2 build/examples/05_digits
 */
#include "examples/digits/digits_net.h"
#include "examples/digits/digits_report.h"

#include <math.h>
#include <stdio.h>
#include <tally.h>

enum { N_PARAMS = 2 * DIGITS_LAYERS };

static struct digit digits[DIGITS_IMAGES];
static struct digits_net net;

/* The weights of layer l are parameter 2 l, its biases 2 l + 1. */
static int create_ddp(tally_group *group, const char *hook, tally_ddp **ddp)
{
    static const char *const names[] = {"w0", "b0", "w1", "b1", "w2", "b2"};
    tally_param params[N_PARAMS];
    tally_ddp_config config;

    for (int i = 0; i < N_PARAMS; i += 2) {
        const struct digits_layer *at = &net.layers[i / 2];

        params[i] = (tally_param){sizeof *params, names[i],         2, at->shape, NULL, TALLY_F32,
                                  at->weights,    at->weights_grad, 0};
        params[i + 1] =
            (tally_param){sizeof *params, names[i + 1],    1, at->shape + 1, NULL, TALLY_F32,
                          at->biases,     at->biases_grad, 0};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.bucket_cap_bytes = 4096; /* the network is small: a bucket for each layer */
    return tally_ddp_create(group, params, N_PARAMS, &config, ddp);
}

/* One step on a batch that all ranks draw alike; each computes its part of it. */
static int step(tally_ddp *ddp, int rank, int n_ranks, unsigned *seed)
{
    int first = DIGITS_BATCH * rank / n_ranks, end = DIGITS_BATCH * (rank + 1) / n_ranks;
    int rc = TALLY_OK, n_right = 0;

    for (int s = 0; s < DIGITS_BATCH; s++) {
        const struct digit *digit = &digits[digits_random(seed) % DIGITS_TRAIN];

        if (s >= first && s < end) {
            /* tally takes the mean over the ranks; times their number it is the whole batch's. */
            digits_net_forward(&net, s - first, digit, (float)n_ranks / DIGITS_BATCH, &n_right);
        }
    }
    for (int l = DIGITS_LAYERS - 1; l >= 0 && rc == TALLY_OK; l--) {
        digits_net_backward(&net, l, end - first);
        rc = tally_ddp_grad_ready(ddp, 2 * l + 1); /* this layer travels */
        if (rc == TALLY_OK) {
            rc = tally_ddp_grad_ready(ddp, 2 * l); /* while the next is computed */
        }
    }
    if (rc == TALLY_OK) {
        rc = tally_ddp_wait(ddp);
    }
    digits_net_update(&net);
    return rc;
}

/* Every rank judges its own network, though all should have the same. */
static int evaluate(tally_ddp *ddp, struct digits_run *run)
{
    int n_right = 0;
    double own = 0;

    for (int k = DIGITS_TRAIN; k < DIGITS_IMAGES; k++) {
        own += digits_net_forward(&net, 0, &digits[k], 0, &n_right) / DIGITS_TEST;
    }
    run->accuracy = (double)n_right / DIGITS_TEST;
    run->loss = own;
    int rc = tally_ddp_mean_scalar(ddp, &run->loss);
    double apart = fabs(own - run->loss) <= 1e-12 * run->loss ? 0 : 1;
    if (rc == TALLY_OK) {
        rc = tally_ddp_mean_scalar(ddp, &apart);
    }
    run->agree = apart == 0;
    return rc;
}

static int train(tally_group *group, int n_steps, struct digits_run *run)
{
    static double step_s[DIGITS_MAX_STEPS], exposed_s[DIGITS_MAX_STEPS];
    int rank = tally_group_rank(group), n_ranks = tally_group_size(group);
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp *ddp = NULL;
    unsigned seed = 5;

    digits_net_start(&net);
    int rc = create_ddp(group, run->hook, &ddp);
    for (int k = 0; k < n_steps && rc == TALLY_OK; k++) {
        rc = step(ddp, rank, n_ranks, &seed);
        if (rc == TALLY_OK) {
            rc = tally_ddp_get_stats(ddp, &stats);
        }
        step_s[k] = stats.forward_s + stats.backward_s + stats.exposed_s;
        exposed_s[k] = stats.exposed_s;
        if (rank == 0) {
            digits_progress(run->hook, k + 1, n_steps);
        }
    }
    if (rc == TALLY_OK) {
        rc = evaluate(ddp, run);
        run->step_s = digits_median(step_s, n_steps);
        run->exposed_s = digits_median(exposed_s, n_steps);
        run->bytes = (double)stats.total_wire_bytes / n_steps;
    }
    tally_ddp_free(ddp);
    return rc;
}

int main(int argc, char **argv)
{
    struct digits_options options;
    tally_group *group = NULL;

    if (digits_options(argc, argv, &options) != 0 || digits_load(options.data, digits) != 0) {
        return 2;
    }
    int rc = tally_group_open(NULL, &group);
    for (int i = 0; i < options.n_runs && rc == TALLY_OK; i++) {
        rc = train(group, options.n_steps, &options.runs[i]);
    }
    if (rc != TALLY_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", tally_group_rank(group), tally_status_name(rc),
                tally_last_error());
    } else if (tally_group_rank(group) == 0) {
        digits_report(&options, tally_group_size(group));
    }
    tally_group_close(group);
    return rc != TALLY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small network with two layers, y = w2 . tanh(w1 x), by gradient descent on all ranks:
 * each rank has its part of the batch, and tally computes the mean of the gradients. Then every
 * rank trains the same network alone, on the full batch: both results must agree. Run it with
 *
 *     tally run -n 2 build/examples/03_ddp
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tally.h>

#define SAMPLES 96
#define IN 5 /* the last input is always 1: its weights are a bias */
#define HIDDEN 16
#define STEPS 200
#define RATE 0.2f

/* All parameters. A second struct holds their gradients. */
struct net {
    float w1[HIDDEN][IN], w2[HIDDEN];
};
#define N_FLOATS (sizeof(struct net) / sizeof(float))
enum { W1, W2, N_PARAMS }; /* their numbers in params below */

/* The part of the batch that a rank computes: samples first..end-1, each with this weight. */
struct part {
    int first, end;
    float weight;
    tally_ddp *ddp; /* NULL: train alone */
};

static float inputs[SAMPLES][IN], targets[SAMPLES];

/* Returns a number between -1 and 1; the same seed gives the same numbers on every rank. */
static float next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

static void make_data(unsigned seed)
{
    for (int s = 0; s < SAMPLES; s++) {
        for (int i = 0; i < IN; i++) {
            inputs[s][i] = i < IN - 1 ? next_random(&seed) : 1;
        }
        targets[s] = sinf(3 * inputs[s][0]) + inputs[s][1] * inputs[s][2];
    }
}

/* Runs forward, then backward layer by layer; announces each layer when it is complete. */
static int compute(const struct net *net, struct net *grad, const struct part *part, double *loss)
{
    static float hidden[SAMPLES][HIDDEN], error[SAMPLES];

    *loss = 0;
    memset(grad, 0, sizeof *grad);
    for (int s = part->first; s < part->end; s++) {
        float y = 0;
        for (int h = 0; h < HIDDEN; h++) {
            float sum = 0;
            for (int i = 0; i < IN; i++) {
                sum += net->w1[h][i] * inputs[s][i];
            }
            hidden[s][h] = tanhf(sum);
            y += net->w2[h] * hidden[s][h];
        }
        error[s] = part->weight * (y - targets[s]);
        *loss += (double)(error[s] * (y - targets[s]) / 2);
        for (int h = 0; h < HIDDEN; h++) {
            grad->w2[h] += error[s] * hidden[s][h];
        }
    }
    /* The gradient of the second layer travels while that of the first is computed. */
    int rc = part->ddp ? tally_ddp_grad_ready(part->ddp, W2) : TALLY_OK;
    for (int s = part->first; s < part->end; s++) {
        for (int h = 0; h < HIDDEN; h++) {
            float back = error[s] * net->w2[h] * (1 - hidden[s][h] * hidden[s][h]);
            for (int i = 0; i < IN; i++) {
                grad->w1[h][i] += back * inputs[s][i];
            }
        }
    }
    return part->ddp && rc == TALLY_OK ? tally_ddp_grad_ready(part->ddp, W1) : rc;
}

/* Sets *loss to the loss of the last step, over all ranks. */
static int train(struct net *net, struct net *grad, const struct part *part, double *loss)
{
    int rc = TALLY_OK;

    for (int step = 0; step < STEPS && rc == TALLY_OK; step++) {
        rc = compute(net, grad, part, loss);
        if (part->ddp && rc == TALLY_OK) {
            rc = tally_ddp_wait(part->ddp); /* now grad is the mean over all ranks */
        }
        for (size_t k = 0; k < N_FLOATS && rc == TALLY_OK; k++) {
            ((float *)net)[k] -= RATE * ((float *)grad)[k];
        }
    }
    return part->ddp && rc == TALLY_OK ? tally_ddp_mean_scalar(part->ddp, loss) : rc;
}

int main(void)
{
    static struct net net, grad, alone, alone_grad;
    const tally_param params[N_PARAMS] = {
        {sizeof *params, "w1", 2, (size_t[]){HIDDEN, IN}, NULL, TALLY_F32, net.w1, grad.w1, 0},
        {sizeof *params, "w2", 1, (size_t[]){HIDDEN}, NULL, TALLY_F32, net.w2, grad.w2, 0},
    };
    double loss, alone_loss, difference = 0, largest = 0;
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;
    int rc = tally_group_open(NULL, &group);
    int rank = tally_group_rank(group), size = tally_group_size(group);

    make_data(7);
    unsigned seed = 1 + (unsigned)rank; /* ranks start with different values and get rank 0's */
    for (size_t k = 0; k < N_FLOATS; k++) {
        ((float *)&net)[k] = next_random(&seed) / 2;
    }
    if (rc == TALLY_OK) {
        rc = tally_ddp_create(group, params, N_PARAMS, NULL, &ddp);
    }
    if (rc == TALLY_OK) {
        /* The mean divides by size, so multiply by it: all samples then have the same weight. */
        const struct part mine = {SAMPLES * rank / size, SAMPLES * (rank + 1) / size,
                                  (float)size / SAMPLES, ddp};
        alone = net;
        rc = train(&net, &grad, &mine, &loss);
    }
    if (rc != TALLY_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, tally_status_name(rc), tally_last_error());
        return 1;
    }
    tally_ddp_free(ddp);
    tally_group_close(group);
    train(&alone, &alone_grad, &(struct part){0, SAMPLES, 1.0f / SAMPLES, NULL}, &alone_loss);
    for (size_t k = 0; k < N_FLOATS; k++) {
        double own = ((float *)&alone)[k], off = fabs(((float *)&net)[k] - own);
        difference = off > difference ? off : difference;
        largest = fabs(own) > largest ? fabs(own) : largest;
    }
    printf("rank %d of %d: loss %.7f, alone %.7f; parameters differ by %.1e of the largest\n", rank,
           size, loss, alone_loss, difference / largest);
    return !(fabs(loss - alone_loss) <= 1e-5 * alone_loss && difference <= 1e-5 * largest);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hook of one's own: every rank sends the largest hundredth of its gradient, as pairs of index
 * and value, and keeps the rest for later steps. A least-squares fit with it ends as well as one
 * with the plain mean, for a fraction of the bytes. Run it with
 *
 *     tally run -n 2 build/examples/04_custom_hook
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>

/* ---- the hook ---- */

struct pair {
    unsigned index;
    float value;
};

static int by_size(const void *a, const void *b)
{
    float x = fabsf(((const struct pair *)a)->value), y = fabsf(((const struct pair *)b)->value);
    return (x < y) - (x > y);
}

/* Room for one parameter: n pairs to send, those of all ranks, and how many bytes each sends. */
struct room {
    struct pair *send, *received;
    size_t *bytes;
};

static int reduce_param(tally_lane *lane, const tally_bucket *bucket, int k, struct room room)
{
    size_t n = bucket->params[k].n, n_sent = (n + 99) / 100;
    size_t size = (size_t)tally_group_size(tally_lane_group(lane));
    float *grad = bucket->params[k].gradient, *residual;
    int rc = tally_bucket_residual(bucket, k, &residual);

    if (rc != TALLY_OK) {
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        residual[i] += grad[i]; /* all that this rank owes: this gradient, and what it kept */
        room.send[i] = (struct pair){(unsigned)i, residual[i]};
    }
    qsort(room.send, n, sizeof *room.send, by_size);
    for (size_t i = 0; i < n_sent; i++) {
        residual[room.send[i].index] = 0;
    }
    for (size_t r = 0; r < size; r++) {
        room.bytes[r] = n_sent * sizeof *room.send;
    }
    rc = tally_lane_all_gather(lane, room.send, room.bytes, room.received);
    memset(grad, 0, n * sizeof *grad);
    for (size_t i = 0; i < n_sent * size && rc == TALLY_OK; i++) {
        grad[room.received[i].index] += room.received[i].value / (float)bucket->divisor;
    }
    return rc;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    size_t size = (size_t)tally_group_size(tally_lane_group(lane));
    struct room room = {malloc(bucket->n * sizeof *room.send),
                        malloc((bucket->n / 100 + 1) * size * sizeof *room.received),
                        malloc(size * sizeof *room.bytes)};
    int rc = room.send && room.received && room.bytes ? TALLY_OK : TALLY_NOMEM;

    (void)state;
    for (int k = 0; k < bucket->n_params && rc == TALLY_OK; k++) {
        rc = reduce_param(lane, bucket, k, room);
    }
    free(room.send);
    free(room.received);
    free(room.bytes);
    return rc;
}

static int use_top_k(tally_ddp *ddp)
{
    const tally_hook_table table = {
        .size = sizeof table, .name = "top_k", .feedback = 1, .reduce = reduce};
    tally_hook *hook = NULL;
    int rc = tally_hook_create(&table, NULL, &hook);

    if (rc == TALLY_OK) {
        rc = tally_ddp_attach_hook(ddp, hook);
    }
    tally_hook_free(hook); /* the ddp has a hold of its own */
    return rc;
}

/* ---- a fit with it ---- */

#define WEIGHTS 400
#define SAMPLES 1200 /* of each rank */
#define STEPS 600
#define RATE 0.05f

static float inputs[SAMPLES][WEIGHTS], targets[SAMPLES], weights[WEIGHTS];

/* Between -1 and 1. */
static float next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

static void make_data(unsigned seed)
{
    for (int s = 0; s < SAMPLES; s++) {
        targets[s] = next_random(&seed); /* no fit gets rid of this */
        for (int i = 0; i < WEIGHTS; i++) {
            inputs[s][i] = next_random(&seed);
            targets[s] += inputs[s][i] * (i % 10 == 0 ? 1.0f : 0.01f);
        }
    }
}

/* Adds the gradient of the mean loss to grad; returns the loss. */
static double compute(float *grad)
{
    double loss = 0;

    for (int s = 0; s < SAMPLES; s++) {
        float error = -targets[s];
        for (int i = 0; i < WEIGHTS; i++) {
            error += weights[i] * inputs[s][i];
        }
        loss += (double)(error * error / 2) / SAMPLES;
        for (int i = 0; i < WEIGHTS; i++) {
            grad[i] += error * inputs[s][i] / SAMPLES;
        }
    }
    return loss;
}

/* Starts from zeros; leaves the loss of the last step over all ranks. */
static int train(tally_ddp *ddp, double *loss)
{
    float *grad = tally_ddp_grad(ddp, 0);
    int rc = TALLY_OK;

    memset(weights, 0, sizeof weights);
    for (int step = 0; step < STEPS && rc == TALLY_OK; step++) {
        memset(grad, 0, sizeof weights);
        *loss = compute(grad);
        rc = tally_ddp_grad_ready(ddp, 0);
        rc = rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
        for (int i = 0; i < WEIGHTS && rc == TALLY_OK; i++) {
            weights[i] -= RATE * grad[i];
        }
    }
    return rc == TALLY_OK ? tally_ddp_mean_scalar(ddp, loss) : rc;
}

int main(void)
{
    const tally_param param = {.size = sizeof param,
                               .name = "weights",
                               .n_dims = 1,
                               .shape = (size_t[]){WEIGHTS},
                               .dtype = TALLY_F32,
                               .data = weights};
    tally_ddp_stats plain = {.size = sizeof plain}, sparse = {.size = sizeof sparse};
    double plain_loss, sparse_loss;
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;

    if (tally_group_open(NULL, &group) != TALLY_OK) {
        goto failed;
    }
    make_data(1 + (unsigned)tally_group_rank(group));
    if (tally_ddp_create(group, &param, 1, NULL, &ddp) != TALLY_OK ||
        train(ddp, &plain_loss) != TALLY_OK || tally_ddp_get_stats(ddp, &plain) != TALLY_OK ||
        use_top_k(ddp) != TALLY_OK || train(ddp, &sparse_loss) != TALLY_OK ||
        tally_ddp_get_stats(ddp, &sparse) != TALLY_OK) {
        goto failed;
    }
    printf(
        "rank %d of %d: loss %.4f with %llu bytes per step; with all of them, %llu, it is %.4f\n",
        sparse.rank, sparse.world, sparse_loss, sparse.wire_bytes, plain.wire_bytes, plain_loss);
    tally_ddp_free(ddp);
    tally_group_close(group);
    return !(fabs(sparse_loss - plain_loss) <= 0.05 * plain_loss);

failed:
    fprintf(stderr, "tally: %s\n", tally_last_error());
    return 1;
}

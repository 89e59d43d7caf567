/* SPDX-License-Identifier: Apache-2.0 */
/* Your own hook: every rank sends the largest hundredth of its gradient, as pairs of index and
 * value, and keeps the rest for later steps. Run it with `tally run -n 2`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tally_extend.h>

#define N 1000 /* weights */
#define K 10   /* values that travel */
#define MOST_RANKS 64

struct top_k {
    struct pair {
        int index;
        float value;
    } pairs[N], received[K * MOST_RANKS];
    size_t bytes[MOST_RANKS];
};

static int by_size(const void *a, const void *b)
{
    float x = fabsf(((const struct pair *)a)->value), y = fabsf(((const struct pair *)b)->value);
    return (x < y) - (x > y);
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct top_k *top = state;
    int n_ranks = tally_group_size(tally_lane_group(lane));
    float *grad = bucket->data, *residual;
    int rc = tally_bucket_residual(bucket, 0, &residual);

    if (n_ranks > MOST_RANKS) {
        return tally_job_fail(lane, TALLY_UNSUPPORTED, "top_k: too many ranks");
    }
    for (int i = 0; i < N && rc == TALLY_OK; i++) {
        residual[i] += grad[i]; /* this gradient, and what was kept before */
        top->pairs[i] = (struct pair){i, residual[i]};
        grad[i] = 0;
    }
    qsort(top->pairs, N, sizeof *top->pairs, by_size);
    for (int i = 0; i < K && rc == TALLY_OK; i++) {
        residual[top->pairs[i].index] = 0;
    }
    for (int r = 0; r < n_ranks; r++) {
        top->bytes[r] = K * sizeof *top->pairs;
    }
    rc = rc ? rc : tally_lane_all_gather(lane, top->pairs, top->bytes, top->received);
    for (int i = 0; i < K * n_ranks && rc == TALLY_OK; i++) {
        grad[top->received[i].index] += top->received[i].value / (float)bucket->divisor;
    }
    return rc;
}

int main(void) /* each rank pulls a weight to a different value; it converges to their mean */
{
    static float w[N];
    static struct top_k top;
    const tally_param param = {sizeof param, "w", 1, (size_t[]){N}, NULL, TALLY_F32, w, NULL, 0};
    const tally_hook_table table = {
        .size = sizeof table, .name = "top_k", .feedback = 1, .reduce = reduce};
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_group *group = NULL;
    tally_hook *hook = NULL;
    tally_ddp *ddp = NULL;
    int rc = tally_group_open(NULL, &group), n_ranks = tally_group_size(group);
    float worst = 0;

    rc = rc ? rc : tally_ddp_create(group, &param, 1, NULL, &ddp);
    rc = rc ? rc : tally_hook_create(&table, &top, &hook);
    rc = rc ? rc : tally_ddp_attach_hook(ddp, hook);
    for (int step = 0; step < 6000 && rc == TALLY_OK; step++) {
        float *grad = tally_ddp_grad(ddp, 0);
        for (int i = 0; i < N; i++) {
            grad[i] = w[i] - (float)(i % 7 + tally_group_rank(group));
        }
        rc = tally_ddp_grad_ready(ddp, 0);
        rc = rc ? rc : tally_ddp_wait(ddp);
        for (int i = 0; i < N && rc == TALLY_OK; i++) {
            w[i] -= 0.002f * grad[i];
        }
    }
    for (int i = 0; i < N; i++) {
        float off = fabsf(w[i] - (float)(i % 7) - (float)(n_ranks - 1) / 2);
        worst = off > worst ? off : worst;
    }
    rc = rc ? rc : tally_ddp_get_stats(ddp, &stats);
    printf("%s: off by %.3f at most, with %llu bytes per step instead of %zu\n",
           rc ? tally_last_error() : "done", (double)worst, stats.wire_bytes, sizeof w);
    tally_hook_free(hook);
    tally_ddp_free(ddp);
    tally_group_close(group);
    return rc != TALLY_OK || worst > 0.1f;
}

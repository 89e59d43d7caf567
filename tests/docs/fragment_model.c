/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fragment_model.h. Parameters look for places that differ from rank to rank; their mean is one
 * half everywhere. One thread.
 */
#include "fragment_model.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 15

tally_group *group;
tally_ddp *ddp;
tally_optimizer *optimizer;
tally_param params[N_MODEL_PARAMS];
size_t n = N_MODEL_PARAMS;
double loss;
int n_steps = 3;

static const char *const names[] = {"w0", "b0", "w1", "b1", "w2", "b2"};
static const size_t shapes[][2] = {{3, 5}, {5, 0}, {5, 3}, {3, 0}, {3, 2}, {2, 0}};
static float values[N_MODEL_PARAMS][LARGEST];
static double forward_loss;

static size_t elements(size_t i)
{
    return shapes[i][0] * (shapes[i][1] ? shapes[i][1] : 1);
}

void expect(int holds, const char *condition, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
        exit(1);
    }
}

void make_ddp(const tally_ddp_config *config)
{
    for (size_t i = 0; i < n; i++) {
        memset(values[i], 0, sizeof values[i]);
    }
    if (config) {
        tally_ddp_create(group, params, n, config, &ddp);
    } else {
        tally_ddp_create(group, params, n, NULL, &ddp);
    }
}

void free_ddp(void)
{
    tally_ddp_free(ddp);
    ddp = NULL;
}

double distance(void)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < elements(i); k++) {
            sum += fabs((double)values[i][k] - 0.5);
        }
    }
    return sum;
}

void forward(void)
{
    forward_loss = 1 + distance();
    loss = forward_loss;
}

/* As the ddp wants the gradient: fp32, or bf16 with what does not fit cut off. */
static void put(void *gradient, size_t k, int low, float value)
{
    uint32_t bits;

    if (!low) {
        ((float *)gradient)[k] = value;
        return;
    }
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)gradient)[k] = (uint16_t)(bits >> 16);
}

void backward(void)
{
    double apart = tally_group_rank(group) - (tally_group_size(group) - 1) / 2.0;
    double factor = forward_loss > 0 ? loss / forward_loss : 1;

    for (int i = (int)n - 1; i >= 0; i--) {
        void *gradient = tally_ddp_grad(ddp, i);

        for (size_t k = 0; k < elements((size_t)i); k++) {
            double error = (double)values[i][k] - (0.5 + 0.1 * apart);
            put(gradient, k, tally_ddp_low(ddp, i) != NULL, (float)(error * factor));
        }
        tally_ddp_grad_ready(ddp, i);
    }
}

void update(void)
{
    for (int i = 0; i < (int)n; i++) {
        const float *mean = tally_ddp_mean(ddp, i);

        for (size_t k = 0; k < elements((size_t)i); k++) {
            values[i][k] -= 0.1f * mean[k];
        }
    }
}

double schedule(int step)
{
    return 3e-4 / (1 + step);
}

int main(void)
{
    for (size_t i = 0; i < n; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = shapes[i][1] ? 2 : 1,
                                  .shape = shapes[i],
                                  .dtype = TALLY_F32,
                                  .data = values[i]};
    }
    tally_group_open(NULL, &group);
    run_fragments();
    printf("rank %d of %d: done\n", tally_group_rank(group), tally_group_size(group));
    tally_group_close(group);
    return 0;
}

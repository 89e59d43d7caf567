/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_checkpoint DIR WORLD: saves a checkpoint for the readers in read_safetensors.py, and prints
 * every parameter as it is in memory: name, dtype, shape, and the bits of its elements in row-major
 * order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ckpt_run.h"

static void print_param(const tally_param *param)
{
    static const char *const dtypes[] = {"F32", "F64", "F16", "BF16"};
    size_t bytes = tally_dtype_bytes(param->dtype);
    size_t n = 1;

    for (const char *c = param->name; *c; c++) {
        printf("%02x", (unsigned)(unsigned char)*c);
    }
    printf(" %s", dtypes[param->dtype]);
    for (int d = 0; d < param->n_dims; d++) {
        printf("%s%zu", d == 0 ? " " : ",", param->shape[d]);
        n *= param->shape[d];
    }
    printf("%s :", param->n_dims == 0 ? " -" : "");
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        size_t left = i;
        unsigned long long bits = 0;

        for (int d = param->n_dims - 1; d >= 0; d--) {
            at += left % param->shape[d] * param->strides[d];
            left /= param->shape[d];
        }
        memcpy(&bits, (const char *)param->data + at * bytes, bytes);
        printf(" %llx", bits);
    }
    printf("\n");
}

static int body(tally_group *group, void *user)
{
    static const struct ckpt_setup setup = {.hook = "int8", .optimizer = "adamw", .shard = true};
    struct ckpt_run *run = malloc(sizeof *run);

    CHECK(group, run && ckpt_start(group, &setup, run) == 0);
    CHECK(group, ckpt_steps(run, 3) == 0);
    CHECK_OK(group, ckpt_save(run, user));
    for (int i = 0; tally_group_rank(group) == 0 && i < CKPT_N_PARAMS; i++) {
        print_param(&run->params[i]);
    }
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

int main(int argc, char **argv)
{
    struct ranks ranks = {.kind = RANKS_THREADS, .lanes = 1};

    if (argc != 3) {
        return 2;
    }
    ranks.world = atoi(argv[2]); // NOLINT: a wrong number is 0, which ranks_run refuses
    return ranks_run(&ranks, body, argv[1]) != 0;
}

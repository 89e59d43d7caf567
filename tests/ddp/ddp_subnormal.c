/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is compiled twice, with -O2 and with -Ofast, which flushes subnormal numbers to
 * zero in all its threads. Two ranks take the mean of subnormal gradients of every dtype, as views
 * and as copies, and clip them. The first line says whether this program flushes; what follows, the
 * bits of the gradients on both ranks, must not depend on it. Sees the public header only.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>

#define WORLD 2
#define N 4
#define COUNT 3000
#define N_SHOWN 16

struct rank {
    tally_group *group;
    int copies;
    int failed;
    pthread_t thread;
    tally_param params[N];
    unsigned char shown[2][N][N_SHOWN * 8];
    uint64_t hash[2][N];
};

static const char *const names[N] = {"f32", "f64", "f16", "bf16"};

/* Subnormal numbers by their bits: arithmetic would flush them. */
static void fill(int dtype, int rank, void *grad)
{
    static const uint64_t mask[N] = {0x7fffff, 0xfffffffffffff, 0x3ff, 0x7f};
    static const int sign_bit[N] = {31, 63, 15, 15};
    size_t bytes = tally_dtype_bytes(dtype);
    uint64_t state = (uint64_t)rank * 77 + 5;

    for (size_t e = 0; e < COUNT; e++) {
        uint64_t bits;

        state = state * 6364136223846793005u + 1442695040888963407u;
        bits = state >> 11 & mask[dtype];
        bits |= (state >> 5 & 1) << sign_bit[dtype];
        memcpy((unsigned char *)grad + e * bytes, &bits, bytes);
    }
}

static void note(struct rank *rank, int when, int dtype, const unsigned char *grad)
{
    size_t bytes = tally_dtype_bytes(dtype);
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t b = 0; b < COUNT * bytes; b++) {
        hash = (hash ^ grad[b]) * 0x100000001b3u;
    }
    rank->hash[when][dtype] = hash;
    memcpy(rank->shown[when][dtype], grad, N_SHOWN * bytes);
}

static int train(struct rank *rank)
{
    int number = tally_group_rank(rank->group);
    double norm = 0;
    tally_ddp *ddp;
    int rc = tally_ddp_create(rank->group, rank->params, N, NULL, &ddp);

    if (rc != TALLY_OK) {
        return rc;
    }
    for (int i = N - 1; i >= 0 && rc == TALLY_OK; i--) {
        fill(i, number, tally_ddp_grad(ddp, i));
        rc = tally_ddp_grad_ready(ddp, i);
    }
    if (rc == TALLY_OK) {
        rc = tally_ddp_wait(ddp);
    }
    for (int i = 0; i < N; i++) {
        note(rank, 0, i, tally_ddp_grad(ddp, i));
    }
    if (rc == TALLY_OK) {
        rc = tally_ddp_clip_grad_norm(ddp, 1e-5, &norm);
    }
    for (int i = 0; i < N; i++) {
        note(rank, 1, i, tally_ddp_grad(ddp, i));
    }
    return rc == TALLY_OK ? tally_ddp_free(ddp) : rc;
}

static void *rank_main(void *argument)
{
    static const size_t shape[] = {COUNT};
    struct rank *rank = argument;
    tally_param *params = rank->params;

    for (int i = 0; i < N; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = 1,
                                  .shape = shape,
                                  .dtype = i,
                                  .data = calloc(COUNT, 8),
                                  .grad = rank->copies ? calloc(COUNT, 8) : NULL};
    }
    rank->failed = train(rank) != TALLY_OK;
    if (rank->failed) {
        (void)fprintf(stderr, "%s\n", tally_last_error());
    }
    for (int i = 0; i < N; i++) {
        free(params[i].data);
        free(params[i].grad);
    }
    return NULL;
}

static void print(const struct rank *rank, int number)
{
    for (int when = 0; when < 2; when++) {
        for (int i = 0; i < N; i++) {
            (void)printf("rank %d %s %s %s %016llx", number, rank->copies ? "copy" : "view",
                         names[i], when ? "clipped" : "mean",
                         (unsigned long long)rank->hash[when][i]);
            for (size_t b = 0; b < N_SHOWN * tally_dtype_bytes(i); b++) {
                (void)printf("%s%02x", b % tally_dtype_bytes(i) ? "" : " ",
                             (unsigned)rank->shown[when][i][b]);
            }
            (void)printf("\n");
        }
    }
}

static int flushes(void)
{
    volatile float small = 0x1p-126f;
    volatile float half = small * 0.5f;
    float result = half;
    uint32_t bits;

    memcpy(&bits, &result, sizeof bits);
    return bits == 0;
}

static int run(int copies)
{
    static struct rank ranks[WORLD];
    tally_group *groups[WORLD];
    int failed = 0;

    if (tally_group_open_threads(NULL, WORLD, groups) != TALLY_OK) {
        return 1;
    }
    for (int r = 0; r < WORLD; r++) {
        memset(&ranks[r], 0, sizeof ranks[r]);
        ranks[r].group = groups[r];
        ranks[r].copies = copies;
        if (pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]) != 0) {
            return 1;
        }
    }
    for (int r = 0; r < WORLD; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
        failed |= ranks[r].failed;
        print(&ranks[r], r);
    }
    for (int r = 0; r < WORLD; r++) {
        failed |= tally_group_close(groups[r]) != TALLY_OK;
    }
    return failed;
}

int main(void)
{
    (void)printf("flushes %d\n", flushes());
    return run(0) || run(1);
}

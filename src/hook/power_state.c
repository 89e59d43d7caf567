/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD's state for a checkpoint: the number of steps, and every Q. It is the same on all ranks,
 * so all load rank 0's. Application threads enter, between steps.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "hook/power.h"
#include "num/num.h"

uint64_t tally__power_steps(const struct tally__power *power)
{
    return power->n_steps + (power->running ? power->last_step + 1 - power->first_step : 0);
}

/* ---- checkpoints: n_steps, how many matrices; per matrix its parameter, its shape, its Q ---- */

struct entry {
    uint64_t param;
    uint64_t n;
    uint64_t m;
    uint64_t r;
    uint64_t size;
};

static size_t q_bytes(const struct tally__low_rank *shape)
{
    return shape->m * shape->r * sizeof(float);
}

int tally__power_save(void *state, void *blob, size_t *bytes)
{
    struct tally__power *power = state;
    uint64_t head[2] = {tally__power_steps(power), 0};
    size_t used = sizeof head;
    unsigned char *to = blob;

    for (size_t i = 0; i < power->n_params; i++) {
        const struct tally__power_matrix *matrix = &power->matrices[i];
        const struct tally__low_rank *shape = &matrix->shape;
        const struct entry entry = {i, shape->n, shape->m, shape->r, shape->size};

        if (!matrix->q || !power->options.warm_start) {
            continue;
        }
        if (to) {
            memcpy(to + used, &entry, sizeof entry);
            memcpy(to + used + sizeof entry, matrix->q, q_bytes(shape));
        }
        used += sizeof entry + q_bytes(shape);
        head[1]++;
    }
    if (to) {
        memcpy(to, head, sizeof head);
    }
    *bytes = used;
    return TALLY_OK;
}

/* One matrix of a blob: its Q, copied. */
static int take_matrix(const struct entry *entry, const unsigned char *q,
                       struct tally__power_matrix *matrix)
{
    size_t q_count = (size_t)(entry->m * entry->r);

    matrix->shape = (struct tally__low_rank){(size_t)entry->n, (size_t)entry->m, (size_t)entry->r,
                                             (size_t)entry->size};
    if (matrix->q) {
        return tally__fail(TALLY_ARG, "PowerSGD's state has parameter %llu twice",
                           (unsigned long long)entry->param);
    }
    matrix->q = tally__alloc(q_bytes(&matrix->shape), "PowerSGD's state");
    if (!matrix->q) {
        return TALLY_NOMEM;
    }
    memcpy(matrix->q, q, q_bytes(&matrix->shape));
    if (tally__find_nonfinite_f32(q_count, matrix->q) < q_count) {
        return tally__fail(TALLY_ARG, "PowerSGD's state of parameter %llu is not finite",
                           (unsigned long long)entry->param);
    }
    return TALLY_OK;
}

/* All matrices of a blob, of which head has been read. */
static int take_matrices(const unsigned char *from, size_t left, uint64_t n, size_t n_params,
                         struct tally__power_matrix *matrices)
{
    for (uint64_t k = 0; k < n; k++) {
        struct entry entry;
        size_t bytes;

        if (left < sizeof entry) {
            return tally__fail(TALLY_ARG, "PowerSGD's state ends early");
        }
        memcpy(&entry, from, sizeof entry);
        from += sizeof entry;
        left -= sizeof entry;
        /* So that the product cannot overflow. */
        if (entry.param >= n_params || entry.m == 0 || entry.r == 0 ||
            entry.m > left / sizeof(float) / entry.r) {
            return tally__fail(TALLY_ARG, "PowerSGD's state is not that of these parameters");
        }
        TRY(take_matrix(&entry, from, &matrices[entry.param]));
        bytes = q_bytes(&matrices[entry.param].shape);
        from += bytes;
        left -= bytes;
    }
    return left == 0 ? TALLY_OK : tally__fail(TALLY_ARG, "PowerSGD's state is too long");
}

static void clear_matrices(struct tally__power_matrix *matrices, size_t n)
{
    for (size_t i = 0; matrices && i < n; i++) {
        tally__power_matrix_clear(&matrices[i]);
    }
    tally__free(matrices);
}

int tally__power_load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct tally__power *power = state;
    /* Ranks that exchanged in groups have different Q. */
    const tally_hook_blob *blob = &blobs[n_blobs == power->n_ranks ? power->own_rank : 0];
    struct tally__power_matrix *matrices;
    uint64_t head[2];
    int rc;

    if (blob->bytes < sizeof head) {
        return tally__fail(TALLY_ARG, "PowerSGD's state is too short");
    }
    memcpy(head, blob->data, sizeof head);
    matrices = tally__alloc_array(power->n_params, sizeof *matrices, "PowerSGD's state");
    if (!matrices) {
        return TALLY_NOMEM;
    }
    rc = take_matrices((const unsigned char *)blob->data + sizeof head, blob->bytes - sizeof head,
                       head[1], power->n_params, matrices);
    if (rc != TALLY_OK) {
        clear_matrices(matrices, power->n_params);
        return rc;
    }
    clear_matrices(power->matrices, power->n_params);
    power->matrices = matrices;
    /* The next step makes them again and finds the residuals. */
    for (size_t i = 0; i < power->n_params; i++) {
        tally__power_plan_clear(&power->plans[i]);
    }
    power->n_steps = head[0];
    power->running = false;
    return TALLY_OK;
}

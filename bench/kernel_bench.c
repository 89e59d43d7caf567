/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the kernel bench: makes the arrays, checks each kernel against the reference, then
 * times it and memcpy in turn, so that both see the same machine. One thread.
 */
#include "bench/kernel_bench.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/kernel_cases.h"
#include "bench/timing.h"

#define BLOCK TALLY__BLOCK_DEFAULT
/*
 * The most bytes per element that memcpy moves: half of what the largest kernel reads and writes.
 */
#define COPY_BYTES 24
#define MIN_SAMPLES 11
#define MAX_SAMPLES 201
#define MIN_TIME_NS (TALLY__NS_PER_SECOND / 5)

struct workspace {
    struct kernel_arrays arrays;
    size_t n_blocks;
    void *copy_to;     /* memcpy's destination, COPY_BYTES per element */
    void *expected[2]; /* the reference's outputs */
    struct tally__affine *expected_affine;
    float *expected_scale;
};

/* Every block of the workspace: pointer, elements, bytes per element. */
struct block {
    void *slot;
    size_t count;
    size_t size;
};

#define N_BLOCKS_MAX 32

static size_t list_blocks(struct workspace *w, struct block *list)
{
    struct kernel_arrays *a = &w->arrays;
    size_t count = 0;

    for (int i = 0; i < 2; i++) {
        list[count++] = (struct block){&a->f32[i], a->n, sizeof *a->f32[i]};
        list[count++] = (struct block){&a->f64[i], a->n, sizeof *a->f64[i]};
        list[count++] = (struct block){&a->f16[i], a->n, sizeof *a->f16[i]};
        list[count++] = (struct block){&a->bf16[i], a->n, sizeof *a->bf16[i]};
        list[count++] = (struct block){&a->i32[i], a->n, sizeof *a->i32[i]};
        list[count++] = (struct block){&a->i64[i], a->n, sizeof *a->i64[i]};
        list[count++] = (struct block){&a->u8[i], a->n, sizeof *a->u8[i]};
        list[count++] = (struct block){&a->out[i], a->n, 8};
        list[count++] = (struct block){&w->expected[i], a->n, 8};
    }
    list[count++] = (struct block){&a->affine, w->n_blocks, sizeof *a->affine};
    list[count++] = (struct block){&a->affine_out, w->n_blocks, sizeof *a->affine};
    list[count++] = (struct block){&w->expected_affine, w->n_blocks, sizeof *a->affine};
    /* Two more: minmax_f32 puts its two results here, however few blocks there are. */
    list[count++] = (struct block){&a->scale, w->n_blocks + 2, sizeof *a->scale};
    list[count++] = (struct block){&a->scale_out, w->n_blocks + 2, sizeof *a->scale};
    list[count++] = (struct block){&w->expected_scale, w->n_blocks + 2, sizeof *a->scale};
    list[count++] = (struct block){&w->copy_to, a->n, COPY_BYTES};
    return count;
}

static void free_workspace(struct workspace *w)
{
    struct block list[N_BLOCKS_MAX];
    size_t count = list_blocks(w, list);

    for (size_t i = 0; i < count; i++) {
        void *block;

        memcpy(&block, list[i].slot, sizeof block);
        tally__free(block);
    }
}

/* Evenly spread over -1..1, the same on every run. */
static float next_value(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

static void fill_inputs(struct workspace *w)
{
    struct kernel_arrays *a = &w->arrays;
    const struct tally__kernels *ref = tally__isas[0].kernels;
    uint32_t state = 1;

    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < a->n; j++) {
            float value = next_value(&state);

            a->f32[i][j] = value;
            a->f64[i][j] = (double)value;
            a->i32[i][j] = (int32_t)state;
            a->i64[i][j] = (int64_t)state << 20;
            a->u8[i][j] = (uint8_t)(state >> 24);
        }
        ref->f32_to_f16(a->n, a->f32[i], a->f16[i]);
        ref->f32_to_bf16(a->n, a->f32[i], a->bf16[i]);
    }
    for (size_t i = 0; i < w->n_blocks; i++) {
        a->affine[i] = tally__affine_of(BLOCK, -1.0f, 1.0f / (float)(i % 7 + 1));
        a->scale[i] = 1.0f / 127 / (float)(i % 5 + 1);
    }
}

static int make_workspace(size_t data_bytes, struct workspace *w)
{
    struct block list[N_BLOCKS_MAX];
    size_t count;

    *w = (struct workspace){.arrays.n = data_bytes / sizeof(float)};
    w->n_blocks = (w->arrays.n + BLOCK - 1) / BLOCK;
    count = list_blocks(w, list);
    for (size_t i = 0; i < count; i++) {
        void *block = tally__alloc_array(list[i].count, list[i].size, "the kernel bench");

        if (!block) {
            free_workspace(w);
            return TALLY_NOMEM;
        }
        memcpy(list[i].slot, &block, sizeof block);
    }
    fill_inputs(w);
    return TALLY_OK;
}

/* Runs the case once on outputs that all runs find alike. */
static void run_fresh(const struct kernel_case *c, const struct tally__isa *isa,
                      struct workspace *w)
{
    struct kernel_arrays *a = &w->arrays;

    for (int i = 0; i < 2; i++) {
        memset(a->out[i], 0, a->n * 8);
    }
    memset(a->affine_out, 0, w->n_blocks * sizeof *a->affine_out);
    memset(a->scale_out, 0, (w->n_blocks + 2) * sizeof *a->scale_out);
    a->value_out = 0;
    c->run(isa, a);
}

static void keep_expected(struct workspace *w)
{
    struct kernel_arrays *a = &w->arrays;

    for (int i = 0; i < 2; i++) {
        memcpy(w->expected[i], a->out[i], a->n * 8);
    }
    memcpy(w->expected_affine, a->affine_out, w->n_blocks * sizeof *a->affine_out);
    memcpy(w->expected_scale, a->scale_out, (w->n_blocks + 2) * sizeof *a->scale_out);
}

static bool same_as_expected(const struct workspace *w)
{
    const struct kernel_arrays *a = &w->arrays;
    size_t affine_bytes = w->n_blocks * sizeof *a->affine_out;
    size_t scale_bytes = (w->n_blocks + 2) * sizeof *a->scale_out;

    return memcmp(w->expected[0], a->out[0], a->n * 8) == 0 &&
           memcmp(w->expected[1], a->out[1], a->n * 8) == 0 &&
           memcmp(w->expected_affine, a->affine_out, affine_bytes) == 0 &&
           memcmp(w->expected_scale, a->scale_out, scale_bytes) == 0;
}

static int verify(const struct kernel_case *c, const struct tally__isa *isa, struct workspace *w)
{
    double expected_value;

    run_fresh(c, &tally__isas[0], w);
    expected_value = w->arrays.value_out;
    keep_expected(w);
    run_fresh(c, isa, w);
    if (!same_as_expected(w) || w->arrays.value_out != expected_value) {
        return tally__fail(TALLY_INTERNAL, "%s on %s differs from the reference", c->name,
                           isa->name);
    }
    return TALLY_OK;
}

/* A memcpy of bytes from the largest inputs, one after the other. */
static void copy(const struct workspace *w, size_t bytes)
{
    const struct kernel_arrays *a = &w->arrays;
    const void *from[] = {a->f64[0], a->f64[1], a->i64[0]};
    size_t most = a->n * sizeof(double);

    for (size_t i = 0; i < sizeof from / sizeof from[0] && i * most < bytes; i++) {
        size_t left = bytes - i * most;

        memcpy((char *)w->copy_to + i * most, from[i], left < most ? left : most);
    }
    /* The copy must happen although nobody reads it. */
    __asm__ volatile("" : : "r"(w->copy_to) : "memory");
}

static struct kernel_result measure(const struct kernel_case *c, const struct tally__isa *isa,
                                    struct workspace *w)
{
    double kernel_us[MAX_SAMPLES];
    double memcpy_us[MAX_SAMPLES];
    size_t bytes = w->arrays.n * (c->read_bytes + c->write_bytes);
    struct kernel_result result = {.kernel = c->name, .isa = isa->name, .bytes = bytes};
    uint64_t start = tally__now_ns();
    size_t n = 0;

    while (n < MIN_SAMPLES || (n < MAX_SAMPLES && tally__now_ns() - start < MIN_TIME_NS)) {
        uint64_t t0 = tally__now_ns();
        uint64_t t1;

        c->run(isa, &w->arrays);
        t1 = tally__now_ns();
        copy(w, bytes / 2);
        memcpy_us[n] = (double)(tally__now_ns() - t1) * 1e-3;
        kernel_us[n] = (double)(t1 - t0) * 1e-3;
        n++;
    }
    result.us = bench_quantile(kernel_us, n, 0.5);
    result.memcpy_us = bench_quantile(memcpy_us, n, 0.5);
    result.gbps = (double)bytes / result.us * 1e-3;
    result.memcpy_ratio = result.us / result.memcpy_us;
    result.goal = c->goal;
    return result;
}

static int find_case(const char *name)
{
    char names[TALLY__ERROR_BYTES * 3 / 4] = "";
    const struct kernel_case *c;
    size_t used = 0;

    for (size_t i = 0; (c = kernel_case_at(i)); i++) {
        if (strcmp(name, c->name) == 0) {
            return TALLY_OK;
        }
        if (used < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, " %s", c->name);
        }
    }
    return tally__fail(TALLY_ARG, "unknown kernel '%s'; accepted:%s", name, names);
}

/* The instruction sets to measure: all usable ones, or the one TALLY_ISA names. */
static int choose_isas(const struct tally__isa **isas, size_t *n)
{
    const char *forced = NULL;
    size_t count = 0;

    TRY(tally__num_start());
    TRY(tally__env_choice(TALLY__ENV_ISA, &forced));
    for (size_t i = 0; i < tally__n_isas; i++) {
        const struct tally__isa *isa = &tally__isas[i];

        if (isa->usable() && (strcmp(forced, "auto") == 0 || strcmp(forced, isa->name) == 0)) {
            isas[count++] = isa;
        }
    }
    *n = count;
    return TALLY_OK;
}

int kernel_bench_run(const struct kernel_bench *bench)
{
    const struct tally__isa *isas[8];
    const struct kernel_case *c;
    struct workspace w;
    size_t n_isas;
    int rc = TALLY_OK;

    TRY(bench->kernel ? find_case(bench->kernel) : TALLY_OK);
    TRY(choose_isas(isas, &n_isas));
    TRY(make_workspace(bench->data_bytes, &w));
    for (size_t i = 0; (c = kernel_case_at(i)) && rc == TALLY_OK; i++) {
        for (size_t j = 0; j < n_isas && rc == TALLY_OK; j++) {
            struct kernel_result result;

            if (bench->kernel && strcmp(bench->kernel, c->name) != 0) {
                break;
            }
            rc = verify(c, isas[j], &w);
            if (rc == TALLY_OK) {
                result = measure(c, isas[j], &w);
                result.best = j + 1 == n_isas;
                bench->report(&result, bench->user);
            }
        }
    }
    free_workspace(&w);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of hooks: means and bytes. Keeps no state; any thread enters after oracle_start. */
#include "support/hook_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"
#include "support/ranks.h"

/* Shards of what travels as numbers start at multiples of this. */
#define UNIT 64

/* Buckets that take no more on the wire go to everybody at once, unless there is feedback. */

/* Elements with one map: the whole tensor in a contribution, this number in the means. */
#define TENSOR_BLOCK 4096

/* A rule: its text, its form, and what else there is to say. */
#define RULE(words, how, ...)                            \
    {                                                    \
        .text = (words), .form = HOOK_##how, __VA_ARGS__ \
    }

const struct hook_rule hook_rules[] = {
    RULE("allreduce", PLAIN, .wire = TALLY_F32),
    RULE("noop", NOTHING, .wire = TALLY_F32),
    RULE("bf16(noop)", NOTHING, .wire = TALLY_F32),
    RULE("fp16", HALF, .wire = TALLY_F16),
    RULE("bf16", HALF, .wire = TALLY_BF16),
    RULE("bf16(allreduce)", HALF, .wire = TALLY_BF16),
    RULE("fp16(bf16)", HALF, .wire = TALLY_BF16),
    RULE("bf16(fp16:saturate=1)", SATURATED, .wire = TALLY_F16),
    RULE("fp16:saturate=1", SATURATED, .wire = TALLY_F16),
    RULE("fp16:accumulate=wire", STEPWISE, .wire = TALLY_F16),
    RULE("bf16:accumulate=wire", STEPWISE, .wire = TALLY_BF16),
    RULE("quantize_per_tensor", TENSOR, .block = TENSOR_BLOCK),
    RULE("quantize_per_tensor:nonfinite=pass", TENSOR, .block = TENSOR_BLOCK),
    RULE("quantize_per_tensor:scope=bucket", TENSOR, .block = TENSOR_BLOCK, .whole = true),
    RULE("quantize_per_tensor:exchange=gather", TENSOR, .block = TENSOR_BLOCK, .gathers = true),
    RULE("quantize_per_tensor:exchange=gather,scope=bucket", TENSOR, .block = TENSOR_BLOCK,
         .gathers = true, .whole = true),
    RULE("quantize_per_channel", BLOCKS, .block = 512),
    RULE("fp16(quantize_per_channel)", BLOCKS, .block = 512),
    RULE("quantize_per_channel:block=100", BLOCKS, .block = 100),
    RULE("quantize_per_channel:scope=bucket", BLOCKS, .block = 512, .whole = true),
    RULE("quantize_per_channel:exchange=gather", BLOCKS, .block = 512, .gathers = true),
    RULE("quantize_per_channel:exchange=gather,scope=bucket", BLOCKS, .block = 512, .gathers = true,
         .whole = true),
    RULE("quantize_per_channel:block=16,exchange=gather", BLOCKS, .block = 16, .gathers = true),
    RULE("int8:feedback=0", SCALED, .block = 512, .exempts = true),
    RULE("int8:block=64,feedback=0", SCALED, .block = 64, .exempts = true),
    RULE("int8:exempt=none,feedback=0", SCALED, .block = 512),
    RULE("bf16(int8:feedback=0)", SCALED, .block = 512, .exempts = true, .wire = TALLY_BF16),
    RULE("fp16(int8:block=4096,feedback=0)", SCALED, .block = 4096, .exempts = true,
         .wire = TALLY_F16),
    RULE("int8", SCALED, .block = 512, .exempts = true, .feedback = true),
    RULE("bf16(int8)", SCALED, .block = 512, .exempts = true, .wire = TALLY_BF16, .feedback = true),
};

const size_t hook_n_rules = sizeof hook_rules / sizeof hook_rules[0];

const struct hook_rule *hook_rule_of(const char *text)
{
    for (size_t k = 0; k < hook_n_rules; k++) {
        if (strcmp(hook_rules[k].text, text) == 0) {
            return &hook_rules[k];
        }
    }
    (void)fprintf(stderr, "there is no rule '%s'\n", text);
    exit(1);
}

/* ---- means ---- */

static float to_half_and_back(int dtype, float x)
{
    return dtype == TALLY_F16 ? oracle_from_half(oracle_to_half(x))
                              : oracle_from_bfloat(oracle_to_bfloat(x));
}

static float held(float x)
{
    if (isinf(x)) {
        return x;
    }
    return to_half_and_back(TALLY_F16, fminf(fmaxf(x, -65504.0f), 65504.0f));
}

/* The value of one element after its way to the owner, or back. */
static float travelled(const struct hook_rule *rule, float x)
{
    switch (rule->form) {
    case HOOK_HALF:
        return to_half_and_back(rule->wire, x);
    case HOOK_SATURATED:
        return held(x);
    default:
        return rule->wire == TALLY_F32 ? x : to_half_and_back(rule->wire, x);
    }
}

static void expect_numbers(const struct hook_rule *rule, size_t n, int world,
                           const float *const *in, float *out)
{
    for (size_t e = 0; e < n; e++) {
        float sum = travelled(rule, in[0][e]);

        for (int r = 1; r < world; r++) {
            sum += travelled(rule, in[r][e]);
        }
        out[e] = travelled(rule, sum / (float)world);
    }
}

static void expect_stepwise(const struct hook_rule *rule, size_t n, int world,
                            const float *const *in, float *out)
{
    for (size_t e = 0; e < n; e++) {
        for (int r = 0; r < world; r++) {
            float cast = to_half_and_back(rule->wire, in[r][e]);
            float divided = to_half_and_back(rule->wire, cast / (float)world);

            out[e] = r == 0 ? divided : to_half_and_back(rule->wire, out[e] + divided);
        }
    }
}

/*
 * A scale and a zero point for n values, and all of them encoded and decoded with it. If the result
 * need not equal PyTorch's to the bit, values are multiplied by 1 / scale.
 */
static void affine(bool exact, size_t n, float *x)
{
    float lo = 0;
    float hi = 0;
    float scale;
    float zero;

    for (size_t e = 0; e < n; e++) {
        lo = x[e] < lo ? x[e] : lo;
        hi = x[e] > hi ? x[e] : hi;
    }
    scale = fmaxf((hi - lo) / 255, 1.1920929e-07f);
    zero = fminf(fmaxf(0 - rintf(lo / scale), 0), 255);
    for (size_t e = 0; e < n; e++) {
        float steps = exact ? x[e] / scale : x[e] * (1 / scale);
        float code = fminf(fmaxf(rintf(steps) + zero, 0), 255);

        x[e] = scale * (code - zero);
    }
}

static void scaled(size_t n, float *x)
{
    float most = 0;

    for (size_t e = 0; e < n; e++) {
        most = fmaxf(most, fabsf(x[e]));
    }
    for (size_t e = 0; e < n && most > 0; e++) {
        float code = 128 + rintf(x[e] * (127 / most));

        x[e] = most / 127 * (code - 128);
    }
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* There and back, block by block; of a tensor that one map was made for if so. */
static void code(const struct hook_rule *rule, bool one_map, size_t n, float *x)
{
    if (one_map) {
        affine(rule->gathers, n, x);
        return;
    }
    for (size_t e = 0; e < n; e += rule->block) {
        size_t n_here = smaller(rule->block, n - e);

        if (rule->form == HOOK_SCALED) {
            scaled(n_here, x + e);
        } else {
            affine(rule->gathers, n_here, x + e);
        }
    }
}

static void expect_bytes(const struct hook_rule *rule, size_t n, int world, const float *const *in,
                         float *out)
{
    float *next = malloc(n * sizeof *next + 1);

    if (!next) {
        (void)fprintf(stderr, "no memory for what to expect\n");
        exit(1);
    }
    for (int r = 0; r < world; r++) {
        memcpy(next, in[r], n * sizeof *next);
        code(rule, rule->form == HOOK_TENSOR, n, next);
        for (size_t e = 0; e < n; e++) {
            out[e] = r == 0 ? next[e] : out[e] + next[e];
        }
    }
    for (size_t e = 0; e < n; e++) {
        out[e] /= (float)world;
    }
    if (!rule->gathers) {
        code(rule, false, n, out);
    }
    free(next);
}

void hook_expect(const struct hook_rule *rule, int n_dims, size_t n, int world,
                 const float *const *in, float *out)
{
    if (rule->form == HOOK_STEPWISE) {
        expect_stepwise(rule, n, world, in, out);
    } else if (rule->form < HOOK_STEPWISE || (rule->exempts && n_dims < 2)) {
        expect_numbers(rule, n, world, in, out);
    } else {
        expect_bytes(rule, n, world, in, out);
    }
}

/* ---- bytes ---- */

/* The blocks of a bucket, which are never divided: their number, and the bytes of some of them. */
struct blocks {
    size_t n;
    uint64_t bytes;
};

/* Counts blocks of length up to `length` of n elements, and adds the bytes of those with numbers
 * first..end-1: each element and each map. */
static void add_blocks(struct blocks *blocks, size_t n, size_t length, size_t element, size_t map,
                       const size_t range[2])
{
    for (size_t e = 0; e < n; e += length) {
        if (blocks->n >= range[0] && blocks->n < range[1]) {
            blocks->bytes += smaller(length, n - e) * element + map;
        }
        blocks->n++;
    }
}

static struct blocks count_blocks(const struct hook_rule *rule, const struct hook_bucket *bucket,
                                  const size_t range[2])
{
    bool bytes = rule->form >= HOOK_TENSOR && bucket->dtype == TALLY_F32;
    size_t element = tally_dtype_bytes(
        rule->form >= HOOK_HALF && bucket->dtype == TALLY_F32 ? rule->wire : bucket->dtype);
    size_t map = rule->form == HOOK_SCALED ? 4 : 8;
    struct blocks blocks = {0};
    size_t total = 0;

    for (size_t k = 0; k < bucket->n_params; k++) {
        total += bucket->count[k];
        if (!bytes || rule->whole) {
            continue;
        }
        if (rule->exempts && bucket->n_dims[k] < 2) {
            add_blocks(&blocks, bucket->count[k], rule->block / 4, element, 0, range);
        } else {
            add_blocks(&blocks, bucket->count[k], rule->block, 1, map, range);
        }
    }
    if (!bytes) {
        add_blocks(&blocks, total, UNIT, element, 0, range);
    } else if (rule->whole) {
        add_blocks(&blocks, total, rule->block, 1, map, range);
    }
    return blocks;
}

static struct blocks all_blocks(const struct hook_rule *rule, const struct hook_bucket *bucket)
{
    const size_t all[2] = {0, SIZE_MAX};

    return count_blocks(rule, bucket, all);
}

uint64_t hook_sent_bytes(const struct hook_rule *rule, const struct hook_bucket *bucket, int world,
                         int rank)
{
    bool codes = rule->form >= HOOK_TENSOR && bucket->dtype == TALLY_F32;
    size_t w = (size_t)world;
    struct blocks all;
    size_t own[2];
    uint64_t own_bytes;

    if (rule->form == HOOK_NOTHING || world == 1) {
        return 0;
    }
    all = all_blocks(rule, bucket);
    if ((codes && rule->gathers) ||
        (all.bytes <= ranks_one_phase_bytes() && !(codes && rule->feedback))) {
        return (w - 1) * all.bytes;
    }
    own[0] = all.n * (size_t)rank / w;
    own[1] = all.n * ((size_t)rank + 1) / w;
    own_bytes = count_blocks(rule, bucket, own).bytes;
    return all.bytes - own_bytes + (w - 1) * own_bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expected results of tally's hooks, written from the header and from PyTorch's documentation
 * of its hooks, by plain loops that share nothing with the library: the means they leave and the
 * bytes they send. And a model to try them on, with gradients that every rank can compute for all.
 */
#ifndef TALLY_TESTS_HOOK_RULES_H
#define TALLY_TESTS_HOOK_RULES_H

#include "support/ddp_model.h"

/*
 * The form of fp32 on the wire: unchanged; 16 bits, added in fp32; the same, saturated at the
 * largest half; 16 bits that are divided first and rounded after each addition; 8 bits with a scale
 * and a zero point per tensor, or per block; 8 bits with one scale per block; nothing.
 */
enum hook_form {
    HOOK_PLAIN,
    HOOK_HALF,
    HOOK_SATURATED,
    HOOK_STEPWISE,
    HOOK_TENSOR,
    HOOK_BLOCKS,
    HOOK_SCALED,
    HOOK_NOTHING
};

struct hook_rule {
    const char *text;
    enum hook_form form;
    int wire; /* dtype of halves, or of parameters that are exempt; 0 is fp32 */
    size_t block;
    bool gathers;  /* everybody gets all contributions, and the mean is not coded again */
    bool whole;    /* a bucket counts as one tensor */
    bool exempts;  /* vectors and scalars travel as numbers */
    bool feedback; /* then the first step alone has these means */
};

extern const struct hook_rule hook_rules[];
extern const size_t hook_n_rules;

/* The rule with this text. */
const struct hook_rule *hook_rule_of(const char *text);

/* The mean of one tensor of n elements, or of a bucket that counts as one. in[r] is rank r's. */
void hook_expect(const struct hook_rule *rule, int n_dims, size_t n, int world,
                 const float *const *in, float *out);

/* The parameters of a bucket, in its order: elements and dimensions of each. */
struct hook_bucket {
    int dtype;
    size_t n_params;
    size_t count[DDP_MAX_PARAMS];
    int n_dims[DDP_MAX_PARAMS];
};

/* Bytes that rank sends for the bucket in one step. */
uint64_t hook_sent_bytes(const struct hook_rule *rule, const struct hook_bucket *bucket, int world,
                         int rank);

/* ---- a model ---- */

/* Matrices, vectors, a scalar, nothing, what fills blocks and what does not; two are not fp32. */
#define HOOK_N_PARAMS 10
#define HOOK_MOST 12900
extern const struct ddp_spec hook_specs[HOOK_N_PARAMS];

/* Element e of rank's gradient number i, fp32: layers differ in scale, and one value in a hundred
 * is far out. */
float hook_value(unsigned seed, int rank, size_t i, size_t e);

/* A whole step; parameters that are not fp32 have ddp_model.h's values. */
int hook_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed);
/* The same; returns the status of tally_ddp_wait. */
int hook_try_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed);

/*
 * Number of gradients that are not, to the bit, the expected means of the rule: fp32 ones of
 * expected, which has HOOK_MOST elements per parameter, the others as with allreduce.
 */
size_t hook_wrong(const struct ddp_model *model, const tally_ddp *ddp, unsigned seed, int world,
                  const float *expected);

/* Fills expected for buckets that hold all fp32 parameters, the last one first. */
void hook_expect_all(const struct hook_rule *rule, unsigned seed, int world, float *expected);

/* Runs body with user in this world: as threads with one lane and with three, and as processes.
 * Under a sanitizer, odd worlds of threads have three lanes only. */
int hook_run(const char *name, ranks_body *body, void *user, int world);

#endif

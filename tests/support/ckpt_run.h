/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training run for tests of checkpoints: parameters of every dtype, one that is not row-major,
 * one that differs from rank to rank; buffers; an optimizer or an averager; two blobs of the
 * application. Gradients depend on the rank, the step and the parameters: one wrong bit in a
 * checkpoint is many wrong bits later.
 */
#ifndef TALLY_TESTS_CKPT_RUN_H
#define TALLY_TESTS_CKPT_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <tally.h>

#include "support/ranks.h"

#define CKPT_N_PARAMS 10
#define CKPT_N_BUFFERS 2
#define CKPT_MAX_VALUES 400

/* A training run: the model, and its settings. */
struct ckpt_setup {
    const char *hook;      /* NULL: allreduce */
    const char *optimizer; /* NULL: a plain loop of the application */
    bool shard;
    bool mixed;           /* bf16 */
    bool averages;        /* an averager: of the optimizer, if there is one */
    const char *averager; /* its hook */
    size_t cap;           /* of buckets; 0: the default */
    double loss_scale;
};

struct ckpt_run {
    tally_group *group;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
    tally_averager *averager;
    struct ckpt_setup setup;
    tally_param params[CKPT_N_PARAMS];
    double values[CKPT_N_PARAMS][CKPT_MAX_VALUES]; /* memory of the parameters */
    float mean[6];                                 /* the buffers */
    long long counter;
    long long position; /* the application's blobs; the size of random depends on the rank */
    unsigned char random[16];
    tally_checkpoint_blob blobs[2];
};

/* The first parameters of all ranks, 0 steps. Collective. */
int ckpt_start(tally_group *group, const struct ckpt_setup *setup, struct ckpt_run *run);
int ckpt_end(struct ckpt_run *run);

/* The same for a run on the heap, which takes one step; NULL if that fails. */
struct ckpt_run *ckpt_begin(tally_group *group, const struct ckpt_setup *setup);
int ckpt_finish(struct ckpt_run *run);

/* n steps. They change parameters, buffers, blobs and all state. */
int ckpt_steps(struct ckpt_run *run, int n);

/* A hash of everything that this rank has: parameters, buffers, blobs, states. */
int ckpt_hash(struct ckpt_run *run, uint64_t *hash);
/* Of parameters and buffers only, the ignored parameter that differs apart. */
uint64_t ckpt_hash_values(const struct ckpt_run *run);

/* A config with the run's blobs; load needs their room, which ckpt_steps sets back. */
tally_checkpoint_config ckpt_config(struct ckpt_run *run);
int ckpt_save(struct ckpt_run *run, const char *directory);
int ckpt_load(struct ckpt_run *run, const char *directory, tally_checkpoint_info *info);

/* A new empty folder in memory if there is any, or on the disk. The name is static. */
const char *ckpt_folder_make(void);
void ckpt_folder_remove(const char *folder);
/* Number of entries of a folder whose names begin so; -1: there is no such folder. */
int ckpt_count(const char *folder, const char *beginning);

#endif

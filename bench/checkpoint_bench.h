/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures checkpoints of a model with AdamW between processes on this machine, beside plain writes
 * of the same bytes to the same disk. The sides, in turn:
 *
 *   plain    every rank writes as many bytes as it has in a checkpoint to as many files, and syncs
 *            them, as a dd with conv=fsync for each file at the same time would
 *   save     tally_checkpoint_save
 *   load     tally_checkpoint_load, of that checkpoint; every parameter is compared
 *   step     a synthetic backward pass, all gradients announced, wait
 *   take     tally_checkpoint_save with async: it copies; beside it a memcpy of as many bytes
 *   during   steps while the copy is written
 *   beside   steps while another thread of each rank does plain writes
 *
 * Times are those of the slowest rank; medians.
 */
#ifndef TALLY_BENCH_CHECKPOINT_BENCH_H
#define TALLY_BENCH_CHECKPOINT_BENCH_H

#include <stddef.h>

#define CHECKPOINT_MAX_ROUNDS 100

struct checkpoint_bench {
    int ranks;
    size_t bytes; /* of all parameters, fp32 */
    size_t n_params;
    int shard;
    double backward_ms;
    size_t n_rounds; /* up to CHECKPOINT_MAX_ROUNDS */
    const char *directory;
};

/* Times in milliseconds. */
struct checkpoint_result {
    int cpus;
    size_t bytes;        /* of a checkpoint */
    size_t copied_bytes; /* by one rank for an asynchronous one */
    double plain_ms;
    double save_ms;
    double load_ms;
    double save_over_plain; /* bytes per second of a save by those of plain writes */
    double load_over_plain;
    double copy_ms; /* memcpy of copied_bytes */
    double take_ms;
    double take_over_copy;
    double step_ms;
    double during_ms;
    double during_growth; /* during / step - 1 */
    double beside_ms;
    double beside_growth;
};

/* Measures in a new folder of directory, which is removed afterwards. The caller must have no
 * threads. Errors: ARG; what a rank says; INTERNAL for a parameter that was not loaded. */
int checkpoint_bench_run(const struct checkpoint_bench *bench, struct checkpoint_result *result);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status page: what the ranks of a process are doing, for a reader outside of it. A process has
 * one page for each of its ranks that has a ddp: an unnamed file (memfd) called "tally-status",
 * which a reader finds as a link "/memfd:tally-status (deleted)" in /proc/PID/fd, opens read-only
 * and maps. The reader needs nothing from the process, which may be stopped or hang. Pages whose
 * pid is not PID were inherited by a forked child; skip them.
 *
 * A page without entries that are in use belongs to a rank whose ddps were all freed. Times are
 * CLOCK_MONOTONIC. Numbers are written one by one, with relaxed atomic stores: a reader
 * may see numbers of two moments next to each other. Texts are guarded by text_sequence: it is odd
 * while they are written; a reader whose text_sequence is odd, or differs before and after, reads
 * again or goes without.
 */
#ifndef TALLY_TRACE_STATUS_PAGE_H
#define TALLY_TRACE_STATUS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define TALLY__STATUS_NAME "tally-status"
#define TALLY__STATUS_MAGIC "TALLYTOP" /* 8 bytes, without the NUL */
#define TALLY__STATUS_VERSION 2

enum tally__status_state {
    TALLY__STATE_UNUSED,     /* the entry is free */
    TALLY__STATE_COMPUTING,  /* the application's own code runs */
    TALLY__STATE_WAITING,    /* in tally_ddp_wait: lanes work on buckets */
    TALLY__STATE_UPDATE,     /* in tally_ddp_wait or tally_optimizer_step: the optimizer updates */
    TALLY__STATE_CHECKPOINT, /* in a call that saves or loads a checkpoint */
    TALLY__STATE_COLLECTIVE, /* in another collective call of this ddp */
    TALLY__STATE_DONE,       /* the ddp was freed */
    TALLY__STATE_FAILED      /* a call failed; error says how */
};

/* One ddp of this rank. */
struct tally__status_entry {
    _Atomic uint32_t state; /* enum tally__status_state, of the application's thread */
    _Atomic uint32_t ddp;   /* its number, from 1 */
    _Atomic uint64_t state_since_ns;
    _Atomic uint64_t heartbeat_ns; /* the last sign of life: a call, a bucket, a round of waiting */
    _Atomic uint64_t n_steps;      /* completed */
    _Atomic uint32_t n_buckets;
    _Atomic uint32_t n_params;
    /* The lanes, in any state. The bucket that was begun last; -1: none is under way. */
    _Atomic int32_t bucket;
    /* The launcher's number of the rank that a lane waits for, and since when; -1: for none. */
    _Atomic int32_t waits_for;
    _Atomic uint64_t waits_since_ns;
    _Atomic uint32_t n_reduced; /* buckets that were reduced in this step */
    _Atomic uint32_t n_ready;   /* gradients that were announced in this step */
    /* Over all steps. */
    _Atomic uint64_t step_ns;  /* of a step: an average in which a step counts for a sixteenth */
    _Atomic uint64_t total_ns; /* from the first announcement of the first step to the last wait */
    _Atomic uint64_t exposed_ns;
    _Atomic uint64_t wire_bytes;
    _Atomic uint64_t late_ns; /* time that the other ranks waited for this one */
    /* The last steps in which this rank was late, as in tally_rank_stats: how long they waited per
     * step, how many steps, and enum tally_late_cause. */
    _Atomic uint64_t late_step_ns;
    _Atomic uint32_t n_late_steps;
    _Atomic uint32_t late_cause;
    _Atomic uint32_t text_sequence;
    uint32_t padding;
    char hook[64];
    char call[64];   /* the call that state is about: "tally_checkpoint_save"; "" if none */
    char error[256]; /* of FAILED */
};

struct tally__status_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes; /* of this struct: the first entry begins here */
    uint32_t entry_bytes;
    uint32_t n_entries; /* of which some are UNUSED */
    int64_t pid;
    int32_t rank; /* the launcher's number */
    int32_t world;
    uint64_t started_ns; /* the time at which the group was opened */
    int64_t realtime_minus_monotonic_ns;
    char backend[16];
    char host[64];
    char tally_version[24];
    /* Equal for the ranks of one job on this machine, and different for other jobs of the user. */
    char job[128];
    char program[64]; /* the name of the program's file */
};

#endif

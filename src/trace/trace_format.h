/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of trace files, one per rank, and of the files that describe a failure. The numbers in
 * a file have the byte order of the machine that wrote it.
 *
 *   head, then n_segments segments of segment_bytes each
 *
 * Segments are used in a ring: when all are full, the oldest is written again, so a file never
 * exceeds its bound and keeps the last steps. A file may end after any segment, or inside the one
 * with the highest sequence number: a reader trusts used_bytes, as far as the file goes. Every
 * segment is complete in itself: head, then records, each a tally__trace_record with its payload.
 * A reader skips kinds of records and of events that it does not know.
 */
#ifndef TALLY_TRACE_TRACE_FORMAT_H
#define TALLY_TRACE_TRACE_FORMAT_H

#include <stdint.h>

#define TALLY__TRACE_MAGIC "TALLYTRC" /* 8 bytes, without the NUL */
#define TALLY__TRACE_VERSION 1

/* ---- events -------------------------------------------------------------------------------- */

/*
 * The kinds of events, and their names in pictures. Instants: GRAD_READY, LAUNCH, HOOK, ERROR.
 *
 *   GRAD_READY  the application announced a gradient, as ready or absent; peer is the parameter
 *   LAUNCH      the bucket was given to its lane
 *   BUCKET      the lane reduced the bucket, from start to done; bytes: sent
 *   ENCODE      phases of that: one event of each kind per bucket. end_ns - begin_ns is the time
 *   SEND        spent in the phase in total, begin_ns its first moment. A reader lays phases one
 *   WAIT_RANK   after the other into the span of the bucket. WAIT_RANK: peer is the rank that came
 *   REDUCE      last, in the wait that took longest
 *   DECODE
 *   UPDATE      the optimizer updated parameters: of the bucket, or of all
 *   WAIT        tally_ddp_wait
 *   STEP        from the end of the step before to the end of this one
 *   HOOK        the hook was set or replaced
 *   ERROR       a call of the application failed; peer is the status
 *   CHECKPOINT  a call that saved or loaded a checkpoint
 */
#define TALLY__TRACE_EVENT_LIST(X)  \
    X(NONE, "none")                 \
    X(GRAD_READY, "gradient ready") \
    X(LAUNCH, "launch")             \
    X(BUCKET, "bucket")             \
    X(ENCODE, "encode")             \
    X(SEND, "send")                 \
    X(WAIT_RANK, "wait for rank")   \
    X(REDUCE, "reduce")             \
    X(DECODE, "decode")             \
    X(UPDATE, "update")             \
    X(WAIT, "tally_ddp_wait")       \
    X(STEP, "step")                 \
    X(HOOK, "hook")                 \
    X(ERROR, "error")               \
    X(CHECKPOINT, "checkpoint")

enum tally__trace_event_kind {
#define TALLY__TRACE_EVENT_ENUM(name, text) TALLY__EVENT_##name,
    TALLY__TRACE_EVENT_LIST(TALLY__TRACE_EVENT_ENUM)
#undef TALLY__TRACE_EVENT_ENUM
        TALLY__N_EVENT_KINDS
};

#define TALLY__NO_BUCKET UINT16_MAX
#define TALLY__NO_PEER (-1)

struct tally__trace_event {
    uint64_t begin_ns; /* CLOCK_MONOTONIC of the machine */
    uint64_t end_ns;   /* begin_ns for an instant */
    uint32_t step;     /* from 1; 0: outside of steps */
    float bytes;
    int32_t peer;    /* the launcher's number of a rank, or as the list says; TALLY__NO_PEER */
    uint16_t bucket; /* TALLY__NO_BUCKET: none */
    uint8_t kind;    /* enum tally__trace_event_kind */
    uint8_t ddp;     /* the ddp's number, from 1, the same on all ranks; 0: none */
};

_Static_assert(sizeof(struct tally__trace_event) == 32, "two events are a cache line");

/* ---- the file ------------------------------------------------------------------------------ */

/* Segments of a file, at most. */
#define TALLY__TRACE_SEGMENTS ((uint64_t)1 << 20)

struct tally__trace_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes; /* of this struct: the first segment begins here */
    uint32_t segment_head_bytes;
    uint32_t event_bytes;
    uint64_t segment_bytes; /* with its head */
    uint32_t n_segments;
    int32_t rank; /* the launcher's number */
    int32_t world;
    uint32_t is_report;                  /* 1: written after a failure; it has an ERROR record */
    int64_t pid;                         /* of the rank's process */
    int64_t realtime_minus_monotonic_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC when it was opened */
    uint64_t opened_ns;                  /* CLOCK_MONOTONIC */
    char host[64];
    char boot_id[40]; /* ranks with the same boot ID share one CLOCK_MONOTONIC */
    char backend[16];
    char tally_version[24];
    char program[64]; /* the name of the program's file */
};

struct tally__trace_segment {
    uint64_t sequence;   /* from 1, in the order of writing; 0: never used */
    uint64_t used_bytes; /* of the records that follow this head */
    uint64_t first_step; /* of the STEP records in it; 0: none */
    uint64_t last_step;
};

enum tally__trace_record_kind {
    TALLY__RECORD_THREAD = 1, /* tally__trace_thread, then events, oldest first */
    TALLY__RECORD_BUCKETS,    /* tally__trace_buckets, then n tally__trace_bucket */
    TALLY__RECORD_STEP,       /* tally__trace_step */
    TALLY__RECORD_RANKS,      /* tally__trace_ranks, then n tally__trace_rank */
    TALLY__RECORD_NOTE,       /* tally__trace_note */
    TALLY__RECORD_ERROR,      /* tally__trace_error */
    TALLY__RECORD_LINES,      /* tally__trace_lines, then n tally__trace_line */
    TALLY__RECORD_CHOICES     /* tally__trace_choices, then n tally__trace_choice */
};

/* Before every payload. */
struct tally__trace_record {
    uint32_t kind;  /* enum tally__trace_record_kind */
    uint32_t bytes; /* of the payload, a multiple of 8 */
};

/* Events of one thread. A thread has many of these records. */
struct tally__trace_thread {
    uint64_t thread; /* the kernel's number of the thread */
    uint64_t n_lost; /* events that were overwritten before these, unwritten */
    char name[48];   /* "main", "lane 0 of ddp 1", ... */
};

/* The buckets of a ddp: at the start of every segment, and whenever they or the hook change. */
struct tally__trace_buckets {
    uint32_t ddp;
    uint32_t generation;
    uint32_t n;
    uint32_t n_params;
    char hook[64];
};

struct tally__trace_bucket {
    uint64_t bytes; /* of its gradients */
    uint32_t n_params;
    uint32_t is_delayed;
    char first_param[64]; /* the name of its first parameter; may be truncated */
};

/* The decisions of the hook auto, as tally_ddp_explain gives them, for the first buckets of a ddp:
 * at the start of every segment, and whenever they change. */
struct tally__trace_choices {
    uint32_t ddp;
    uint32_t generation; /* of the buckets */
    uint32_t n;
    uint32_t is_settled;
    uint64_t step; /* after which they were written */
    uint64_t cap_bytes;
    double cap_gain;
};

struct tally__trace_choice {
    char hook[64];
    char runner_up[64]; /* "": none */
    double predicted_s;
    double measured_s;
    double runner_up_s;
    double error;
    char reason[200];
};

/* A step of a ddp: after the events of the step. */
struct tally__trace_step {
    uint32_t ddp;
    uint32_t is_skipped; /* 1: the optimizer skipped it, because a gradient was not finite */
    uint64_t step;       /* from 1 */
    uint64_t begin_ns;   /* the end of the step before, or the first announcement */
    uint64_t end_ns;
    uint64_t forward_ns; /* as in tally_ddp_stats, and the next three */
    uint64_t backward_ns;
    uint64_t exposed_ns;
    uint64_t comm_ns;
    uint64_t update_ns; /* of the optimizer, on lanes or in wait */
    uint64_t wire_bytes;
    uint64_t plain_bytes; /* that an uncompressed all-reduce of these buckets would send */
    double loss_scale;    /* 0: no loss scaling */
    /* Norm of what the hook left out of this rank's contribution / norm of that, with what feedback
     * adds from the steps before; below 0: not measured in this step. */
    double compression_error;
};

/* Waiting for ranks, added up since the ddp was created, as tally_ddp_get_rank_stats reports it. */
struct tally__trace_ranks {
    uint32_t ddp;
    uint32_t n;
    uint64_t n_steps; /* up to now */
};

struct tally__trace_rank {
    int32_t rank;            /* the launcher's number */
    int32_t is_far;          /* 1: on another machine: offset_ns matters */
    uint64_t n_last;         /* rounds to which it came last */
    uint64_t computes_ns;    /* time the others waited for it: its gradients were announced late, */
    uint64_t lane_ns;        /* they were announced in time, but its lane was late, */
    uint64_t link_ns;        /* or its message was sent in time, but came late */
    int64_t offset_ns;       /* its CLOCK_MONOTONIC minus that of this rank */
    uint64_t uncertainty_ns; /* offset_ns is right within this; UINT64_MAX: not known */
};

/* A fact about the run: "program", "TALLY_HOOK", "hook replaced", ... */
struct tally__trace_note {
    char key[32];
    char value[224];
};

struct tally__trace_error {
    int32_t status; /* enum tally_status */
    uint32_t ddp;
    uint64_t step; /* completed before the failure */
    uint64_t at_ns;
    char text[512];
};

enum tally__trace_arrival {
    TALLY__ARRIVAL_MISSING, /* it has not arrived at the round that this rank waited in */
    TALLY__ARRIVAL_ARRIVED,
    TALLY__ARRIVAL_LEFT, /* it has closed the group, or given it up */
    TALLY__ARRIVAL_DEAD
};

/* The lines of all ranks of a group, as this rank saw them when it failed. */
struct tally__trace_lines {
    uint32_t ddp;
    uint32_t n;
    uint64_t round; /* that this rank had arrived at */
};

struct tally__trace_line {
    int32_t rank;        /* the launcher's number */
    uint32_t state;      /* enum tally__trace_arrival */
    uint64_t round;      /* the last one it arrived at */
    uint64_t arrived_ns; /* its CLOCK_MONOTONIC; 0: not known */
    char doing[200];     /* its call in words: "step 6 (bucket 0: 'wte', ...)" */
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that ranks share. Each rank has one slot per lane of a group, in its own memory; only
 * that rank writes it. A rank that cannot reach the memory of another keeps a slot for it without
 * stages, which that rank's messages fill. docs/shm-protocol.md explains the protocol; the rules in
 * short:
 *
 *   - A rank arrives at round k by writing line[k % 2].call and then storing k in that line's
 *     round. It continues when the round in every rank's line[k % 2] has reached k.
 *   - No rank arrives at k + 2 before all have arrived at k + 1, and a rank arrives at k + 1
 *     only when it has read what it needs of round k. So two lines are enough.
 *   - A rank writes data of round k to stage k % 3 after all ranks have arrived at k - 1. The
 *     others may read it until they arrive at k + 2. Between k and k + 1 it may replace a
 *     part that only it reads by a result, which the others read after k + 1.
 *   - Messages of rounds k and k + 2 use the same memory on the receiver, by the same rules.
 */
#ifndef TALLY_COMM_SHARED_LAYOUT_H
#define TALLY_COMM_SHARED_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Small enough to stay in the caches. */
#define TALLY__STAGE_BYTES ((size_t)256 * 1024)
/* Room before a stage for the head of the message that carries its first bytes (messages.h). */
#define TALLY__HEAD_BYTES ((size_t)256)
/* Enough to write data of round k once all ranks have arrived at k - 1. */
#define TALLY__N_STAGES 3
#define TALLY__TEXT_BYTES 512

/* A rank's message at a round. The fields up to detail must be the same on all ranks. */
struct tally__call {
    uint16_t kind; /* enum tally__kind */
    uint8_t dtype;
    uint8_t op;
    int32_t root;
    uint64_t job;
    uint64_t count;
    uint64_t detail;  /* further details that must agree: a phase, a codec */
    uint64_t offset;  /* offset of this rank's data in its memory, or TALLY__NOT_SHARED */
    int32_t status;   /* not TALLY_OK: this rank's job has failed; the text says why */
    uint32_t payload; /* bytes of this rank's stage that belong to the line */
    uint64_t word;    /* this rank's word in an agreement (agree.h) */
};

#define TALLY__NOT_SHARED UINT64_MAX

enum tally__doing_what {
    TALLY__DOING_NOTHING, /* no record: the call is the application's own */
    TALLY__DOING_CALL,
    TALLY__DOING_BUCKET,
    TALLY__DOING_STEP_END
};

/* The application's call on this rank, for messages (doing.h). */
struct tally__doing {
    uint16_t what;     /* enum tally__doing_what */
    uint16_t has_more; /* the bucket has more parameters than the one that is named */
    int32_t bucket;
    uint64_t step; /* the current step, from 1; for a call, the number of completed steps */
    char name[56]; /* of the call, or of the bucket's first parameter; may be truncated */
    char hook[56]; /* the hook's name; may be truncated */
};

/* Times of a rank in a bucket's job (arrivals.h), by CLOCK_MONOTONIC of its machine.
 * The last four fields are set in groups with far ranks only. */
struct tally__stamps {
    uint64_t launch_ns;  /* the bucket was complete */
    uint64_t called_ns;  /* the application began to wait for the step; 0: it had not yet */
    uint32_t excused_us; /* waited for other ranks since the round before, not in that round */
    uint32_t blamed_us;  /* of that, for data of one rank, */
    int32_t blamed;      /* the one it waited for longest, by the launcher's number; -1: none */
    int32_t about;       /* the least time that lines of this rank took, by the two clocks: */
    int64_t one_way_ns;
    uint64_t arrived_ns; /* at this round */
};

/* round, arrived and call share one cache line: a reader of the round has the others as well. doing
 * is read only for error messages; it is written once per job. stamps are read if a rank is late.
 */
struct tally__line {
    _Alignas(64) _Atomic uint32_t round; /* futex word of the ranks that wait for this rank */
    uint32_t arrived; /* time of arrival, in a bucket's job, shortened (arrivals.h) */
    struct tally__call call;
    _Alignas(64) struct tally__doing doing;
    struct tally__stamps stamps;
    uint64_t seen_ns; /* of a far rank: when its message came, in this rank's clock */
};

_Static_assert(offsetof(struct tally__line, doing) == 64, "round and call are one cache line");

struct tally__slot {
    struct tally__line line[2];
    /* 1 + the rank on whose line this rank sleeps; 0 when awake. */
    _Alignas(64) _Atomic uint32_t asleep;
    /* Not 0: this rank has given up or closed the group. Stored after status and text. */
    _Alignas(64) _Atomic uint32_t given_up;
    int32_t given_up_status;
    char given_up_text[TALLY__TEXT_BYTES];
    _Atomic uint32_t ended_open;         /* the process ended with its group open: ending.h */
    char text[2][TALLY__TEXT_BYTES];     /* the reason for call.status, per line */
    _Alignas(64) unsigned char stages[]; /* each after its head */
};

#define TALLY__SLOT_BYTES \
    (sizeof(struct tally__slot) + TALLY__N_STAGES * (TALLY__HEAD_BYTES + TALLY__STAGE_BYTES))

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one body on every rank of a world, as threads and as processes, and sees to it that nothing
 * is left behind: no child, no descriptor, no block of memory. No cmocka inside a rank: a failed
 * CHECK says where and on which rank, and makes the body return.
 */
#ifndef TALLY_TESTS_RANKS_H
#define TALLY_TESTS_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tally_extend.h>

enum ranks_kind { RANKS_THREADS, RANKS_PROCESSES };

/* The way of data from rank to rank: the memory of the buffers, and whether stages are forced. */
enum ranks_memory { RANKS_GROUP_MEMORY, RANKS_HEAP, RANKS_STAGED, RANKS_MIXED };

struct ranks {
    enum ranks_kind kind;
    enum ranks_memory memory;
    int world;
    int lanes;
    double timeout_s; /* of the group's operations; 0: 60 */
    bool may_leak;    /* a group given up keeps what it cannot free in good order */
};

/*
 * Number of repetitions of one path: all of them, or few under a sanitizer, which is ten times
 * slower and finds other mistakes than the checks do.
 */
#define RANKS_REPEATS(all, few) (TALLY_TESTS_SANITIZED ? (few) : (all))

/* From now on, or no longer: all memory of this rank is passed through stages, as if no other rank
 * could reach it. On the thread that runs the rank's body, between steps and jobs. */
void ranks_stage(tally_group *group, bool on);

/* The most bytes that an exchange of all ranks sends in one phase. */
size_t ranks_one_phase_bytes(void);

/* Returns 0, or anything else after a failed CHECK. */
typedef int ranks_body(tally_group *group, void *user);

/*
 * Runs body on all ranks, each with its group, and closes the groups afterwards. Returns the number
 * of things that went wrong, after saying each on stderr. A rank that is not done after four
 * minutes is killed, or, as a thread, ends the program.
 */
int ranks_run(const struct ranks *ranks, ranks_body *body, void *user);

/* The same; a run that failed is named on stderr, with its world, kind and lanes. */
int ranks_run_named(const char *name, const struct ranks *ranks, ranks_body *body, void *user);

/* The same as threads and as processes, in each of the worlds; a 0 ends the list. */
int ranks_run_worlds(const char *name, const struct ranks *ranks, const int *worlds,
                     ranks_body *body, void *user);

/* The same with 0, 1 and 3 lanes. */
int ranks_run_lanes(const char *name, const int *worlds, ranks_body *body);

/*
 * ranks_run for all of ranks_worlds, as threads and as processes, by every way of data. If compare
 * is set, rank 0's notes must be the same for all runs of one world.
 */
int ranks_run_all(ranks_body *body, void *user, int lanes, bool compare);

/* The same for one world. */
int ranks_run_world(ranks_body *body, void *user, int lanes, int world, bool compare);

/* The worlds of ranks_run_all: 1, 2, 3, 7, 4, 8; under a sanitizer the first four. */
#define RANKS_N_WORLDS RANKS_REPEATS(6, 4)
extern const int ranks_worlds[6];

/*
 * Whether mpirun has started this program (tests/support/run_mpi.sh). Then ranks are MPI's
 * processes in place of processes of one machine; only worlds of their number are run; and what one
 * run leaves in the program's memory or files, the next one sees on the same rank only.
 */
bool ranks_are_mpi(void);

/* Whether ranks can be processes here: not under ThreadSanitizer, which does not follow fork. */
bool ranks_have_processes(void);

/* Inside a body: how it was started. */
const struct ranks *ranks_now(void);

/* Inside a body, on its own thread: closes the group before the body's end. */
int ranks_close(tally_group *group);

/* Inside a body: a buffer as ranks->memory says, and its end. Group memory is collective. */
void *ranks_buffer(tally_group *group, size_t bytes);
void ranks_buffer_free(tally_group *group, void *buffer);

/*
 * Inside a body: notes 64 bits that rank 0 must get in all configurations alike, and 64 bits that
 * all ranks of this run must get alike. Mixed into what was noted before.
 */
void ranks_note(tally_group *group, uint64_t everywhere, uint64_t this_run);

/* Words that all ranks of a run share, zero at its start: for flags between ranks. */
#define RANKS_N_WORDS 64
_Atomic uint32_t *ranks_words(void);

/* Waits, for at most a minute, until a shared word has reached a value. */
int ranks_await(_Atomic uint32_t *word, uint32_t value);

/* Waits, for at most a minute, until all ranks are here; not with the group, and without an
 * allocation. Counts in the last word. */
int ranks_meet(const tally_group *group);

/* Waits for a future and frees it; returns the job's status. */
int ranks_finish(tally_future *future);

/* Runs a job on a lane of the group and waits for it; returns its status. */
int ranks_job(tally_group *group, int lane, tally_job_fn job, void *user);

/* Checks that the ranks of the group can still add up numbers. Collective. */
int ranks_check_alive(tally_group *group);

void ranks_sleep_ms(int milliseconds);
uint64_t ranks_hash(uint64_t hash, const void *bytes, size_t n);

#define RANKS_FAILED (-1000)

int ranks_fail(const tally_group *group, const char *file, int line, const char *what);
int ranks_fail_status(const tally_group *group, const char *file, int line, const char *what,
                      int got, int expected);
int ranks_fail_text(const tally_group *group, const char *file, int line, const char *text,
                    const char *part);

#define CHECK(group, condition)                                          \
    do {                                                                 \
        if (!(condition)) {                                              \
            (void)ranks_fail((group), __FILE__, __LINE__, (#condition)); \
            return RANKS_FAILED;                                         \
        }                                                                \
    } while (0)

#define CHECK_STATUS(group, call, expected)                                                  \
    do {                                                                                     \
        int got_ = (call);                                                                   \
        if (got_ != (expected)) {                                                            \
            (void)ranks_fail_status((group), __FILE__, __LINE__, (#call), got_, (expected)); \
            return RANKS_FAILED;                                                             \
        }                                                                                    \
    } while (0)

#define CHECK_OK(group, call) CHECK_STATUS(group, call, TALLY_OK)

/* The text has this part in it. */
#define CHECK_TEXT(group, text, part)                                           \
    do {                                                                        \
        if (!strstr((text), (part))) {                                          \
            (void)ranks_fail_text((group), __FILE__, __LINE__, (text), (part)); \
            return RANKS_FAILED;                                                \
        }                                                                       \
    } while (0)

#endif

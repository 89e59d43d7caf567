/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by the fault tests: a crew of rank processes that report into memory the test can
 * read after their death, limits on every wait, and a search for anything they left behind.
 */
#ifndef TALLY_FAULT_SUPPORT_H
#define TALLY_FAULT_SUPPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tally_extend.h"

#define FAULT_MAX_RANKS 8
#define FAULT_MAX_FAILURES 6
#define FAULT_TEXT_BYTES 640
#define FAULT_SKIP 77
#define FAULT_NS_PER_MS UINT64_C(1000000)

#if defined(__SANITIZE_ADDRESS__)
#define FAULT_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAULT_HAS_ASAN 1
#endif
#endif
#ifndef FAULT_HAS_ASAN
#define FAULT_HAS_ASAN 0
#endif

/* The last milestone that a rank has reached. Only forward. */
enum fault_milestone { FAULT_BORN, FAULT_OPEN, FAULT_FAILED, FAULT_CLOSED };

struct fault_failure {
    int status;
    char text[FAULT_TEXT_BYTES];
};

/* Written by one rank; read by the test once milestone says so. */
struct fault_report {
    atomic_int milestone; /* enum fault_milestone, stored with release */
    int n_failures;
    struct fault_failure failure[FAULT_MAX_FAILURES];
    uint64_t failed_ns;               /* the time at which the first call failed */
    uint64_t n_done;                  /* collectives that were well before that */
    char complaint[FAULT_TEXT_BYTES]; /* not "": the rank itself saw something wrong */
};

struct fault_member {
    pid_t pid; /* 0: not running */
    int exit_status;
    bool was_struck;
};

struct fault_crew {
    int n;
    struct fault_member member[FAULT_MAX_RANKS];
    struct fault_report *report; /* per rank, shared with the ranks */
};

/* The body of a rank; its process exits with the value this returns. */
typedef int (*fault_body)(int rank, struct fault_report *report, void *user);

uint64_t fault_now_ns(void);
void fault_sleep_ns(uint64_t ns);

/* A number in 0..n-1, and the next state. */
uint32_t fault_random(uint64_t *state, uint32_t n);

/* Memory that forked processes share with us. Never returns NULL. */
void *fault_shared_alloc(size_t bytes);
void fault_shared_free(void *memory, size_t bytes);

void fault_crew_init(struct fault_crew *crew, int n);
void fault_crew_start(struct fault_crew *crew, int rank, fault_body body, void *user);
void fault_crew_start_all(struct fault_crew *crew, fault_body body, void *user);
/* Reaps the ranks that have ended; true when all have. */
bool fault_crew_all_ended(struct fault_crew *crew);
/* Waits for all ranks; kills the rest after max_s, and returns false then: a rank hung. */
bool fault_crew_wait(struct fault_crew *crew, double max_s);
/* Starts a crew of n and waits for all of it, as above. */
bool fault_crew_run(struct fault_crew *crew, int n, fault_body body, void *user, double max_s);
/* Whether all ranks that were not struck have reached the milestone. */
bool fault_crew_reached(const struct fault_crew *crew, int milestone);
void fault_crew_strike(struct fault_crew *crew, int rank, int signal);
void fault_crew_free(struct fault_crew *crew);

/* A rank records a failed call, or something that it found wrong. */
void fault_note_failure(struct fault_report *report, int status);
void fault_complain(struct fault_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fault_set_milestone(struct fault_report *report, int milestone);

/* Calls tally_barrier and waits for it. */
int fault_barrier(tally_group *group);

/* Whether the text blames rank: "rank 2 died", "ranks 1, 2 did not come"; not one who is merely
 * mentioned further on. */
bool fault_blames(const char *text, int rank);

/* Gives this program its own /dev/shm, of this number of bytes. False if not allowed. */
bool fault_private_dev_shm(const char *size);

int fault_count_descriptors(void);

/* Counts what is open now, and from now on takes in orphans, so that fault_leftovers sees them. */
void fault_leftovers_begin(void);
/* Leftovers of ranks whose sockets have this name in theirs: NULL, or a static text. */
const char *fault_leftovers(const char *name);

/* A config with everything set: rank, world and where they meet; timeouts in seconds. */
tally_group_config fault_config(int rank, int world, const char *rendezvous, double timeout_s,
                                double open_timeout_s);

#endif

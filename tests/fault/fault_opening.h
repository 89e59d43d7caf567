/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes in which ranks open a group and one process does not take part as it should. For cmocka
 * tests. */
#ifndef TALLY_FAULT_OPENING_H
#define TALLY_FAULT_OPENING_H

#include "fault/fault_support.h"

/* One process of a scene; member i reports as rank i of the crew, whatever rank it claims. */
struct fault_opener {
    tally_group_config config;
    uint64_t delay_ns; /* before it opens */
    uid_t uid;         /* not 0: becomes this user first */
};

struct fault_opening {
    struct fault_crew crew;
    struct fault_opener opener[FAULT_MAX_RANKS];
    char rendezvous[200];
    uint64_t start_ns;
};

/* n honest ranks of one world that meet at name; "@" or a folder's path goes before it. */
void fault_opening_init(struct fault_opening *opening, int n, const char *before,
                        double open_timeout_s);

/* Starts member i: opens, passes a barrier, closes; reports the first call that failed. */
void fault_opening_start(struct fault_opening *opening, int i);
void fault_opening_start_all(struct fault_opening *opening);

/* Waits for all; fails the test when that takes longer than max_s from the first start. */
void fault_opening_wait(struct fault_opening *opening, double max_s);

/* Asserts that member i failed with status and a text that contains words, or that it went well. */
void fault_expect_failure(const struct fault_opening *opening, int i, int status,
                          const char *words);
void fault_expect_success(const struct fault_opening *opening, int i);

/* Asserts that nothing is left, and frees the scene. */
void fault_opening_end(struct fault_opening *opening);

/* Listens, or connects, at a rendezvous like a program that is not tally would. -1 on failure. */
int fault_plain_listen(const char *name, int type, int backlog);
int fault_plain_connect(const char *name);

#endif

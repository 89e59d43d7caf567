/* SPDX-License-Identifier: Apache-2.0 */
/* One trial: ranks at work, a fault in one or two of them, and the error that the others must
 * report. */
#ifndef TALLY_FAULT_TRIAL_H
#define TALLY_FAULT_TRIAL_H

#include "fault/fault_stream.h"

#define FAULT_BLOW_LIST(X)        \
    X(KILL, "kill -9")            \
    X(EXIT, "exit(0)")            \
    X(ABORT, "abort")             \
    X(SEGV, "segfault")           \
    X(FORK, "kill -9 after fork") \
    X(EXEC, "exec")               \
    X(CLOSE, "close")             \
    X(STOP, "stop")               \
    X(PAUSE, "stop and continue")

enum fault_blow {
#define FAULT_BLOW_ENUM(name, text) FAULT_BLOW_##name,
    FAULT_BLOW_LIST(FAULT_BLOW_ENUM)
#undef FAULT_BLOW_ENUM
        FAULT_N_BLOWS
};

struct fault_trial {
    int number;
    uint64_t seed; /* of this trial */
    enum fault_blow blow;
    const char *folder; /* for sockets with a path */
};

struct fault_outcome {
    bool is_run;
    bool is_passed;
    uint64_t detection_ns; /* the slowest survivor; of stops, beyond the deadline */
    uint64_t n_done;       /* collectives before the blow, by the busiest rank */
    char text[2 * FAULT_TEXT_BYTES];
};

const char *fault_blow_text(enum fault_blow blow);
bool fault_blow_is_stop(enum fault_blow blow);

/* Runs a trial to its end, also after failures. */
void fault_trial_run(const struct fault_trial *trial, struct fault_outcome *outcome);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a random program of calls (api_fuzz.c): its objects, its random numbers, its list of
 * calls. A rank is a thread. The calls of one operation draw from a generator that all ranks seed
 * alike, so all ranks do the same, unless a rank strays.
 */
#ifndef TALLY_TESTS_API_RANK_H
#define TALLY_TESTS_API_RANK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tally_extend.h>

#define API_MAX_WORLD 7
#define API_MAX_PARAMS 6
#define API_N_MODELS 2
#define API_N_GROUPS 3 /* the world's, then sub-groups */
#define API_N_MEMORIES 3
#define API_N_FUTURES 4
#define API_N_HOOKS 3
#define API_MAX_CALLS 4096
#define API_LOG_BYTES 65536
#define API_MAX_NAMES 256

/* The calls of one rank as lines. In memory that outlives the process. */
struct api_log {
    atomic_size_t used;
    char text[API_LOG_BYTES];
};

/* A worker's report to its parent, in memory that both see. */
struct api_progress {
    _Atomic uint64_t seed; /* of the program under way */
    atomic_ullong n_programs;
    atomic_ullong n_calls[API_MAX_NAMES]; /* of each public function */
    struct api_log logs[API_MAX_WORLD];
};

/* Data that all ranks of a program share; read only while they run. */
struct api_program {
    uint64_t seed;
    int world;
    int lanes;
    int n_operations;
    int stray;   /* the rank that does other things at times; -1: none, all ranks do the same */
    int n_alike; /* operations before the first in which it may stray */
    double timeout_s;
    bool may_lack_memory; /* an allocation fails: as if a rank strays */
    bool is_shown;        /* calls go to stderr too */
    struct api_progress *progress;
};

/* A call whose status all ranks of a program without strays must get alike. */
struct api_call {
    int operation;
    const char *text;
    int status;
    uint64_t hash; /* of parameters, where they were looked at */
};

struct api_param {
    char name[8];
    int n_dims;
    size_t shape[2];
    size_t strides[2];
    size_t n;
    int dtype;
    int grad_dtype;
    unsigned flags;
    void *data; /* the application's; NULL: tally's */
    void *grad;
    bool is_announced;
};

/* Number 0 is of the world, number 1 of the first sub-group. */
struct api_model {
    tally_ddp *ddp;
    tally_averager *averager;
    tally_optimizer *optimizer;
    bool is_driven; /* the optimizer calls the averager */
    bool overlaps;
    bool shards;
    bool joins;
    bool is_static; /* gradients the first step had not may travel once a step is begun */
    bool divides;   /* ranks may have different parameters: nothing to compare */
    bool is_lost;   /* its group was given up: gradients are not to be touched */
    bool is_paused; /* between no_sync_begin and no_sync_end */
    size_t n;
    struct api_param params[API_MAX_PARAMS];
    float buffer[4];
    void *blobs[3][API_MAX_WORLD]; /* last checkpoint: ddp, averager, optimizer */
    size_t blob_bytes[3][API_MAX_WORLD];
    int n_blobs[3];
};

struct api_rank {
    const struct api_program *program;
    int rank;
    uint64_t random; /* of this operation */
    int operation;
    tally_group *groups[API_N_GROUPS];
    bool is_split[API_N_GROUPS]; /* on all ranks, though some may have no part in it */
    bool is_apart;               /* a sub-group's: other ranks may get another status */
    struct {
        void *memory;
        size_t bytes;
    } memories[API_N_MEMORIES];
    tally_future *futures[API_N_FUTURES];
    struct api_flight *flights; /* the memory of jobs; freed after the groups */
    tally_hook *hooks[API_N_HOOKS];
    struct api_model models[API_N_MODELS];
    double spare[1000]; /* an array that is given twice */
    struct api_call calls[API_MAX_CALLS];
    size_t n_calls;
};

/* ---- random numbers ---- */

uint64_t api_mix(uint64_t value);
uint64_t api_draw(uint64_t *random);
/* One of 0..n-1. */
unsigned api_pick(struct api_rank *rank, unsigned n);
/* True in one of n cases. */
bool api_chance(struct api_rank *rank, unsigned n);

#define API_PICK_OF(rank, array) ((array)[api_pick((rank), sizeof(array) / sizeof(array)[0])])

/* ---- calls ---- */

/* Prints what is wrong and ends the process; its parent prints the program. */
void api_fail(const struct api_rank *rank, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* Adds a line to the list of calls. Any thread. */
void api_note(const struct api_rank *rank, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Before a call: text begins with the function's name. Any thread. */
void api_begin(const struct api_rank *rank, const char *text);
/* After it: the status is one of the list, and a failure has a text. Any thread. */
int api_end(const struct api_rank *rank, const char *text, int status);
/* The same on the rank's thread; ranks must agree. */
int api_end_alike(struct api_rank *rank, const char *text, int status);
/* Bits that ranks must agree about. */
void api_agree(struct api_rank *rank, const char *what, uint64_t hash);

/* A call that returns a status which all ranks get, if all do the same. */
#define CALL(rank, call) api_end_alike((rank), #call, (api_begin((rank), #call), (call)))
/* A call whose status depends on the moment, or on a lane's thread. */
#define CALL_ANY(rank, call) api_end((rank), #call, (api_begin((rank), #call), (call)))
/* A call that returns no status. */
#define ASK(rank, call) (api_begin((rank), #call), (call))

/* Names of all public functions, from the header. */
extern const char *const api_names[];
extern const size_t api_n_names;

/* ---- operations ---- */

typedef void api_operation(struct api_rank *rank);

struct api_row {
    const char *name;
    api_operation *run;
    unsigned weight;
    bool strays_only; /* ranks are not told the same */
};

/* One array per file, ending with a row without a name. */
extern const struct api_row api_fact_rows[];
extern const struct api_row api_group_rows[];
extern const struct api_row api_ddp_rows[];
extern const struct api_row api_hook_rows[];
extern const struct api_row api_reducer_rows[];
extern const struct api_row api_state_rows[];
extern const struct api_row api_checkpoint_rows[];

/* The folder of all checkpoints: before the first program and after the last. */
void api_checkpoints_begin(void);
void api_checkpoints_end(void);

/* Texts of hooks, good ones and bad ones. */
const char *api_hook_text(struct api_rank *rank);
/* Whether a hook of this text may leave ranks with different means. */
bool api_hook_divides(const char *text);
/* A hook of the program's own; NULL when it could not be made. */
tally_hook *api_own_hook(struct api_rank *rank);

/* One of the rank's ddps, made now if it is not there; its ddp may be NULL. */
struct api_model *api_any_model(struct api_rank *rank);
/* Notes what a failure on a ddp means for what comes after; returns status. */
int api_judge(struct api_model *model, int status);
/* Hashes the parameters of a model, if ranks must have the same. */
void api_compare_params(struct api_rank *rank, struct api_model *model);
void api_free_model(struct api_rank *rank, struct api_model *model);
void api_free_blobs(struct api_model *model);
void api_free_flights(struct api_rank *rank);
/* Waits for a future and frees it. */
int api_finish(struct api_rank *rank, tally_future *future);

bool api_is_in_step(struct api_rank *rank, struct api_model *model);
/* Ends a step that was begun, if there is one. */
void api_finish_step(struct api_rank *rank, struct api_model *model);
/* An optimizer's and an averager's part of a step. */
void api_after_wait(struct api_rank *rank, struct api_model *model);

#endif

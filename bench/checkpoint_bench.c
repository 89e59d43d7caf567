/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of the checkpoint bench: one team of ranks, as processes, and what they measured. */
#include "bench/checkpoint_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "bench/backward.h"
#include "bench/bind.h"
#include "bench/pattern.h"
#include "bench/rank_board.h"
#include "bench/rank_group.h"
#include "bench/rank_team.h"
#include "bench/timing.h"

#define TIMEOUT_S 1800.0
#define PIECE_BYTES ((size_t)1 << 20)
#define N_STEPS 5
#define MAX_DURING 20
#define MAX_FILES 4

enum side { PLAIN, SAVE, LOAD, STEP, COPY, TAKE, DURING, BESIDE, N_SIDES };

/* Times that a rank measured, in milliseconds. */
struct record {
    size_t bytes;
    size_t n_files; /* that this rank wrote, and their bytes */
    size_t file_bytes[MAX_FILES];
    size_t copied_bytes;
    double ms[N_SIDES][CHECKPOINT_MAX_ROUNDS];
};

struct run {
    const struct checkpoint_bench *bench;
    char folder[512];
    char rendezvous[64];
    struct rank_board board;
};

struct rank_state {
    const struct checkpoint_bench *bench;
    const struct run *run;
    int rank;
    struct rank_board board;
    struct record *record;
    tally_group *group;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
    tally_param *params;
    size_t *shapes;
    float *data;
    float *plain;           /* source of plain writes: steps do not change it */
    unsigned char *copy[2]; /* source and destination of copies */
    char last_file[100];
    int beside_rc; /* of the thread that writes beside steps */
    struct backward backward;
    uint64_t units;
};

/* ---- the model ---- */

static int make_model(struct rank_state *s)
{
    size_t n = s->bench->bytes / sizeof(float);
    size_t n_params = s->bench->n_params;
    tally_optimizer_config config;

    s->data = tally__alloc(s->bench->bytes, "parameters");
    s->plain = tally__alloc(s->bench->bytes, "bytes to write");
    s->params = tally__alloc_array(n_params, sizeof *s->params, "parameters");
    s->shapes = tally__alloc_array(n_params, sizeof *s->shapes, "parameters");
    if (!s->data || !s->plain || !s->params || !s->shapes) {
        return TALLY_NOMEM;
    }
    pattern_fill(s->data, 0, n, 1, 1);
    memcpy(s->plain, s->data, s->bench->bytes);
    for (size_t i = 0; i < n_params; i++) {
        char *name = tally__alloc(32, "a name");

        if (!name) {
            return TALLY_NOMEM;
        }
        (void)snprintf(name, 32, "p%zu", i);
        s->shapes[i] = n / n_params + (i < n % n_params);
        s->params[i] = (tally_param){
            .size = sizeof *s->params,
            .name = name,
            .n_dims = 1,
            .shape = &s->shapes[i],
            .dtype = TALLY_F32,
            .data = i == 0 ? s->data : (float *)s->params[i - 1].data + s->shapes[i - 1]};
    }
    TRY(tally_ddp_create(s->group, s->params, n_params, NULL, &s->ddp));
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.shard = s->bench->shard;
    return tally_optimizer_create(s->ddp, "adamw:lr=1e-4", &config, &s->optimizer);
}

static void free_model(struct rank_state *s)
{
    (void)tally_optimizer_free(s->optimizer);
    (void)tally_ddp_free(s->ddp);
    for (size_t i = 0; s->params && i < s->bench->n_params; i++) {
        tally__free((void *)s->params[i].name);
    }
    tally__free(s->params);
    tally__free(s->shapes);
    tally__free(s->data);
    tally__free(s->plain);
    tally__free(s->copy[0]);
    tally__free(s->copy[1]);
}

static int step(struct rank_state *s)
{
    backward_burn(&s->backward, s->units);
    for (size_t i = s->bench->n_params; i-- > 0;) {
        TRY(tally_ddp_grad_ready(s->ddp, (int)i));
    }
    return tally_ddp_wait(s->ddp);
}

/* ---- the sides ---- */

static double ms_since(const struct rank_state *s, uint64_t start_ns)
{
    return (double)(rank_board_now(&s->board) - start_ns) * 1e-6;
}

static int fail_errno(const char *what, const char *path)
{
    return tally__fail_errno(TALLY_SYSTEM, errno, "cannot %s '%s'", what, path);
}

/* Opens a file for each that this rank has in a checkpoint. */
static int open_plain(const struct rank_state *s, int *fds)
{
    for (size_t i = 0; i < s->record->n_files; i++) {
        char path[600];

        (void)snprintf(path, sizeof path, "%s/plain-%d-%zu", s->run->folder, s->rank, i);
        fds[i] = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fds[i] < 0) {
            return fail_errno("create", path);
        }
    }
    return TALLY_OK;
}

/* Writes n bytes, in pieces. */
static int write_bytes(const struct rank_state *s, int fd, size_t n)
{
    size_t piece = PIECE_BYTES < s->bench->bytes ? PIECE_BYTES : s->bench->bytes;

    for (size_t at = 0; at < n;) {
        size_t count = n - at < piece ? n - at : piece;
        ssize_t written =
            write(fd, (unsigned char *)s->plain + at % (s->bench->bytes - count + 1), count);

        if (written <= 0) {
            return fail_errno("write to", s->run->folder);
        }
        at += (size_t)written;
    }
    return TALLY_OK;
}

/* Every rank writes as many bytes as it has in a checkpoint to as many files; then it syncs them.
 */
static int write_plain(const struct rank_state *s)
{
    size_t n = s->record->n_files;
    int fds[MAX_FILES] = {-1, -1, -1, -1};
    int rc = open_plain(s, fds);

    for (size_t i = 0; rc == TALLY_OK && i < n; i++) {
        rc = write_bytes(s, fds[i], s->record->file_bytes[i]);
    }
    for (size_t i = 0; rc == TALLY_OK && i < n; i++) {
        rc = fsync(fds[i]) == 0 ? TALLY_OK : fail_errno("write to", s->run->folder);
    }
    for (size_t i = 0; i < n; i++) {
        char path[600];

        (void)snprintf(path, sizeof path, "%s/plain-%d-%zu", s->run->folder, s->rank, i);
        (void)(fds[i] >= 0 && close(fds[i]) == 0);
        (void)unlink(path);
    }
    return rc;
}

/* Notes a part's bytes at its file; large files only. */
static void note_part(void *user, const tally_checkpoint_part *part)
{
    struct rank_state *s = user;
    struct record *record = s->record;

    if (part->rank != s->rank) {
        return;
    }
    if (strcmp(s->last_file, part->file) != 0 && record->n_files < MAX_FILES) {
        (void)snprintf(s->last_file, sizeof s->last_file, "%s", part->file);
        record->n_files++;
    }
    record->file_bytes[record->n_files - 1] += part->bytes;
}

/* The files that this rank has in a checkpoint. */
static int note_files(struct rank_state *s)
{
    char path[600];

    (void)snprintf(path, sizeof path, "%s/run", s->run->folder);
    return tally_checkpoint_inspect(path, NULL, NULL, note_part, s);
}

static int save(const struct rank_state *s, bool async)
{
    char path[600];
    tally_checkpoint_config config;

    (void)snprintf(path, sizeof path, "%s/run", s->run->folder);
    tally_checkpoint_config_init(&config, sizeof config);
    config.keep = 1;
    config.async = async;
    return tally_checkpoint_save(s->ddp, path, &config);
}

/* Parameters that were spoilt come back. */
static int load(struct rank_state *s, double *ms)
{
    tally_checkpoint_info info = {.size = sizeof info};
    size_t last = s->bench->bytes / sizeof(float) - 1;
    const float before[2] = {s->data[0], s->data[last]};
    char path[600];
    uint64_t start;

    (void)snprintf(path, sizeof path, "%s/run", s->run->folder);
    s->data[0] = -1;
    s->data[last] = -1;
    TRY(rank_board_meet(&s->board));
    start = rank_board_now(&s->board);
    TRY(tally_checkpoint_load(s->ddp, path, NULL, &info));
    *ms = ms_since(s, start);
    s->record->bytes = info.bytes;
    return s->data[0] == before[0] && s->data[last] == before[1]
               ? TALLY_OK
               : tally__fail(TALLY_INTERNAL, "the checkpoint has other parameters");
}

/* The bytes that an asynchronous save copies, and arrays to copy as many. */
static int prepare_copy(struct rank_state *s)
{
    size_t bytes[2];

    TRY(tally_ddp_save(s->ddp, NULL, &bytes[0]));
    TRY(tally_optimizer_save(s->optimizer, NULL, &bytes[1]));
    s->record->copied_bytes = s->bench->bytes + bytes[0] + bytes[1];
    for (int k = 0; k < 2; k++) {
        s->copy[k] = tally__alloc(s->record->copied_bytes, "a copy");
        if (!s->copy[k]) {
            return TALLY_NOMEM;
        }
        memset(s->copy[k], k + 1, s->record->copied_bytes);
    }
    return TALLY_OK;
}

/* The median of n steps. */
static int time_steps(struct rank_state *s, size_t n, double *ms)
{
    double samples[MAX_DURING];

    for (size_t k = 0; k < n; k++) {
        uint64_t start = rank_board_now(&s->board);

        TRY(step(s));
        samples[k] = ms_since(s, start);
    }
    *ms = bench_quantile(samples, n, 0.5);
    return TALLY_OK;
}

static int time_files(struct rank_state *s, size_t round)
{
    uint64_t start;

    TRY(rank_board_meet(&s->board));
    start = rank_board_now(&s->board);
    TRY(write_plain(s));
    s->record->ms[PLAIN][round] = ms_since(s, start);
    TRY(rank_board_meet(&s->board));
    start = rank_board_now(&s->board);
    TRY(save(s, false));
    s->record->ms[SAVE][round] = ms_since(s, start);
    return load(s, &s->record->ms[LOAD][round]);
}

static void *write_plain_thread(void *user)
{
    struct rank_state *s = user;

    s->beside_rc = write_plain(s);
    return NULL;
}

/* Steps while another thread does plain writes: the price of the disk alone. */
static int time_beside(struct rank_state *s, size_t n, double *ms)
{
    pthread_t thread;
    int rc;

    if (pthread_create(&thread, NULL, write_plain_thread, s) != 0) {
        return tally__fail(TALLY_SYSTEM, "cannot start a thread");
    }
    rc = time_steps(s, n, ms);
    (void)pthread_join(thread, NULL);
    return rc == TALLY_OK && s->beside_rc != TALLY_OK
               ? tally__fail(s->beside_rc, "a plain write beside steps has failed")
               : rc;
}

/* An asynchronous save, and steps while it is written. */
static int time_async(struct rank_state *s, size_t round)
{
    double(*ms)[CHECKPOINT_MAX_ROUNDS] = s->record->ms;
    const struct record *first = s->board.records;
    size_t n;
    uint64_t start;

    TRY(save(s, true)); /* allocates */
    TRY(tally_checkpoint_wait(s->ddp));
    TRY(time_steps(s, N_STEPS, &ms[STEP][round]));
    TRY(rank_board_meet(&s->board));
    start = rank_board_now(&s->board);
    memcpy(s->copy[1], s->copy[0], s->record->copied_bytes);
    ms[COPY][round] = ms_since(s, start);
    TRY(rank_board_meet(&s->board));
    start = rank_board_now(&s->board);
    TRY(save(s, true));
    ms[TAKE][round] = ms_since(s, start);
    /* By the times of rank 0: as many on all ranks. */
    n = (size_t)(first->ms[SAVE][round] / first->ms[STEP][round]);
    n = n < 1 ? 1 : n;
    n = n < MAX_DURING ? n : MAX_DURING;
    TRY(time_steps(s, n, &ms[DURING][round]));
    TRY(tally_checkpoint_wait(s->ddp));
    return time_beside(s, n, &ms[BESIDE][round]);
}

static int measure(struct rank_state *s)
{
    double ignored;

    TRY(make_model(s));
    TRY(backward_create(&s->backward));
    s->units = (uint64_t)(s->bench->backward_ms * 1e6 / backward_unit_ns(&s->backward)) + 1;
    TRY(step(s));
    TRY(prepare_copy(s));
    TRY(save(s, false));
    TRY(load(s, &ignored));
    TRY(note_files(s));
    for (size_t round = 0; round < s->bench->n_rounds; round++) {
        TRY(time_files(s, round));
        TRY(time_async(s, round));
    }
    return rank_board_meet(&s->board);
}

static int rank_body(int rank, void *user)
{
    const struct run *run = user;
    const struct rank_group wanted = {.rank = rank,
                                      .ranks = run->bench->ranks,
                                      .rendezvous = run->rendezvous,
                                      .lanes = 1,
                                      .open_timeout_s = 60,
                                      .timeout_s = 600};
    struct rank_state s = {.bench = run->bench, .run = run, .rank = rank, .board = run->board};
    int rc;

    TRY(rank_group_open(&wanted, &s.group));
    rc = rank_board_join(&s.board, rank, NULL);
    if (rc == TALLY_OK) {
        s.record = (struct record *)s.board.records + rank;
        rc = measure(&s);
    }
    if (rc == TALLY_OK) {
        backward_free(&s.backward);
        free_model(&s);
        rank_board_leave(&s.board);
        (void)tally_group_close(s.group);
    }
    return rc;
}

/* ---- the team ---- */

static int check(const struct checkpoint_bench *bench)
{
    if (bench->ranks < 1 || bench->ranks > PATTERN_MAX_RANKS) {
        return tally__fail(TALLY_ARG, "%d ranks are not in 1..%d", bench->ranks, PATTERN_MAX_RANKS);
    }
    if (bench->n_params < 1 || bench->n_params > bench->bytes / sizeof(float)) {
        return tally__fail(TALLY_ARG, "%zu parameters cannot share %zu bytes", bench->n_params,
                           bench->bytes);
    }
    return bench->n_rounds >= 1 && bench->n_rounds <= CHECKPOINT_MAX_ROUNDS
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "%zu rounds are not in 1..%d", bench->n_rounds,
                             CHECKPOINT_MAX_ROUNDS);
}

/* The median over rounds of the slowest rank. */
static double conclude_side(const struct run *run, enum side side)
{
    const struct record *records = run->board.records;
    double samples[CHECKPOINT_MAX_ROUNDS] = {0};

    for (size_t round = 0; round < run->bench->n_rounds; round++) {
        for (int r = 0; r < run->bench->ranks; r++) {
            double ms = records[r].ms[side][round];

            samples[round] = ms > samples[round] ? ms : samples[round];
        }
    }
    return bench_quantile(samples, run->bench->n_rounds, 0.5);
}

static void conclude(const struct run *run, struct checkpoint_result *result)
{
    const struct record *first = run->board.records;

    result->cpus = bench_cpus();
    result->bytes = first->bytes;
    result->copied_bytes = first->copied_bytes;
    result->plain_ms = conclude_side(run, PLAIN);
    result->save_ms = conclude_side(run, SAVE);
    result->load_ms = conclude_side(run, LOAD);
    result->save_over_plain = result->plain_ms / result->save_ms;
    result->load_over_plain = result->plain_ms / result->load_ms;
    result->copy_ms = conclude_side(run, COPY);
    result->take_ms = conclude_side(run, TAKE);
    result->take_over_copy = result->take_ms / result->copy_ms;
    result->step_ms = conclude_side(run, STEP);
    result->during_ms = conclude_side(run, DURING);
    result->during_growth = result->during_ms / result->step_ms - 1;
    result->beside_ms = conclude_side(run, BESIDE);
    result->beside_growth = result->beside_ms / result->step_ms - 1;
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

int checkpoint_bench_run(const struct checkpoint_bench *bench, struct checkpoint_result *result)
{
    struct run run = {.bench = bench};
    int rc;

    TRY(check(bench));
    (void)snprintf(run.folder, sizeof run.folder, "%.400s/tally-bench-XXXXXX", bench->directory);
    (void)snprintf(run.rendezvous, sizeof run.rendezvous, "@tally-checkpoint-%ld", (long)getpid());
    if (!mkdtemp(run.folder)) {
        return fail_errno("create a folder in", bench->directory);
    }
    rc = rank_board_create(bench->ranks, sizeof(struct record), &run.board);
    if (rc == TALLY_OK) {
        rc = rank_team_run(bench->ranks, rank_body, &run, TIMEOUT_S);
        if (rc == TALLY_OK) {
            conclude(&run, result);
        }
        rank_board_free(&run.board);
    }
    (void)nftw(run.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}

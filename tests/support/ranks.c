/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness for ranks. The main thread starts the ranks of one run and waits for them; every rank
 * enters with its own context. One shared mapping contains everything that ranks tell each other
 * and the main thread without tally.
 */
#include "support/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/counting_memory.h"
#include "support/ranks_inner.h"

static struct board *board;
static _Thread_local struct rank_context *current;

static const char *const kind_names[] = {"threads", "processes"};
static const char *const memory_names[] = {"group memory", "heap", "staged", "mixed"};

struct board *ranks_board(void)
{
    return board;
}

bool ranks_have_processes(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return false;
#else
    return true;
#endif
#else
    return true;
#endif
}

/* ---- inside a rank ---- */

const struct ranks *ranks_now(void)
{
    return current->ranks;
}

int ranks_close(tally_group *group)
{
    int rc = tally_group_close(group);

    if (rc == TALLY_OK && group == current->group) {
        current->group = NULL;
    }
    return rc;
}

static bool in_group_memory(const tally_group *group)
{
    enum ranks_memory memory = ranks_now()->memory;

    return memory == RANKS_GROUP_MEMORY || memory == RANKS_STAGED ||
           (memory == RANKS_MIXED && tally_group_rank(group) % 2 == 0);
}

/* In front of ordinary memory: group memory of the same call, for the collective end of both. */
struct front {
    _Alignas(64) void *group_memory;
};

/* In mixed memory the others take part in the allocation and then use their heap. */
void *ranks_buffer(tally_group *group, size_t bytes)
{
    void *memory = NULL;
    struct front *front;

    if (ranks_now()->memory != RANKS_HEAP && tally_group_alloc(group, bytes, &memory) != TALLY_OK) {
        return NULL;
    }
    if (in_group_memory(group)) {
        return memory;
    }
    front = aligned_alloc(64, (sizeof *front + bytes + 63) / 64 * 64);
    if (!front) {
        return NULL;
    }
    front->group_memory = memory;
    return front + 1;
}

void ranks_buffer_free(tally_group *group, void *buffer)
{
    void *memory = buffer;

    if (!buffer) {
        return;
    }
    if (!in_group_memory(group)) {
        struct front *front = (struct front *)buffer - 1;

        memory = front->group_memory;
        free(front);
    }
    (void)tally_group_free(group, memory);
}

void ranks_note(tally_group *group, uint64_t everywhere, uint64_t this_run)
{
    int rank = tally_group_rank(group);

    board->of_run.everywhere[rank] =
        ranks_hash(board->of_run.everywhere[rank], &everywhere, sizeof everywhere);
    board->of_run.this_run[rank] =
        ranks_hash(board->of_run.this_run[rank], &this_run, sizeof this_run);
}

_Atomic uint32_t *ranks_words(void)
{
    return board->of_run.words;
}

int ranks_await(_Atomic uint32_t *word, uint32_t value)
{
    for (int i = 0; i < 60000 && atomic_load(word) < value; i++) {
        ranks_sleep_ms(1);
    }
    return atomic_load(word) >= value ? 0 : RANKS_FAILED;
}

/* ---- one rank from beginning to end ---- */

void ranks_run_one(struct rank_context *context)
{
    current = context;
    ranks_stage(context->group, context->ranks->memory == RANKS_STAGED);
    if (context->body(context->group, context->user) != 0) {
        context->n_failures++;
        /* The others need not wait for a rank that has failed its test. */
        if (context->group) {
            (void)tally_group_abort(context->group, "a check of the test failed");
        }
    }
    ranks_stage(context->group, false);
    if (context->group && tally_group_close(context->group) != TALLY_OK) {
        (void)fprintf(stderr, "rank %d cannot close its group: %s\n", context->rank,
                      tally_last_error());
        context->n_failures++;
    }
    atomic_store(&board->of_run.done[context->rank], 1);
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    while (folder && readdir(folder)) {
        n++;
    }
    if (folder) {
        (void)closedir(folder);
    }
    return n;
}

/* Counts that must be the same before and after a run. */
struct holdings {
    int descriptors;
    size_t blocks;
};

static struct holdings take_stock(void)
{
    return (struct holdings){count_descriptors(), counting_memory_live()};
}

static int compare_stock(const struct ranks *ranks, struct holdings before, const char *whose)
{
    struct holdings after = take_stock();
    int n_failures = 0;

    if (after.descriptors != before.descriptors) {
        (void)fprintf(stderr, "%s: %d descriptors before, %d after\n", whose, before.descriptors,
                      after.descriptors);
        n_failures++;
    }
    if (after.blocks != before.blocks && !ranks->may_leak) {
        (void)fprintf(stderr, "%s: %zu blocks of memory before, %zu after\n", whose, before.blocks,
                      after.blocks);
        n_failures++;
    }
    return n_failures;
}

void ranks_fill_config(const struct ranks *ranks, tally_group_config *config)
{
    tally_group_config_init(config, sizeof *config);
    config->lanes = ranks->lanes;
    config->timeout_s = ranks->timeout_s > 0 ? ranks->timeout_s : 60;
}

/* The main thread reports ranks that are not done. */
static void say_missing(const struct ranks *ranks)
{
    for (int r = 0; r < ranks->world; r++) {
        if (!atomic_load(&board->of_run.done[r])) {
            (void)fprintf(stderr, "rank %d of %d (%s, %s) is not done after %d s\n", r,
                          ranks->world, kind_names[ranks->kind], memory_names[ranks->memory],
                          DEADLINE_S);
        }
    }
}

/* ---- ranks as threads ---- */

static void *thread_main(void *argument)
{
    ranks_run_one(argument);
    return NULL;
}

static bool all_done(int world)
{
    for (int r = 0; r < world; r++) {
        if (!atomic_load(&board->of_run.done[r])) {
            return false;
        }
    }
    return true;
}

static int run_threads(const struct ranks *ranks, ranks_body *body, void *user)
{
    struct rank_context context[MAX_RANKS];
    tally_group *groups[MAX_RANKS];
    tally_group_config config;
    int n_failures = 0;

    ranks_fill_config(ranks, &config);
    if (tally_group_open_threads(&config, ranks->world, groups) != TALLY_OK) {
        (void)fprintf(stderr, "cannot open: %s\n", tally_last_error());
        return 1;
    }
    for (int r = 0; r < ranks->world; r++) {
        context[r] = (struct rank_context){
            .ranks = ranks, .group = groups[r], .body = body, .user = user, .rank = r};
        if (pthread_create(&context[r].thread, NULL, thread_main, &context[r]) != 0) {
            (void)fprintf(stderr, "cannot start a thread\n");
            exit(1);
        }
    }
    for (int ms = 0; !all_done(ranks->world); ms++) {
        if (ms > DEADLINE_S * 1000) {
            say_missing(ranks);
            _exit(1);
        }
        ranks_sleep_ms(1);
    }
    for (int r = 0; r < ranks->world; r++) {
        (void)pthread_join(context[r].thread, NULL);
        n_failures += context[r].n_failures;
    }
    return n_failures;
}

/* ---- ranks as processes ---- */

static void process_main(const struct ranks *ranks, int rank, const char *rendezvous,
                         ranks_body *body, void *user)
{
    struct rank_context context = {.ranks = ranks, .body = body, .user = user, .rank = rank};
    struct holdings before = take_stock();
    tally_group_config config;

    ranks_fill_config(ranks, &config);
    config.backend = "shm";
    config.rank = rank;
    config.world = ranks->world;
    config.rendezvous = rendezvous;
    if (tally_group_open(&config, &context.group) != TALLY_OK) {
        (void)fprintf(stderr, "rank %d cannot open: %s\n", rank, tally_last_error());
        exit(1);
    }
    ranks_run_one(&context);
    context.n_failures += compare_stock(ranks, before, "a rank's process");
    exit(context.n_failures != 0);
}

static int judge(const struct ranks *ranks, int rank, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    (void)fprintf(stderr, "rank %d of %d (processes, %s) %s %d\n", rank, ranks->world,
                  memory_names[ranks->memory], WIFSIGNALED(status) ? "died by signal" : "exited",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

static int collect(const struct ranks *ranks, const pid_t *child)
{
    int n_failures = 0;
    int n_left = ranks->world;
    bool collected[MAX_RANKS] = {false};

    for (int ms = 0; n_left > 0; ms++) {
        if (ms == DEADLINE_S * 1000) {
            say_missing(ranks);
        }
        for (int r = 0; r < ranks->world; r++) {
            int status;

            if (collected[r]) {
                continue;
            }
            if (ms == DEADLINE_S * 1000) {
                (void)kill(child[r], SIGKILL);
            }
            if (waitpid(child[r], &status, WNOHANG) == child[r]) {
                n_failures += judge(ranks, r, status);
                collected[r] = true;
                n_left--;
            }
        }
        ranks_sleep_ms(1);
    }
    return n_failures;
}

static int run_processes(const struct ranks *ranks, ranks_body *body, void *user)
{
    static int n_runs;
    pid_t child[MAX_RANKS];
    char rendezvous[64];
    int n_failures;

    (void)snprintf(rendezvous, sizeof rendezvous, "@tally-test-%ld-%d", (long)getpid(), n_runs++);
    (void)fflush(NULL);
    for (int r = 0; r < ranks->world; r++) {
        child[r] = fork();
        if (child[r] == 0) {
            process_main(ranks, r, rendezvous, body, user);
        }
        if (child[r] < 0) {
            (void)fprintf(stderr, "cannot fork: %s\n", strerror(errno));
            exit(1);
        }
    }
    n_failures = collect(ranks, child);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        (void)fprintf(stderr, "a child is left\n");
        n_failures++;
    }
    return n_failures;
}

/* ---- runs ---- */

int ranks_compare_notes(const struct ranks *ranks)
{
    for (int r = 1; r < ranks->world; r++) {
        if (board->of_run.this_run[r] != board->of_run.this_run[0]) {
            (void)fprintf(stderr, "ranks 0 and %d of %d (%s, %s) have different results\n", r,
                          ranks->world, kind_names[ranks->kind], memory_names[ranks->memory]);
            return 1;
        }
    }
    return 0;
}

static void make_board(void)
{
    int fd = ranks_mpi_board();

    if (board) {
        return;
    }
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                 MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    if (board == MAP_FAILED) {
        (void)fprintf(stderr, "no memory for the board\n");
        exit(1);
    }
}

static int run(const struct ranks *ranks, ranks_body *body, void *user)
{
    struct holdings before;
    int n_failures;

    if (ranks->kind == RANKS_PROCESSES && !ranks_have_processes()) {
        return 0;
    }
    make_board();
    if (ranks_mpi_world() > 0 && ranks->kind == RANKS_PROCESSES) {
        return ranks->world == ranks_mpi_world() ? ranks_run_mpi(ranks, body, user) : 0;
    }
    if (!ranks_mpi_is_first()) {
        return 0;
    }
    memset((void *)&board->of_run, 0, sizeof board->of_run);
    before = take_stock();
    n_failures = (ranks->kind == RANKS_THREADS ? run_threads : run_processes)(ranks, body, user);
    n_failures += compare_stock(ranks, before, "the test's process");
    n_failures += ranks_compare_notes(ranks);
    return n_failures;
}

int ranks_run(const struct ranks *ranks, ranks_body *body, void *user)
{
    return ranks_mpi_world() > 0 && ranks->kind == RANKS_THREADS ? 0 : run(ranks, body, user);
}

/* Every way that data can take. To a thread, all memory is memory of the group. */
static const struct {
    enum ranks_kind kind;
    enum ranks_memory memory;
} ways[] = {
    {RANKS_THREADS, RANKS_GROUP_MEMORY},   {RANKS_THREADS, RANKS_STAGED},
    {RANKS_PROCESSES, RANKS_GROUP_MEMORY}, {RANKS_PROCESSES, RANKS_HEAP},
    {RANKS_PROCESSES, RANKS_MIXED},
};

const int ranks_worlds[6] = {1, 2, 3, 7, 4, 8};

/* Under MPI the first rank alone runs threads, and only for what the others are compared with. */
static bool is_to_run(const struct ranks *ranks, size_t way, bool compare)
{
    if (ranks_mpi_world() == 0) {
        return ranks->kind == RANKS_THREADS || ranks_have_processes();
    }
    return ranks->world == ranks_mpi_world() &&
           (way == 0 ? compare : ranks->kind == RANKS_PROCESSES && ranks->memory != RANKS_MIXED);
}

int ranks_run_world(ranks_body *body, void *user, int lanes, int world, bool compare)
{
    uint64_t first = 0;
    int n_failures = 0;

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct ranks ranks = {ways[i].kind, ways[i].memory, world, lanes, 0, false};

        if (!is_to_run(&ranks, i, compare)) {
            continue;
        }
        n_failures += run(&ranks, body, user);
        if (!ranks_mpi_is_first()) {
            continue;
        }
        (void)printf("world %d, %s, %s: %016llx\n", world, kind_names[ranks.kind],
                     memory_names[ranks.memory], (unsigned long long)board->of_run.everywhere[0]);
        first = i == 0 ? board->of_run.everywhere[0] : first;
        if (compare && board->of_run.everywhere[0] != first) {
            (void)fprintf(stderr, "these results are not those of threads: %016llx\n",
                          (unsigned long long)first);
            n_failures++;
        }
    }
    return n_failures;
}

int ranks_run_all(ranks_body *body, void *user, int lanes, bool compare)
{
    int n_failures = 0;

    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        n_failures += ranks_run_world(body, user, lanes, ranks_worlds[w], compare);
    }
    return n_failures;
}

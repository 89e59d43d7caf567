/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs of calls of the public functions, in legal and illegal orders, with good and bad
 * arguments. Ranks are threads. One seed is one program. In half of the programs all ranks do the
 * same: all must get the same statuses, none may be late, and parameters must have the same bits.
 * In the others a rank strays, or an allocation fails: calls may fail, but nothing may crash, hang
 * or leak, and every failure has a status of the list and a text.
 *
 *     api_fuzz [--seconds S] [--programs N] [--first SEED] [--workers N]
 *     api_fuzz --seed SEED          this program alone, in this process, with its calls
 *
 * Programs run in worker processes; the parent looks after them, and prints the seed and the calls
 * of the one that ended badly. It fails too when a public function of the header was never called.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/api_rank.h"
#include "support/counting_memory.h"

#define MAX_WORKERS 16
#define HANG_SECONDS 120
/* Enough to call every function. Sanitizers are slow, and look for other mistakes. */
#define N_ENOUGH 200
#define N_PROGRAMS (TALLY_TESTS_SANITIZED ? 50 : N_ENOUGH)
#define MAX_FAILED 10

struct options {
    double seconds;
    unsigned long long n_programs; /* at least */
    uint64_t first;
    uint64_t seed; /* 0: many */
    int n_workers;
};

/* ---- one rank ---- */

static const struct api_row *const tables[] = {api_fact_rows,      api_group_rows,   api_ddp_rows,
                                               api_hook_rows,      api_reducer_rows, api_state_rows,
                                               api_checkpoint_rows};

static const struct api_row *row_at(unsigned at, unsigned *total)
{
    *total = 0;
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const struct api_row *row = tables[t]; row->name; row++) {
            *total += row->weight;
            if (at < *total) {
                return row;
            }
        }
    }
    return NULL;
}

static const struct api_row *draw_row(struct api_rank *rank)
{
    unsigned total;

    (void)row_at(UINT32_MAX, &total);
    return row_at(api_pick(rank, total), &total);
}

/* Returns false when the rank leaves early. */
static bool stray(struct api_rank *rank, uint64_t draw)
{
    struct timespec late = {.tv_sec = 0, .tv_nsec = 400000000};

    switch (draw % 8) {
    case 0:
        return false;
    case 1: /* sits this one out */
        return true;
    case 2:
        if (draw / 8 % 8 == 0) {
            late.tv_sec = (time_t)rank->program->timeout_s;
        }
        (void)nanosleep(&late, NULL);
        break;
    default: /* does something else, or the same with other arguments */
        rank->random = api_mix(rank->random + draw / 8);
    }
    return true;
}

static bool run_operation(struct api_rank *rank, int number)
{
    const struct api_program *program = rank->program;
    uint64_t base = api_mix(program->seed * 1000003 + (uint64_t)number);
    uint64_t draw = api_mix(base ^ 77);
    bool strays = rank->rank == program->stray && number >= program->n_alike && draw % 6 == 0;
    const struct api_row *row;

    rank->random = base;
    rank->operation = number;
    rank->is_apart = false;
    if (strays) {
        api_note(rank, "strays");
        if (!stray(rank, draw / 6)) {
            return false;
        }
        if (draw / 6 % 8 == 1) {
            return true;
        }
    }
    row = draw_row(rank);
    if (!row->strays_only || program->stray >= 0) {
        api_note(rank, "operation %d: %s", number, row->name);
        row->run(rank);
    }
    return true;
}

static void end_rank(struct api_rank *rank)
{
    rank->operation = rank->program->n_operations;
    rank->random = api_mix(rank->program->seed);
    rank->is_apart = true;
    api_note(rank, "the end");
    for (int i = API_N_MODELS - 1; i >= 0; i--) {
        api_free_model(rank, &rank->models[i]);
    }
    for (int i = 0; i < API_N_FUTURES; i++) {
        ASK(rank, tally_future_free(rank->futures[i]));
    }
    for (int i = 0; i < API_N_MEMORIES; i++) {
        (void)CALL(rank, tally_group_free(rank->groups[0], rank->memories[i].memory));
    }
    for (int i = API_N_GROUPS - 1; i >= 0; i--) {
        if (CALL(rank, tally_group_close(rank->groups[i])) != TALLY_OK) {
            api_fail(rank, "a group cannot be closed: %s", tally_last_error());
        }
    }
    for (int i = 0; i < API_N_HOOKS; i++) {
        ASK(rank, tally_hook_free(rank->hooks[i]));
    }
}

static void *run_rank(void *argument)
{
    struct api_rank *rank = argument;

    for (int i = 0; i < rank->program->n_operations; i++) {
        if (!run_operation(rank, i)) {
            break;
        }
    }
    end_rank(rank);
    return NULL;
}

/* ---- one program ---- */

static struct api_program draw_program(uint64_t seed, struct api_progress *progress, bool is_shown)
{
    static const int worlds[] = {1, 2, 2, 2, 3, 3, 4, 7};
    uint64_t random = api_mix(seed);
    struct api_program program = {
        .seed = seed, .stray = -1, .timeout_s = 60, .progress = progress, .is_shown = is_shown};

    program.world = worlds[api_draw(&random) % (sizeof worlds / sizeof worlds[0])];
    program.lanes = (int)(api_draw(&random) % 4);
    program.n_operations = 5 + (int)(api_draw(&random) % 50);
    program.may_lack_memory = api_draw(&random) % 8 == 0;
    if (api_draw(&random) % 2 || program.may_lack_memory) {
        program.stray = (int)(api_draw(&random) % (uint64_t)program.world);
        program.n_alike = (int)(api_draw(&random) % 20);
        program.timeout_s = 1;
    }
    return program;
}

/* Ranks that did the same were told the same. */
static void compare(const struct api_rank *ranks, int world)
{
    for (int r = 1; r < world; r++) {
        for (size_t i = 0; i < ranks[0].n_calls || i < ranks[r].n_calls; i++) {
            const struct api_call *a = &ranks[0].calls[i];
            const struct api_call *b = &ranks[r].calls[i];

            if (i >= ranks[0].n_calls || i >= ranks[r].n_calls) {
                api_fail(&ranks[r], "calls %zu and %zu times: %s", ranks[0].n_calls,
                         ranks[r].n_calls, (i < ranks[0].n_calls ? a : b)->text);
            }
            if (a->text != b->text || a->status != b->status || a->hash != b->hash) {
                api_fail(&ranks[r], "operation %d: rank 0 has %s = %s %llx, this rank %s = %s %llx",
                         a->operation, a->text, tally_status_name(a->status),
                         (unsigned long long)a->hash, b->text, tally_status_name(b->status),
                         (unsigned long long)b->hash);
            }
        }
    }
}

static void refuse_lateness(const struct api_rank *ranks, int world)
{
    for (int r = 0; r < world; r++) {
        for (size_t i = 0; i < ranks[r].n_calls; i++) {
            int status = ranks[r].calls[i].status;

            if (status == TALLY_PEER || status == TALLY_TIMEOUT || status == TALLY_MISMATCH) {
                api_fail(&ranks[r], "operation %d: %s = %s, though all ranks did the same",
                         ranks[r].calls[i].operation, ranks[r].calls[i].text,
                         tally_status_name(status));
            }
        }
    }
}

static void run_ranks(const struct api_program *program, struct api_rank *ranks)
{
    tally_group *groups[API_MAX_WORLD];
    pthread_t threads[API_MAX_WORLD];
    tally_group_config config;

    tally_group_config_init(&config, sizeof config);
    config.lanes = program->lanes;
    config.timeout_s = program->timeout_s;
    if (CALL_ANY(&ranks[0], tally_group_open_threads(&config, program->world, groups)) !=
        TALLY_OK) {
        return;
    }
    if (program->may_lack_memory) {
        counting_memory_fail_nth(1 + api_mix(program->seed + 1) % 2000);
    }
    for (int r = 0; r < program->world; r++) {
        ranks[r].groups[0] = groups[r];
        if (pthread_create(&threads[r], NULL, run_rank, &ranks[r]) != 0) {
            api_fail(&ranks[r], "no thread for the fuzzer itself");
        }
    }
    for (int r = 0; r < program->world; r++) {
        (void)pthread_join(threads[r], NULL);
        api_free_flights(&ranks[r]);
    }
    counting_memory_fail_nth(0);
}

static void run_program(uint64_t seed, struct api_progress *progress, bool is_shown)
{
    struct api_program program = draw_program(seed, progress, is_shown);
    struct api_rank *ranks = calloc((size_t)program.world, sizeof *ranks);
    size_t live = counting_memory_live();

    if (!ranks) {
        abort();
    }
    atomic_store(&progress->seed, seed);
    for (int r = 0; r < program.world; r++) {
        atomic_store(&progress->logs[r].used, 0);
        ranks[r].program = &program;
        ranks[r].rank = r;
    }
    api_note(&ranks[0], "%d ranks, %d lanes, %s", program.world, program.lanes,
             program.stray >= 0 ? "some stray" : "all alike");
    run_ranks(&program, ranks);
    if (program.stray < 0) {
        refuse_lateness(ranks, program.world);
        compare(ranks, program.world);
    }
    if (counting_memory_live() != live) {
        api_fail(&ranks[0], "%zu blocks of memory were left", counting_memory_live() - live);
    }
    free(ranks);
    atomic_fetch_add(&progress->n_programs, 1);
}

/* ---- workers ---- */

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void hear(void *user, int level, const char *text)
{
    (void)user;
    if (level <= TALLY_LOG_ERROR && !*text) {
        abort();
    }
}

static void start_log(const struct api_rank *rank)
{
    (void)CALL_ANY(rank, tally_log_set(hear, NULL, 99));
    (void)CALL_ANY(rank, tally_log_set(hear, NULL, TALLY_LOG_DEBUG));
}

/* The source of the seeds of all workers. */
struct board {
    _Atomic uint64_t n_begun;
    double end;
    struct api_progress progress[MAX_WORKERS];
};

static _Noreturn void work(const struct options *options, struct board *board, int worker)
{
    static struct api_program program;
    const struct api_rank rank = {.program = &program};

    program.progress = &board->progress[worker];
    start_log(&rank);
    for (;;) {
        uint64_t number = atomic_fetch_add(&board->n_begun, 1);

        if (number >= options->n_programs && now() >= board->end) {
            exit(0);
        }
        (void)alarm(HANG_SECONDS);
        run_program(options->first + number, program.progress, false);
    }
}

static void print_program(const struct api_progress *progress, int status)
{
    (void)fprintf(stderr, "api_fuzz: seed %llu ended with %s %d; its calls:\n",
                  (unsigned long long)atomic_load(&progress->seed),
                  WIFSIGNALED(status) ? "signal" : "exit code",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    for (int r = 0; r < API_MAX_WORLD; r++) {
        const struct api_log *log = &progress->logs[r];
        size_t used = atomic_load(&log->used);

        if (used > 0) {
            (void)fprintf(stderr, "rank %d:\n%.*s", r,
                          (int)(used < sizeof log->text ? used : sizeof log->text - 1), log->text);
        }
    }
    (void)fprintf(stderr, "again: api_fuzz --seed %llu\n",
                  (unsigned long long)atomic_load(&progress->seed));
}

static bool all_called(const struct api_progress *progress, int n_workers)
{
    bool is_complete = true;

    for (size_t i = 0; i < api_n_names; i++) {
        unsigned long long n = 0;

        for (int w = 0; w < n_workers; w++) {
            n += atomic_load(&progress[w].n_calls[i]);
        }
        if (n == 0) {
            (void)fprintf(
                stderr,
                "api_fuzz: %s was never called: add it to an operation of tests/fuzz/api_*.c\n",
                api_names[i]);
            is_complete = false;
        }
    }
    return is_complete;
}

static pid_t start_worker(const struct options *options, struct board *board, int worker)
{
    pid_t pid = fork();

    if (pid == 0) {
        work(options, board, worker);
    }
    return pid;
}

/* Waits for a worker; after a failure another one goes on, up to MAX_FAILED times. */
static int watch(const struct options *options, struct board *board)
{
    pid_t pids[MAX_WORKERS];
    int n_failed = 0;
    int status;
    pid_t pid;

    for (int w = 0; w < options->n_workers; w++) {
        pids[w] = start_worker(options, board, w);
    }
    while ((pid = wait(&status)) > 0) {
        for (int w = 0; w < options->n_workers; w++) {
            if (pids[w] == pid && status != 0) {
                print_program(&board->progress[w], status);
                if (++n_failed < MAX_FAILED) {
                    pids[w] = start_worker(options, board, w);
                }
            }
        }
    }
    return n_failed;
}

static int run_workers(const struct options *options)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned long long n_programs = 0;
    int n_failed;

    if (board == MAP_FAILED) {
        perror("api_fuzz");
        return 2;
    }
    board->end = now() + options->seconds;
    n_failed = watch(options, board);
    for (int w = 0; w < options->n_workers; w++) {
        n_programs += atomic_load(&board->progress[w].n_programs);
    }
    printf("api_fuzz: %llu programs passed, %d failed, seeds %llu..%llu\n", n_programs, n_failed,
           (unsigned long long)options->first,
           (unsigned long long)(options->first + n_programs + (unsigned)n_failed - 1));
    if (options->first == 1 && n_programs >= N_ENOUGH) {
        n_failed += !all_called(board->progress, options->n_workers);
    }
    (void)munmap(board, sizeof *board);
    return n_failed > 0;
}

static int run_one(uint64_t seed)
{
    struct api_progress *progress = calloc(1, sizeof *progress);
    struct api_program program = {.seed = seed, .progress = progress};
    const struct api_rank rank = {.program = &program};

    if (!progress) {
        return 2;
    }
    start_log(&rank);
    run_program(seed, progress, true);
    free(progress);
    return 0;
}

int main(int argc, char **argv)
{
    struct options options = {.n_programs = N_PROGRAMS, .first = 1, .n_workers = 8};
    int rc;

    for (int i = 1; i + 1 < argc; i += 2) {
        double number = strtod(argv[i + 1], NULL);

        if (strcmp(argv[i], "--seconds") == 0) {
            options.seconds = number;
        } else if (strcmp(argv[i], "--programs") == 0) {
            options.n_programs = (unsigned long long)number;
        } else if (strcmp(argv[i], "--first") == 0) {
            options.first = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            options.seed = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--workers") == 0 && number >= 1 && number <= MAX_WORKERS) {
            options.n_workers = (int)number;
        } else {
            (void)fprintf(stderr, "api_fuzz: %s %s is not known\n", argv[i], argv[i + 1]);
            return 2;
        }
    }
    api_checkpoints_begin();
    rc = options.seed ? run_one(options.seed) : run_workers(&options);
    api_checkpoints_end();
    return rc;
}

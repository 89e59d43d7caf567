/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally bench collective`: prints the results of the engine in bench/ as a table or as JSON lines.
 * One thread, because the engine forks.
 */
#include "tools/bench_collective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tally_extend.h>

#include "bench/collective_bench.h"
#include "tools/bench_ranks.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/lists.h"
#include "tools/options.h"

#define NAME "tally bench collective"

static void flush_line(void)
{
    /* A size takes seconds: flush each line, for readers of a pipe. */
    (void)fflush(stdout);
}

static void print_json(const struct collective_result *result, void *user)
{
    struct json json = json_begin(stdout);

    (void)user;
    json_text(&json, "op", result->op);
    json_count(&json, "ranks", (size_t)result->ranks);
    json_count(&json, "bytes", result->bytes);
    json_text(&json, "memory", result->heap ? "heap" : "group");
    json_count(&json, "samples", result->n_samples);
    json_real(&json, "us", result->us);
    json_real(&json, "us_p99", result->us_p99);
    json_real(&json, "algbw_gbps", result->algbw_gbps);
    json_real(&json, "busbw_gbps", result->busbw_gbps);
    json_real(&json, "copy_us", result->copy_us);
    json_real(&json, "memcpy_us", result->memcpy_us);
    json_real(&json, "submit_us", result->submit_us);
    json_real(&json, "openmpi_us", result->peer_us[PEER_OPENMPI]);
    json_real(&json, "mpich_us", result->peer_us[PEER_MPICH]);
    json_text(&json, "openmpi_version", result->peer_version[PEER_OPENMPI]);
    json_text(&json, "mpich_version", result->peer_version[PEER_MPICH]);
    json_real(&json, "two_rank_us", result->two_rank_us);
    json_real(&json, "two_rank_ratio", result->us / result->two_rank_us);
    json_end(&json);
    flush_line();
}

/* Writes "64Ki" if that is exact. */
static void print_size(size_t bytes)
{
    static const char *const units[] = {"", "Ki", "Mi", "Gi"};
    size_t unit = 0;
    char text[32];

    while (unit < 3 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(text, sizeof text, "%zu%s", bytes, units[unit]);
    printf("%9s", text);
}

/* Prints a number that may be missing; the second function prints a ratio. */
static void print_us(double us)
{
    if (isfinite(us)) {
        printf(" %10.*f", us < 100 ? 2 : 0, us);
    } else {
        printf(" %10s", "-");
    }
}

static void print_ratio(double ratio)
{
    if (isfinite(ratio)) {
        printf(" %7.2f", ratio);
    } else {
        printf(" %7s", "-");
    }
}

static void print_header(const struct collective_bench *bench)
{
    printf(
        "%s of fp32, %s memory; times in us: median, from the first rank leaving a barrier until "
        "the last one is done\n",
        bench->op, bench->heap ? "ordinary" : "group");
    printf("%5s %9s %10s %10s %7s %10s %7s %10s %10s", "ranks", "bytes", "us", "p99", "busGB/s",
           "copy", "us/copy", "memcpy", "submit");
    for (int p = 0; p < N_PEERS; p++) {
        if (bench->peers[p]) {
            printf(" %10s %7s", peer_names[p], "/us");
        }
    }
    if (bench->compare_two) {
        printf(" %10s %7s", "two ranks", "us/two");
    }
    printf("\n");
}

/* The table being printed. */
struct table {
    const struct collective_bench *bench;
    size_t n_rows;
};

static void print_row(const struct collective_result *result, void *user)
{
    struct table *table = user;
    const struct collective_bench *bench = table->bench;

    if (table->n_rows++ == 0) {
        print_header(bench);
    }
    printf("%5d ", result->ranks);
    print_size(result->bytes);
    print_us(result->us);
    print_us(result->us_p99);
    printf(" %7.2f", result->busbw_gbps);
    print_us(result->copy_us);
    print_ratio(result->us / result->copy_us);
    print_us(result->memcpy_us);
    print_us(result->submit_us);
    for (int p = 0; p < N_PEERS; p++) {
        if (bench->peers[p]) {
            print_us(result->peer_us[p]);
            print_ratio(result->peer_us[p] / result->us);
        }
    }
    if (bench->compare_two) {
        print_us(result->two_rank_us);
        print_ratio(result->us / result->two_rank_us);
    }
    for (int p = 0; p < N_PEERS; p++) {
        if (result->peer_version[p]) {
            printf("  %s %s", peer_names[p], result->peer_version[p]);
        }
    }
    printf("\n");
    flush_line();
}

/* The options as given, not parsed yet. */
struct words {
    const char *ranks;
    const char *bytes;
    const char *op;
    const char *memory;
    const char *peers;
    double seconds;
    bool compare_two;
    bool as_json;
};

struct values {
    int ranks[LIST_MAX];
    struct size_list bytes;
    struct collective_bench bench;
};

/* Impossible values are refused later, with a specific message. */
static bool read_peers(const char *text, const char *op, bool *peers)
{
    bool makes_sense = strcmp(op, "all_reduce") == 0;
    const char *unknown;
    int length;

    if (!name_list_read(text, peer_names, N_PEERS, peers, &unknown, &length)) {
        (void)fprintf(stderr, NAME ": unknown peer '%.*s'; accepted: openmpi mpich\n", length,
                      unknown);
        return false;
    }
    for (int p = 0; p < N_PEERS; p++) {
        if (makes_sense && peers[p] && !peer_exists((enum peer)p)) {
            (void)fprintf(stderr,
                          NAME ": %s is skipped: it was not installed when tally was built; "
                               "scripts/setup --mpi installs it\n",
                          peer_names[p]);
        }
    }
    return true;
}

/* Returns an exit code. */
static int read_ranks(const char *text, struct values *values)
{
    struct bench_ranks ranks;
    int done = bench_ranks_read(NAME, text, &ranks);

    if (done == EXIT_DONE) {
        for (size_t i = 0; i < ranks.numbers.n; i++) {
            values->ranks[i] = (int)ranks.numbers.values[i];
        }
        values->bench.launch = ranks.launch;
        values->bench.ranks = values->ranks;
        values->bench.n_ranks = ranks.numbers.n;
    }
    return done;
}

/* Reads all options except --ranks. */
static bool read_values(const struct words *words, struct values *values)
{
    struct collective_bench *bench = &values->bench;

    *bench = (struct collective_bench){
        .op = words->op, .compare_two = words->compare_two, .seconds = words->seconds};
    if (!size_list_read(words->bytes, &values->bytes)) {
        (void)fprintf(stderr,
                      NAME ": --bytes %s is not a list of sizes such as 4Ki,1Mi or 1Ki..128Mi\n",
                      words->bytes);
        return false;
    }
    bench->bytes = values->bytes.values;
    bench->n_bytes = values->bytes.n;
    bench->heap = strcmp(words->memory, "heap") == 0;
    if (!bench->heap && strcmp(words->memory, "group") != 0) {
        (void)fprintf(stderr, NAME ": unknown memory '%s'; accepted: group heap\n", words->memory);
        return false;
    }
    return !words->peers || read_peers(words->peers, words->op, bench->peers);
}

static enum option_result read_words(int argc, char **argv, struct words *words)
{
    const struct option options[] = {
        {"json", OPTION_FLAG, &words->as_json, NULL, "one JSON object per line"},
        {"ranks", OPTION_TEXT, &words->ranks, "LIST",
         "numbers of ranks, such as 2,4,8 (2; under mpirun: its ranks)"},
        {"bytes", OPTION_TEXT, &words->bytes, "LIST",
         "sizes of a rank's array; A..B is A, 4A, 16A, ... and B (1Ki..128Mi)"},
        {"op", OPTION_TEXT, &words->op, "NAME",
         "all_reduce, reduce_scatter, all_gather, all_to_all or broadcast (all_reduce)"},
        {"memory", OPTION_TEXT, &words->memory, "KIND",
         "group: memory of tally_group_alloc; heap: ordinary memory (group)"},
        {"peer", OPTION_TEXT, &words->peers, "LIST",
         "also measure MPI_Allreduce of openmpi, mpich or both, in turn with tally"},
        {"compare-two", OPTION_FLAG, &words->compare_two, NULL,
         "with more than 2 ranks, also measure 2 ranks with ranks/2 times the bytes"},
        {"seconds", OPTION_SECONDS, &words->seconds, "S",
         "time to spend on each side of each size; at least 12 runs (1)"},
    };
    const struct option_set set = {
        NAME,
        "times a collective of fp32 between processes: on the lane\n"
        "(us), and from the application's call until its wait returns (submit). For\n"
        "comparison, all ranks copy the same bytes at once, with ordinary stores (copy) and\n"
        "with memcpy. Ranks rewrite their arrays before each timed call, and every element of\n"
        "every result is checked. A time begins when the first rank leaves a barrier and ends\n"
        "when the last rank is done. Ranks are bound to CPUs if there are enough. Under\n"
        "mpirun its ranks are measured over MPI: only the collective, and each rank by its\n"
        "own clock from the barrier on.",
        NAME " --ranks 2 --bytes 1Ki..128Mi --peer openmpi,mpich --json", options,
        sizeof options / sizeof options[0]};

    return options_read(&set, argc, argv);
}

int bench_collective(int argc, char **argv)
{
    struct words words = {
        .bytes = "1Ki..128Mi", .op = "all_reduce", .memory = "group", .seconds = 1};
    struct values values;
    struct table table = {.bench = &values.bench};
    enum option_result parsed = read_words(argc, argv, &words);
    int done;
    int status;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (!read_values(&words, &values)) {
        return EXIT_USAGE;
    }
    done = read_ranks(words.ranks, &values);
    if (done != EXIT_DONE) {
        return done;
    }
    values.bench.report = words.as_json ? print_json : print_row;
    values.bench.user = &table;
    status = collective_bench_run(&values.bench);
    if (status != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
        return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench lowrank`: prints the results of the engine in bench/ as a table or JSON lines. */
#include "tools/bench_lowrank.h"

#include <stdio.h>
#include <tally.h>

#include "bench/lowrank_bench.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/lists.h"
#include "tools/options.h"

#define NAME "tally bench lowrank"
#define MB 1000000

/* The largest side of a matrix: BLAS functions take ints. */
#define MAX_SIDE ((size_t)1 << 24)
#define MAX_RANK 1024

/* The options as given, not parsed yet. */
struct words {
    const char *rows;
    const char *columns;
    const char *ranks;
    struct option_count mb;
    struct option_count n_samples;
    bool as_json;
};

struct shape {
    size_t n;
    size_t m;
};

/* The goal for a rank, as a multiple of the time of plain passes over the same memory; 0: none. */
static double correct_goal(size_t r)
{
    return r <= 4 ? 1.5 : 0.0;
}

static double step_goal(size_t r)
{
    return r == 1 ? 1.3 : r == 2 ? 1.6 : 0.0;
}

static void print_json(const struct lowrank_bench *bench, const struct lowrank_result *result)
{
    struct json json = json_begin(stdout);

    json_count(&json, "rows", bench->n);
    json_count(&json, "columns", bench->m);
    json_count(&json, "rank", bench->r);
    json_count(&json, "matrices", result->n_matrices);
    json_text(&json, "isa", result->isa);
    json_text(&json, "blas", result->blas);
    json_real(&json, "multiply_ms", result->multiply_ms);
    json_real(&json, "correct_ms", result->correct_ms);
    json_real(&json, "transposed_ms", result->transposed_ms);
    json_real(&json, "expand_ms", result->expand_ms);
    json_real(&json, "orthogonalise_ms", result->orthogonalise_ms);
    json_real(&json, "step_ms", result->step_ms);
    json_real(&json, "read_ms", result->read_ms);
    json_real(&json, "update_ms", result->update_ms);
    json_real(&json, "write_ms", result->write_ms);
    json_real(&json, "streams_ms", result->streams_ms);
    json_real(&json, "blas_multiply_ms", result->blas_multiply_ms);
    json_real(&json, "blas_transposed_ms", result->blas_transposed_ms);
    json_real(&json, "blas_expand_ms", result->blas_expand_ms);
    json_real(&json, "blas_step_ms", result->blas_step_ms);
    json_end(&json);
}

/* Prints a time in ms, its ratio to another time, and "!" if the ratio misses the goal. */
static void print_time(double ms, double plain_ms, double goal)
{
    double ratio = ms / plain_ms;

    printf(" %7.2f %5.2f%c", ms, ratio, goal > 0.0 && ratio > goal ? '!' : ' ');
}

static void print_row(const struct lowrank_bench *bench, const struct lowrank_result *result)
{
    printf("%5zu x %-5zu %3zu", bench->n, bench->m, bench->r);
    print_time(result->correct_ms, result->update_ms, correct_goal(bench->r));
    print_time(result->transposed_ms, result->read_ms, 0.0);
    print_time(result->expand_ms, result->write_ms, 0.0);
    print_time(result->step_ms, result->streams_ms, step_goal(bench->r));
    printf(" %6.2f", result->orthogonalise_ms);
    if (result->blas) {
        printf("   %5.2f %5.2f %5.2f %5.2f", result->blas_multiply_ms / result->multiply_ms,
               result->blas_transposed_ms / result->transposed_ms,
               result->blas_expand_ms / result->expand_ms, result->blas_step_ms / result->step_ms);
    }
    printf("\n");
}

static void print_heading(const struct words *words)
{
    printf("%zu MB of matrices; medians of %zu, in ms, and how many times as long as plain passes "
           "over the\nsame memory take (!: more than the goal); then how many times as long a BLAS "
           "takes as we do\n",
           words->mb.value, words->n_samples.value);
    printf("%13s %3s %14s %14s %14s %14s %7s   %s\n", "matrix", "r", "correct", "transposed",
           "expand", "step", "orthog.", "  M Q   M'P   PQ'  step");
}

static enum option_result read_words(int argc, char **argv, struct words *words)
{
    const struct option options[] = {
        {"json", OPTION_FLAG, &words->as_json, NULL, "one JSON object per line"},
        {"rows", OPTION_TEXT, &words->rows, "LIST", "rows of the matrices (1024,4096,512)"},
        {"columns", OPTION_TEXT, &words->columns, "LIST",
         "columns, one for each number of rows (1024,1024,4608)"},
        {"ranks", OPTION_TEXT, &words->ranks, "LIST", "ranks to approximate by (1,2,4,8,16)"},
        {"mb", OPTION_COUNT, &words->mb, "N", "matrices, in millions of bytes (100)"},
        {"samples", OPTION_COUNT, &words->n_samples, "N", "times to run each pass (11)"},
    };
    const struct option_set set = {
        NAME,
        "times the passes of low-rank compression (powersgd) over\n"
        "matrices of one shape: correct adds the residual and multiplies by Q, transposed\n"
        "multiplies by P, expand computes the approximation; a step is all three. For\n"
        "comparison, plain passes move the same bytes and do nothing else. If a BLAS is\n"
        "installed (libopenblas0), it computes the same products, and a step with plain\n"
        "passes for the residual. One thread.",
        NAME " --rows 2048 --columns 512 --ranks 1,2 --json", options,
        sizeof options / sizeof options[0]};

    return options_read(&set, argc, argv);
}

/* Reads a list of sizes; prints an error if it is not one. */
static bool read_list(const char *option, const char *text, size_t max, struct size_list *list)
{
    if (!size_list_read(text, list)) {
        (void)fprintf(stderr, NAME ": %s %s is not a list of numbers such as 64,128\n", option,
                      text);
        return false;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->values[i] > max) {
            (void)fprintf(stderr, NAME ": %s %zu is more than %zu\n", option, list->values[i], max);
            return false;
        }
    }
    return true;
}

static int run(const struct words *words, struct shape shape, size_t r)
{
    const struct lowrank_bench bench = {.n = shape.n,
                                        .m = shape.m,
                                        .r = r,
                                        .bytes = words->mb.value * MB,
                                        .n_samples = words->n_samples.value};
    struct lowrank_result result;
    int status = lowrank_bench_run(&bench, &result);

    if (status != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
        return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    (words->as_json ? print_json : print_row)(&bench, &result);
    (void)fflush(stdout);
    return EXIT_DONE;
}

int bench_lowrank(int argc, char **argv)
{
    struct words words = {.rows = "1024,4096,512",
                          .columns = "1024,1024,4608",
                          .ranks = "1,2,4,8,16",
                          .mb = {1, 100000, 100},
                          .n_samples = {1, LOWRANK_MAX_SAMPLES, 11}};
    enum option_result parsed = read_words(argc, argv, &words);
    struct size_list rows;
    struct size_list columns;
    struct size_list ranks;
    int status = EXIT_DONE;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (!read_list("--rows", words.rows, MAX_SIDE, &rows) ||
        !read_list("--columns", words.columns, MAX_SIDE, &columns) ||
        !read_list("--ranks", words.ranks, MAX_RANK, &ranks)) {
        return EXIT_USAGE;
    }
    if (rows.n != columns.n) {
        (void)fprintf(stderr,
                      NAME ": --rows has %zu numbers and --columns %zu; both need the same count\n",
                      rows.n, columns.n);
        return EXIT_USAGE;
    }
    if (!words.as_json) {
        print_heading(&words);
    }
    for (size_t i = 0; i < rows.n; i++) {
        for (size_t j = 0; j < ranks.n && status == EXIT_DONE; j++) {
            status =
                run(&words, (struct shape){rows.values[i], columns.values[i]}, ranks.values[j]);
        }
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own driver: tries the files of a corpus, then changed copies of them for some seconds. The
 * inputs are the same in every run, and there are more of them the longer it runs. They are tried
 * in a child process; when it ends badly, the parent keeps the input. One thread each.
 *
 *     fuzz_NAME CORPUS            for TALLY_FUZZ_SECONDS, or 2 seconds; CORPUS is a folder
 *     fuzz_NAME FILE              this input only, in this process, for a debugger
 */
#include <dirent.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/fuzz_mutate.h"

#define DEFAULT_SECONDS 2.0
#define HANG_SECONDS 60

/* The child's report to its parent, in memory that both see. */
struct progress {
    unsigned long long n_inputs;
    struct fuzz_input input; /* being tried */
};

static void give_up(const char *what)
{
    perror(what);
    exit(2);
}

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double seconds_to_run(void)
{
    const char *text = getenv("TALLY_FUZZ_SECONDS");

    return text && *text != '\0' ? strtod(text, NULL) : DEFAULT_SECONDS;
}

/* ---- files ---- */

static void read_input(const char *path, struct fuzz_input *input)
{
    FILE *file = fopen(path, "rb");

    if (!file) {
        give_up(path);
    }
    input->n = fread(input->data, 1, sizeof input->data, file);
    if (ferror(file)) {
        give_up(path);
    }
    (void)fclose(file);
}

static void write_input(const char *path, const struct fuzz_input *input)
{
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(input->data, 1, input->n, file) != input->n || fclose(file) != 0) {
        give_up(path);
    }
}

static int is_no_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static struct fuzz_corpus read_corpus(const char *folder)
{
    struct fuzz_corpus corpus = {0};
    struct dirent **entries;
    /* Sorted: the inputs are the same on every machine. */
    int n = scandir(folder, &entries, is_no_dot, alphasort);

    if (n < 0) {
        give_up(folder);
    }
    corpus.inputs = calloc((size_t)n + 1, sizeof *corpus.inputs);
    if (!corpus.inputs) {
        give_up(folder);
    }
    for (; corpus.n < (size_t)n; corpus.n++) {
        char path[4096];

        (void)snprintf(path, sizeof path, "%s/%s", folder, entries[corpus.n]->d_name);
        read_input(path, &corpus.inputs[corpus.n]);
        free(entries[corpus.n]);
    }
    free(entries);
    return corpus;
}

/* ---- the child ---- */

/* Tries an input in a block of its size, so that a sanitizer sees reads behind its end. */
static void try_input(const struct fuzz_input *input)
{
    uint8_t *data = malloc(input->n ? input->n : 1);

    if (!data) {
        give_up("an input");
    }
    memcpy(data, input->data, input->n);
    (void)fuzz_one(data, input->n);
    free(data);
}

static void try_many(const struct fuzz_corpus *corpus, double seconds, struct progress *progress)
{
    double end = now() + seconds;
    uint64_t random = 0x9e3779b97f4a7c15u;

    while (progress->n_inputs < corpus->n || now() < end) {
        /* One input that takes this long ends the child. */
        (void)alarm(HANG_SECONDS);
        for (int k = 0; k < 64; k++) {
            if (progress->n_inputs < corpus->n) {
                progress->input = corpus->inputs[progress->n_inputs];
            } else {
                fuzz_mutate(corpus, &random, &progress->input);
            }
            try_input(&progress->input);
            progress->n_inputs++;
        }
    }
}

/* ---- the parent ---- */

static int report(const char *name, int status, const struct progress *progress)
{
    char path[256];

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("%s: %llu inputs\n", name, progress->n_inputs);
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s.input", name);
    write_input(path, &progress->input);
    (void)fprintf(stderr, "%s: input %llu, kept in %s, ended it with %s %d\n", name,
                  progress->n_inputs, path, WIFSIGNALED(status) ? "signal" : "exit code",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

static int run_child(const char *name, const struct fuzz_corpus *corpus)
{
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;
    int status = 0;

    if (progress == MAP_FAILED) {
        give_up(name);
    }
    child = fork();
    if (child == 0) {
        try_many(corpus, seconds_to_run(), progress);
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        give_up(name);
    }
    return report(name, status, progress);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    struct fuzz_corpus corpus;
    struct stat about;
    int rc;

    if (argc != 2 || stat(argv[1], &about) != 0) {
        (void)fprintf(stderr, "usage: %s CORPUS|FILE\n", name);
        return 2;
    }
    if (!S_ISDIR(about.st_mode)) {
        struct fuzz_input input;

        read_input(argv[1], &input);
        try_input(&input);
        return 0;
    }
    corpus = read_corpus(argv[1]);
    if (corpus.n == 0) {
        (void)fprintf(stderr, "%s: %s is empty\n", name, argv[1]);
        rc = 2;
    } else {
        rc = run_child(name, &corpus);
    }
    free(corpus.inputs);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/gpt/gpt_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/gpt/gpt_options.h"

#define PATH_BYTES 512

static void path_of(char *path, const char *directory, long step, long rank)
{
    (void)snprintf(path, PATH_BYTES, "%s/step-%ld.%ld", directory, step, rank);
}

/* Flushes a file to the disk and closes it. True on success. */
static int finish(FILE *file, int fine)
{
    fine = fine && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && fine;
}

int gpt_files_write(const char *directory, long step, int rank, const struct gpt_saved *saved)
{
    char path[PATH_BYTES];
    FILE *file;
    int fine;

    path_of(path, directory, step, rank);
    file = fopen(path, "wb");
    fine = file && fwrite(saved, sizeof *saved, 1, file) == 1 &&
           fwrite(saved->values, sizeof(float), saved->n_values, file) == saved->n_values;
    for (int k = 0; k < 2 && fine; k++) {
        fine = fwrite(saved->blobs[k], 1, saved->n_bytes[k], file) == saved->n_bytes[k];
    }
    if (file) {
        fine = finish(file, fine);
    }
    return fine ? 0 : gpt_complain(path, "cannot be written");
}

void gpt_files_remove(const char *directory, long step, int rank)
{
    char path[PATH_BYTES];

    path_of(path, directory, step, rank);
    (void)remove(path);
}

int gpt_files_announce(const char *directory, long step, int n_ranks)
{
    char path[PATH_BYTES];
    char latest[PATH_BYTES];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/latest.new", directory);
    (void)snprintf(latest, sizeof latest, "%s/latest", directory);
    file = fopen(path, "w");
    if (!file || !finish(file, fprintf(file, "%ld %d\n", step, n_ranks) > 0) ||
        rename(path, latest) != 0) {
        return gpt_complain(latest, "cannot be written");
    }
    return 0;
}

static int read_one(const char *path, size_t n_values, struct gpt_saved *saved)
{
    FILE *file = fopen(path, "rb");
    struct gpt_saved said;
    int fine = file && fread(&said, sizeof said, 1, file) == 1 && said.n_values == n_values;

    if (fine) {
        saved->n_values = n_values;
        saved->values = malloc(n_values * sizeof(float));
        fine = saved->values && fread(saved->values, sizeof(float), n_values, file) == n_values;
    }
    for (int k = 0; k < 2 && fine; k++) {
        saved->n_bytes[k] = said.n_bytes[k];
        saved->blobs[k] = malloc(said.n_bytes[k] + 1);
        fine =
            saved->blobs[k] && fread(saved->blobs[k], 1, said.n_bytes[k], file) == said.n_bytes[k];
    }
    if (file) {
        fclose(file);
    }
    return fine ? 0 : gpt_complain(path, "is not a checkpoint of this model");
}

int gpt_files_read(const char *directory, size_t n_values, struct gpt_files *files)
{
    char path[PATH_BYTES];
    char line[64];
    char *end;
    FILE *latest;
    int rc;

    *files = (struct gpt_files){0};
    (void)mkdir(directory, 0777);
    (void)snprintf(path, sizeof path, "%s/latest", directory);
    latest = fopen(path, "r");
    if (!latest) {
        return errno == ENOENT ? 0 : gpt_complain(path, "cannot be read");
    }
    if (fgets(line, sizeof line, latest)) {
        files->step = strtol(line, &end, 10);
        files->n_ranks = strtol(end, NULL, 10);
    }
    rc = files->n_ranks > 0 && files->n_ranks < 4096
             ? 0
             : gpt_complain(path,
                            "is not a checkpoint's list: expected a step and a number of ranks");
    fclose(latest);
    files->ranks = rc == 0 ? calloc((size_t)files->n_ranks, sizeof *files->ranks) : NULL;
    for (long r = 0; files->ranks && rc == 0 && r < files->n_ranks; r++) {
        path_of(path, directory, files->step, r);
        rc = read_one(path, n_values, &files->ranks[r]);
    }
    return files->ranks ? rc : -1;
}

void gpt_files_free(struct gpt_files *files)
{
    for (long r = 0; files->ranks && r < files->n_ranks; r++) {
        free(files->ranks[r].values);
        free(files->ranks[r].blobs[0]);
        free(files->ranks[r].blobs[1]);
    }
    free(files->ranks);
}

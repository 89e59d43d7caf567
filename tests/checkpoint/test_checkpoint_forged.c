/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests that somebody has edited, with the right checksum again: lines removed, doubled or
 * exchanged, words and numbers replaced. Loading and inspecting never read or write where they must
 * not. Loading succeeds, or fails on all ranks with a text and changes nothing.
 *
 *     test_checkpoint_forged [TRIALS [SEED]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "support/ckpt_run.h"

#define ROOM ((size_t)1 << 16)
#define MOST_LINES 200

static const struct ckpt_setup setups[] = {
    {.hook = "int8", .optimizer = "adamw:lr=0.01"},
    {.hook = "powersgd:start=1,min_rate=1", .optimizer = "adamw:lr=0.01", .shard = true},
    {.hook = "postlocal:start=1", .averages = true, .averager = "int8"},
};

/* A manifest, and its lines without the last one, which is the checksum. */
struct text {
    char bytes[ROOM];
    char *lines[MOST_LINES];
    size_t n;
};

struct scene {
    const struct ckpt_setup *setup;
    char directory[200];
    char manifest[300]; /* its path */
    char good[ROOM];
    size_t n_good;
    unsigned long trials;
    uint64_t seed;
    unsigned long n_loaded;
};

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void split(const struct scene *scene, struct text *text)
{
    char *at = text->bytes;

    memcpy(text->bytes, scene->good, scene->n_good);
    text->bytes[scene->n_good] = '\0';
    for (text->n = 0; *at && text->n < MOST_LINES; text->n++) {
        text->lines[text->n] = at;
        at = strchr(at, '\n');
        *at++ = '\0';
    }
    text->n--;
}

/* Replaces word k of a line, in new memory. */
static char *replace_word(const char *line, size_t k, const char *word)
{
    size_t room = strlen(line) + strlen(word) + 2;
    char *made = malloc(room);
    const char *start = line;
    const char *end;

    while (k > 0 && strchr(start, ' ')) {
        start = strchr(start, ' ') + 1;
        k--;
    }
    end = strchr(start, ' ');
    if (made) {
        (void)snprintf(made, room, "%.*s%s%s", (int)(start - line), line, word, end ? end : "");
    }
    return made;
}

/* One edit; returns memory to free, or NULL. */
static char *edit(struct text *text, uint64_t *random)
{
    static const char *const words[] = {"0",      "1",         "2",          "3",
                                        "9",      "64",        "4294967296", "4611686018427387903",
                                        "param",  "own-param", "buffer",     "own-buffer",
                                        "ddp",    "optimizer", "slice",      "averager",
                                        "blob",   "header",    "F64",        "BF16",
                                        "-",      "0x4",       "scalar",     "manifest",
                                        "24x16x1"};
    size_t most = text->n > 2 ? text->n - 1 : 1;
    size_t i = 1 + next(random) % most;
    size_t k = 1 + next(random) % most;
    char *line = text->lines[i];

    switch (next(random) % 8) {
    case 0:
        text->lines[i] = text->lines[--text->n];
        return NULL;
    case 1:
        text->lines[i] = text->lines[k];
        return NULL;
    case 2:
        text->lines[i] = text->lines[k];
        text->lines[k] = line;
        return NULL;
    default:
        text->lines[i] = replace_word(line, next(random) % 6,
                                      words[next(random) % (sizeof words / sizeof words[0])]);
        return text->lines[i];
    }
}

static void write_text(const struct scene *scene, const struct text *text)
{
    static char all[2 * ROOM];
    FILE *file = fopen(scene->manifest, "wb");
    size_t n = 0;

    for (size_t i = 0; i < text->n; i++) {
        n += (size_t)snprintf(all + n, sizeof all - n, "%s\n", text->lines[i]);
    }
    if (!file || fwrite(all, 1, n, file) != n ||
        fprintf(file, "checksum %016" PRIx64 "\n", tally__checksum_wide(all, n)) < 0 ||
        fclose(file) != 0) {
        abort();
    }
}

/* On rank 0: a manifest with one to three edits. */
static void forge(const struct scene *scene, uint64_t *random)
{
    static struct text text;
    char *made[3] = {NULL};

    split(scene, &text);
    for (size_t k = 0; k <= next(random) % 3; k++) {
        made[k] = edit(&text, random);
    }
    write_text(scene, &text);
    for (size_t k = 0; k < 3; k++) {
        free(made[k]);
    }
}

static int meet(tally_group *group)
{
    tally_future *future;

    CHECK_OK(group, tally_barrier(group, &future));
    return ranks_finish(future);
}

static int body(tally_group *group, void *user)
{
    struct scene *scene = user;
    struct ckpt_run *run = malloc(sizeof *run);
    bool is_first = tally_group_rank(group) == 0;
    uint64_t random = scene->seed;
    uint64_t before;
    uint64_t after;

    CHECK(group, run && ckpt_start(group, scene->setup, run) == 0 && ckpt_steps(run, 3) == 0);
    CHECK(group, ckpt_hash(run, &before) == 0);
    for (unsigned long trial = 0; trial < scene->trials; trial++) {
        int rc;

        CHECK(group, meet(group) == 0);
        if (is_first) {
            forge(scene, &random);
            (void)tally_checkpoint_inspect(scene->directory, NULL, NULL, NULL, NULL);
        }
        CHECK(group, meet(group) == 0);
        rc = ckpt_load(run, scene->directory, NULL);
        CHECK(group, ckpt_hash(run, &after) == 0);
        if (rc == TALLY_OK) {
            if (is_first) {
                scene->n_loaded++;
            }
            before = after;
        }
        CHECK(group, rc == TALLY_OK || rc == TALLY_ARG || rc == TALLY_NOMEM || rc == TALLY_SYSTEM);
        CHECK(group, rc == TALLY_OK || (before == after && tally_last_error()[0] != '\0'));
    }
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

static int save_body(tally_group *group, void *user)
{
    const struct scene *scene = user;
    struct ckpt_run *run = malloc(sizeof *run);

    CHECK(group, run && ckpt_start(group, scene->setup, run) == 0 && ckpt_steps(run, 3) == 0);
    CHECK_OK(group, ckpt_save(run, scene->directory));
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

static int run_scene(struct scene *scene, int saves, int loads)
{
    const struct ranks savers = {.kind = RANKS_THREADS, .world = saves, .lanes = 1};
    const struct ranks loaders = {.kind = RANKS_THREADS, .world = loads, .lanes = 1};
    const char *folder = ckpt_folder_make();
    int failures;
    FILE *file;

    (void)snprintf(scene->directory, sizeof scene->directory, "%s/run", folder);
    (void)snprintf(scene->manifest, sizeof scene->manifest, "%s/run/save-000001-step-3/manifest",
                   folder);
    failures = ranks_run(&savers, save_body, scene);
    file = fopen(scene->manifest, "rb");
    scene->n_good = file ? fread(scene->good, 1, ROOM - 1, file) : 0;
    if (file) {
        (void)fclose(file);
    }
    failures += scene->n_good == 0 ? 1 : ranks_run(&loaders, body, scene);
    ckpt_folder_remove(folder);
    return failures;
}

int main(int argc, char **argv)
{
    static struct scene scene;
    int failures = 0;

    scene.trials = argc > 1 ? strtoul(argv[1], NULL, 10) : RANKS_REPEATS(300, 40);
    scene.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        scene.setup = &setups[i];
        failures += run_scene(&scene, 2, 2);
        failures += run_scene(&scene, 3, 1);
    }
    printf("%lu of %lu forged manifests were loaded, seed %" PRIu64 "\n", scene.n_loaded,
           6 * scene.trials, scene.seed);
    return failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally checkpoint`: the contents of a checkpoint, and whether it is whole. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

#define NAME "tally checkpoint"

/* The state of the listing, for the function that prints one part. */
struct view {
    const char *directory;
    tally_checkpoint_info info;
    struct json json;
    bool as_json;
    bool has_head;
    size_t n_damaged;
};

static const char *dtype_name(int dtype)
{
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};

    return dtype >= 0 && (size_t)dtype < sizeof names / sizeof names[0] ? names[dtype] : NULL;
}

static void print_shape(const tally_checkpoint_part *part, char *text, size_t room)
{
    size_t used = 0;

    (void)snprintf(text, room, part->n_dims == 0 ? "scalar" : "");
    for (int d = 0; d < part->n_dims && used < room; d++) {
        used += (size_t)snprintf(text + used, room - used, d == 0 ? "%zu" : "x%zu", part->shape[d]);
    }
}

/* ---- text ---- */

/* Names are of any length: they come last. */
#define ROW "%-10s %-5s %-14s %12s %14s  %s\n"

/* The name of a checkpoint, other than the one that is shown. */
static bool is_other(const struct view *view, const char *name)
{
    return strncmp(name, "save-", 5) == 0 && strcmp(name, view->info.name) != 0;
}

/* The other checkpoints of a directory. */
static void print_others(const struct view *view)
{
    struct dirent **names = NULL;
    int n = scandir(view->directory, &names, NULL, alphasort);
    bool has_some = false;

    for (int i = 0; i < n; i++) {
        if (is_other(view, names[i]->d_name)) {
            printf("%s%s", has_some ? " " : "also here, see --name: ", names[i]->d_name);
            has_some = true;
        }
        free(names[i]);
    }
    free(names);
    if (has_some) {
        printf("\n");
    }
}

static void print_head(struct view *view)
{
    const tally_checkpoint_info *info = &view->info;

    printf("%s: step %llu, saved by %d rank%s with hook %s, %zu bytes\n", info->name, info->step,
           info->world, info->world == 1 ? "" : "s", info->hook, info->bytes);
    if (info->n_skipped > 0) {
        printf("not complete, and newer: %s\n", info->skipped);
    }
    print_others(view);
    printf(ROW, "part", "dtype", "shape", "norm", "bytes", "name");
}

static void print_row(struct view *view, const tally_checkpoint_part *part)
{
    const char *dtype = dtype_name(part->dtype);
    char shape[80] = "";
    char norm[24] = "";
    char bytes[24];
    char name[300];

    if (dtype) {
        print_shape(part, shape, sizeof shape);
        (void)snprintf(norm, sizeof norm, "%.6g", part->norm);
    }
    if (part->is_own) {
        (void)snprintf(name, sizeof name, "%s%srank %d", part->name, part->name[0] ? ", " : "",
                       part->rank);
    } else {
        (void)snprintf(name, sizeof name, "%s", part->name);
    }
    for (char *c = name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == '\x7f') {
            *c = '?';
        }
    }
    (void)snprintf(bytes, sizeof bytes, "%zu", part->bytes);
    if (strcmp(part->kind, "header") != 0 || part->damage) {
        printf(ROW, part->kind, dtype ? dtype : "", shape, norm, bytes, name);
    }
    if (part->damage) {
        printf("           DAMAGED: %s\n", part->damage);
    }
    view->n_damaged += part->damage != NULL;
}

/* ---- JSON ---- */

static void json_head(struct view *view)
{
    struct json *json = &view->json;

    *json = json_begin(stdout);
    json_text(json, "name", view->info.name);
    json_count(json, "step", (size_t)view->info.step);
    json_count(json, "world", (size_t)view->info.world);
    json_text(json, "hook", view->info.hook);
    json_count(json, "n_params", view->info.n_params);
    json_count(json, "bytes", view->info.bytes);
    json_text(json, "skipped", view->info.n_skipped > 0 ? view->info.skipped : NULL);
    json_open_list(json, "parts");
}

static void json_row(struct view *view, const tally_checkpoint_part *part)
{
    struct json *json = &view->json;
    const char *dtype = dtype_name(part->dtype);

    json_open_item(json);
    json_text(json, "part", part->kind);
    json_text(json, "name", part->name);
    json_text(json, "file", part->file);
    json_count(json, "rank", (size_t)part->rank);
    json_flag(json, "own", part->is_own != 0);
    json_count(json, "bytes", part->bytes);
    if (dtype) {
        json_text(json, "dtype", dtype);
        json_counts(json, "shape", part->shape, (size_t)part->n_dims);
        json_real(json, "norm", part->norm);
    }
    json_text(json, "damage", part->damage);
    json_close_item(json);
    view->n_damaged += part->damage != NULL;
}

/* ---- the command ---- */

static void show_head(struct view *view)
{
    if (!view->has_head) {
        (view->as_json ? json_head : print_head)(view);
        view->has_head = true;
    }
}

static void show(void *user, const tally_checkpoint_part *part)
{
    struct view *view = user;

    show_head(view);
    (view->as_json ? json_row : print_row)(view, part);
}

static int inspect(struct view *view, const char *name)
{
    int rc = tally_checkpoint_inspect(view->directory, name, &view->info, show, view);

    if (rc != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
    }
    if (rc != TALLY_OK && !view->has_head) {
        return EXIT_FAILED;
    }
    show_head(view);
    if (view->as_json) {
        json_close_list(&view->json);
        json_flag(&view->json, "whole", rc == TALLY_OK);
        json_end(&view->json);
    } else if (rc == TALLY_OK) {
        printf("whole: every checksum is right\n");
    } else {
        printf("DAMAGED: %zu part%s\n", view->n_damaged, view->n_damaged == 1 ? "" : "s");
    }
    return rc == TALLY_OK ? EXIT_DONE : EXIT_FAILED;
}

int cmd_checkpoint(int argc, char **argv)
{
    struct view view = {.info = {.size = sizeof view.info}};
    const char *name = NULL;
    const struct option options[] = {
        {"json", OPTION_FLAG, &view.as_json, NULL, "as a JSON object"},
        {"name", OPTION_TEXT, &name, "NAME",
         "this checkpoint of the directory (the newest that is complete)"},
    };
    const struct option_set set = {
        NAME,
        "shows and verifies a checkpoint\n\n"
        "usage: " NAME " DIR [OPTION...]\n\n"
        "Shows its step, the ranks that saved it, every parameter with shape, dtype and norm,\n"
        "and the state. Reads all of it and verifies every checksum. DIR is a directory of\n"
        "checkpoints, or one checkpoint. The exit status is 0 if the checkpoint is whole, and 1\n"
        "otherwise.",
        NAME " run1 --json", options, 2};
    size_t n;
    enum option_result parsed = options_read_words(&set, argc, argv, &n);

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (n == 0) {
        (void)fprintf(stderr, NAME ": expected a directory; see " NAME " --help\n");
        return EXIT_USAGE;
    }
    if (n > 1) {
        (void)fprintf(stderr, NAME ": expected one directory, got also '%s'\n", argv[1]);
        return EXIT_USAGE;
    }
    view.directory = argv[0];
    return inspect(&view, name);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally hooks`: every hook that has a text form, when to use it, and its options. */
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

static void print_hook(const tally_hook_info *info)
{
    printf("%s%s\n", info->name, info->wraps ? "(HOOK)" : "");
    printf("    %s\n", info->help);
}

static void print_option(const tally_hook_option *option)
{
    printf("    %s: accepts %s; default %s\n", option->name, option->accepts, option->fallback);
    printf("        %s\n", option->help);
}

static void put_hook(struct json *json, const tally_hook_info *info)
{
    json_text(json, "name", info->name);
    json_text(json, "help", info->help);
    json_flag(json, "wraps", info->wraps != 0);
}

static void put_option(struct json *json, const tally_hook_option *option)
{
    json_open_item(json);
    json_text(json, "name", option->name);
    json_text(json, "accepts", option->accepts);
    json_text(json, "default", option->fallback);
    json_text(json, "help", option->help);
    json_close_item(json);
}

/* Hook number index and its options; as text if json is NULL. */
static int show_hook(size_t index, const tally_hook_info *info, struct json *json)
{
    if (!json) {
        print_hook(info);
    } else {
        put_hook(json, info);
        json_open_list(json, "options");
    }
    for (size_t i = 0; i < info->n_options; i++) {
        tally_hook_option option = {.size = sizeof option};
        int rc = tally_hook_describe_option(index, i, &option);

        if (rc != TALLY_OK) {
            return rc;
        }
        if (json) {
            put_option(json, &option);
        } else {
            print_option(&option);
        }
    }
    if (json) {
        json_close_list(json);
        json_end(json);
    }
    return TALLY_OK;
}

/* All hooks, or only the one called name; how many there were, or a negative status. */
static int show_hooks(const char *name, bool as_json)
{
    int n_shown = 0;

    for (size_t index = 0; index < tally_hook_count(); index++) {
        tally_hook_info info = {.size = sizeof info};
        int rc = tally_hook_describe(index, &info);

        if (rc == TALLY_OK && (!name || strcmp(name, info.name) == 0)) {
            struct json json = {0};

            if (as_json) {
                json = json_begin(stdout);
            }
            rc = show_hook(index, &info, as_json ? &json : NULL);
            n_shown++;
        }
        if (rc != TALLY_OK) {
            return rc;
        }
    }
    return n_shown;
}

static void reject_name(const char *name)
{
    (void)fprintf(stderr, "tally hooks: unknown hook '%s'; accepted:", name);
    for (size_t index = 0; index < tally_hook_count(); index++) {
        tally_hook_info info = {.size = sizeof info};

        if (tally_hook_describe(index, &info) == TALLY_OK) {
            (void)fprintf(stderr, " %s", info.name);
        }
    }
    (void)fprintf(stderr, "\n");
}

int cmd_hooks(int argc, char **argv)
{
    bool as_json = false;
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "one JSON object per line"},
    };
    const struct option_set set = {
        "tally hooks", "lists the hooks there are with their options; with a NAME, that one only",
        "tally hooks fp16 --json", options, 1};
    char **rest;
    enum option_result result = options_read_before(&set, argc, argv, &rest);
    int n_shown;

    /* Options may follow the name, too. */
    if (result == OPTIONS_OK && rest[0]) {
        result = options_read(&set, (int)(argv + argc - rest), rest);
    }
    if (result != OPTIONS_OK) {
        return result == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    n_shown = show_hooks(rest[0], as_json);
    if (n_shown < 0) {
        (void)fprintf(stderr, "tally hooks: %s\n", tally_last_error());
        return EXIT_FAILED;
    }
    if (n_shown == 0) {
        reject_name(rest[0]);
        return EXIT_USAGE;
    }
    return EXIT_DONE;
}

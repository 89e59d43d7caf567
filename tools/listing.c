/* SPDX-License-Identifier: Apache-2.0 */
/* Lists hooks or optimizers. One thread; no state. */
#include "tools/listing.h"

#include <stdio.h>
#include <string.h>

#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

static void print_item(const struct listing *listing, const struct listing_item *item)
{
    if (item->wraps) {
        printf("%s(%s)\n", item->name, listing->inside);
    } else {
        printf("%s\n", item->name);
    }
    printf("    %s\n", item->help);
}

static void print_option(const tally_hook_option *option)
{
    printf("    %s: accepts %s; default %s\n", option->name, option->accepts, option->fallback);
    printf("        %s\n", option->help);
}

static void put_item(struct json *json, const struct listing *listing,
                     const struct listing_item *item)
{
    json_text(json, "name", item->name);
    json_text(json, "help", item->help);
    if (listing->inside) {
        json_flag(json, "wraps", item->wraps);
    }
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

/* Prints number index and its options, as text if json is NULL. */
static int show_item(const struct listing *listing, size_t index, const struct listing_item *item,
                     struct json *json)
{
    if (!json) {
        print_item(listing, item);
    } else {
        put_item(json, listing, item);
        json_open_list(json, "options");
    }
    for (size_t i = 0; i < item->n_options; i++) {
        tally_hook_option option = {.size = sizeof option};
        int rc = listing->describe_option(index, i, &option);

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

/* Prints all, or only the one called name; returns how many, or a negative status. */
static int show_items(const struct listing *listing, const char *name, bool as_json)
{
    int n_shown = 0;

    for (size_t index = 0; index < listing->count(); index++) {
        struct listing_item item;
        int rc = listing->describe(index, &item);

        if (rc == TALLY_OK && (!name || strcmp(name, item.name) == 0)) {
            struct json json = {0};

            if (as_json) {
                json = json_begin(stdout);
            }
            rc = show_item(listing, index, &item, as_json ? &json : NULL);
            n_shown++;
        }
        if (rc != TALLY_OK) {
            return rc;
        }
    }
    return n_shown;
}

static void reject_name(const struct listing *listing, const char *name)
{
    (void)fprintf(stderr, "%s: unknown %s '%s'; accepted:", listing->command, listing->word, name);
    for (size_t index = 0; index < listing->count(); index++) {
        struct listing_item item;

        if (listing->describe(index, &item) == TALLY_OK) {
            (void)fprintf(stderr, " %s", item.name);
        }
    }
    (void)fprintf(stderr, "\n");
}

int listing_run(const struct listing *listing, int argc, char **argv)
{
    bool as_json = false;
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "one JSON object per line"},
    };
    const struct option_set set = {listing->command, listing->summary, listing->example, options,
                                   1};
    char **rest;
    enum option_result result = options_read_before(&set, argc, argv, &rest);
    int n_shown;

    /* Options may also follow the name. */
    if (result == OPTIONS_OK && rest[0]) {
        result = options_read(&set, (int)(argv + argc - rest), rest);
    }
    if (result != OPTIONS_OK) {
        return result == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    n_shown = show_items(listing, rest[0], as_json);
    if (n_shown < 0) {
        (void)fprintf(stderr, "%s: %s\n", listing->command, tally_last_error());
        return EXIT_FAILED;
    }
    if (n_shown == 0) {
        reject_name(listing, rest[0]);
        return EXIT_USAGE;
    }
    return EXIT_DONE;
}

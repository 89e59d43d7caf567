/* SPDX-License-Identifier: Apache-2.0 */
/* `tally env`: every environment variable tally reads, and whether its value is accepted. */
#include <stdio.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

static void print_var(const tally_env_var *var)
{
    printf("%s=%s\n", var->name, var->value ? var->value : var->fallback);
    printf("    %s\n", var->help);
    printf("    accepts %s; default %s; %s\n", var->type,
           var->fallback[0] ? var->fallback : "not set", var->value ? "set" : "not set now");
}

static void print_var_json(const tally_env_var *var)
{
    struct json json = json_begin(stdout);

    json_text(&json, "name", var->name);
    json_text(&json, "type", var->type);
    json_text(&json, "default", var->fallback);
    json_text(&json, "help", var->help);
    json_text(&json, "value", var->value);
    json_end(&json);
}

int cmd_env(int argc, char **argv)
{
    bool as_json = false;
    const char *isa;
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "one JSON object per line"},
    };
    const struct option_set set = {"tally env", "lists the environment variables tally reads",
                                   "TALLY_ISA=ref tally env", options, 1};
    enum option_result result = options_read(&set, argc, argv);

    if (result != OPTIONS_OK) {
        return result == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    for (size_t i = 0; i < tally_env_count(); i++) {
        tally_env_var var = {.size = sizeof var};

        if (tally_env_get(i, &var) != TALLY_OK) {
            (void)fprintf(stderr, "tally env: %s\n", tally_last_error());
            return EXIT_FAILED;
        }
        (as_json ? print_var_json : print_var)(&var);
    }
    /* tally_isa also checks that this CPU has the instruction set that TALLY_ISA names. */
    if (tally_env_check() != TALLY_OK || tally_isa(&isa) != TALLY_OK) {
        (void)fprintf(stderr, "tally env: %s\n", tally_last_error());
        return EXIT_USAGE;
    }
    return EXIT_DONE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally hooks`: every hook that has a text form, when to use it, and its options. */
#include "tools/command.h"
#include "tools/listing.h"

static int describe(size_t index, struct listing_item *item)
{
    tally_hook_info info = {.size = sizeof info};
    int rc = tally_hook_describe(index, &info);

    *item = (struct listing_item){info.name, info.help, info.wraps != 0, info.n_options};
    return rc;
}

int cmd_hooks(int argc, char **argv)
{
    static const struct listing listing = {
        .command = "tally hooks",
        .word = "hook",
        .summary = "lists all hooks with their options, or only the one called NAME\n\n"
                   "usage: tally hooks [NAME] [OPTION...]",
        .example = "tally hooks fp16 --json",
        .inside = "HOOK",
        .count = tally_hook_count,
        .describe = describe,
        .describe_option = tally_hook_describe_option,
    };

    return listing_run(&listing, argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally optimizers`: every optimizer that has a text form, when to use it, and its options. */
#include "tools/command.h"
#include "tools/listing.h"

static int describe(size_t index, struct listing_item *item)
{
    tally_optimizer_info info = {.size = sizeof info};
    int rc = tally_optimizer_describe(index, &info);

    *item = (struct listing_item){info.name, info.help, false, info.n_options};
    return rc;
}

int cmd_optimizers(int argc, char **argv)
{
    static const struct listing listing = {
        .command = "tally optimizers",
        .word = "optimizer",
        .summary = "lists all optimizers with their options, or only the one called NAME\n\n"
                   "usage: tally optimizers [NAME] [OPTION...]",
        .example = "tally optimizers adamw --json",
        .count = tally_optimizer_count,
        .describe = describe,
        .describe_option = tally_optimizer_describe_option,
    };

    return listing_run(&listing, argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what hooks there are, for lists and help. Keeps no state. Any thread enters. */
#include "base/status.h"
#include "hook/kind.h"

static int check_out(const char *function, const void *out, size_t size, size_t expected)
{
    if (!out) {
        return tally__fail(TALLY_ARG, "%s: the place for the answer is NULL", function);
    }
    if (size < expected) {
        return tally__fail(TALLY_ARG, "%s: size is %zu, expected at least %zu", function, size,
                           expected);
    }
    return TALLY_OK;
}

static int check_index(const char *function, const char *what, size_t index, size_t n)
{
    return index < n
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "%s: %s %zu is not below %zu", function, what, index, n);
}

size_t tally_hook_count(void)
{
    return tally__n_hook_kinds;
}

int tally_hook_describe(size_t index, tally_hook_info *info)
{
    const struct tally__hook_kind *kind;

    TRY(check_out("tally_hook_describe", info, info ? info->size : 0, sizeof *info));
    TRY(check_index("tally_hook_describe", "hook", index, tally__n_hook_kinds));
    kind = tally__hook_kinds[index];
    info->name = kind->name;
    info->help = kind->help;
    info->wraps = kind->wraps;
    info->n_options = kind->n_options;
    return TALLY_OK;
}

int tally_hook_describe_option(size_t index, size_t option, tally_hook_option *described)
{
    const struct tally__hook_option *row;

    TRY(check_out("tally_hook_describe_option", described, described ? described->size : 0,
                  sizeof *described));
    TRY(check_index("tally_hook_describe_option", "hook", index, tally__n_hook_kinds));
    TRY(check_index("tally_hook_describe_option", "option", option,
                    tally__hook_kinds[index]->n_options));
    row = &tally__hook_kinds[index]->options[option];
    described->name = row->name;
    described->accepts = row->accepts;
    described->fallback = row->fallback;
    described->help = row->help;
    return TALLY_OK;
}

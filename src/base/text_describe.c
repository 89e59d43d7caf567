/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what a list of rows has, for lists and help. Keeps no state. Any thread enters. */
#include "base/status.h"
#include "base/text.h"

int tally__answer_check(const char *function, const void *answer, size_t size, size_t expected)
{
    if (!answer) {
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

int tally__row_at(const char *function, const struct tally__rows *rows, size_t index,
                  const struct tally__row **row)
{
    TRY(check_index(function, rows->word, index, rows->n));
    *row = rows->row[index];
    return TALLY_OK;
}

int tally__describe_option(const char *function, const struct tally__rows *rows, size_t index,
                           size_t option, tally_hook_option *described)
{
    const struct tally__row *row;

    TRY(tally__answer_check(function, described, described ? described->size : 0,
                            sizeof *described));
    TRY(tally__row_at(function, rows, index, &row));
    TRY(check_index(function, "option", option, row->n_options));
    described->name = row->options[option].name;
    described->accepts = row->options[option].accepts;
    described->fallback = row->options[option].fallback;
    described->help = row->options[option].help;
    return TALLY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Describes rows, for lists and help. Stateless. Any thread enters. */
#include "base/sized.h"
#include "base/status.h"
#include "base/text.h"

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
    const struct tally__sized *kind = TALLY__SIZED(tally_hook_option, help);
    const struct tally__row *row;
    tally_hook_option answer;

    TRY(tally__answer_check(kind, function, described));
    TRY(tally__row_at(function, rows, index, &row));
    TRY(check_index(function, "option", option, row->n_options));
    answer = (tally_hook_option){.name = row->options[option].name,
                                 .accepts = row->options[option].accepts,
                                 .fallback = row->options[option].fallback,
                                 .help = row->options[option].help};
    tally__sized_write(kind, &answer, described);
    return TALLY_OK;
}

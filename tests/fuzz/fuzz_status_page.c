/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a status page, read twice: what `tally top` shows of it can be printed. One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/top_view.h"

static void check_lines(const struct top_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        FUZZ_CHECK(memchr(lines->all[i], '\0', sizeof lines->all[i]));
        for (const char *c = lines->all[i]; *c; c++) {
            FUZZ_CHECK(*c >= ' ' && *c < 0x7f);
        }
    }
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct top_rank *rank = calloc(1, sizeof *rank);
    struct top_ranks ranks = {.all = rank, .n = 1, .room = 1};
    struct top_lines lines = {0};
    FILE *nowhere = fopen("/dev/null", "w");
    char why[300] = "";

    FUZZ_CHECK(rank && nowhere);
    /* The second reading is of another moment: the other half of the input. */
    if (top_page_parse(data, data + n / 2, n / 2, &rank->page, why, sizeof why)) {
        rank->process = (enum top_process)(n % 3);
        top_view_lines(&ranks, UINT64_C(1) << 40, &lines);
        check_lines(&lines);
        top_view_json(&ranks, UINT64_C(1) << 40, nowhere);
    } else {
        FUZZ_CHECK(why[0] != '\0' && !strchr(why, '\n'));
    }
    top_lines_free(&lines);
    free(rank);
    (void)fclose(nowhere);
    return 0;
}

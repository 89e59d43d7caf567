/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `tally plan`: a table, JSON lines, and an HTML page. */
#ifndef TALLY_TOOLS_PLAN_OUTPUT_H
#define TALLY_TOOLS_PLAN_OUTPUT_H

#include <stdio.h>

#include "bench/plan_rows.h"

void plan_print_table(const struct plan *plan);
void plan_print_json(const struct plan *plan);

/* Lines under every table: what the columns mean, what the forecast leaves out, what is published.
 */
extern const char *const plan_notes[];
extern const size_t plan_n_notes;

/* Writes a page that refers to no other file. */
void plan_write_page(const struct plan *plan, FILE *to);

#endif

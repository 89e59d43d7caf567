/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan as a table, or as one JSON object per row. One thread; no state. */
#include <math.h>

#include "tools/json.h"
#include "tools/plan_output.h"

const char *const plan_notes[] = {
    "exposed: what communication adds to computing. busy: the part of the step in which an average "
    "rank computes.",
    "pays below: the rate up to which a row is faster than a flat allreduce. binds: the step would "
    "gain most without it.",
    "A range stands where ranks, rate or latency are more than 10 times what was measured, or less "
    "than a tenth.",
    "The loss is not predicted. Published: post-local SGD with periods up to 16 (Lin et al., ICLR "
    "2020);",
    "DiLoCo with a period of 500 (Douillard et al., 2023); PowerSGD of rank 2 to 4 (Vogels et al., "
    "NeurIPS 2019).",
};
const size_t plan_n_notes = sizeof plan_notes / sizeof plan_notes[0];

static bool is_same_machine(const struct tally__cluster *a, const struct tally__cluster *b)
{
    return a->hosts == b->hosts && a->ranks_per_host == b->ranks_per_host &&
           a->link.gbit == b->link.gbit && a->link.latency_s == b->link.latency_s;
}

static void print_row(const struct plan_row *row)
{
    const struct tally__forecast *forecast = &row->forecast;
    char step[PLAN_CELL];
    char even[PLAN_CELL];

    plan_step_text(forecast, step);
    plan_break_even_text(forecast, even);
    printf("%c %-30s %16s %10.1f %6.0f%% %10.2f %10s  %s\n", row->is_best ? '*' : ' ',
           row->way->name, step, 1e3 * forecast->exposed_s, 1e2 * forecast->busy,
           forecast->host_bytes * 1e-6, even, tally__term_name(forecast->binds));
    if (plan_is_flat_wrong(row)) {
        printf("    flat exchange is the wrong one here: a rank sends %.0f messages in a step\n",
               forecast->messages);
    }
}

void plan_print_table(const struct plan *plan)
{
    const struct tally__cluster measured = tally__profile_cluster(&plan->profile);

    printf("%s: measured by %s on %.0f host%s of %.0f rank%s", plan->file, plan->profile.source,
           measured.hosts, measured.hosts > 1 ? "s" : "", measured.ranks_per_host,
           measured.ranks_per_host > 1 ? "s" : "");
    if (measured.hosts > 1) {
        printf(", %.3g Gbit/s, %.0f us", measured.link.gbit, 1e6 * measured.link.latency_s);
    }
    printf("\n");
    for (size_t r = 0; r < plan->n_rows; r++) {
        const struct plan_row *row = &plan->rows[r];

        if (r == 0 || !is_same_machine(&row->cluster, &row[-1].cluster)) {
            printf("\n%.0f host%s of %.0f rank%s, %.3g Gbit/s, %.3g us\n", row->cluster.hosts,
                   row->cluster.hosts > 1 ? "s" : "", row->cluster.ranks_per_host,
                   row->cluster.ranks_per_host > 1 ? "s" : "", row->cluster.link.gbit,
                   1e6 * row->cluster.link.latency_s);
            printf("  %-30s %16s %10s %7s %10s %10s  %s\n", "hook", "step ms", "exposed ms", "busy",
                   "MB a host", "pays below", "binds");
        }
        print_row(row);
    }
    printf("\n* the shortest step that sends gradients in every step\n");
    for (size_t i = 0; i < plan_n_notes; i++) {
        printf("%s\n", plan_notes[i]);
    }
}

void plan_print_json(const struct plan *plan)
{
    for (size_t r = 0; r < plan->n_rows; r++) {
        const struct plan_row *row = &plan->rows[r];
        const struct tally__forecast *forecast = &row->forecast;
        struct json json = json_begin(stdout);

        json_text(&json, "hook", row->way->name);
        json_real(&json, "hosts", row->cluster.hosts);
        json_real(&json, "ranks_per_host", row->cluster.ranks_per_host);
        json_real(&json, "gbit", row->cluster.link.gbit);
        json_real(&json, "latency_us", 1e6 * row->cluster.link.latency_s);
        json_real(&json, "step_ms", forecast->is_far ? NAN : 1e3 * forecast->step_s);
        json_real(&json, "low_ms", 1e3 * forecast->low_s);
        json_real(&json, "high_ms", 1e3 * forecast->high_s);
        json_real(&json, "exposed_ms", 1e3 * forecast->exposed_s);
        json_real(&json, "busy", forecast->busy);
        json_real(&json, "host_bytes", forecast->host_bytes);
        json_real(&json, "messages", forecast->messages);
        json_real(&json, "break_even_gbit", forecast->break_even_gbit);
        json_flag(&json, "always_pays", isinf(forecast->break_even_gbit));
        json_text(&json, "binds", tally__term_name(forecast->binds));
        json_real(&json, "error", row->way->way.hook->error);
        json_flag(&json, "best", row->is_best);
        json_end(&json);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a plan as one HTML page, for light and dark screens, without references to other files:
 * per machine a table whose bars show computing, and what is added to it. One thread; no state.
 */
#include "tools/plan_output.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>tally plan</title>\n<style>\n"
    ":root { color-scheme: light dark; --ink: #1c2024; --soft: #5b6570; --line: #d5dae0;\n"
    "  --page: #ffffff; --work: #7a8b99; --wait: #d9722e; --best: #eaf3ea; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa5b1;\n"
    "  --line: #39414a; --page: #15191d; --work: #6b7d8c; --wait: #e08a4c; --best: #1d2b20; } }\n"
    "body { margin: 2rem auto; max-width: 66rem; padding: 0 1rem; background: var(--page);\n"
    "  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }\n"
    "h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }\n"
    "p { color: var(--soft); margin: .3rem 0; }\n"
    "table { border-collapse: collapse; width: 100%; }\n"
    "th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: right;\n"
    "  white-space: nowrap; font-variant-numeric: tabular-nums; }\n"
    "th { color: var(--soft); font-weight: 500; }\n"
    "th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }\n"
    "td.bar { width: 30%; } .bar div { display: flex; height: .8rem; }\n"
    ".bar i { background: var(--work); } .bar b { background: var(--wait); }\n"
    "tr.best td { background: var(--best); font-weight: 600; }\n"
    ".key i, .key b { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 "
    ".8rem;\n"
    "  vertical-align: -1px; } .key i { background: var(--work); } .key b { background: "
    "var(--wait); }\n"
    "</style>\n</head>\n<body>\n<h1>tally plan</h1>\n";

static void put_text(FILE *to, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            (void)fputs("&lt;", to);
            break;
        case '&':
            (void)fputs("&amp;", to);
            break;
        default:
            (void)fputc(*text, to);
        }
    }
}

static void put_row(const struct plan_row *row, double longest_s, FILE *to)
{
    const struct tally__forecast *forecast = &row->forecast;
    double compute_s = forecast->busy * forecast->step_s;
    char step[PLAN_CELL];
    char even[PLAN_CELL];

    plan_step_text(forecast, step);
    plan_break_even_text(forecast, even);
    (void)fprintf(to, "<tr%s><td>", row->is_best ? " class=\"best\"" : "");
    put_text(to, row->way->name);
    (void)fprintf(to,
                  "</td><td class=\"bar\"><div><i style=\"width:%.2f%%\"></i>"
                  "<b style=\"width:%.2f%%\"></b></div></td><td>%s</td><td>%.1f</td>"
                  "<td>%.0f %%</td><td>%.2f</td><td>%s</td><td>%s</td></tr>\n",
                  1e2 * compute_s / longest_s, 1e2 * (forecast->step_s - compute_s) / longest_s,
                  step, 1e3 * forecast->exposed_s, 1e2 * forecast->busy,
                  forecast->host_bytes * 1e-6, even, tally__term_name(forecast->binds));
}

static void put_machine(const struct plan *plan, size_t first, FILE *to)
{
    const struct plan_row *rows = &plan->rows[first];
    const struct tally__cluster *cluster = &rows->cluster;
    double longest_s = 0;

    for (size_t w = 0; w < plan->n_ways; w++) {
        double step_s = rows[w].forecast.step_s;

        longest_s = step_s > longest_s ? step_s : longest_s;
    }
    (void)fprintf(to,
                  "<h2>%.0f host%s of %.0f rank%s, %.3g Gbit/s, %.3g \302\265s</h2>\n<table>\n"
                  "<tr><th>hook</th><th></th><th>step, ms</th><th>exposed, ms</th><th>busy</th>"
                  "<th>MB a host</th><th>pays below, Gbit/s</th><th>binds</th></tr>\n",
                  cluster->hosts, cluster->hosts > 1 ? "s" : "", cluster->ranks_per_host,
                  cluster->ranks_per_host > 1 ? "s" : "", cluster->link.gbit,
                  1e6 * cluster->link.latency_s);
    for (size_t w = 0; w < plan->n_ways; w++) {
        put_row(&rows[w], longest_s > 0 ? longest_s : 1, to);
    }
    (void)fputs("</table>\n", to);
    for (size_t w = 0; w < plan->n_ways; w++) {
        if (plan_is_flat_wrong(&rows[w])) {
            (void)fputs("<p>", to);
            put_text(to, rows[w].way->name);
            (void)fprintf(to,
                          ": flat exchange is the wrong one here: a rank sends %.0f messages in a "
                          "step.</p>\n",
                          rows[w].forecast.messages);
        }
    }
}

void plan_write_page(const struct plan *plan, FILE *to)
{
    const struct tally__cluster measured = tally__profile_cluster(&plan->profile);

    (void)fputs(head, to);
    (void)fputs("<p>From ", to);
    put_text(to, plan->file);
    (void)fprintf(to, ", measured by %s on %.0f host%s of %.0f rank%s.</p>\n", plan->profile.source,
                  measured.hosts, measured.hosts > 1 ? "s" : "", measured.ranks_per_host,
                  measured.ranks_per_host > 1 ? "s" : "");
    (void)fputs("<p class=\"key\">Bars:<i></i>computing<b></b>what communication and the slowest "
                "rank add. The best row that sends gradients in every step is marked.</p>\n",
                to);
    for (size_t r = 0; r < plan->n_rows; r += plan->n_ways) {
        put_machine(plan, r, to);
    }
    (void)fputs("<h2>Words</h2>\n", to);
    for (size_t i = 0; i < plan_n_notes; i++) {
        (void)fputs("<p>", to);
        put_text(to, plan_notes[i]);
        (void)fputs("</p>\n", to);
    }
    (void)fputs("</body>\n</html>\n", to);
}

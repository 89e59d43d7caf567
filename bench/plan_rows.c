/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the rows of `tally plan`. One thread; no state. */
#include "bench/plan_rows.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "base/memory.h"
#include "base/status.h"

#define POST_LOCAL_PERIOD 16.0
#define DILOCO_PERIOD 500.0
#define MOST_RANKS 100000.0
/* Among so few, many messages come from many buckets. */
#define FEW_RANKS 32.0
/* Rows that somebody may want to read, and that take seconds. */
#define MOST_ROWS ((size_t)100000)
/* Longest profile. */
#define MOST_BYTES ((size_t)64 << 20)

/* ---- the profile ---- */

/* The bytes of a file, found by going to its end. */
static int size_of(FILE *file, size_t *bytes)
{
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;

    /* A directory has the longest length there is. */
    if (end == LONG_MAX) {
        return tally__fail(TALLY_ARG, "not a file");
    }
    if (end < 0 || fseek(file, 0, SEEK_SET) != 0) {
        return tally__fail_errno(TALLY_ARG, errno, "cannot read it");
    }
    *bytes = (size_t)end;
    return *bytes <= MOST_BYTES ? TALLY_OK : tally__fail(TALLY_ARG, "longer than any profile");
}

static int read_from(FILE *file, const char *path, struct tally__profile *profile)
{
    size_t bytes = 0;
    char *text;
    int rc;

    if (size_of(file, &bytes) != TALLY_OK) {
        return tally__fail(TALLY_ARG, "the profile %s: %s", path, tally_last_error());
    }
    text = tally__alloc(bytes, "a profile");
    TRY(text ? TALLY_OK : TALLY_NOMEM);
    rc = fread(text, 1, bytes, file) == bytes
             ? tally__profile_read(path, text, bytes, profile)
             : tally__fail_errno(TALLY_ARG, errno, "cannot read the profile %s", path);
    tally__free(text);
    return rc;
}

int plan_read(struct plan *plan)
{
    FILE *file = fopen(plan->file, "r");
    int rc;

    if (!file) {
        return tally__fail_errno(TALLY_ARG, errno, "cannot open the profile %s", plan->file);
    }
    rc = read_from(file, plan->file, &plan->profile);
    (void)fclose(file);
    return rc;
}

/* ---- ways ---- */

/* Words before a bracket. */
static const struct scheme {
    const char *word; /* "": none */
    enum tally__scheme scheme;
    double period; /* 0: gradients travel in every step */
} schemes[] = {
    {"", TALLY__FLAT, 0},
    {"hosts", TALLY__WITHIN_HOSTS, 0},
    {"postlocal", TALLY__FLAT, POST_LOCAL_PERIOD},
    {"diloco", TALLY__FLAT, DILOCO_PERIOD},
};
#define N_SCHEMES (sizeof schemes / sizeof schemes[0])

static void add_way(struct plan *plan, const struct scheme *scheme,
                    const struct tally__profile_hook *hook, double period)
{
    struct plan_way *way = &plan->ways[plan->n_ways++];

    way->way = (struct tally__way){hook, scheme->scheme, period};
    if (period > 0) {
        (void)snprintf(way->name, sizeof way->name, "%s(%s) every %.0f", scheme->word, hook->name,
                       period);
    } else {
        (void)snprintf(way->name, sizeof way->name, scheme->word[0] ? "%s(%s)" : "%s%s",
                       scheme->word, hook->name);
    }
}

/* One way per period, or one. */
static void add_periods(struct plan *plan, const struct scheme *scheme,
                        const struct tally__profile_hook *hook, const double *periods, size_t n)
{
    if (scheme->period == 0 || n == 0) {
        add_way(plan, scheme, hook, scheme->period);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        add_way(plan, scheme, hook, periods[i]);
    }
}

static int refuse(const struct plan *plan, const char *word, size_t length)
{
    char names[512] = "";
    size_t n = 0;

    for (size_t h = 0; h < plan->profile.n_hooks && n < sizeof names; h++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", h > 0 ? ", " : "",
                              plan->profile.hooks[h].name);
    }
    return tally__fail(TALLY_ARG,
                       "%s has no measurement of '%.*s'; accepted: %s, each alone or inside "
                       "hosts(), postlocal() or diloco()",
                       plan->file, (int)length, word, names);
}

/* Reads one way: a hook's name, alone or in brackets behind a word; a word alone means the first
 * hook. */
static int read_way(struct plan *plan, const char *word, size_t length, const double *periods,
                    size_t n)
{
    for (size_t s = 0; s < N_SCHEMES; s++) {
        size_t before = strlen(schemes[s].word);
        const char *inside = word;
        size_t n_inside = length;

        if (before > 0) {
            if (length < before || memcmp(word, schemes[s].word, before) != 0 ||
                (length > before && (word[before] != '(' || word[length - 1] != ')'))) {
                continue;
            }
            inside = length > before ? word + before + 1 : plan->profile.hooks[0].name;
            n_inside = length > before ? length - before - 2 : strlen(inside);
        }
        for (size_t h = 0; h < plan->profile.n_hooks; h++) {
            const struct tally__profile_hook *hook = &plan->profile.hooks[h];

            if (strlen(hook->name) == n_inside && memcmp(hook->name, inside, n_inside) == 0) {
                add_periods(plan, &schemes[s], hook, periods, n);
                return TALLY_OK;
            }
        }
    }
    return refuse(plan, word, length);
}

static void add_all(struct plan *plan, const double *periods, size_t n, bool is_shared)
{
    for (size_t h = 0; h < plan->profile.n_hooks; h++) {
        add_way(plan, &schemes[0], &plan->profile.hooks[h], 0);
    }
    for (size_t h = 0; h < plan->profile.n_hooks && is_shared; h++) {
        add_way(plan, &schemes[1], &plan->profile.hooks[h], 0);
    }
    add_periods(plan, &schemes[2], &plan->profile.hooks[0], periods, n);
    add_periods(plan, &schemes[3], &plan->profile.hooks[0], periods, n);
}

int plan_ways(struct plan *plan, const char *list, const double *periods, size_t n, bool is_shared)
{
    size_t most = 2 * plan->profile.n_hooks + 2 * (n > 0 ? n : 1);

    if (list) {
        most = n > 0 ? n : 1;
        for (const char *c = list; *c != '\0'; c++) {
            most += *c == '+' ? (n > 0 ? n : 1) : 0;
        }
    }
    plan->ways = tally__alloc_array(most, sizeof *plan->ways, "a plan");
    if (!plan->ways) {
        return TALLY_NOMEM;
    }
    if (!list) {
        add_all(plan, periods, n, is_shared);
        return TALLY_OK;
    }
    for (;;) {
        size_t length = strcspn(list, "+");

        TRY(read_way(plan, list, length, periods, n));
        if (list[length] == '\0') {
            return TALLY_OK;
        }
        list += length + 1;
    }
}

/* ---- rows ---- */

static int check_machine(const struct plan *plan, const struct tally__cluster *cluster)
{
    if (cluster->hosts * cluster->ranks_per_host > MOST_RANKS) {
        return tally__fail(TALLY_ARG, "%.0f hosts of %.0f rank%s are %.0f ranks: at most %.0f",
                           cluster->hosts, cluster->ranks_per_host,
                           cluster->ranks_per_host > 1 ? "s" : "",
                           cluster->hosts * cluster->ranks_per_host, MOST_RANKS);
    }
    if (cluster->hosts > 1 && !(cluster->link.gbit > 0)) {
        return tally__fail(TALLY_ARG, "%s was measured on one host: give --gbit and --latency-us",
                           plan->file);
    }
    return TALLY_OK;
}

static int add_machine(struct plan *plan, const struct tally__cluster *cluster)
{
    struct plan_row *first = &plan->rows[plan->n_rows];
    struct plan_row *best = NULL;

    TRY(check_machine(plan, cluster));
    for (size_t w = 0; w < plan->n_ways; w++) {
        struct plan_row *row = &first[w];

        row->way = &plan->ways[w];
        row->cluster = *cluster;
        TRY(tally__forecast(&plan->profile, &row->way->way, cluster, &row->forecast));
        if (row->way->way.period == 0 && (!best || row->forecast.step_s < best->forecast.step_s)) {
            best = row;
        }
    }
    if (best) {
        best->is_best = true;
    }
    plan->n_rows += plan->n_ways;
    return TALLY_OK;
}

int plan_compute(struct plan *plan, const struct plan_machines *machines)
{
    size_t n =
        machines->n_hosts * machines->n_ranks_per_host * machines->n_gbit * machines->n_latency;

    if (n > MOST_ROWS / plan->n_ways) {
        return tally__fail(TALLY_ARG,
                           "%zu machines with %zu hooks each: at most %zu rows, give shorter lists",
                           n, plan->n_ways, MOST_ROWS);
    }
    plan->rows = tally__alloc_array(n * plan->n_ways, sizeof *plan->rows, "a plan");
    if (!plan->rows) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        struct tally__cluster cluster = tally__profile_cluster(&plan->profile);
        size_t k = i;

        cluster.link.latency_s = machines->latency_us[k % machines->n_latency] * 1e-6;
        k /= machines->n_latency;
        cluster.link.gbit = machines->gbit[k % machines->n_gbit];
        k /= machines->n_gbit;
        cluster.ranks_per_host = machines->ranks_per_host[k % machines->n_ranks_per_host];
        cluster.hosts = machines->hosts[k / machines->n_ranks_per_host];
        /* Handling a message is a part of its flight. */
        cluster.link.message_s = fmin(cluster.link.message_s, cluster.link.latency_s);
        TRY(add_machine(plan, &cluster));
    }
    return TALLY_OK;
}

void plan_free(struct plan *plan)
{
    tally__profile_free(&plan->profile);
    tally__free(plan->ways);
    tally__free(plan->rows);
}

/* ---- texts ---- */

/* Three digits at least, without an exponent. */
static void range_end_text(double seconds, char text[PLAN_CELL])
{
    double ms = 1e3 * seconds;

    (void)snprintf(text, PLAN_CELL, "%.*f", ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
}

void plan_step_text(const struct tally__forecast *forecast, char text[PLAN_CELL])
{
    char low[PLAN_CELL];
    char high[PLAN_CELL];

    if (!forecast->is_far) {
        (void)snprintf(text, PLAN_CELL, "%.1f", 1e3 * forecast->step_s);
        return;
    }
    range_end_text(forecast->low_s, low);
    range_end_text(forecast->high_s, high);
    (void)snprintf(text, PLAN_CELL, "%.14s .. %.14s", low, high);
}

bool plan_is_flat_wrong(const struct plan_row *row)
{
    double n_ranks = row->cluster.hosts * row->cluster.ranks_per_host;

    return row->way->way.scheme == TALLY__FLAT && row->way->way.period == 0 &&
           row->forecast.binds == TALLY__TERM_ROUNDS && row->forecast.messages > 1000 &&
           n_ranks > FEW_RANKS;
}

void plan_break_even_text(const struct tally__forecast *forecast, char text[PLAN_CELL])
{
    if (forecast->break_even_gbit == 0) {
        (void)snprintf(text, PLAN_CELL, "-");
    } else if (isinf(forecast->break_even_gbit)) {
        (void)snprintf(text, PLAN_CELL, "any");
    } else {
        (void)snprintf(text, PLAN_CELL, "%.3g", forecast->break_even_gbit);
    }
}

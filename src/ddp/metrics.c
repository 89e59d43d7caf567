/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: the totals of a ddp as OpenMetrics text, in the file that TALLY_METRICS names, which is
 * replaced as a whole. The thread that waits enters, at the end of a step; nothing is sent, and no
 * step fails because of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/shared_folder.h"
#include "base/text.h"
#include "base/utf8.h"
#include "ddp/ddp.h"

#define PERIOD_NS (15 * TALLY__NS_PER_SECOND)
#define N_HOOKS 8
#define PATH_BYTES 1024

struct hook_bytes {
    char hook[64];
    uint64_t bytes;
};

struct tally__metrics {
    uint64_t next_ns; /* the file is written again */
    uint64_t step_ns; /* of all steps */
    bool has_failed;  /* and that was logged */
    int n_hooks;
    struct hook_bytes hooks[N_HOOKS]; /* with more, the last one has the rest */
    char path[PATH_BYTES];
    char partial[PATH_BYTES + 8]; /* the file while it is written */
};

/* "%r" in name becomes the rank; without it, the rank goes before the extension: node_exporter
 * reads files whose names end in ".prom". The second ddp of a rank has a separate file. Errors: ARG
 * for a name of a folder, or one that is too long. */
static int find_path(struct tally__metrics *metrics, const char *name, int rank, int ddp)
{
    const char *mark = strstr(name, "%r");
    const char *base = strrchr(name, '/');
    const char *dot = strrchr(base ? base : name, '.');
    const char *from = mark ? mark : (dot && dot != name ? dot : name + strlen(name));
    char number[32];
    int n;

    if (base && base[1] == '\0') {
        return tally__fail(TALLY_ARG, "'%s' is a folder; give the name of a file in it", name);
    }
    (void)(ddp > 1 ? snprintf(number, sizeof number, "%d.ddp%d", rank, ddp)
                   : snprintf(number, sizeof number, "%d", rank));
    n = snprintf(metrics->path, sizeof metrics->path, "%.*s%s%s%s", (int)(from - name), name,
                 mark ? "" : ".", number, mark ? mark + 2 : from);
    (void)snprintf(metrics->partial, sizeof metrics->partial, "%s.new", metrics->path);
    return n >= 0 && (size_t)n < sizeof metrics->path
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "the name of the file is too long: '%.60s...'", name);
}

void tally__metrics_make(tally_ddp *ddp)
{
    const char *name = tally__env_text(TALLY__ENV_METRICS);
    struct tally__metrics *made;

    if (!tally__env_is_set(TALLY__ENV_METRICS)) {
        return;
    }
    made = tally__alloc(sizeof *made, "metrics");
    if (made && find_path(made, name, tally__number_of(ddp->group, ddp->group->rank),
                          ddp->trace.number) != TALLY_OK) {
        tally__free(made);
        made = NULL;
    }
    if (!made) {
        tally__log(TALLY_LOG_WARN, "TALLY_METRICS: no metrics are written: %s", tally_last_error());
    }
    ddp->metrics = made;
}

void tally__metrics_free(tally_ddp *ddp)
{
    tally__free(ddp->metrics);
}

/* ---- the text ---- */

static void put_family(FILE *to, const char *name, const char *kind, const char *help)
{
    (void)fprintf(to, "# TYPE %s %s\n# HELP %s %s\n", name, kind, name, help);
}

/* The labels that every sample has. */
static void put_name(FILE *to, const tally_ddp *ddp, const char *name)
{
    (void)fprintf(to, "%s{rank=\"%d\",ddp=\"%d\"", name,
                  tally__number_of(ddp->group, ddp->group->rank), ddp->trace.number);
}

/* A hook's name may be any text. A reader refuses the whole file for a byte that is not UTF-8. */
static void put_label(FILE *to, const char *key, const char *value)
{
    (void)fprintf(to, ",%s=\"", key);
    while (*value) {
        size_t n = tally__utf8_bytes(value);

        if (*value == '\\' || *value == '"') {
            (void)fprintf(to, "\\%c", *value);
        } else if (*value == '\n') {
            (void)fputs("\\n", to);
        } else if (n == 0 || (unsigned char)*value < ' ' || *value == 0x7f) {
            (void)fputc('?', to);
        } else {
            (void)fwrite(value, 1, n, to);
        }
        value += n > 0 ? n : 1;
    }
    (void)fputc('"', to);
}

static void put_count(FILE *to, const tally_ddp *ddp, const char *name, unsigned long long value)
{
    put_name(to, ddp, name);
    (void)fprintf(to, "} %llu\n", value);
}

/* The program may have a locale whose numbers have a comma. */
static void put_ns(FILE *to, uint64_t ns)
{
    (void)fprintf(to, "} %" PRIu64 ".%09" PRIu64 "\n", ns / TALLY__NS_PER_SECOND,
                  ns % TALLY__NS_PER_SECOND);
}

static void put_seconds(FILE *to, const tally_ddp *ddp, const char *name, uint64_t ns)
{
    put_name(to, ddp, name);
    put_ns(to, ns);
}

static void put_bytes(FILE *to, const tally_ddp *ddp)
{
    put_family(to, "tally_wire_bytes", "counter", "Payload sent for buckets, by hook.");
    for (int i = 0; i < ddp->metrics->n_hooks; i++) {
        put_name(to, ddp, "tally_wire_bytes_total");
        put_label(to, "hook", ddp->metrics->hooks[i].hook);
        (void)fprintf(to, "} %llu\n", (unsigned long long)ddp->metrics->hooks[i].bytes);
    }
}

static void put_lateness(FILE *to, const tally_ddp *ddp)
{
    static const char *const causes[TALLY__N_LATE_CAUSES] = {"computes", "lane", "link"};
    const struct tally__rank_lateness *own = &ddp->lateness.ranks[ddp->group->rank];

    put_family(to, "tally_late_seconds", "counter",
               "How long the other ranks waited for this one, by cause.");
    for (int c = 0; c < TALLY__N_LATE_CAUSES; c++) {
        put_name(to, ddp, "tally_late_seconds_total");
        put_label(to, "cause", causes[c]);
        put_ns(to, own->ns[c]);
    }
    put_family(to, "tally_late_steps", "gauge",
               "The last steps in a row in which the others waited for this rank for more than a "
               "tenth of the step; one step of ten may be an exception.");
    put_count(to, ddp, "tally_late_steps", own->row.n);
}

static void put_optimizer(FILE *to, const tally_ddp *ddp)
{
    static const struct tally__option real = {.type = TALLY__OPTION_REAL};
    struct tally__trace_step facts = {0};
    char loss_scale[TALLY__MAX_OPTION_VALUE];
    unsigned long long skipped =
        ddp->observer.ask ? ddp->observer.ask(ddp->observer.user).skipped : 0;

    if (ddp->observer.step_facts) {
        ddp->observer.step_facts(ddp->observer.user, &facts);
    }
    put_family(to, "tally_skipped_steps", "counter",
               "Steps that the optimizer skipped because a gradient was not finite.");
    put_count(to, ddp, "tally_skipped_steps_total", skipped);
    put_family(to, "tally_loss_scale", "gauge", "The loss scale; 0 without an optimizer.");
    put_name(to, ddp, "tally_loss_scale");
    tally__option_write(&real, facts.loss_scale, loss_scale);
    (void)fprintf(to, "} %s\n", loss_scale);
}

static void put_all(FILE *to, const tally_ddp *ddp)
{
    put_family(to, "tally_steps", "counter", "Steps that this rank has completed.");
    put_count(to, ddp, "tally_steps_total", ddp->stats.n_steps);
    put_family(to, "tally_step_seconds", "counter", "Length of all steps.");
    put_seconds(to, ddp, "tally_step_seconds_total", ddp->metrics->step_ns);
    put_family(to, "tally_exposed_seconds", "counter",
               "How long tally_ddp_wait has waited for the exchange.");
    put_seconds(to, ddp, "tally_exposed_seconds_total", ddp->stats.total_exposed_ns);
    put_bytes(to, ddp);
    put_lateness(to, ddp);
    put_optimizer(to, ddp);
    (void)fputs("# EOF\n", to);
}

/* ---- the file ---- */

static void fail(struct tally__metrics *metrics, int error)
{
    if (!metrics->has_failed) {
        metrics->has_failed = true;
        tally__log(TALLY_LOG_WARN, "TALLY_METRICS: cannot write %s: %s", metrics->path,
                   strerror(error));
    }
}

static FILE *open_partial(const struct tally__metrics *metrics)
{
    int fd = tally__create_in_shared_folder(metrics->partial);
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (fd >= 0 && !to) {
        (void)close(fd);
    }
    return to;
}

static void write_file(tally_ddp *ddp)
{
    struct tally__metrics *metrics = ddp->metrics;
    FILE *to = open_partial(metrics);
    bool is_written;
    int error;

    if (!to) {
        fail(metrics, errno);
        return;
    }
    put_all(to, ddp);
    is_written = fflush(to) == 0 && !ferror(to);
    error = errno;
    is_written = fclose(to) == 0 && is_written;
    if (!is_written || rename(metrics->partial, metrics->path) != 0) {
        fail(metrics, is_written ? errno : error);
        (void)unlink(metrics->partial);
    }
}

static void add_bytes(struct tally__metrics *metrics, const char *hook, uint64_t bytes)
{
    int i = 0;

    while (i < metrics->n_hooks && i < N_HOOKS - 1 &&
           strncmp(metrics->hooks[i].hook, hook, sizeof metrics->hooks[i].hook - 1) != 0) {
        i++;
    }
    if (i == metrics->n_hooks) {
        metrics->n_hooks++;
        (void)snprintf(metrics->hooks[i].hook, sizeof metrics->hooks[i].hook, "%s", hook);
    }
    metrics->hooks[i].bytes += bytes;
}

void tally__metrics_step(tally_ddp *ddp)
{
    struct tally__metrics *metrics = ddp->metrics;
    uint64_t now_ns = ddp->stats.last_end_ns;

    if (!metrics) {
        return;
    }
    metrics->step_ns += tally__step_ns(ddp);
    add_bytes(metrics, ddp->hook->table.name, ddp->stats.wire_bytes);
    if (now_ns >= metrics->next_ns) {
        metrics->next_ns = now_ns + PERIOD_NS;
        write_file(ddp);
    }
}

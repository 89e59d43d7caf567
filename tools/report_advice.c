/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of a report. One thread; no state. */
#include "tools/report_advice.h"

#include <stdarg.h>
#include <string.h>

/* Parts of a step that are worth a sentence. */
#define LITTLE 0.05
#define MUCH 0.15
/* A hook that sends less than this part of a plain all-reduce compresses. */
#define COMPRESSES 0.9

struct sentences {
    struct advice *advice;
    size_t n;
};

const char *report_time(double ns, char text[24])
{
    static const struct {
        double from;
        const char *unit;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        double value = ns / units[i].from;

        if (value >= 0.9995) {
            (void)snprintf(text, 24,
                           value < 9.995   ? "%.2f %s"
                           : value < 99.95 ? "%.1f %s"
                                           : "%.0f %s",
                           value, units[i].unit);
            return text;
        }
    }
    (void)snprintf(text, 24, "%.0f ns", ns);
    return text;
}

__attribute__((format(printf, 3, 4))) static void say(struct sentences *to, const char *kind,
                                                      const char *format, ...)
{
    va_list arguments;

    if (to->n == ADVICE_MAX) {
        return;
    }
    va_start(arguments, format);
    to->advice[to->n].kind = kind;
    (void)vsnprintf(to->advice[to->n].text, sizeof to->advice->text, format, arguments);
    va_end(arguments);
    to->n++;
}

static void say_straggler(struct sentences *to, const struct report_run *run,
                          const struct headline *headline)
{
    const struct rank_figures *rank = &run->ranks[headline->straggler];
    double part = headline->straggler_ns / headline->mean_ns;
    char time[24];
    const char *cause = ", because its gradients are ready later than those of the others";
    const char *remedy = "Give it less work, or look for other load on its CPUs.";

    if (rank->unknown_ns > 0) {
        cause = "";
        remedy = "Inside a step, the page shows what it does meanwhile.";
    } else if (rank->lane_ns > rank->computes_ns && rank->lane_ns >= rank->link_ns) {
        cause = ", because its gradients are ready in time, but its lane thread gets no CPU";
        remedy = "Leave it a CPU: fewer threads in the application, or less beside it.";
    } else if (rank->link_ns > rank->computes_ns) {
        cause = ", because it sends in time, but its messages arrive late";
        remedy = "Look at its network link, or choose a hook that sends less.";
    }
    say(to, "straggler",
        "Rank %d is the straggler: the others wait %s per step for it, %.0f %% of "
        "the mean step%s. %s",
        headline->straggler, report_time(headline->straggler_ns, time), 100 * part, cause, remedy);
}

/* The bucket whose exchange is exposed most. */
static size_t find_exposed(const struct report_run *run, double *part)
{
    size_t most = 0;
    double sum = 0;

    for (size_t b = 0; b < run->n_buckets; b++) {
        sum += run->buckets[b].exposed_ns;
        most = run->buckets[b].exposed_ns > run->buckets[most].exposed_ns ? b : most;
    }
    *part = sum > 0 ? run->buckets[most].exposed_ns / sum : 0;
    return most;
}

/* The part of all exchanges that is waiting for another rank. */
static double waiting_part(const struct report_run *run)
{
    double waiting = 0;
    double exchange = 0;

    for (size_t b = 0; b < run->n_buckets; b++) {
        waiting += run->buckets[b].waiting_ns;
        exchange += run->buckets[b].exchange_ns;
    }
    return exchange > 0 ? waiting / exchange : 0;
}

static void say_exposed(struct sentences *to, const struct report_run *run,
                        const struct headline *headline)
{
    double part = headline->exposed_ns / headline->step_ns;
    bool compresses = headline->wire_bytes < COMPRESSES * headline->plain_bytes;
    double of_one;
    size_t bucket = find_exposed(run, &of_one);

    if (part < LITTLE) {
        say(to, "",
            "Communication hides behind the application: only %.0f %% of the step waits for "
            "it. A faster exchange would not help.",
            100 * part);
        return;
    }
    if (part < MUCH) {
        say(to, "", "%.0f %% of the step waits for the exchange.", 100 * part);
    } else if (waiting_part(run) > 0.5) {
        say(to, "",
            "%.0f %% of the step waits for the exchange, which itself mostly waits for ranks that "
            "come "
            "late. Even work and enough CPUs would help; a hook that sends less would not.",
            100 * part);
        return;
    } else if (!compresses) {
        say(to, "",
            "%.0f %% of the step waits for the exchange, and hook %s does not compress. A hook "
            "that sends less would help: bf16 sends half, int8 a quarter.",
            100 * part, run->hook[0] ? run->hook : "allreduce");
    } else {
        say(to, "",
            "%.0f %% of the step waits for the exchange, although hook %s compresses. More "
            "work per step would help: a larger batch, or gradient accumulation.",
            100 * part, run->hook);
    }
    if (run->n_buckets == 1) {
        say(to, "",
            "There is one bucket, so the exchange cannot begin before backward ends. A smaller "
            "bucket_cap_bytes makes more.");
    } else if (of_one > 0.7 && bucket + 1 == run->n_buckets) {
        say(to, "",
            "The last bucket makes %.0f %% of that. It is ready when backward ends; a smaller "
            "bucket_cap_bytes makes it smaller.",
            100 * of_one);
    }
}

size_t report_advise(const struct report_run *run, const struct headline *headline,
                     struct advice advice[ADVICE_MAX])
{
    struct sentences to = {.advice = advice};

    if (headline->straggler >= 0) {
        say_straggler(&to, run, headline);
    }
    /* Ranks that wait for the straggler wait less for the exchange than it seems. */
    if (headline->straggler >= 0 && headline->straggler_ns > 0.5 * headline->exposed_ns) {
        say(&to, "", "Most of the exposed communication is waiting for that rank.");
    } else if (run->n_ranks > 1) {
        say_exposed(&to, run, headline);
    }
    if (headline->optimizer_ns > MUCH * headline->step_ns) {
        say(&to, "",
            "The optimizer takes %.0f %% of the step. With config.overlap lanes update a bucket "
            "while others travel; with config.shard each rank updates a part.",
            100 * headline->optimizer_ns / headline->step_ns);
    }
    if (run->n_lost > 0) {
        say(&to, "", "Some events are missing: ranks overwrote %llu before they were written.",
            (unsigned long long)run->n_lost);
    }
    return to.n;
}

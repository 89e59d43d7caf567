/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of auto_grid.py, which a launcher has started: trains a synthetic model under the hook
 * auto, and times steps of its candidates in turn.
 *
 *   auto_rank cell MODEL BYTES BACKWARD ROUNDS PLAN
 *
 * lets auto settle and write its choice to the file PLAN, and its figures to PLAN.json; then takes
 * ROUNDS rounds of one step of each candidate and of the choice. Backward sleeps for BACKWARD times
 * the communication of allreduce. Rank 0 prints one JSON object.
 *
 *   auto_rank follow MODEL BYTES BACKWARD_MS SECONDS REVIEW
 *
 * takes steps under auto, for some seconds; rank 0 prints each step and when it ended, on the
 * monotonic clock, and the choice whenever it changes.
 *
 * MODEL is matrices or small. Gradients are of low rank with some noise, which changes from step to
 * step. Times are of the slowest rank.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally_extend.h>
#include <time.h>

#define MAX_PARAMS 4096
#define N_SOURCES 3 /* gradients of steps, in turn: they differ in their noise */
#define MAX_ROUNDS 200
#define MAX_SETTLE 90
#define SIDE 512 /* of a large matrix */
#define SMALL 32 /* of a small one; vectors are between them */
#define BUCKET_BYTES ((size_t)1 << 20)

static const char *const candidates[] = {"allreduce", "bf16", "int8", "powersgd:start=0"};
#define N_SIDES (sizeof candidates / sizeof candidates[0] + 1)

struct work {
    tally_group *group;
    int rank;
    size_t n; /* elements */
    size_t n_params;
    tally_param *params;
    size_t (*shapes)[2];
    char (*names)[24];
    float *data;
    float *source; /* N_SOURCES times n */
    size_t n_steps;
    double backward_s;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "auto_rank: %s: %s\n", what, why);
    exit(1);
}

static void check(int rc, const char *what)
{
    if (rc != TALLY_OK) {
        give_up(what, tally_last_error());
    }
}

static void *allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);

    if (!memory) {
        give_up("memory", "there is not enough");
    }
    return memory;
}

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void sleep_until(double s)
{
    const struct timespec until = {.tv_sec = (time_t)s,
                                   .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

static void meet(const struct work *work)
{
    tally_future *future = NULL;

    check(tally_barrier(work->group, &future), "tally_barrier");
    check(tally_future_wait(future), "tally_barrier");
    tally_future_free(future);
}

static void maxima(const struct work *work, double *values, size_t n)
{
    tally_future *future = NULL;

    check(tally_all_reduce(work->group, values, n, TALLY_F64, TALLY_MAX, &future), "maxima");
    check(tally_future_wait(future), "maxima");
    tally_future_free(future);
}

/* ---- the model ---- */

static float noise(size_t i)
{
    unsigned x = (unsigned)i * 2654435761u;

    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 13;
    return (float)(x >> 8) * 0x1p-23f - 1;
}

/* A matrix of rank one with a little noise; a vector is noise. */
static void fill(const struct work *work, size_t p, size_t k, float *to)
{
    size_t rows = work->params[p].n_dims == 2 ? work->shapes[p][0] : 1;
    size_t columns = work->params[p].n_dims == 2 ? work->shapes[p][1] : work->shapes[p][0];

    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            float own = noise((i * columns + j) * 64 + (size_t)work->rank * N_SOURCES + k + 1);
            float low = noise(3 * i + p) * noise(7 * j + p + 1);

            to[i * columns + j] = rows > 1 ? low + 0.01f * own : own;
        }
    }
}

static void make_model(struct work *work, bool is_small, size_t bytes)
{
    size_t left = bytes / sizeof(float);

    work->params = allocate(MAX_PARAMS, sizeof *work->params);
    work->shapes = allocate(MAX_PARAMS, sizeof *work->shapes);
    work->names = allocate(MAX_PARAMS, sizeof *work->names);
    while (left > 0 && work->n_params < MAX_PARAMS) {
        size_t p = work->n_params++;
        size_t side = is_small ? SMALL : bytes < SIDE * SIDE * 16 ? SIDE / 4 : SIDE;
        bool is_matrix = p % 2 == 0 && left >= side * side;
        size_t n = is_matrix ? side * side : is_small ? 512 + p % 512 : side;

        n = n < left ? n : left;
        work->shapes[p][0] = is_matrix ? side : n;
        work->shapes[p][1] = side;
        (void)snprintf(work->names[p], sizeof work->names[p], "parameter %zu", p);
        work->params[p] = (tally_param){.size = sizeof(tally_param),
                                        .name = work->names[p],
                                        .n_dims = is_matrix ? 2 : 1,
                                        .shape = work->shapes[p],
                                        .dtype = TALLY_F32};
        work->n += n;
        left -= n;
    }
    work->data = allocate(work->n, sizeof *work->data);
    work->source = allocate(N_SOURCES * work->n, sizeof *work->source);
    for (size_t p = 0, at = 0; p < work->n_params; p++) {
        size_t n = work->shapes[p][0] * (work->params[p].n_dims == 2 ? work->shapes[p][1] : 1);

        work->params[p].data = (void *)(work->data + at);
        for (size_t k = 0; k < N_SOURCES; k++) {
            fill(work, p, k, work->source + k * work->n + at);
        }
        at += n;
    }
}

static tally_ddp *make_side(const struct work *work, const char *hook)
{
    tally_ddp_config config;
    tally_ddp *ddp = NULL;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes =
        work->n * sizeof(float) / 8 < BUCKET_BYTES ? work->n * sizeof(float) / 8 : BUCKET_BYTES * 4;
    config.keep_parameters = 1;
    config.hook = hook;
    check(tally_ddp_create(work->group, work->params, work->n_params, &config, &ddp), hook);
    return ddp;
}

/* ---- steps ---- */

/* Every gradient has its part of backward, by its size. */
static double step(struct work *work, tally_ddp *ddp)
{
    const float *source = work->source + work->n_steps++ % N_SOURCES * work->n;
    double start_s = now_s();
    size_t done = 0;

    for (size_t p = work->n_params; p-- > 0;) {
        const float *from = source + ((float *)work->params[p].data - work->data);
        size_t n = tally_ddp_param_count(ddp, (int)p);

        memcpy(tally_ddp_grad(ddp, (int)p), from, n * sizeof *from);
        done += n;
        if (work->backward_s > 0 && (p % 8 == 0 || n >= SIDE * SIDE)) {
            sleep_until(start_s + work->backward_s * (double)done / (double)work->n);
        }
        check(tally_ddp_grad_ready(ddp, (int)p), "tally_ddp_grad_ready");
    }
    check(tally_ddp_wait(ddp), "tally_ddp_wait");
    return now_s() - start_s;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The communication of allreduce alone. */
static double communication_s(struct work *work)
{
    tally_ddp *ddp = make_side(work, "allreduce");
    double times[5];

    (void)step(work, ddp);
    for (int i = 0; i < 5; i++) {
        meet(work);
        times[i] = step(work, ddp);
    }
    maxima(work, times, 5);
    check(tally_ddp_free(ddp), "tally_ddp_free");
    qsort(times, 5, sizeof *times, compare);
    return times[2];
}

/* The hooks that the buckets travel by, with the number of each; and one reason. */
static bool describe(tally_ddp *ddp, char *text, size_t room, char *reason)
{
    static const char *const names[] = {"allreduce", "bf16", "int8", "powersgd:start=0"};
    int counts[4] = {0};
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_choice choice = {.size = sizeof choice};
    size_t used = 0;

    check(tally_ddp_get_stats(ddp, &stats), "tally_ddp_get_stats");
    for (size_t b = stats.n_buckets; b-- > 0;) {
        check(tally_ddp_explain(ddp, b, &choice), "tally_ddp_explain");
        for (int h = 0; h < 4; h++) {
            counts[h] += strcmp(choice.hook, names[h]) == 0;
        }
    }
    (void)snprintf(reason, sizeof choice.reason, "%s", choice.reason);
    text[0] = '\0';
    for (int h = 0; h < 4; h++) {
        if (counts[h] > 0) {
            used += (size_t)snprintf(text + used, room - used, "%s%.*s %d", used ? ", " : "",
                                     (int)strcspn(names[h], ":"), names[h], counts[h]);
        }
    }
    return choice.settled != 0;
}

/* Steps under auto until its choice is settled, with their times; returns their number. *attach_s
 * is the time that it took to attach auto, which measures the line. */
static int settle(struct work *work, const char *hook, double *times, double *attach_s,
                  char *choice, char *reason)
{
    tally_ddp *ddp = make_side(work, "allreduce");
    double start_s;
    int n = 0;

    meet(work);
    start_s = now_s();
    check(tally_ddp_set_hook(ddp, hook), hook);
    *attach_s = now_s() - start_s;
    do {
        times[n++] = step(work, ddp);
    } while (!describe(ddp, choice, 100, reason) && n < MAX_SETTLE);
    check(tally_ddp_free(ddp), "tally_ddp_free");
    return n;
}

static void print_times(const char *name, const double *times, int n)
{
    (void)printf(", \"%s\": [", name);
    for (int i = 0; i < n; i++) {
        (void)printf("%s%.3f", i > 0 ? ", " : "", 1e3 * times[i]);
    }
    (void)printf("]");
}

static void cell(struct work *work, double backward, int rounds, const char *plan)
{
    static double times[N_SIDES][MAX_ROUNDS];
    double comm_s = communication_s(work);
    tally_ddp *sides[N_SIDES];
    char choice[100];
    char reason[200];
    char hook[200];
    double settle_times[MAX_SETTLE];
    double attach_s = 0;
    double settle_s;
    int n_settle;

    work->backward_s = backward * comm_s;
    (void)snprintf(hook, sizeof hook, "auto:plan=%s,profile=%s.json", plan, plan);
    n_settle = settle(work, hook, settle_times, &attach_s, choice, reason);
    settle_s = attach_s;
    for (int i = 0; i < n_settle; i++) {
        settle_s += settle_times[i];
    }
    for (size_t k = 0; k < N_SIDES; k++) {
        sides[k] = make_side(work, k + 1 < N_SIDES ? candidates[k] : hook);
        (void)step(work, sides[k]);
    }
    for (int r = -1; r < rounds; r++) {
        for (size_t i = 0; i < N_SIDES; i++) {
            size_t k = r % 2 != 0 ? i : N_SIDES - 1 - i; /* none always follows the same one */

            meet(work);
            times[k][r < 0 ? 0 : r] = step(work, sides[k]);
        }
    }
    maxima(work, &times[0][0], N_SIDES * MAX_ROUNDS);
    if (work->rank == 0) {
        (void)printf(
            "{\"parameters\": %zu, \"bytes\": %zu, \"comm_ms\": %.3f, \"backward_ms\": %.3f, "
            "\"attach_ms\": %.1f, \"settle_steps\": %d, \"settle_ms\": %.1f, \"choice\": \"%s\", "
            "\"reason\": \"%s\"",
            work->n_params, work->n * sizeof(float), 1e3 * comm_s, 1e3 * work->backward_s,
            1e3 * attach_s, n_settle, 1e3 * settle_s, choice, reason);
        for (size_t k = 0; k < N_SIDES; k++) {
            print_times(k + 1 < N_SIDES ? candidates[k] : "auto", times[k], rounds);
        }
        print_times("settle", settle_times, n_settle);
        (void)printf("}\n");
    }
    for (size_t k = 0; k < N_SIDES; k++) {
        check(tally_ddp_free(sides[k]), "tally_ddp_free");
    }
}

static void follow(struct work *work, double seconds, const char *review)
{
    char hook[100];
    char choice[100];
    char reason[200];
    char before[100] = "";
    double start_s = now_s();
    double elapsed_s = 0;
    tally_ddp *ddp;

    (void)snprintf(hook, sizeof hook, "auto:review=%s", review);
    ddp = make_side(work, hook);
    for (int n = 1; elapsed_s < seconds; n++) {
        double s = step(work, ddp);

        elapsed_s = now_s() - start_s;
        maxima(work, &elapsed_s, 1);
        if (describe(ddp, choice, sizeof choice, reason) && strcmp(choice, before) != 0 &&
            work->rank == 0) {
            (void)printf("{\"at\": %.2f, \"step\": %d, \"ms\": %.2f, \"choice\": \"%s\", "
                         "\"reason\": \"%s\"}\n",
                         now_s(), n, 1e3 * s, choice, reason);
            (void)fflush(stdout);
            (void)snprintf(before, sizeof before, "%s", choice);
        } else if (work->rank == 0) {
            (void)printf("{\"at\": %.2f, \"step\": %d}\n", now_s(), n);
        }
    }
    check(tally_ddp_free(ddp), "tally_ddp_free");
}

int main(int argc, char **argv)
{
    struct work work = {.rank = 0};
    bool is_cell = argc == 7 && strcmp(argv[1], "cell") == 0;

    if (!is_cell && (argc != 7 || strcmp(argv[1], "follow") != 0)) {
        give_up("usage", "auto_rank cell MODEL BYTES BACKWARD ROUNDS PLAN, or auto_rank follow "
                         "MODEL BYTES BACKWARD_MS SECONDS REVIEW");
    }
    check(tally_group_open(NULL, &work.group), "tally_group_open");
    work.rank = tally_group_rank(work.group);
    make_model(&work, strcmp(argv[2], "small") == 0, (size_t)strtoull(argv[3], NULL, 10));
    if (is_cell) {
        long rounds = strtol(argv[5], NULL, 10);

        cell(&work, strtod(argv[4], NULL), rounds > MAX_ROUNDS ? MAX_ROUNDS : (int)rounds, argv[6]);
    } else {
        work.backward_s = 1e-3 * strtod(argv[4], NULL);
        follow(&work, strtod(argv[5], NULL), argv[6]);
    }
    meet(&work);
    check(tally_group_close(work.group), "tally_group_close");
    free(work.params);
    free(work.shapes);
    free(work.names);
    free(work.data);
    free(work.source);
    return 0;
}

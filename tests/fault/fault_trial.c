/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial: starts the ranks, waits until all are at work, strikes at a random moment, and judges
 * the survivors' reports. If a victim must act itself (exit, abort, exec), one of its threads does
 * so while its other threads are in the middle of a collective. One thread enters.
 */
#include "fault/fault_trial.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_TIMEOUT_S 1.5
/* The promise is one second; the rest is for a machine that has other things to do. */
#define BOUND_S 10.0
#define HANG_S 25.0
#define NS_PER_S 1e9

/* Messages between the test and the victims. */
struct orders {
    atomic_bool strike[2];
    atomic_bool leave;
    atomic_int grandchild;      /* its process id, for FORK */
    _Atomic uint64_t struck_ns; /* just before the blow, where the victim strikes itself */
};

struct scene {
    struct fault_plan plan;
    const struct fault_trial *trial;
    struct fault_crew crew;
    struct orders *orders;
    int n_victims;
    int victim[2];
    uint64_t random;
    uint64_t struck_ns;
};

const char *fault_blow_text(enum fault_blow blow)
{
    static const char *const texts[] = {
#define BLOW_TEXT(name, text) text,
        FAULT_BLOW_LIST(BLOW_TEXT)
#undef BLOW_TEXT
    };

    return texts[blow];
}

bool fault_blow_is_stop(enum fault_blow blow)
{
    return blow == FAULT_BLOW_STOP || blow == FAULT_BLOW_PAUSE;
}

/* Whether the test sends a signal; otherwise the victim does it by itself. */
static int signal_of(enum fault_blow blow)
{
    if (fault_blow_is_stop(blow)) {
        return SIGSTOP;
    }
    return blow == FAULT_BLOW_KILL ? SIGKILL : 0;
}

/* ---- in the victim ---- */

static void fork_and_die(struct orders *orders)
{
    pid_t child = fork();

    if (child == 0) {
        /* Outlives its parent, with everything it inherited, until the trial is over. */
        for (;;) {
            (void)pause();
        }
    }
    atomic_store_explicit(&orders->grandchild, (int)child, memory_order_release);
    (void)raise(SIGKILL);
}

static void strike_self(const struct scene *scene)
{
    switch (scene->trial->blow) {
    case FAULT_BLOW_EXIT:
        exit(0);
    case FAULT_BLOW_ABORT:
        (void)signal(SIGABRT, SIG_DFL);
        abort();
    case FAULT_BLOW_SEGV:
        (void)signal(SIGSEGV, SIG_DFL);
        (void)raise(SIGSEGV);
        break;
    case FAULT_BLOW_FORK:
        fork_and_die(scene->orders);
        break;
    default:
        (void)execl("/bin/sleep", "sleep", "60", (char *)NULL);
    }
    _exit(1);
}

struct fuse {
    const struct scene *scene;
    int index;
};

static void *wait_for_order(void *argument)
{
    const struct fuse *fuse = argument;
    struct orders *orders = fuse->scene->orders;

    while (!atomic_load_explicit(&orders->strike[fuse->index], memory_order_acquire)) {
        fault_sleep_ns(FAULT_NS_PER_MS / 2);
    }
    atomic_store_explicit(&orders->struck_ns, fault_now_ns(), memory_order_release);
    strike_self(fuse->scene);
    return NULL;
}

static int be_rank(int rank, struct fault_report *report, void *user)
{
    static struct fuse fuse;
    struct scene *scene = user;
    pthread_t thread;

    for (int i = 0; i < scene->n_victims; i++) {
        if (scene->victim[i] == rank && scene->trial->blow == FAULT_BLOW_CLOSE) {
            scene->plan.leave = &scene->orders->leave;
        } else if (scene->victim[i] == rank && signal_of(scene->trial->blow) == 0) {
            fuse = (struct fuse){scene, i};
            (void)pthread_create(&thread, NULL, wait_for_order, &fuse);
            (void)pthread_detach(thread);
        }
    }
    return fault_stream(&scene->plan, rank, report);
}

/* ---- the test's side ---- */

/* Draws what the trial is like. The order of the draws is part of what a seed means. */
static void set_scene(struct scene *scene, const struct fault_trial *trial)
{
    bool has_path;

    *scene = (struct scene){.trial = trial, .random = trial->seed};
    scene->plan.seed = trial->seed + 1;
    scene->plan.world = 2 + (int)fault_random(&scene->random, 4);
    scene->plan.lanes = 1 + (int)fault_random(&scene->random, 2);
    scene->plan.splits = fault_random(&scene->random, 3) == 0;
    scene->plan.timeout_s = fault_blow_is_stop(trial->blow) ? STOP_TIMEOUT_S : 60;
    has_path = fault_random(&scene->random, 4) == 0;
    (void)snprintf(scene->plan.rendezvous, sizeof scene->plan.rendezvous,
                   "%.60s%stally-fault-%d-%d", has_path ? trial->folder : "", has_path ? "/" : "@",
                   (int)getpid(), trial->number);
    scene->victim[0] = (int)fault_random(&scene->random, (uint32_t)scene->plan.world);
    scene->n_victims = 1;
    if (scene->plan.world > 2 && trial->blow < FAULT_BLOW_FORK &&
        fault_random(&scene->random, 4) == 0) {
        scene->victim[1] = (scene->victim[0] + 1) % scene->plan.world;
        scene->n_victims = 2;
    }
    scene->orders = fault_shared_alloc(sizeof *scene->orders);
    fault_crew_init(&scene->crew, scene->plan.world);
}

static bool wait_for_milestone(struct scene *scene, int milestone)
{
    uint64_t end = fault_now_ns() + (uint64_t)(HANG_S * NS_PER_S);

    while (!fault_crew_reached(&scene->crew, milestone)) {
        if (fault_now_ns() > end || fault_crew_all_ended(&scene->crew)) {
            /* They may have got there, and ended, since the first look. */
            return fault_crew_reached(&scene->crew, milestone);
        }
        fault_sleep_ns(FAULT_NS_PER_MS / 2);
    }
    return true;
}

static void strike(struct scene *scene, int i)
{
    int signal = signal_of(scene->trial->blow);

    fault_crew_strike(&scene->crew, scene->victim[i], signal);
    scene->struck_ns = fault_now_ns();
    if (scene->trial->blow == FAULT_BLOW_CLOSE) {
        atomic_store_explicit(&scene->orders->leave, true, memory_order_release);
    }
    atomic_store_explicit(&scene->orders->strike[i], true, memory_order_release);
}

static void strike_all(struct scene *scene)
{
    fault_sleep_ns(fault_random(&scene->random, 40000) * UINT64_C(1000));
    strike(scene, 0);
    if (scene->n_victims == 2) {
        fault_sleep_ns(fault_random(&scene->random, 2)
                           ? 0
                           : fault_random(&scene->random, 200) * FAULT_NS_PER_MS);
        strike(scene, 1);
    }
}

/* Ends what does not end by itself: the stopped, the grandchild, the program that was executed. */
static void release_victims(struct scene *scene)
{
    int grandchild = atomic_load_explicit(&scene->orders->grandchild, memory_order_acquire);

    if (scene->trial->blow == FAULT_BLOW_PAUSE) {
        fault_crew_strike(&scene->crew, scene->victim[0], SIGCONT);
        scene->crew.member[scene->victim[0]].was_struck = false;
    } else if (scene->trial->blow != FAULT_BLOW_CLOSE) {
        for (int i = 0; i < scene->n_victims; i++) {
            fault_crew_strike(&scene->crew, scene->victim[i], SIGKILL);
        }
    }
    if (grandchild > 0) {
        (void)kill(grandchild, SIGKILL);
        (void)waitpid(grandchild, NULL, 0);
    }
}

/* ---- judging ---- */

static bool blames_victim(const struct scene *scene, const char *text)
{
    return fault_blames(text, scene->victim[0]) ||
           (scene->n_victims == 2 && fault_blames(text, scene->victim[1]));
}

static bool names_call(const char *text)
{
    static const char *const calls[] = {"all-reduce",        "reduce-scatter",    "all-gather",
                                        "all-to-all",        "broadcast",         "barrier",
                                        "tally_group_alloc", "tally_group_split", "end of the job"};
    size_t n_calls = sizeof calls / sizeof calls[0];
    const char *at = strstr(text, " waited for ");

    for (size_t i = 0; at && i < n_calls; i++) {
        if (strstr(at, calls[i])) {
            return true;
        }
    }
    return false;
}

/*
 * Whether a failure may be told as it was. A rank that goes on after all others gave up may see two
 * of them at different calls, because some had failed in a sub-group and said so in the group.
 */
static bool is_acceptable(const struct scene *scene, int rank, const struct fault_failure *failure)
{
    bool is_stop = fault_blow_is_stop(scene->trial->blow);

    if (rank == scene->victim[0] && scene->plan.splits && failure->status == TALLY_MISMATCH) {
        return true;
    }
    return (failure->status == (is_stop ? TALLY_TIMEOUT : TALLY_PEER) ||
            failure->status == TALLY_ABORTED) &&
           (names_call(failure->text) || !is_stop) && blames_victim(scene, failure->text);
}

/* The mistake in a survivor's report; "" if there is none. */
static void judge(const struct scene *scene, int rank, char *wrong, size_t bytes)
{
    const struct fault_report *report = &scene->crew.report[rank];
    int expected = fault_blow_is_stop(scene->trial->blow) ? TALLY_TIMEOUT : TALLY_PEER;
    bool was_told = false;

    if (report->complaint[0] != '\0') {
        (void)snprintf(wrong, bytes, "rank %d: %s", rank, report->complaint);
        return;
    }
    for (int i = 0; i < report->n_failures; i++) {
        const struct fault_failure *failure = &report->failure[i];

        was_told = was_told || failure->status == expected;
        if (!is_acceptable(scene, rank, failure)) {
            (void)snprintf(wrong, bytes, "rank %d was told %s: %s", rank,
                           tally_status_name(failure->status), failure->text);
            return;
        }
    }
    if (!was_told) {
        (void)snprintf(wrong, bytes, "rank %d was never told %s", rank,
                       tally_status_name(expected));
    } else if (scene->crew.member[rank].exit_status != 0) {
        (void)snprintf(wrong, bytes, "rank %d ended with status %x", rank,
                       (unsigned)scene->crew.member[rank].exit_status);
    }
}

static void judge_times(const struct scene *scene, struct fault_outcome *outcome)
{
    double bound_s = BOUND_S;
    uint64_t from = atomic_load_explicit(&scene->orders->struck_ns, memory_order_acquire);

    from = from ? from : scene->struck_ns;
    if (fault_blow_is_stop(scene->trial->blow)) {
        from += (uint64_t)(STOP_TIMEOUT_S * NS_PER_S);
        /* First in the sub-group, then in the group. */
        bound_s += scene->plan.splits ? STOP_TIMEOUT_S : 0;
    }
    for (int r = 0; r < scene->plan.world; r++) {
        const struct fault_report *report = &scene->crew.report[r];

        if (!scene->crew.member[r].was_struck && r != scene->victim[0] &&
            report->failed_ns > from && report->failed_ns - from > outcome->detection_ns) {
            outcome->detection_ns = report->failed_ns - from;
        }
        if (report->n_done > outcome->n_done) {
            outcome->n_done = report->n_done;
        }
    }
    if ((double)outcome->detection_ns > bound_s * NS_PER_S && outcome->text[0] == '\0') {
        (void)snprintf(outcome->text, sizeof outcome->text, "survivors took too long");
    }
}

static void describe(const struct scene *scene, struct fault_outcome *outcome)
{
    char wrong[sizeof outcome->text];

    (void)snprintf(wrong, sizeof wrong, "%s", outcome->text);
    (void)snprintf(outcome->text, sizeof outcome->text,
                   "trial %d (%s; %d ranks, %d lanes%s; victim %d%s): %.900s", scene->trial->number,
                   fault_blow_text(scene->trial->blow), scene->plan.world, scene->plan.lanes,
                   scene->plan.splits ? ", sub-groups" : "", scene->victim[0],
                   scene->n_victims == 2 ? " and the next" : "", wrong);
}

/* Everything up to the end of the last process. */
static const char *play(struct scene *scene)
{
    for (int r = 0; r < scene->plan.world; r++) {
        fault_crew_start(&scene->crew, r, be_rank, scene);
    }
    if (!wait_for_milestone(scene, FAULT_OPEN)) {
        return "the group did not open";
    }
    strike_all(scene);
    if (!wait_for_milestone(scene, FAULT_FAILED)) {
        return "a survivor hangs";
    }
    if (!wait_for_milestone(scene, FAULT_CLOSED)) {
        return "a survivor hangs after it was told";
    }
    return NULL;
}

void fault_trial_run(const struct fault_trial *trial, struct fault_outcome *outcome)
{
    struct scene scene;
    const char *left;
    const char *wrong;

    *outcome = (struct fault_outcome){.is_run = true};
    set_scene(&scene, trial);
    wrong = play(&scene);
    release_victims(&scene);
    if (!fault_crew_wait(&scene.crew, wrong ? 0 : HANG_S) && !wrong) {
        wrong = "a rank does not end";
    }
    for (int r = 0; r < scene.plan.world && outcome->text[0] == '\0'; r++) {
        if (!scene.crew.member[r].was_struck) {
            judge(&scene, r, outcome->text, sizeof outcome->text);
        }
    }
    judge_times(&scene, outcome);
    left = fault_leftovers(strstr(scene.plan.rendezvous, "tally-fault-"));
    if (!wrong && outcome->text[0] == '\0') {
        wrong = left;
    }
    if (wrong) {
        char more[FAULT_TEXT_BYTES];

        (void)snprintf(more, sizeof more, "%.600s", outcome->text);
        (void)snprintf(outcome->text, sizeof outcome->text, "%s; %s", wrong, more);
    }
    outcome->is_passed = outcome->text[0] == '\0';
    if (!outcome->is_passed) {
        describe(&scene, outcome);
    }
    fault_crew_free(&scene.crew);
    fault_shared_free(scene.orders, sizeof *scene.orders);
}

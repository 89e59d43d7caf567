/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the ranks of one attempt and watches them: forwards signals and output, finds the first
 * rank that fails, and ends the others, also if the user wants the job to end and a rank does not
 * react. One thread, which waits in one place.
 */
#include "tools/run_job.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/run_output.h"
#include "tools/run_ranks.h"

/* Time for ranks to notice the failure of another rank: they do within a second, and their own
 * error message is better than a signal. */
#define NOTICE_MS 2000
/* The same after a signal by the user: ranks may be saving their work. */
#define NOTICE_INTERRUPTED_MS 10000
#define TERMINATE_MS 3000
/* A second signal within this time counts as the first: timeout(1) signals its child and then the
 * child's process group. */
#define SECOND_MS 200
/* Time that children of ranks may run after them, such as a tee that writes the rest of a log. */
#define LEAVE_MS 2000
#define SWEEP_MS 100
#define N_SWEEPS 50
/* More than a pipe holds. */
#define N_READS 32

enum phase {
    PHASE_RUNNING,
    PHASE_NOTICING,    /* a rank failed, or the user ended the job; ranks may end by themselves */
    PHASE_TERMINATING, /* ranks got a signal to end */
    PHASE_KILLING,     /* ranks are being killed */
    PHASE_LEAVING,     /* no rank is left; their children have time to end */
    PHASE_SWEEPING,    /* the children are being killed */
    PHASE_OVER,        /* no process is left; output may remain to be written */
};

struct job {
    struct run_plan *plan;
    struct run_ranks ranks;
    struct run_stream *streams; /* with --prefix: output and error of rank 0, of rank 1, ... */
    struct pollfd *polled;      /* signals, two sinks, streams */
    int n_streams;
    struct run_sink out;
    struct run_sink err;
    enum phase phase;
    int64_t deadline_ms; /* end of the phase; -1: none */
    int n_sweeps;
    int exit_code;
    int first_done; /* the first rank that ended with status 0; -1: none did */
    bool rank_failed;
    int end_signal;     /* the first signal that asks for the end; 0: none */
    int64_t end_due_ms; /* from this time on a second signal means: at once */
    bool end_announced; /* a message says what happens to ranks that do not end */
    bool hurried;       /* the user does not want to wait for the ranks */
};

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads the rest of the pipes, with a limit: a process that did not end may write forever. */
static void drain(struct run_stream *stream)
{
    for (int i = 0; i < N_READS && run_stream_read(stream); i++) {
    }
}

static void close_streams(struct job *job, const struct run_sink *of)
{
    for (int i = 0; i < job->n_streams; i++) {
        if (job->streams[i].sink == of) {
            run_stream_close(&job->streams[i]);
        }
    }
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* The one function that changes the phase. */
static void enter(struct job *job, enum phase phase)
{
    int64_t limit_ms = -1;

    switch (phase) {
    case PHASE_RUNNING:
        break;
    case PHASE_NOTICING:
        limit_ms = job->end_signal != 0 ? NOTICE_INTERRUPTED_MS : NOTICE_MS;
        break;
    case PHASE_TERMINATING:
        if (!job->end_announced) {
            run_say(&job->err, "ending %d other rank%s", job->ranks.n_running,
                    plural(job->ranks.n_running));
        }
        run_ranks_signal(&job->ranks, SIGTERM);
        run_ranks_signal(&job->ranks, SIGCONT); /* a stopped one could not act on it */
        limit_ms = TERMINATE_MS;
        break;
    case PHASE_KILLING:
        if (job->end_signal != 0) {
            run_say(&job->err, "killing %d rank%s that did not end", job->ranks.n_running,
                    plural(job->ranks.n_running));
        }
        run_ranks_signal(&job->ranks, SIGKILL);
        break;
    case PHASE_LEAVING:
        limit_ms = LEAVE_MS;
        break;
    case PHASE_SWEEPING:
        (void)run_leftovers_signal(&job->plan->leftovers, SIGKILL);
        job->n_sweeps++;
        limit_ms = SWEEP_MS;
        break;
    case PHASE_OVER:
        for (int i = 0; i < job->n_streams; i++) {
            drain(&job->streams[i]);
            run_stream_close(&job->streams[i]);
        }
        break;
    }
    job->phase = phase;
    job->deadline_ms = limit_ms < 0 ? -1 : now_ms() + limit_ms;
}

/* The time limit of a phase has passed. */
static void escalate(struct job *job)
{
    if (job->phase == PHASE_SWEEPING && job->n_sweeps == N_SWEEPS) {
        run_say(&job->err, "processes that the ranks left behind cannot be ended");
        enter(job, PHASE_OVER);
    } else if (job->phase == PHASE_SWEEPING) {
        enter(job, PHASE_SWEEPING);
    } else {
        enter(job, (enum phase)(job->phase + 1));
    }
}

/* Ends the phase if its condition holds or its time has passed. */
static void advance(struct job *job)
{
    if (job->phase < PHASE_LEAVING && job->ranks.n_running == 0) {
        enter(job, job->hurried ? PHASE_SWEEPING : PHASE_LEAVING);
    }
    if ((job->phase == PHASE_LEAVING || job->phase == PHASE_SWEEPING) &&
        run_leftovers_signal(&job->plan->leftovers, 0) == 0) {
        enter(job, PHASE_OVER);
    }
    if (job->deadline_ms >= 0 && now_ms() >= job->deadline_ms) {
        escalate(job);
    }
}

static void report_failure(struct job *job, int rank, int status)
{
    if (job->n_streams > 0) {
        drain(&job->streams[2 * rank]);
        drain(&job->streams[2 * rank + 1]);
    }
    if (job->first_done >= 0) {
        run_say(&job->err, "rank %d ended first, with status 0", job->first_done);
    }
    if (WIFSIGNALED(status)) {
        run_say(&job->err, "rank %d was killed by signal %d (%s)", rank, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        job->exit_code = EXIT_SIGNALLED + WTERMSIG(status);
    } else {
        run_say(&job->err, "rank %d exited with status %d", rank, WEXITSTATUS(status));
        job->exit_code = WEXITSTATUS(status);
    }
    job->rank_failed = true;
    if (job->phase == PHASE_RUNNING) {
        enter(job, PHASE_NOTICING);
    }
}

/* If several ranks are found dead at once, one that a signal killed is the cause: a rank that only
 * notices the death of another one exits by itself. */
static bool is_likelier_cause(int status, int than)
{
    return WIFSIGNALED(status) && !WIFSIGNALED(than);
}

/* No rank has failed yet, and we have ended none. */
static bool may_be_first(const struct job *job)
{
    return !job->rank_failed && job->phase <= PHASE_NOTICING;
}

static void reap(struct job *job)
{
    int failed = -1;
    int failed_status = 0;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int rank = run_ranks_find(&job->ranks, pid);

        if (rank < 0) {
            run_leftovers_forget(&job->plan->leftovers, pid);
            continue;
        }
        job->ranks.all[rank].pid = 0;
        job->ranks.n_running--;
        if (status == 0 && job->first_done < 0 && may_be_first(job)) {
            job->first_done = rank;
        }
        if (status != 0 && (failed < 0 || is_likelier_cause(status, failed_status))) {
            failed = rank;
            failed_status = status;
        }
    }
    /* Later failures follow from this one, or from our signals. */
    if (failed >= 0 && may_be_first(job)) {
        report_failure(job, failed, failed_status);
    } else if (failed >= 0 && job->exit_code == 0) {
        job->exit_code = EXIT_SIGNALLED + job->end_signal;
    }
}

/* Stops together with the ranks, like any job that the user suspends, and continues with them. */
static void pause_job(struct job *job, const struct run_signal *signal)
{
    int64_t start_ms = now_ms();

    run_ranks_pass_on(&job->ranks, signal);
    (void)kill(getpid(), SIGSTOP);
    run_ranks_signal(&job->ranks, SIGCONT);
    if (job->deadline_ms >= 0) {
        job->deadline_ms += now_ms() - start_ms;
    }
}

/* The first signal that asks for the end. Ranks that do not react are killed later. */
static void begin_end(struct job *job, int number)
{
    job->end_signal = number;
    job->end_due_ms = now_ms() + SECOND_MS;
    if (job->phase == PHASE_RUNNING && job->ranks.n_running > 0) {
        run_say(&job->err,
                "signal %d (%s) was passed on to %d rank%s; ranks that do not end are killed in %d "
                "s, or at once after a second SIGINT or SIGTERM",
                number, strsignal(number), job->ranks.n_running, plural(job->ranks.n_running),
                (NOTICE_INTERRUPTED_MS + TERMINATE_MS) / 1000);
        job->end_announced = true;
        enter(job, PHASE_NOTICING);
    }
}

static void interrupt_job(struct job *job, const struct run_signal *signal)
{
    bool is_second = job->end_signal != 0 && now_ms() >= job->end_due_ms &&
                     (signal->number == SIGINT || signal->number == SIGTERM);

    job->hurried = job->hurried || is_second;
    if (is_second && job->phase < PHASE_KILLING && job->ranks.n_running > 0) {
        enter(job, PHASE_KILLING);
        return;
    }
    run_ranks_pass_on(&job->ranks, signal);
    run_ranks_signal(&job->ranks, SIGCONT); /* a stopped one could not act on it */
    if (job->end_signal == 0) {
        begin_end(job, signal->number);
    }
    if (job->phase == PHASE_LEAVING) {
        enter(job, PHASE_SWEEPING);
    } else if (job->phase == PHASE_OVER) {
        run_sink_clear(&job->out); /* nobody reads it, and the user does not want to wait */
        run_sink_clear(&job->err);
    }
}

static void obey_signals(struct job *job)
{
    struct run_signal signal;

    while (run_signals_next(&job->plan->signals, &signal)) {
        switch (signal.wish) {
        case RUN_WISH_REAP:
            reap(job);
            break;
        case RUN_WISH_END:
            interrupt_job(job, &signal);
            break;
        case RUN_WISH_TELL:
            run_ranks_pass_on(&job->ranks, &signal);
            break;
        case RUN_WISH_PAUSE:
            pause_job(job, &signal);
            break;
        }
    }
}

/* If their output cannot be written, ranks get a broken pipe, as they would without us. */
static void check_sink(struct job *job, struct run_sink *sink)
{
    if (sink->error == 0 || sink->given_up) {
        return;
    }
    sink->given_up = true;
    run_sink_clear(sink);
    close_streams(job, sink);
    if (job->exit_code == 0) {
        job->exit_code = EXIT_FAILED;
    }
    run_say(&job->err, "cannot write to %s: %s", sink->name, strerror(sink->error));
}

static void move_output(struct job *job)
{
    for (int i = 0; i < job->n_streams; i++) {
        if (job->polled[3 + i].revents != 0) {
            (void)run_stream_read(&job->streams[i]);
        }
    }
    run_sink_flush(&job->out);
    check_sink(job, &job->out);
    run_sink_flush(&job->err);
    check_sink(job, &job->err);
}

static void wait_for_something(struct job *job)
{
    int64_t left_ms = job->deadline_ms < 0 ? -1 : job->deadline_ms - now_ms();

    job->polled[0] = (struct pollfd){.fd = job->plan->signals.fd, .events = POLLIN};
    job->polled[1] =
        (struct pollfd){.fd = run_sink_waits(&job->out) ? job->out.fd : -1, .events = POLLOUT};
    job->polled[2] =
        (struct pollfd){.fd = run_sink_waits(&job->err) ? job->err.fd : -1, .events = POLLOUT};
    for (int i = 0; i < job->n_streams; i++) {
        const struct run_stream *stream = &job->streams[i];

        job->polled[3 + i] = (struct pollfd){.fd = run_sink_is_full(stream->sink) ? -1 : stream->fd,
                                             .events = POLLIN};
    }
    if (job->deadline_ms >= 0 && left_ms < 0) {
        left_ms = 0;
    }
    (void)poll(job->polled, 3 + (nfds_t)job->n_streams, (int)left_ms);
}

static void watch(struct job *job)
{
    advance(job);
    while (job->phase != PHASE_OVER || run_sink_waits(&job->out) || run_sink_waits(&job->err)) {
        wait_for_something(job);
        obey_signals(job);
        move_output(job);
        advance(job);
    }
    /* A signal that came too late for this attempt still prevents another one. */
    obey_signals(job);
}

static void refuse(struct job *job, int rank, const struct run_refusal *refusal)
{
    static const char *const steps[] = {[RUN_STEP_FORK] = "cannot create a process",
                                        [RUN_STEP_FILES] = "cannot set up its input and output",
                                        [RUN_STEP_BIND] = "cannot pin it to its cores"};

    job->exit_code = EXIT_FAILED;
    if (refusal->step == RUN_STEP_EXEC) {
        run_say(&job->err, "cannot run %s: %s", job->plan->command[0], strerror(refusal->error));
        job->exit_code = refusal->error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    } else {
        run_say(&job->err, "cannot start rank %d of %d: %s: %s", rank, job->plan->n_ranks,
                steps[refusal->step], strerror(refusal->error));
    }
    if (job->ranks.n_running > 0) {
        enter(job, PHASE_TERMINATING);
    }
}

static bool open_streams(struct job *job, struct run_start *how)
{
    if (!run_stream_open(&job->streams[job->n_streams], how->rank, &job->out, &how->out_fd)) {
        return false;
    }
    job->n_streams++;
    if (!run_stream_open(&job->streams[job->n_streams], how->rank, &job->err, &how->err_fd)) {
        return false;
    }
    job->n_streams++;
    return true;
}

static bool start_rank(struct job *job, int rank, struct run_refusal *refusal)
{
    const struct run_plan *plan = job->plan;
    struct run_start how = {.command = plan->command,
                            .rank = rank,
                            .own_group = rank > 0 || !isatty(STDIN_FILENO),
                            .out_fd = -1,
                            .err_fd = -1,
                            .binding = plan->binding,
                            .signals = &plan->signals,
                            .files = plan->files};
    bool started = false;

    if (plan->prefix && !open_streams(job, &how)) {
        *refusal = (struct run_refusal){RUN_STEP_FILES, errno};
    } else {
        started = run_start(&how, &job->ranks.all[rank].pid, refusal);
        job->ranks.all[rank].own_group = how.own_group;
        job->ranks.n_running += started;
    }
    if (how.out_fd >= 0) {
        (void)close(how.out_fd);
    }
    if (how.err_fd >= 0) {
        (void)close(how.err_fd);
    }
    return started;
}

static void start_ranks(struct job *job)
{
    struct run_refusal refusal;

    for (int rank = 0; rank < job->plan->n_ranks; rank++) {
        if (!start_rank(job, rank, &refusal)) {
            refuse(job, rank, &refusal);
            return;
        }
    }
}

static bool open_job(struct job *job, int attempt)
{
    int n_ranks = job->plan->n_ranks;

    job->ranks.n = n_ranks;
    job->ranks.all = calloc((size_t)n_ranks, sizeof *job->ranks.all);
    job->streams = calloc(2 * (size_t)n_ranks, sizeof *job->streams);
    job->polled = calloc(3 + 2 * (size_t)n_ranks, sizeof *job->polled);
    if (!job->ranks.all || !job->streams || !job->polled) {
        return false;
    }
    return run_environment_set(n_ranks, attempt);
}

static void close_job(struct job *job)
{
    run_sink_clear(&job->out);
    run_sink_clear(&job->err);
    free(job->ranks.all);
    free(job->streams);
    free(job->polled);
}

struct run_result run_job(struct run_plan *plan, int attempt)
{
    struct job job = {.plan = plan,
                      .out = {.fd = STDOUT_FILENO, .name = "standard output"},
                      .err = {.fd = STDERR_FILENO, .name = "standard error"},
                      .deadline_ms = -1,
                      .first_done = -1};
    struct run_result result;

    if (open_job(&job, attempt)) {
        start_ranks(&job);
        watch(&job);
    } else {
        (void)fprintf(stderr, "tally run: cannot prepare the job: %s\n", strerror(errno));
        job.exit_code = EXIT_FAILED;
    }
    result.exit_code = job.exit_code;
    /* If the output is lost, another attempt would lose it too. */
    result.may_restart =
        job.rank_failed && job.end_signal == 0 && !job.out.given_up && !job.err.given_up;
    close_job(&job);
    return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log callback: one of the few mutable globals of the library. Any thread enters. The mutex
 * keeps callback, user pointer and level together; it is not held while the callback runs, so a
 * slow callback delays no other thread. If the application sets no callback, TALLY_LOG sends
 * messages to stderr; this is decided at the first message.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/env.h"
#include "base/status.h"

#define LEVEL_UNDECIDED (-1)

struct log_sink {
    tally_log_fn fn;
    void *user;
};

static pthread_mutex_t sink_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct log_sink sink;
/* Read without the mutex, so that a disabled message costs one load. Relaxed: a message logged
 * while the level changes may be judged by either level. */
static atomic_int sink_level = LEVEL_UNDECIDED;
static atomic_int own_rank = -1; /* relaxed: a number for readers */

static const char *level_name(int level)
{
    static const char *const names[] = {"none", "error", "warning", "info", "debug"};

    return level >= TALLY_LOG_NONE && level <= TALLY_LOG_DEBUG ? names[level] : "?";
}

/* Several ranks may share one stderr: the prefix is that of `tally run --prefix`. */
static void line_to_stderr(void *user, int level, const char *text)
{
    int rank = atomic_load_explicit(&own_rank, memory_order_relaxed);

    if (rank < 0) {
        tally_log_stderr(user, level, text);
    } else {
        (void)fprintf(stderr, "[%d] tally: %s: %s\n", rank, level_name(level), text);
    }
}

/* Called with the mutex held. Stores the level last: a thread that sees it finds the sink under the
 * mutex. */
static void set_sink(tally_log_fn fn, void *user, int level)
{
    sink = (struct log_sink){fn, user};
    atomic_store_explicit(&sink_level, fn ? level : TALLY_LOG_NONE, memory_order_relaxed);
}

/* Called when no callback was ever set. An invalid TALLY_LOG is reported. */
static int decide(void)
{
    struct tally__aside aside;
    int level = TALLY_LOG_NONE;

    (void)pthread_mutex_lock(&sink_mutex);
    if (atomic_load_explicit(&sink_level, memory_order_relaxed) == LEVEL_UNDECIDED) {
        tally__put_aside(&aside);
        if (tally__env_is_set(TALLY__ENV_LOG) &&
            tally__env_choice_index(TALLY__ENV_LOG, &level) != TALLY_OK) {
            level = TALLY_LOG_WARN;
            line_to_stderr(NULL, TALLY_LOG_WARN, tally_last_error());
        }
        (void)tally__take_back(&aside, TALLY_OK);
        set_sink(line_to_stderr, NULL, level);
    }
    level = atomic_load_explicit(&sink_level, memory_order_relaxed);
    (void)pthread_mutex_unlock(&sink_mutex);
    return level;
}

void tally__log_set_rank(int rank)
{
    atomic_store_explicit(&own_rank, rank, memory_order_relaxed);
}

int tally_log_set(tally_log_fn fn, void *user, int max_level)
{
    int level = max_level;

    if (max_level < TALLY_LOG_NONE || max_level > TALLY_LOG_DEBUG) {
        return tally__fail(TALLY_ARG, "log level %d is not in %d..%d", max_level, TALLY_LOG_NONE,
                           TALLY_LOG_DEBUG);
    }
    if (tally__env_is_set(TALLY__ENV_LOG)) {
        TRY(tally__env_choice_index(TALLY__ENV_LOG, &level));
        fn = fn ? fn : line_to_stderr;
    }
    (void)pthread_mutex_lock(&sink_mutex);
    set_sink(fn, user, level);
    (void)pthread_mutex_unlock(&sink_mutex);
    return TALLY_OK;
}

void tally_log_stderr(void *user, int level, const char *text)
{
    (void)user;
    (void)fprintf(stderr, "tally: %s: %s\n", level_name(level), text);
}

void tally__log(tally_log_level level, const char *format, ...)
{
    struct log_sink to;
    char text[TALLY__ERROR_BYTES];
    va_list args;
    int saved_errno = errno;
    int wanted = atomic_load_explicit(&sink_level, memory_order_relaxed);

    wanted = wanted == LEVEL_UNDECIDED ? decide() : wanted;
    if ((int)level > wanted) {
        errno = saved_errno;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)pthread_mutex_lock(&sink_mutex);
    to = sink;
    (void)pthread_mutex_unlock(&sink_mutex);
    if (to.fn) {
        to.fn(to.user, (int)level, text);
    }
    errno = saved_errno;
}

void tally__log_asked(tally_log_level level, const char *text)
{
    bool has_callback;

    (void)pthread_mutex_lock(&sink_mutex);
    has_callback = sink.fn && sink.fn != line_to_stderr;
    (void)pthread_mutex_unlock(&sink_mutex);
    if (has_callback || tally__env_is_set(TALLY__ENV_LOG)) {
        tally__log(level, "%s", text);
    } else {
        line_to_stderr(NULL, (int)level, text);
    }
}

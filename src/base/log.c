/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log callback: one of the few mutable globals of the library. Any thread enters. The mutex
 * keeps callback, user pointer and level together; it is not held while the callback runs, so a
 * slow callback delays nobody else.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/env.h"
#include "base/status.h"

struct log_sink {
    tally_log_fn fn;
    void *user;
};

static pthread_mutex_t sink_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct log_sink sink;
/* Read without the mutex, so that a message nobody wants costs one load. Relaxed: a message logged
 * while the level changes may be judged by either level. */
static atomic_int sink_level = TALLY_LOG_NONE;

static const char *level_name(int level)
{
    static const char *const names[] = {"none", "error", "warning", "info", "debug"};

    return level >= TALLY_LOG_NONE && level <= TALLY_LOG_DEBUG ? names[level] : "?";
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
    }
    (void)pthread_mutex_lock(&sink_mutex);
    sink = (struct log_sink){fn, user};
    (void)pthread_mutex_unlock(&sink_mutex);
    atomic_store_explicit(&sink_level, fn ? level : TALLY_LOG_NONE, memory_order_relaxed);
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

    if ((int)level > atomic_load_explicit(&sink_level, memory_order_relaxed)) {
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

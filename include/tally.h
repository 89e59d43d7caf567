/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally: data-parallel training for C, and for anything that can call C.
 *
 * You hand tally your parameters, say when each gradient is ready, and choose how gradients travel.
 * It leaves the mean gradient on every rank.
 *
 * This header is the manual. It is read from top to bottom: status codes and error texts first,
 * because every other function uses them; then logging, environment, and the instruction set.
 *
 * A complete program:
 *
 *     #include <stdio.h>
 *     #include <tally.h>
 *
 *     int main(void)
 *     {
 *         const char *isa;
 *
 *         if (tally_isa(&isa) != TALLY_OK) {
 *             fprintf(stderr, "tally: %s\n", tally_last_error());
 *             return 1;
 *         }
 *         printf("tally %s computes with %s\n", tally_version(), isa);
 *         return 0;
 *     }
 *
 * Rules that hold for every function below:
 *   - A function that can fail returns int: TALLY_OK (0), or one of the negative codes of
 *     TALLY_STATUS_LIST. tally_last_error() then gives the text, for the calling thread.
 *   - Outputs are written only on success.
 *   - The library never exits, installs no signal handler, and prints nothing by itself: what it
 *     has to say goes to the callback of tally_log_set().
 */
#ifndef TALLY_H
#define TALLY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TALLY_API __attribute__((visibility("default")))
#else
#define TALLY_API
#endif

/* ---- version ------------------------------------------------------------------------------- */

#define TALLY_VERSION_MAJOR 0
#define TALLY_VERSION_MINOR 1
#define TALLY_VERSION_PATCH 0

/*
 * The version of the library that is running, as "major.minor.patch". The macros above give the
 * version that was compiled against. Any thread; never blocks; cannot fail; the text is static.
 */
TALLY_API const char *tally_version(void);

/* ---- status -------------------------------------------------------------------------------- */

/*
 * Every status code: name, value, text. The values are pinned and never reused. They are chosen by
 * what the caller should do:
 *
 *   ARG          mend the call            STATE        call in another order
 *   NOMEM        free memory, try again   SYSTEM       look at the system (text has its words)
 *   PEER         another rank died        TIMEOUT      another rank is late (text names it)
 *   ABORTED      open a new group         MISMATCH     ranks disagree (text names both)
 *   UNSUPPORTED  not offered here         NUMERIC      infinity or NaN where none may be
 *   INTERNAL     a defect in tally: please report it
 */
#define TALLY_STATUS_LIST(X)                                \
    X(OK, 0, "success")                                     \
    X(ARG, -1, "invalid argument")                          \
    X(STATE, -2, "not possible in this state")              \
    X(NOMEM, -3, "out of memory")                           \
    X(SYSTEM, -4, "the operating system reported an error") \
    X(PEER, -5, "another rank failed")                      \
    X(TIMEOUT, -6, "another rank did not arrive in time")   \
    X(ABORTED, -7, "the group was given up after an error") \
    X(MISMATCH, -8, "ranks disagree")                       \
    X(UNSUPPORTED, -9, "not supported")                     \
    X(NUMERIC, -10, "a value is infinite or not a number")  \
    X(INTERNAL, -11, "internal error")

typedef enum tally_status {
#define TALLY_STATUS_ENUM(name, value, text) TALLY_##name = (value),
    TALLY_STATUS_LIST(TALLY_STATUS_ENUM)
#undef TALLY_STATUS_ENUM
} tally_status;

/*
 * The short name ("ARG") and the general text ("invalid argument") of a status code. A number that
 * is no status code gives "UNKNOWN" and "unknown status". Any thread; never blocks; static text.
 */
TALLY_API const char *tally_status_name(int status);
TALLY_API const char *tally_status_text(int status);

/*
 * What went wrong in the last failed call of this thread, in one line that names the thing; "" when
 * nothing failed yet. A successful call does not clear it. The text is valid until the next tally
 * call of this thread. Any thread; never blocks; cannot fail.
 */
TALLY_API const char *tally_last_error(void);

/* ---- logging ------------------------------------------------------------------------------- */

typedef enum tally_log_level {
    TALLY_LOG_NONE = 0,
    TALLY_LOG_ERROR = 1,
    TALLY_LOG_WARN = 2,
    TALLY_LOG_INFO = 3,
    TALLY_LOG_DEBUG = 4
} tally_log_level;

/*
 * Receives one line, without a newline. It may be called from any thread, also from threads of
 * tally's own, by several at once; it must not call tally.
 */
typedef void (*tally_log_fn)(void *user, int level, const char *text);

/*
 * Sends messages of max_level and more urgent ones to fn(user, ...). A NULL fn switches logging
 * off, which is how a program starts. TALLY_LOG in the environment, if set, wins over max_level.
 * Any thread, but not while another thread is in a tally call: a message under way may still reach
 * the old callback. Never blocks.
 * Errors: ARG for a level that is none of tally_log_level, or an unknown value of TALLY_LOG.
 */
TALLY_API int tally_log_set(tally_log_fn fn, void *user, int max_level);

/* A ready-made tally_log_fn: one line "tally: level: text" to stderr. user is not used. */
TALLY_API void tally_log_stderr(void *user, int level, const char *text);

/* ---- environment --------------------------------------------------------------------------- */

/* One environment variable that tally reads. All texts are static, except value. */
typedef struct tally_env_var {
    size_t size;          /* set by the caller: sizeof(tally_env_var) */
    const char *name;     /* "TALLY_ISA" */
    const char *type;     /* what it accepts: "auto|ref|avx2|..." or "seconds" */
    const char *fallback; /* what holds when it is unset */
    const char *help;     /* one line */
    const char *value; /* its text now, or NULL when unset; valid until the environment changes */
} tally_env_var;

/* How many variables there are. Any thread; never blocks; cannot fail. */
TALLY_API size_t tally_env_count(void);

/*
 * Describes variable number index. Any thread, while nobody changes the environment; never blocks.
 * Errors: ARG for an index out of range, a NULL, or a size that is too small.
 */
TALLY_API int tally_env_get(size_t index, tally_env_var *var);

/*
 * Looks at every variable tally knows. Call it at start-up to hear of a mistyped value early.
 * Any thread, while nobody changes the environment; never blocks.
 * Errors: ARG naming the first variable with an unacceptable value, and what would be accepted.
 */
TALLY_API int tally_env_check(void);

/* ---- instruction set ----------------------------------------------------------------------- */

/*
 * The instruction set tally computes with: "ref", "avx2", "avx512" or "neon". It is chosen once per
 * process, at the first call that needs it: the best one this CPU has, or the one TALLY_ISA asks
 * for. Sums and casts give the same bits on all of them. Any thread; never blocks; static text.
 * Errors: ARG when name is NULL, or TALLY_ISA is unknown or asks for what this CPU lacks.
 */
TALLY_API int tally_isa(const char **name);

#ifdef __cplusplus
}
#endif

#endif

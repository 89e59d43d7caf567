/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses an instruction set once per process and forwards every kernel call to it, inside our own
 * floating-point environment. The chosen table is one of the library's few globals; it changes
 * once, from the reference to the chosen instruction set. Any thread enters.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "num/low_rank.h"
#include "num/num.h"

/* Written once in choose(), release; read by every kernel call, acquire. The tables are constant:
 * acquire costs nothing on the machines we have and spares the reader the argument. */
static _Atomic(const struct tally__isa *) chosen = &tally__isas[0];

static pthread_once_t choose_once = PTHREAD_ONCE_INIT;
/* The outcome of choose(), read after pthread_once, which orders it. */
static int choose_status;
static char choose_error[TALLY__ERROR_BYTES];

/* The words of TALLY_ISA that this machine can obey, for the error text. */
static void list_usable(char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "auto");

    for (size_t i = 0; i < tally__n_isas; i++) {
        if (tally__isas[i].usable() && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "|%s", tally__isas[i].name);
        }
    }
}

static int find_isa(const char *wanted, const struct tally__isa **isa)
{
    char usable[64];

    for (size_t i = tally__n_isas; i-- > 0;) {
        const struct tally__isa *candidate = &tally__isas[i];

        if (candidate->usable() && (!wanted || strcmp(wanted, candidate->name) == 0)) {
            *isa = candidate;
            return TALLY_OK;
        }
    }
    list_usable(usable, sizeof usable);
    return tally__fail(TALLY_ARG, "TALLY_ISA=%s: this CPU has no %s; use %s", wanted, wanted,
                       usable);
}

static int choose(void)
{
    const struct tally__isa *isa = &tally__isas[0];
    const char *wanted = NULL;

    TRY(tally__env_choice(TALLY__ENV_ISA, &wanted));
    TRY(find_isa(strcmp(wanted, "auto") == 0 ? NULL : wanted, &isa));
    atomic_store_explicit(&chosen, isa, memory_order_release);
    tally__log(TALLY_LOG_DEBUG, "computing with %s", isa->name);
    return TALLY_OK;
}

static void choose_and_remember(void)
{
    choose_status = choose();
    if (choose_status != TALLY_OK) {
        (void)snprintf(choose_error, sizeof choose_error, "%s", tally_last_error());
    }
}

int tally__num_start(void)
{
    (void)pthread_once(&choose_once, choose_and_remember);
    return choose_status == TALLY_OK ? TALLY_OK : tally__fail(choose_status, "%s", choose_error);
}

const struct tally__isa *tally__isa(void)
{
    return atomic_load_explicit(&chosen, memory_order_acquire);
}

int tally_isa(const char **name)
{
    if (!name) {
        return tally__fail(TALLY_ARG, "tally_isa: name is NULL");
    }
    TRY(tally__num_start());
    *name = tally__isa()->name;
    return TALLY_OK;
}

/* A kernel with a result and one without differ only in how the result gets past leave(). */
#define RESULT_void
#define RESULT_size_t size_t result =
#define RESULT_double double result =
#define RETURN_void
#define RETURN_size_t return result;
#define RETURN_double return result;

#define DISPATCH(table, name, type, parameters, arguments)                                  \
    type tally__##name parameters                                                           \
    {                                                                                       \
        const struct tally__isa *isa = atomic_load_explicit(&chosen, memory_order_acquire); \
        tally__fpenv saved = tally__fpenv_enter();                                          \
        RESULT_##type isa->table->name arguments;                                           \
        tally__fpenv_leave(saved);                                                          \
        RETURN_##type                                                                       \
    }
#define DISPATCH_KERNEL(...) DISPATCH(kernels, __VA_ARGS__)
#define DISPATCH_LOW_RANK(...) DISPATCH(low_rank, __VA_ARGS__)
TALLY__KERNEL_LIST(DISPATCH_KERNEL)
TALLY__LOW_RANK_LIST(DISPATCH_LOW_RANK)

/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards every low-rank kernel to the level of this process, inside our own floating-point
 * environment. Any thread enters; nothing is kept. */
#include "num/low_rank.h"

#include "base/cpu.h"
#include "num/num.h"

/* A kernel with a result and one without differ only in how the result gets past leave(). */
#define RESULT_void
#define RESULT_double double result =
#define RETURN_void
#define RETURN_double return result;

#define DISPATCH(name, type, parameters, arguments)        \
    type tally__##name parameters                          \
    {                                                      \
        const struct tally__level *level = tally__level(); \
        tally__fpenv saved = tally__fpenv_enter();         \
        RESULT_##type level->low_rank->name arguments;     \
        tally__fpenv_leave(saved);                         \
        RETURN_##type                                      \
    }
TALLY__LOW_RANK_LIST(DISPATCH)

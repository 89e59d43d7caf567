/* SPDX-License-Identifier: Apache-2.0 */
/* The piece of C in docs/start.md, and that of the manual page. */
#include "fragment_model.h"

static void make_optimizer(void)
{
#include "docs/start.md#after-the-gradient-has-arrived"
    double before = distance();

    backward();
    tally_ddp_wait(ddp);
    EXPECT(distance() < before);
    tally_optimizer_free(optimizer);
}

static void make_step(void)
{
    double before = distance();

#include "docs/man/tally.3#description"
    EXPECT(distance() < before);
}

void run_fragments(void)
{
    make_ddp(NULL);
    make_optimizer();
    make_step();
    free_ddp();
}

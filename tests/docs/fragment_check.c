/* SPDX-License-Identifier: Apache-2.0 */
/* The piece of C in docs/when-ranks-disagree.md. */
#include "fragment_model.h"

void run_fragments(void)
{
    make_ddp(NULL);
    forward();
    backward();
    tally_ddp_wait(ddp);
    update();
#include "docs/when-ranks-disagree.md#check-mode.2"
    free_ddp();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench checkpoint`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_CHECKPOINT_H
#define TALLY_TOOLS_BENCH_CHECKPOINT_H

int bench_checkpoint(int argc, char **argv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench lowrank`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_LOWRANK_H
#define TALLY_TOOLS_BENCH_LOWRANK_H

int bench_lowrank(int argc, char **argv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench collective`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_COLLECTIVE_H
#define TALLY_TOOLS_BENCH_COLLECTIVE_H

int bench_collective(int argc, char **argv);

#endif

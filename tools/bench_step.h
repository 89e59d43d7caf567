/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench step`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_STEP_H
#define TALLY_TOOLS_BENCH_STEP_H

int bench_step(int argc, char **argv);

#endif

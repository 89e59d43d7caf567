/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench hooks`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_HOOKS_H
#define TALLY_TOOLS_BENCH_HOOKS_H

int bench_hooks(int argc, char **argv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench profile`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_PROFILE_H
#define TALLY_TOOLS_BENCH_PROFILE_H

int bench_profile(int argc, char **argv);

#endif

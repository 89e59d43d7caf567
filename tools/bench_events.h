/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench events`: a row in the table of benches. */
#ifndef TALLY_TOOLS_BENCH_EVENTS_H
#define TALLY_TOOLS_BENCH_EVENTS_H

int bench_events(int argc, char **argv);

#endif

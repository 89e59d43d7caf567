#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a world takes to open, to take two steps with every hook, and to close, and the
memory of a rank, by the number of ranks: threads, processes (tally run), and processes of each MPI, with
and without shared memory. More ranks than CPUs are the point. Prints a table, or JSON; fails if a world
does. The ranks are world_rank.c."""

import sys

import bench_mpi
import bench_programs
import bench_tables
import mpi
import run_all

KINDS = ("threads", "tally_run", "openmpi", "openmpi_apart", "mpich", "mpich_apart")
TITLES = {"threads": "threads", "tally_run": "`tally run`", "openmpi": "Open MPI", "mpich": "MPICH",
          "openmpi_apart": "Open MPI, `TALLY_SHARE=0`", "mpich_apart": "MPICH, `TALLY_SHARE=0`"}


def read_options():
    parser = run_all.Parser(prog="bench/world.py", description=__doc__,
                            epilog="Example: python3 bench/world.py --kinds threads,tally_run --ranks 64")
    parser.add_argument("--tally", default=run_all.ROOT / "build" / "tally", help="the tally command")
    parser.add_argument("--kinds", metavar="LIST", default=",".join(KINDS), help=",".join(KINDS))
    parser.add_argument("--ranks", metavar="LIST", type=mpi.numbers, default=(2, 8, 32, 64, 128),
                        help="numbers of ranks (2,8,32,64,128)")
    parser.add_argument("--limit", metavar="S", type=float, default=200,
                        help="seconds after which a world is given up (200)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no table")
    options = parser.parse_args()
    options.kinds = run_all.names_in(parser, "kind", options.kinds, KINDS)
    return options


def measure(bench, kind, ranks, limit_s):
    """The object that a world prints."""
    program = bench.build / "bench" / "world_rank"
    if kind == "threads":
        words, env = [program, "threads", ranks], {}
    elif kind == "tally_run":
        words, env = [bench.build / "tally", "run", "-n", ranks, program], {}
    else:
        library, _, apart = kind.partition("_")
        words = [*bench_mpi.LAUNCHERS[library], "-n", ranks, program]
        env = {**bench.environment(library), **({"TALLY_SHARE": "0"} if apart else {})}
    return {"kind": kind, **bench_programs.run_json(words, limit_s, env)[0]}


def table(rows):
    number = bench_tables.number
    return bench_tables.table(
        ("ranks are", "ranks", "open, ms", "two steps of each hook, ms", "close, ms",
         "memory of a rank, open, MiB", "and at the end, MiB"),
        [(TITLES[row["kind"]], row["ranks"], number(row["open_ms"]), number(row["hooks_ms"]),
          number(row["close_ms"]), number(row["open_kib"] / 1024), number(row["end_kib"] / 1024))
         for row in rows])


def main():
    options = read_options()
    bench_programs.end_on_sigterm()
    bench = bench_mpi.MpiBench(options.tally, bench_mpi.Extent())
    kinds = [kind for kind in options.kinds
             if kind in ("threads", "tally_run") or bench.exists(kind.partition("_")[0])]
    try:
        rows = [measure(bench, kind, ranks, options.limit) for kind in kinds for ranks in options.ranks]
    except (bench_programs.Failed, OSError) as failure:
        bench_programs.note(failure)
        return 1
    print(run_all.to_lines({"world": rows}) if options.json else table(rows), end="" if options.json else "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares all-reduces of tally with MPI_Allreduce of Open MPI and MPICH, in one process and in turn:
ranks of one machine, the same without shared memory, hosts of network namespaces, and a line of
1 Gbit/s. Prints tables and goals, or JSON. What is measured is in bench_mpi.py, goals are in
bench_goals.py."""

import dataclasses
import pathlib
import sys

import bench_goals
import bench_mpi
import bench_parts
import bench_programs
import bench_tables
import run_all


def numbers(text):
    """1024,64Ki,1Mi: a list."""
    units = {"Ki": 1024, "Mi": 1024 * 1024}
    return tuple(int(word[:-2]) * units[word[-2:]] if word[-2:] in units else int(word)
                 for word in text.split(","))


def read_options():
    parser = run_all.Parser(
        prog="bench/mpi.py", description=__doc__,
        epilog="Example: python3 bench/mpi.py --quick --settings one,apart --mpi openmpi --ranks 2")
    parser.add_argument("--tally", default=run_all.ROOT / "build" / "tally", help="the tally command")
    parser.add_argument("--settings", metavar="LIST", default=",".join(bench_mpi.SETTINGS),
                        help="one (this machine, and tally run), apart (TALLY_SHARE=0), hosts, line")
    parser.add_argument("--mpi", metavar="LIST", default=",".join(bench_mpi.MPIS), help="openmpi,mpich")
    parser.add_argument("--ranks", metavar="LIST", type=numbers, help="numbers of ranks (2,4,8)")
    parser.add_argument("--bytes", metavar="LIST", type=numbers, help="sizes (1Ki,4Ki, ... 64Mi)")
    parser.add_argument("--runs", metavar="N", type=int, help="runs, of which figures are medians (5)")
    parser.add_argument("--seconds", metavar="S", type=float,
                        help="roughly the time of each size and method in a run (0.15)")
    parser.add_argument("--mb", metavar="N", type=int, help="million bytes on the line (100)")
    parser.add_argument("--quick", action="store_true",
                        help="one run, a fifth of the time: 1Ki,16Ki,256Ki,1Mi,16Mi and 2,8 ranks, unless given")
    parser.add_argument("--limit", metavar="S", type=float,
                        help="seconds after which a program is given up (300)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no tables")
    parser.add_argument("--save", metavar="FILE", type=pathlib.Path, help="keep the rows, as JSON")
    parser.add_argument("--load", metavar="FILE", type=pathlib.Path, nargs="+",
                        help="take the rows from there instead of measuring: parts that were measured "
                             "one by one; bench/run_all.py --load writes them into the pages")
    options = parser.parse_args()
    options.settings = run_all.names_in(parser, "setting", options.settings, bench_mpi.SETTINGS)
    options.mpi = run_all.names_in(parser, "MPI", options.mpi, bench_mpi.MPIS)
    return options


def extent_of(options):
    extent = bench_mpi.Extent(settings=tuple(options.settings), mpis=tuple(options.mpi), overlaps=True)
    if options.quick:
        extent.ranks, extent.runs, extent.seconds = (2, 8), 1, 0.03
        extent.sizes = numbers("1Ki,16Ki,256Ki,1Mi,16Mi")
    given = {"ranks": options.ranks, "sizes": options.bytes, "runs": options.runs,
             "seconds": options.seconds, "mb": options.mb, "limit_s": options.limit}
    return dataclasses.replace(extent, **{key: value for key, value in given.items() if value})


def measure(options):
    about = bench_parts.Bench(options.tally, bench_parts.Extent(), (), 0)
    return {"run": [run_all.describe_run(about, options.quick)],
            **bench_mpi.MpiBench(options.tally, extent_of(options)).measure()}


def merge(files):
    """The rows of several measurements on one machine; its description comes from the first."""
    results = {}
    for file in files:
        for part, rows in run_all.from_lines(file.read_text()).items():
            if part != "run" or part not in results:
                results.setdefault(part, []).extend(rows)
    return results


def main():
    options = read_options()
    bench_programs.end_on_sigterm()
    try:
        results = merge(options.load) if options.load else measure(options)
        run_all.save(options, results)
        if options.json:
            print(run_all.to_lines(results), end="")
            return 0
        for name in ("mpi", "mpi_line", "links_overlap"):
            if results.get(name):
                print(f"{bench_tables.BLOCKS[name][0](results)}\n")
        print(bench_tables.goals_text(bench_goals.judge(results, {})))
    except (bench_programs.Failed, OSError) as failure:
        bench_programs.note(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench`: measures tally on this machine, beside Open MPI, MPICH and PyTorch if they are
installed, prints tables and which goals were missed, and can write tables and plots into the pages of a
folder. What is measured is in bench_parts.py, goals are in bench_goals.py."""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import bench_front
import bench_goals
import bench_parts
import bench_plots
import bench_programs
import bench_tables

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("kernels", "lowrank", "allreduce", "allreduce_heap", "allreduce_loaded",
         "many_ranks", "step", "updates", "trace",
         "copies", "hooks", "pytorch", "wire_bytes", "links", "mpi", "auto", "checkpoint")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def read_options():
    parser = Parser(
        prog="bench/run_all.py", description=__doc__.split("\n\n")[0],
        epilog='Example: make bench BENCH_ARGS="--write docs --save build/bench.jsonl"')
    parser.add_argument("--tally", default=ROOT / "build" / "tally", help="the tally command")
    parser.add_argument("--quick", action="store_true",
                        help="the smallest cases, in seconds: to try this program, not tally")
    parser.add_argument("--only", metavar="LIST", default=",".join(PARTS),
                        help=f"parts to measure ({','.join(PARTS)})")
    parser.add_argument("--peers", metavar="LIST", default=",".join(bench_parts.PEERS),
                        help=f"peers to measure beside ({','.join(bench_parts.PEERS)}), or none")
    parser.add_argument("--limit", metavar="S", type=float, default=120,
                        help="seconds after which a run of a peer is given up (120)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no tables")
    parser.add_argument("--save", metavar="FILE", type=pathlib.Path, help="keep the rows, as JSON; after every part")
    parser.add_argument("--load", metavar="FILE", type=pathlib.Path,
                        help="take the rows from there instead of measuring")
    parser.add_argument("--write", metavar="DIR", type=pathlib.Path,
                        help="put tables into the pages (*.md) of this folder, and plots into DIR/plots; "
                             "of this tree's docs, the figures of README too")
    options = parser.parse_args()
    options.only = names_in(parser, "part", options.only, PARTS)
    options.peers = [] if options.peers == "none" else \
        names_in(parser, "peer", options.peers, bench_parts.PEERS)
    return options


def names_in(parser, what, text, known):
    for name in text.split(","):
        if name not in known:
            parser.error(f"no {what} '{name}'; available: {', '.join(known)}")
    return text.split(",")


# ---- what the tables say of the machine ----


def first_match(path, pattern, default):
    try:
        match = re.search(pattern, pathlib.Path(path).read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1) if match else default


def first_line(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe_run(bench, quick):
    memory_kib = int(first_match("/proc/meminfo", r"^MemTotal: +(\d+)", "0"))
    cpu = first_match("/proc/cpuinfo", r"^model name\s*: (.+)", os.uname().machine)
    system = first_match("/etc/os-release", r'^PRETTY_NAME="(.+)"', "unknown system")
    linux = ".".join(os.uname().release.split(".")[:2])
    today = datetime.date.today()
    return {"date": f"{today.day} {today:%B %Y}",
            "machine": f"{os.cpu_count()} CPUs ({cpu}), {memory_kib / 2**20:.0f} GiB of memory, "
                       f"{system}, Linux {linux}",
            "compiler": first_line("cc", "--version"),
            "tally": first_line(bench.tally, "--version").split()[-1],
            "quick": quick, "commands": bench.commands()}


# ---- rows ----


def measure_all(options):
    bench = bench_parts.Bench(options.tally, bench_parts.QUICK if options.quick else
                              bench_parts.Extent(), options.peers, options.limit)
    results = {"run": [describe_run(bench, options.quick)]}
    for part in PARTS:
        if part in options.only:
            bench_programs.note(part)
            results.update(bench.measure(part))
            save(options, results)
    return results


def to_lines(results):
    return "".join(json.dumps({"part": part, **row}) + "\n"
                   for part, rows in results.items() for row in rows)


def save(options, results):
    """After every part: what took minutes is not lost when a later part fails."""
    if options.save:
        options.save.write_text(to_lines(results))


def from_lines(text):
    results = {}
    for line in text.splitlines():
        row = json.loads(line)
        results.setdefault(row.pop("part"), []).append(row)
    return results


# ---- what becomes of them ----


def print_tables(blocks, verdicts, quick):
    for name, text in blocks.items():
        if text is not None:
            print(f"\n== {name} ==\n{text}")
    if quick:
        print("\nThese were the smallest cases: the figures say nothing, and no goal is asked of them.")
    if verdicts:
        print("\n== goals ==\n" + bench_tables.goals_text(verdicts))


def write_pages(folder, results, blocks):
    pictures = {}
    if bench_plots.exists():
        pictures = bench_plots.draw_all(results, folder / "plots")
    else:
        bench_programs.note("gnuplot is not here: no plots; scripts/setup --peers installs it")
    places = []
    for page in sorted(folder.glob("*.md")):
        text = page.read_text()
        filled, found = bench_tables.fill(text, blocks, pictures)
        places += found
        if filled != text:
            page.write_text(filled)
            bench_programs.note(f"wrote {page}")
    homeless = [name for name in blocks if name not in places]
    if homeless:
        raise bench_programs.Failed(f"no page of {folder} has a place for {', '.join(homeless)}")


def main():
    options = read_options()
    bench_programs.end_on_sigterm()
    try:
        results = from_lines(options.load.read_text()) if options.load else measure_all(options)
        save(options, results)
        quick = results["run"][0]["quick"]
        verdicts = [] if quick else bench_goals.judge(results, bench_parts.TORCH_HOOKS)
        blocks = {name: bench_tables.block(name, results, verdicts)
                  for name in bench_tables.BLOCKS}
        if options.json:
            print(to_lines(results), end="")
        else:
            print_tables(blocks, verdicts, quick)
        if options.write:
            write_pages(options.write, results, blocks)
            if options.write.resolve() == ROOT / "docs":
                bench_front.write(ROOT)
    except (bench_programs.Failed, bench_front.Missing, OSError) as failure:
        bench_programs.note(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

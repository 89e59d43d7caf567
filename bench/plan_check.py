#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares forecasts of `tally plan` with steps that were measured. Takes a profile on two hosts of
network namespaces (hosts.sh), measures steps on other numbers of hosts and at other rates, and prints
both with the error of the forecast. The rate of a forecast is that of the link, times the part of it
that the profile reached. Backward is timed (it sleeps), so it needs no CPU. Two hosts share a CPU, also while the
profile is taken, so that every host has the same half of one, however many there are."""

import itertools
import json
import pathlib
import statistics
import sys
import tempfile

import bench_links
import bench_programs
import run_all

LIMIT_S = 240
# Pairs of steps that differ by more than this have an order.
APART = 1.1


def numbers(text):
    return tuple(int(word) for word in text.split(","))


def read_options():
    parser = run_all.Parser(
        prog="bench/plan_check.py", description=__doc__,
        epilog="Example: python3 bench/plan_check.py --mb 20 --mbit 200,1000 --hosts 2,3")
    parser.add_argument("--tally", default=run_all.ROOT / "build" / "tally", help="the tally command")
    parser.add_argument("--mpi", default="mpich", choices=("openmpi", "mpich"), help="the MPI (mpich)")
    parser.add_argument("--mb", metavar="N", type=int, default=10, help="gradients, million bytes (10)")
    parser.add_argument("--backward-ms", metavar="MS", type=int, default=40, help="backward (40)")
    parser.add_argument("--steps", metavar="N", type=int, default=9, help="steps of each figure (9)")
    parser.add_argument("--profile-mbit", metavar="RATE", type=int, default=500,
                        help="the link of the profile, Mbit/s (500)")
    parser.add_argument("--mbit", metavar="LIST", type=numbers, default=(100, 500, 2000),
                        help="links of the comparison (100,500,2000)")
    parser.add_argument("--hosts", metavar="LIST", type=numbers, default=(2, 3, 4),
                        help="numbers of hosts (2,3,4)")
    parser.add_argument("--per-cpu", metavar="N", type=int, default=2, help="hosts that share a CPU (2)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no table")
    return parser.parse_args()


def measure(options, hosts, mbit, more=()):
    """The rows of `tally bench profile` on hosts."""
    env = {"TALLY_HOSTS_PER_CPU": str(options.per_cpu)}
    words = [bench_links.HERE / "hosts_mpirun.sh", options.mpi, 1, options.tally, "bench", "profile", "--json",
             "--timed", "--mb", options.mb, "--backward-ms", options.backward_ms, "--steps", options.steps,
             "--bucket-mb", max(options.mb // 4, 1), *more]
    out, _ = bench_links.twice(lambda: bench_links.run_on_hosts(hosts, mbit, words, env, LIMIT_S))
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def forecast(options, profile, hosts, gbit):
    """Step by hook."""
    out = bench_programs.run_text([options.tally, "plan", "--profile", profile, "--json", "--hosts", hosts,
                                   "--gbit", f"{gbit:.6g}"], LIMIT_S)
    rows = [json.loads(line) for line in out.splitlines()]
    return {row["hook"]: (row["step_ms"] or (row["low_ms"] + row["high_ms"]) / 2) for row in rows}


def compare(options, profile):
    base = measure(options, 2, options.profile_mbit, ("-o", profile))
    reached = base[0]["gbit"] * 1000 / options.profile_mbit
    for hosts, mbit in itertools.product(options.hosts, options.mbit):
        known = forecast(options, profile, hosts, mbit * reached / 1000)
        for row in measure(options, hosts, mbit):
            yield {"hosts": hosts, "mbit": mbit, "hook": row["hook"], "measured_ms": row["step_ms"],
                   "forecast_ms": known[row["hook"]], "error": known[row["hook"]] / row["step_ms"] - 1}


def right_order(rows):
    """(pairs in the right order, all pairs) of steps that differ clearly."""
    pairs = [(a, b) for a, b in itertools.combinations(rows, 2)
             if max(a["measured_ms"], b["measured_ms"]) > APART * min(a["measured_ms"], b["measured_ms"])]
    right = sum((a["measured_ms"] < b["measured_ms"]) == (a["forecast_ms"] < b["forecast_ms"]) for a, b in pairs)
    return right, len(pairs)


def print_table(options, rows):
    print(f"profile: 2 hosts, {options.profile_mbit} Mbit/s, {options.mb} MB, timed backward of "
          f"{options.backward_ms} ms, {options.mpi}, {options.per_cpu} hosts per CPU\n")
    print("| hosts | Mbit/s | hook | measured, ms | forecast, ms | error |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['hosts']} | {row['mbit']} | `{row['hook']}` | {row['measured_ms']:.1f} | "
              f"{row['forecast_ms']:.1f} | {100 * row['error']:+.1f} % |")
    errors = sorted(abs(row["error"]) for row in rows)
    right, n_pairs = right_order(rows)
    print(f"\nMedian error {100 * statistics.median(errors):.1f} % (goal: 8 %), worst {100 * errors[-1]:.1f} % "
          f"(goal: 20 %); right order in {right} of {n_pairs} pairs that differ by more than 10 % (goal: 95 %).")


def main():
    bench_programs.end_on_sigterm()
    options = read_options()
    if not bench_links.hosts_work():
        return 77
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for row in compare(options, pathlib.Path(folder, "profile.json")):
                rows.append(row)
                if options.json:
                    print(json.dumps(row), flush=True)
    except (bench_programs.Failed, OSError) as failure:
        print(f"plan_check.py: {failure}", file=sys.stderr)
        return 1
    if not options.json:
        print_table(options, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the hook auto with every fixed candidate, on hosts of network namespaces (hosts.sh): at
several rates of the link, with a backward pass that takes a part of the time of communication or a
multiple, for a model of large matrices and one of many small parameters. Lets auto settle, then takes
steps of all candidates and of auto's choice in turn. Regret is the time of the choice beyond that of the
best candidate within auto's error budget. With --change, lets auto follow a link whose rate drops to a
tenth and comes back. Backward is timed (it sleeps)."""

import json
import pathlib
import statistics
import sys
import tempfile

import bench_links
import bench_programs
import run_all

LIMIT_S = 240
BUDGET = 0.02  # the default of auto
FIXED = ("allreduce", "bf16", "int8", "powersgd:start=0")
# Gradients of a cell, in bytes, so that a step of allreduce takes at most 200 ms.
BYTES = {100: 2_000_000, 1000: 16_000_000, 10000: 40_000_000, 0: 40_000_000}


def numbers(text):
    return tuple(float(word) for word in text.split(","))


def read_options():
    parser = run_all.Parser(prog="bench/auto_grid.py", description=__doc__,
                            epilog="Example: python3 bench/auto_grid.py --mbit 100,1000 --rounds 9")
    parser.add_argument("--build", default=run_all.ROOT / "build", help="the build folder (build)")
    parser.add_argument("--mpi", default="mpich", choices=("openmpi", "mpich"), help="the MPI (mpich)")
    parser.add_argument("--mbit", metavar="LIST", type=numbers, default=(100, 1000, 10000, 0),
                        help="rates of the link, Mbit/s; 0: no limit (100,1000,10000,0)")
    parser.add_argument("--backward", metavar="LIST", type=numbers, default=(0, 0.5, 2),
                        help="backward, in times of communication (0,0.5,2)")
    parser.add_argument("--models", metavar="LIST", type=lambda text: text.split(","),
                        default=["matrices", "small"], help="models (matrices,small)")
    parser.add_argument("--bytes", metavar="N", type=int, default=0,
                        help="bytes of gradients; 0: as the rate allows (0)")
    parser.add_argument("--rounds", metavar="N", type=int, default=15, help="steps of each hook (15)")
    parser.add_argument("--change", action="store_true", help="follow a link that changes, in place of the grid")
    parser.add_argument("--seconds", metavar="N", type=int, default=60, help="of --change (60)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no table")
    return parser.parse_args()


def run_ranks(options, mbit, words):
    """The JSON objects that ranks print on two hosts."""
    build = pathlib.Path(options.build).resolve()
    env = {"TALLY_MPI": str(build / "src" / f"libtally-{options.mpi}.so")}
    launch = [bench_links.HERE / "hosts_mpirun.sh", options.mpi, 1, build / "bench" / "auto_rank", *words]
    out, _ = bench_links.twice(lambda: bench_links.run_on_hosts(2, int(mbit), launch, env, LIMIT_S))
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def interval(values):
    """The 95 % confidence interval of a median, from order statistics."""
    values, n = sorted(values), len(values)
    off = max(int(n / 2 - 0.98 * n ** 0.5), 0)
    return values[off], values[n - 1 - off]


def measure(options, mbit, backward, model):
    size = options.bytes or BYTES.get(int(mbit), BYTES[1000])
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder, "plan")
        raw = run_ranks(options, mbit, ["cell", model, size, backward, options.rounds, plan])[0]
        profile = pathlib.Path(f"{plan}.json")
        hooks = json.loads(profile.read_text())["hooks"] if profile.exists() else []
    errors = {hook["name"]: hook["error"] for hook in hooks}
    row = {"mbit": int(mbit), "backward": backward, "model": model}
    row |= {key: raw[key] for key in ("comm_ms", "settle_steps", "choice", "reason")}
    medians = {name: statistics.median(raw[name]) for name in FIXED + ("auto",)}
    allowed = [name for name in FIXED if errors.get(name, 0) <= BUDGET]
    best = min(allowed, key=medians.get)
    against = [100 * (a - p) / p for a, p in zip(raw["auto"], raw["allreduce"])]
    spent = raw["settle_ms"] - raw["settle_steps"] * medians["auto"]
    row |= {"ms": medians, "best": best, "regret": 100 * (medians["auto"] / medians[best] - 1),
            "against_allreduce": statistics.median(against), "interval": interval(against),
            "spent": 100 * spent / (1000 * medians[best]),
            "spent_of_allreduce": 100 * spent / (1000 * medians["allreduce"])}
    return row


def print_head():
    print("| link | backward | model | allreduce | bf16 | int8 | powersgd | auto | chosen (buckets) | regret "
          "| against allreduce | measuring |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")


def print_row(row):
    link = f"{row['mbit'] / 1000:g} Gbit/s" if row["mbit"] else "no limit"
    times = " | ".join(f"{row['ms'][name]:.1f}" for name in FIXED + ("auto",))
    low, high = row["interval"]
    print(f"| {link} | {row['backward']:g} × | {row['model']} | {times} | {row['choice']} | {row['regret']:.1f} % "
          f"| {row['against_allreduce']:+.1f} % ({low:+.0f}..{high:+.0f}) | {row['spent']:.1f} % |", flush=True)


def run_grid(options):
    rows = []
    if not options.json:
        print_head()
    for mbit in options.mbit:
        for backward in options.backward:
            for model in options.models:
                row = measure(options, mbit, backward, model)
                rows.append(row)
                print(json.dumps(row), flush=True) if options.json else print_row(row)
    total = {"cells": len(rows), "median_regret": statistics.median(row["regret"] for row in rows),
             "worst_regret": max(row["regret"] for row in rows),
             "worst_against_allreduce": max(row["against_allreduce"] for row in rows),
             "slower_than_allreduce": sum(row["interval"][0] > 2 for row in rows),
             "median_spent": statistics.median(row["spent"] for row in rows),
             "median_spent_of_allreduce": statistics.median(row["spent_of_allreduce"] for row in rows)}
    print(json.dumps(total))


CHANGE = """
"$0" "$@" & ranks=$!
change() {
    for ((i = 0; i < TALLY_HOSTS; i++)); do
        "$AGENT" "host-$i" tc qdisc change dev net0 root tbf rate "$1" burst 250000 latency 50ms
    done
}
sleep "$EARLY"; change 100mbit
sleep "$MIDDLE"; change 1000mbit
wait $ranks
"""


def run_change(options):
    """auto under a line of 1 Gbit/s, then 0.1, then 1 again; backward hides the fast one."""
    build = pathlib.Path(options.build).resolve()
    third = options.seconds / 3
    env = {"TALLY_MPI": str(build / "src" / f"libtally-{options.mpi}.so"), "EARLY": f"{third:g}",
           "MIDDLE": f"{third:g}", "AGENT": str(bench_links.HERE / "hosts_agent.sh")}
    words = ["bash", "-c", CHANGE, bench_links.HERE / "hosts_mpirun.sh", options.mpi, 1, build / "bench" / "auto_rank",
             "follow", "matrices", 2_000_000, 100, options.seconds, 64]
    out, _ = bench_links.run_on_hosts(2, 1000, words, env, LIMIT_S)
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    for row in rows:
        print(json.dumps(row))
    slow = [row for row in rows if third <= row["s"] < 2 * third + 2]
    followed = (rows[0]["choice"].startswith("allreduce") and any("allreduce" not in row["choice"] for row in slow)
                and rows[-1]["choice"].startswith("allreduce"))
    print(json.dumps({"changes": len(rows), "followed": followed}))
    return 0 if followed else 1


def main():
    options = read_options()
    if not bench_links.hosts_work():
        return 77
    try:
        return run_change(options) if options.change else run_grid(options)
    except bench_programs.Failed as failure:
        print(f"auto_grid.py: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

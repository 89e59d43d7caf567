#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the hook auto with every fixed candidate, on hosts of network namespaces (hosts.sh): at
several rates of the link, with a backward pass that takes a part of the time of communication or a
multiple, for a model of large matrices and one of many small parameters. Lets auto settle, then takes
steps of all candidates and of auto's choice in turn. Regret is the time of the choice beyond that of the
best candidate within auto's error budget. With --change, lets auto follow a link whose rate drops to a
tenth and comes back. Backward is timed (it sleeps)."""

import json
import sys

import bench_auto
import bench_links
import bench_programs
import run_all


def numbers(text):
    return tuple(float(word) for word in text.split(","))


def read_options():
    parser = run_all.Parser(prog="bench/auto_grid.py", description=__doc__,
                            epilog="Example: python3 bench/auto_grid.py --mbit 100,1000 --rounds 9")
    usual = bench_auto.Extent()
    parser.add_argument("--build", default=run_all.ROOT / "build", help="the build folder (build)")
    parser.add_argument("--mpi", default=usual.mpi, choices=("openmpi", "mpich"), help="the MPI (mpich)")
    parser.add_argument("--mbit", metavar="LIST", type=numbers, default=usual.mbit,
                        help="rates of the link, Mbit/s; 0: no limit (100,1000,10000,0)")
    parser.add_argument("--backward", metavar="LIST", type=numbers, default=usual.backward,
                        help="backward, in times of communication (0,0.5,2)")
    parser.add_argument("--models", metavar="LIST", type=lambda text: tuple(text.split(",")),
                        default=usual.models, help="models (matrices,small)")
    parser.add_argument("--bytes", metavar="N", type=int, default=usual.bytes,
                        help="bytes of gradients; 0: as the rate allows (0)")
    parser.add_argument("--rounds", metavar="N", type=int, default=usual.rounds, help="steps of each hook (15)")
    parser.add_argument("--change", action="store_true", help="follow a link that changes, in place of the grid")
    parser.add_argument("--seconds", metavar="N", type=int, default=60, help="of --change (60)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no table")
    return parser.parse_args()


def print_line(words):
    print("| " + " | ".join(words) + " |", flush=True)


def run_grid(options):
    extent = bench_auto.Extent(options.mpi, options.mbit, options.backward, options.models, options.bytes,
                               options.rounds)
    rows = []
    if not options.json:
        print_line(bench_auto.HEADER)
        print_line(["---"] * len(bench_auto.HEADER))
    for cell in bench_auto.cells(extent):
        rows.append(bench_auto.measure(options.build, extent, *cell))
        if options.json:
            print(json.dumps(rows[-1]), flush=True)
        else:
            print_line(bench_auto.cells_of(rows[-1]))
    print(json.dumps(bench_auto.total(rows)))
    return 0


REVIEW = 80  # steps
CHANGE = """
"$0" "$@" & ranks=$!
change() {
    for ((i = 0; i < TALLY_HOSTS; i++)); do
        "$AGENT" "host-$i" tc qdisc change dev net0 root tbf rate "$1" burst 250000 latency 50ms
    done
    echo "{\\"rate\\": \\"$1\\", \\"at\\": $(cut -d ' ' -f 1 /proc/uptime)}"
}
sleep "$EARLY"; change 100mbit
sleep "$MIDDLE"; change 1000mbit
wait $ranks
"""


def exact_part(choice):
    """The part of the buckets that travel by allreduce, of a text such as "allreduce 7, int8 1"."""
    counts = {hook: int(n) for hook, n in (word.split() for word in choice.split(", "))}
    return counts.get("allreduce", 0) / sum(counts.values())


def steps_after(rows, since, is_wanted):
    """Steps from a moment to the first choice after it that is wanted; None: there is none."""
    before = max(row["step"] for row in rows if "step" in row and row["at"] <= since)
    after = [row["step"] for row in rows if row["at"] > since and "choice" in row and is_wanted(row)]
    return after[0] - before if after else None


def run_change(options):
    """auto under a line of 1 Gbit/s, then 0.1, then 1 again; backward hides the fast one. Prints after how many steps
    each change was followed."""
    third = options.seconds / 3
    launch, env = bench_auto.rank_words(options.build, options.mpi,
                                        ["follow", "matrices", 2_000_000, 100, options.seconds, REVIEW])
    env |= {"EARLY": f"{third:g}", "MIDDLE": f"{third:g}", "AGENT": str(bench_links.HERE / "hosts_agent.sh")}
    out, _ = bench_links.run_on_hosts(2, 1000, ["bash", "-c", CHANGE, *launch], env, bench_auto.LIMIT_S)
    rows = bench_auto.read_rows(out)
    choices = [row for row in rows if "choice" in row]
    for row in choices:
        print(json.dumps(row))
    slow, fast = (row["at"] for row in rows if "rate" in row)
    down = steps_after(rows, slow, lambda row: row["at"] < fast and exact_part(row["choice"]) < 0.5)
    back = steps_after(rows, fast, lambda row: exact_part(row["choice"]) > 0.5)
    print(json.dumps({"choices": len(choices), "review": REVIEW, "steps_to_slow": down, "steps_to_fast": back}))
    return 0 if down and back and exact_part(choices[0]["choice"]) > 0.5 else 1


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

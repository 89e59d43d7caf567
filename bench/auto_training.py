#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the examples 05_digits and 06_gpt with the hook auto and with allreduce, from several seeds, on two
hosts of network namespaces (hosts.sh) whose link is slow, so that auto has a reason to compress. Prints the
losses, and whether the mean loss of auto is within the spread of those of allreduce: no further from their
mean than the furthest of them. Exit code 1: it is not."""

import json
import pathlib
import re
import statistics
import sys

import bench_links
import bench_programs
import run_all

LIMIT_S = 250


def read_options():
    parser = run_all.Parser(prog="bench/auto_training.py", description=__doc__,
                            epilog="Example: python3 bench/auto_training.py --models digits --seeds 3")
    parser.add_argument("--build", default=run_all.ROOT / "build", help="the build folder (build)")
    parser.add_argument("--mpi", default="mpich", choices=("openmpi", "mpich"), help="the MPI (mpich)")
    parser.add_argument("--mbit", metavar="RATE", type=int, default=100, help="the link, Mbit/s (100)")
    parser.add_argument("--seeds", metavar="N", type=int, default=5, help="seeds of each model (5)")
    parser.add_argument("--models", metavar="LIST", type=lambda text: text.split(","), default=["digits", "gpt"],
                        help="models (digits,gpt)")
    parser.add_argument("--hook", default="auto", help="the hook beside allreduce (auto)")
    parser.add_argument("--steps", metavar="N", type=int, default=300, help="steps of a training run (300)")
    return parser.parse_args()


def train(options, words):
    """The output of an example on two hosts."""
    build = pathlib.Path(options.build).resolve()
    env = {"TALLY_MPI": str(build / "src" / f"libtally-{options.mpi}.so")}
    words = [bench_links.HERE / "hosts_mpirun.sh", options.mpi, 1, build / "examples" / words[0], *words[1:]]
    return bench_links.twice(lambda: bench_links.run_on_hosts(2, options.mbit, words, env, LIMIT_S))[0]


def train_digits(options, seed):
    """Test loss and bytes of a step, by hook."""
    out = train(options, ["05_digits", "--json", "--steps", options.steps, "--seed", seed, "allreduce", options.hook])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith('{"hook"')]
    return [(row["loss"], row["bytes_per_step"]) for row in rows]


def train_gpt(options, seed):
    """The mean training loss of the last quarter, and the bytes of the last step, by hook."""
    sides = []
    for hook in ("allreduce", options.hook):
        out = train(options, ["06_gpt", "--layers", 2, "--width", 64, "--context", 32, "--batch", 16, "--every", 5,
                              "--steps", options.steps, "--seed", seed, "--hook", hook])
        lines = re.findall(r"loss ([0-9.]+),.* (\d+) bytes sent", out)
        last = [float(loss) for loss, _ in lines[-max(len(lines) // 4, 1):]]
        sides.append((statistics.mean(last), float(lines[-1][1])))
    return sides


def compare(options, model):
    """Trains from all seeds; a row with the losses of both sides."""
    sides = [(train_digits if model == "digits" else train_gpt)(options, seed) for seed in range(1, options.seeds + 1)]
    plain, own = ([side[k][0] for side in sides] for k in (0, 1))
    off = statistics.mean(own) - statistics.mean(plain)
    spread = max(abs(loss - statistics.mean(plain)) for loss in plain)
    return {"model": model, "steps": options.steps, "allreduce": plain, options.hook: own,
            "mean": [statistics.mean(plain), statistics.mean(own)], "off": off, "spread": spread, "within": off <= spread,
            "bytes": [statistics.median(side[k][1] for side in sides) for k in (0, 1)]}


def main():
    bench_programs.end_on_sigterm()
    options = read_options()
    if not bench_links.hosts_work():
        return 77
    try:
        rows = []
        for model in options.models:
            rows.append(compare(options, model))
            print(json.dumps(rows[-1]), flush=True)
    except bench_programs.Failed as failure:
        print(f"auto_training.py: {failure}", file=sys.stderr)
        return 1
    return 0 if all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

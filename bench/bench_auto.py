# SPDX-License-Identifier: Apache-2.0
"""The part `auto` of `make bench`: the hook auto beside every fixed candidate, on hosts of network
namespaces (hosts.sh). A cell is a rate of the link, a length of backward and a model; auto settles, then
all candidates and auto's choice take steps in turn. auto_grid.py is the command."""

import dataclasses
import json
import pathlib
import statistics
import tempfile

import bench_links
from bench_programs import Failed, note

LIMIT_S = 240
BUDGET = 0.02  # the default of auto
FIXED = ("allreduce", "bf16", "int8", "powersgd:start=0")
# Gradients of a cell, in bytes, so that a step of allreduce takes at most 200 ms.
BYTES = {100: 2_000_000, 1000: 16_000_000, 10000: 40_000_000, 0: 40_000_000}


@dataclasses.dataclass
class Extent:
    """The cells, and how much is measured in each."""
    mpi: str = "mpich"
    mbit: tuple = (100, 1000, 10000, 0)
    backward: tuple = (0, 0.5, 2)
    models: tuple = ("matrices", "small")
    bytes: int = 0  # of gradients; 0: as the rate allows
    rounds: int = 15


QUICK = Extent(mbit=(1000,), backward=(0,), models=("matrices",), bytes=400_000, rounds=2)


def rank_words(build, mpi, words):
    """A command that starts the ranks on hosts, and its environment."""
    build = pathlib.Path(build).resolve()
    return ([bench_links.HERE / "hosts_mpirun.sh", mpi, 1, build / "bench" / "auto_rank", *words],
            {"TALLY_MPI": str(build / "src" / f"libtally-{mpi}.so")})


def read_rows(out):
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def interval(values):
    """The 95 % confidence interval of a median, from order statistics."""
    values, n = sorted(values), len(values)
    off = max(int(n / 2 - 0.98 * n ** 0.5), 0)
    return values[off], values[n - 1 - off]


def run_cell(build, extent, mbit, backward, model):
    """The output of the ranks, and the error of each hook as auto has measured it."""
    size = extent.bytes or BYTES.get(int(mbit), BYTES[1000])
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder, "plan")
        words, env = rank_words(build, extent.mpi, ["cell", model, size, backward, extent.rounds, plan])
        out, _ = bench_links.twice(lambda: bench_links.run_on_hosts(2, int(mbit), words, env, LIMIT_S))
        profile = pathlib.Path(f"{plan}.json")
        hooks = json.loads(profile.read_text())["hooks"] if profile.exists() else []
    return read_rows(out)[0], {hook["name"]: hook["error"] for hook in hooks}


def measure(build, extent, mbit, backward, model):
    """A row: medians in ms; regret against the best candidate within the budget, gain against allreduce, and
    the time of attaching and measuring beyond the best candidate's, as parts of 1000 of its steps; all in percent."""
    raw, errors = run_cell(build, extent, mbit, backward, model)
    row = {"mbit": int(mbit), "backward": backward, "model": model}
    row |= {key: raw[key] for key in ("comm_ms", "attach_ms", "settle_steps", "settle", "choice", "reason")}
    medians = {name: statistics.median(raw[name]) for name in FIXED + ("auto",)}
    best = min((name for name in FIXED if errors.get(name, 0) <= BUDGET), key=medians.get)
    against = [100 * (a - p) / p for a, p in zip(raw["auto"], raw["allreduce"])]
    spent = raw["settle_ms"] - raw["settle_steps"] * medians[best]
    return row | {"ms": medians, "best": best, "regret": 100 * (medians["auto"] / medians[best] - 1),
                  "against_allreduce": statistics.median(against), "interval": interval(against),
                  "spent": 100 * spent / (1000 * medians[best]),
                  "spent_of_allreduce": 100 * spent / (1000 * medians["allreduce"])}


def cells(extent):
    return [(mbit, backward, model) for mbit in extent.mbit for backward in extent.backward
            for model in extent.models]


def measure_all(tally, extent):
    """The rows of all cells; none where hosts cannot be made, or without this MPI."""
    build = pathlib.Path(tally).resolve().parent
    if not (build / "src" / f"libtally-{extent.mpi}.so").exists():
        note(f"auto is left out: tally was built without {extent.mpi}")
        return []
    if not bench_links.hosts_work():
        return []
    rows = []
    for cell in cells(extent):
        try:
            rows.append(measure(build, extent, *cell))
        except Failed as failure:
            note(f"a cell of auto is left out: {failure}")
    return rows


def total(rows):
    return {"cells": len(rows), "median_regret": statistics.median(row["regret"] for row in rows),
            "worst_regret": max(row["regret"] for row in rows),
            "worst_against_allreduce": max(row["against_allreduce"] for row in rows),
            "slower_than_allreduce": sum(row["interval"][0] > 2 for row in rows),
            "median_spent": statistics.median(row["spent"] for row in rows),
            "median_spent_of_allreduce": statistics.median(row["spent_of_allreduce"] for row in rows)}


HEADER = ("link", "backward", "model", "`allreduce` ms", "`bf16`", "`int8`", "`powersgd`", "`auto`", "chosen (buckets)",
          "regret", "against `allreduce`", "measuring")


def cells_of(row):
    """The row of the table."""
    low, high = row["interval"]
    return (f"{row['mbit'] / 1000:g} Gbit/s" if row["mbit"] else "no limit", f"{row['backward']:g} ×", row["model"],
            *(f"{row['ms'][name]:.1f}" for name in FIXED + ("auto",)), row["choice"], f"{row['regret']:.1f} %",
            f"{row['against_allreduce']:+.1f} % ({low:+.0f}..{high:+.0f})", f"{row['spent']:.1f} %")

# SPDX-License-Identifier: Apache-2.0
"""The pictures of `make bench`, drawn by gnuplot as SVG. Data goes to it in its script; no file is left
but the picture. Measures nothing."""

import shutil
import subprocess

from bench_goals import by_link, library, torch_pairs
from bench_parts import TORCH_HOOKS

HEAD = """set terminal svg size 760,440 dynamic noenhanced font "sans,13" background "white"
set output "{output}"
set title "{title}"
set grid ytics back lt 1 lw 0.5 lc rgb "#cccccc"
set key {key}
set xlabel "{x}"
set ylabel "{y}"
"""
COLOURS = ("#1b5e9e", "#c2571a", "#3a8f3a", "#8a4fa3", "#b0892b", "#555555", "#d06a9b", "#4bb0b5",
           "#7a6a5a", "#222222")


def exists():
    return shutil.which("gnuplot") is not None


def label(hook):
    """A short name that is safe between quotes: the hook's text without its start option."""
    return hook.replace(":start=0", "").replace(",start=0", "")


def data(name, rows):
    """A block of data under a name; a gap where a value is missing."""
    lines = (" ".join("NaN" if value is None else str(value) for value in row) for row in rows)
    return f"${name} << END\n" + "\n".join(lines) + "\nEND\n"


def draw(script):
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"gnuplot: {done.stderr.strip()}")


def allreduce_time(rows, output):
    names = ["tally"]
    keys = ["us"]
    for name, peer in (("Open MPI", "openmpi"), ("MPICH", "mpich")):
        version = next((row[peer + "_version"] for row in rows if row[peer + "_version"]), None)
        if version:
            names.append(f"{name} {version}")
            keys.append(peer + "_us")
    points = [(row["bytes"], *(row[key] for key in keys)) for row in rows]
    lines = ", ".join(f'$times using 1:{i + 2} with linespoints pt 7 ps 0.6 lw 2 '
                      f'lc rgb "{COLOURS[i]}" title "{name}"' for i, name in enumerate(names))
    draw(HEAD.format(output=output, title=f"All-reduce of fp32, {rows[0]['ranks']} processes",
                     key="top left", x="bytes", y="microseconds") +
         data("times", points) +
         'set logscale xy\nset xtics ("1 KiB" 1024, "16 KiB" 16384, "256 KiB" 262144, '
         '"4 MiB" 4194304, "64 MiB" 67108864)\n' + f"plot {lines}\n")


def step_per_hook(results, output):
    theirs = {}
    for row, ours in torch_pairs(results, TORCH_HOOKS):  # of two that do the same, the faster
        theirs[ours["hook"]] = min(row["comm_ms"], theirs.get(ours["hook"], row["comm_ms"]))
    rows = [(f'"{label(row["hook"])}"', row["ms"], theirs.get(row["hook"]))
            for row in results["hooks"]]
    bars = f'$steps using 2:xtic(1) title "tally" lc rgb "{COLOURS[0]}"'
    if theirs:
        bars += (f', $steps using 3 title "PyTorch {results["torch"][0]["version"]}, Gloo" '
                 f'lc rgb "{COLOURS[1]}"')
    draw(HEAD.format(output=output, key="top right", x="", y="milliseconds",
                     title=f"Communication of a step, {results['hooks'][0]['mb']} MB, 2 processes") +
         data("steps", rows) +
         "set style data histogram\nset style histogram clustered gap 1\nset style fill solid\n"
         "set xtics rotate by -25\nset yrange [0:*]\n" + f"plot {bars}\n")


def wire_bytes(rows, output):
    ranks = sorted({row["ranks"] for row in rows})
    hooks = list(dict.fromkeys(row["hook"] for row in rows))
    share = {(row["hook"], row["ranks"]): row["wire_bytes"] / (row["mb"] * 1e6) for row in rows}
    points = [(n, *(share[hook, n] for hook in hooks)) for n in ranks]
    lines = ", ".join(f'$shares using 1:{i + 2} with linespoints pt 7 ps 0.6 lw 2 '
                      f'lc rgb "{COLOURS[i % len(COLOURS)]}" title "{label(hook)}"'
                      for i, hook in enumerate(hooks))
    draw(HEAD.format(output=output, title="Bytes sent by a rank, as a part of its gradients",
                     key="outside right", x="ranks", y="part of the gradients' bytes") +
         data("shares", points) + "set logscale y\nset xtics 1\n" + f"plot {lines}\n")


def links(results, output):
    """Of the fastest limited link that was measured: every setup's hooks, and PyTorch's."""
    rows = results["links"]
    mbit = max(row["mbit"] for row in rows)
    bars = {}
    for title, speed, _, plain_ms, own in by_link(rows):
        if speed == mbit:
            bars[f"tally, {title}"] = {"fp32": plain_ms, **{label(row["hook"]): row["ms"] for row in own}}
    names = {"none": "fp32", "fp16": "fp16", "powersgd": "powersgd:rank=1", "allreduce": "fp32"}
    for row in results.get("links_peers", []):
        bars.setdefault(library(row["peer"], row), {})[names[row["hook"]]] = row["ms"]
    hooks = list(dict.fromkeys(hook for times in bars.values() for hook in times))
    points = [(f'"{hook}"', *(times.get(hook) for times in bars.values())) for hook in hooks]
    plots = ", ".join(f'$steps using {i + 2}{":xtic(1)" if i == 0 else ""} lc rgb "{COLOURS[i]}" '
                      f'title "{name}"' for i, name in enumerate(bars))
    draw(HEAD.format(output=output, key="top right", x="", y="milliseconds",
                     title=f"A step of {rows[0]['mb']} MB over {mbit} Mbit/s, {rows[0]['hosts']} hosts") +
         data("steps", points) +
         "set style data histogram\nset style histogram clustered gap 1\nset style fill solid\n"
         "set logscale y\nset yrange [1:*]\n" + f"plot {plots}\n")


def draw_all(results, folder):
    """Every picture that there are rows for; the names of those drawn."""
    jobs = {"allreduce_time.svg": ("allreduce", lambda path: allreduce_time(results["allreduce"], path)),
            "step_per_hook.svg": ("hooks", lambda path: step_per_hook(results, path)),
            "wire_bytes.svg": ("wire_bytes", lambda path: wire_bytes(results["wire_bytes"], path)),
            "links.svg": ("links", lambda path: links(results, path))}
    drawn = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, (part, job) in jobs.items():
        if results.get(part):
            job(folder / name)
            drawn.append(name)
    return drawn

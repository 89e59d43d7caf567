# SPDX-License-Identifier: Apache-2.0
"""The pictures of `make bench`, drawn by gnuplot as SVG, for the width at which pages show them. Curves and
bars differ in more than colour, legends lie outside the data, and each picture has a title and a description for
screen readers. Data goes to gnuplot in its script; no file is left but the picture. Measures nothing."""

import html
import re
import shutil
import subprocess

from bench_goals import by_link, library, torch_pairs
from bench_parts import TORCH_HOOKS

HEAD = """set terminal svg size 760,{height} dynamic noenhanced font "sans,13" background "white"
set output "{output}"
set title "{title}"
set grid ytics back lt 1 lw 0.5 lc rgb "#cccccc"
set key {key}
set xlabel "{x}"
set ylabel "{y}"
"""
# Dark to light, so that they differ in grey too; each with a pattern for bars and a point for curves.
COLOURS = ("#12406b", "#c2571a", "#5a9e4b", "#c58fd6", "#d9b64a", "#777777", "#222222")
PATTERNS = (3, 1, 2, 6, 4, 5, 0)  # full, hatched in five ways, empty
POINTS = (7, 4, 9, 12, 6, 2, 5)


def exists():
    return shutil.which("gnuplot") is not None


def label(hook):
    """A short name that is safe between quotes: the hook's text without its start option."""
    return hook.replace(":start=0", "").replace(",start=0", "")


def data(name, rows):
    """A block of data under a name; a gap where a value is missing."""
    lines = (" ".join("NaN" if value is None else str(value) for value in row) for row in rows)
    return f"${name} << END\n" + "\n".join(lines) + "\nEND\n"


def draw(script, output, title, description):
    """Runs gnuplot, and puts our title and description where it has put its own."""
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"gnuplot: {done.stderr.strip()}")
    svg = output.read_text()
    svg, n_titles = re.subn(r"<title>.*?</title>\s*<desc>.*?</desc>",
                            lambda _: f'<title id="title">{html.escape(title)}</title>\n'
                                      f'<desc id="desc">{html.escape(description)}</desc>',
                            svg, count=1, flags=re.DOTALL)
    svg, n_images = re.subn(r"<svg ", '<svg role="img" aria-labelledby="title desc" ', svg, count=1)
    if n_titles != 1 or n_images != 1:
        raise RuntimeError(f"gnuplot: {output} has no title to replace")
    output.write_text(svg)


def curve(block, column, i, name=""):
    title = f'title "{name}"' if name else "notitle"
    return (f"${block} using 1:{column} with linespoints pt {POINTS[i % len(POINTS)]} ps 0.8 lw 2 "
            f'lc rgb "{COLOURS[i % len(COLOURS)]}" {title}')


def bar(block, column, i, name):
    return (f'${block} using {column}{":xtic(1)" if column == 2 else ""} fs pattern {PATTERNS[i]} '
            f'lc rgb "{COLOURS[i]}" title "{name}"')


BARS = ("set style data histogram\nset style histogram clustered gap 1\nset style fill pattern border -1\n"
        "set boxwidth 0.9\n")


def allreduce_time(rows, output):
    names = ["tally"]
    keys = ["us"]
    for name, peer in (("Open MPI", "openmpi"), ("MPICH", "mpich")):
        version = next((row[peer + "_version"] for row in rows if row[peer + "_version"]), None)
        if version:
            names.append(f"{name} {version}")
            keys.append(peer + "_us")
    points = [(row["bytes"], *(row[key] for key in keys)) for row in rows]
    title = f"All-reduce of fp32, {rows[0]['ranks']} processes: lower is better"
    last = rows[-1]
    draw(HEAD.format(output=output, title=title, key="below", height=420, x="", y="microseconds") +
         data("times", points) +
         'set logscale xy\nset xtics ("1 KiB" 1024, "16 KiB" 16384, "256 KiB" 262144, '
         '"4 MiB" 4194304, "64 MiB" 67108864)\n' +
         f"set xrange [{rows[0]['bytes']}:{last['bytes']}]\nplot " + ", ".join(curve("times", i + 2, i, name) for i, name in enumerate(names)) + "\n",
         output, title, f"Time by size, both on logarithmic scales. At {last['bytes']} bytes: " +
         ", ".join(f"{name} {last[key]} us" for name, key in zip(names, keys)) + ".")


def step_per_hook(results, output):
    theirs = {}
    for row, ours in torch_pairs(results, TORCH_HOOKS):  # of two that do the same, the faster
        theirs[ours["hook"]] = min(row["comm_ms"], theirs.get(ours["hook"], row["comm_ms"]))
    rows = [(f'"{label(row["hook"])}"', row["ms"], theirs.get(row["hook"]))
            for row in results["hooks"]]
    bars = [bar("steps", 2, 0, "tally")]
    if theirs:
        bars.append(bar("steps", 3, 1, f"PyTorch {results['torch'][0]['version']}, Gloo"))
    title = f"Communication of a step, {results['hooks'][0]['mb']} MB, 2 processes: lower is better"
    # Numbers above the bars: short bars are hard to read beside long ones.
    numbers = [f"$steps using ($0{shift:+}):{column}:(sprintf(\"%.0f\", ${column})) with labels offset 0,0.6 "
               'font "sans,11" notitle' for column, shift in zip(range(2, 2 + len(bars)), (-0.17, 0.17))]
    draw(HEAD.format(output=output, key="below", height=460, x="", y="milliseconds", title=title) +
         data("steps", rows) + BARS + "set xtics rotate by -25\nset yrange [0:*]\nset offsets 0,0,30,0\n" +
         f"plot {', '.join(bars + numbers)}\n",
         output, title, "; ".join(f"{name.strip(chr(34))}: tally {ours} ms" +
                                  (f", PyTorch {peer} ms" if peer else "") for name, ours, peer in rows) + ".")


def alike(shares, ranks):
    """Hooks that send the same, within a twentieth, share a curve: [(names, their values)]."""
    groups = []
    for hook, values in shares.items():
        for names, first in groups:
            if all(abs(values[n] / first[n] - 1) < 0.05 for n in ranks):
                names.append(label(hook))
                break
        else:
            groups.append(([label(hook)], values))
    return groups


def short(names):
    return ", ".join(names).replace("quantize_per_channel, quantize_per_tensor", "quantize_*")


def wire_bytes(rows, output):
    ranks = sorted({row["ranks"] for row in rows})
    shares = {}
    for row in rows:
        shares.setdefault(row["hook"], {})[row["ranks"]] = row["wire_bytes"] / (row["mb"] * 1e6)
    groups = alike(shares, ranks)
    points = [(n, *(values[n] for _, values in groups)) for n in ranks]
    # Names stand at the ends of the curves, which a legend would only repeat.
    ends = "".join(f'set label "{short(names)}" at {ranks[-1]},{values[ranks[-1]]} offset 1,0\n'
                   for names, values in groups)
    title = "Bytes sent by a rank, as a part of its gradients"
    draw(HEAD.format(output=output, title=title, key="off", height=440, x="ranks",
                     y="part of the gradients' bytes") +
         data("shares", points) + "set logscale y\nset xtics 1\nset rmargin 20\n" + ends +
         "plot " + ", ".join(curve("shares", i + 2, i) for i in range(len(groups))) + "\n",
         output, title, f"With {ranks[-1]} ranks: " + "; ".join(
             f"{', '.join(names)} {values[ranks[-1]]:.4f}" for names, values in groups) + ".")


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
    plots = ", ".join(bar("steps", i + 2, i % len(COLOURS), name) for i, name in enumerate(bars))
    # Of small data, all bars may be shorter than that.
    least = 10 if min(ms for times in bars.values() for ms in times.values()) >= 10 else "*"
    title = f"A step of {rows[0]['mb']} MB over {mbit} Mbit/s, {rows[0]['hosts']} hosts: lower is better"
    draw(HEAD.format(output=output, key="below maxrows 4", height=470, x="", y="milliseconds", title=title) +
         data("steps", points) + BARS + f"set logscale y\nset yrange [{least}:*]\nplot {plots}\n",
         output, title, "; ".join(f"{name}: " + ", ".join(f"{hook} {ms:.0f} ms" for hook, ms in times.items())
                                  for name, times in bars.items()) + ".")


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

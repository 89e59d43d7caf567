# SPDX-License-Identifier: Apache-2.0
"""The pictures of `make bench` as SVG, for the width at which pages show them: curves by gnuplot, bars by bench_bars.
Curves differ in more than colour, names stand outside the data, and each picture has a title and a description for
screen readers. Data goes to gnuplot in its script; no file is left but the picture. Measures nothing."""

import html
import re
import shutil
import subprocess

import bench_bars
from bench_goals import by_link, library, size_text, torch_pairs
from bench_parts import TORCH_HOOKS

HEAD = """set terminal svg size 760,{height} dynamic noenhanced font "sans,13" background "white"
set output "{output}"
set title "{title}"
set grid ytics back lt 1 lw 0.5 lc rgb "#cccccc"
set border 3 back
set tics out nomirror
set key off
set xlabel "{x}"
set ylabel "{y}"
"""
# Dark to light, so that they differ in grey too; each with its own kind of point.
COLOURS = ("#12406b", "#c2571a", "#5a9e4b", "#c58fd6", "#d9b64a", "#777777", "#222222")
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


def draw(script, output, title, description, names):
    """Runs gnuplot, and puts our title, description and names of curves where it has put its own."""
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"gnuplot: {done.stderr.strip()}")
    svg = output.read_text()
    svg, n_titles = re.subn(r"<title>.*?</title>\s*<desc>.*?</desc>",
                            lambda _: f'<title id="title">{html.escape(title)}</title>\n'
                                      f'<desc id="desc">{html.escape(description)}</desc>',
                            svg, count=1, flags=re.DOTALL)
    svg, n_images = re.subn(r"<svg ", '<svg role="img" aria-labelledby="title desc" ', svg, count=1)
    for i, name in enumerate(names):
        svg = svg.replace(f"<title>gnuplot_plot_{i + 1}</title>", f"<title>{html.escape(name)}</title>")
    if n_titles != 1 or n_images != 1:
        raise RuntimeError(f"gnuplot: {output} has no title to replace")
    output.write_text(svg)


def ends(x, curves, apart):
    """Names at the ends of curves, (name, last value) each, which a legend would only repeat. On the logarithmic scale
    the next name is higher by the factor apart at least, so that names of curves that meet stay apart."""
    out, below = [], 0.0
    for name, value in sorted(curves, key=lambda curve: curve[1]):
        at = max(value, below * apart)
        out.append(f'set label "{name}" at {x},{at:.6g} offset 1,0\n')
        below = at
    return "".join(out)


def curve(block, i):
    return (f"${block} using 1:{i + 2} with linespoints pt {POINTS[i % len(POINTS)]} ps 0.8 lw 2 "
            f'lc rgb "{COLOURS[i % len(COLOURS)]}" notitle')


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
    draw(HEAD.format(output=output, title=title, height=440, x="size of the array", y="microseconds") +
         data("times", points) +
         'set logscale xy\nset xtics ("1 KiB" 1024, "16 KiB" 16384, "256 KiB" 262144, '
         '"4 MiB" 4194304, "64 MiB" 67108864)\n' +
         f"set xrange [{rows[0]['bytes']}:{last['bytes']}]\nset rmargin 18\nset mytics 1\n" +
         ends(last["bytes"], [(name, last[key]) for name, key in zip(names, keys)], 2) +
         "plot " + ", ".join(curve("times", i) for i in range(len(names))) + "\n",
         output, title, f"Time by size, both on logarithmic scales. At {size_text(last['bytes'])}: " +
         ", ".join(f"{name} {last[key]:.0f} us" for name, key in zip(names, keys)) + ".", names)
    return title


def step_per_hook(results, output):
    theirs = {}
    for row, ours in torch_pairs(results, TORCH_HOOKS):  # of two that do the same, the faster
        theirs[ours["hook"]] = min(row["comm_ms"], theirs.get(ours["hook"], row["comm_ms"]))
    peer = f"PyTorch {results['torch'][0]['version'].split('+')[0]}" if theirs else ""
    groups = [[(label(row["hook"]), row["ms"], True)] +
              ([(peer, theirs[row["hook"]], False)] if row["hook"] in theirs else [])
              for row in results["hooks"]]
    title = f"Communication of a step of {results['hooks'][0]['mb']} MB with each hook of tally" + (
        f", beside {peer} (Gloo)" if peer else "")
    output.write_text(bench_bars.picture(title, [(740, title, groups)],
                                         "Two processes on one machine; shorter is better." +
                                         (f" PyTorch has {len(theirs)} of these hooks on a CPU." if peer else "")))
    return title


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
    least, *_, most = sorted(part for _, values in groups for part in values.values())
    title = "Bytes sent by a rank, as a part of its gradients: lower is better"
    draw(HEAD.format(output=output, title=title, height=440, x="ranks", y="part of the gradients' bytes") +
         data("shares", points) + f"set logscale y\nset xtics 1\nset mytics 1\nset rmargin 20\n"
         f"set yrange [{least / 2}:{most * 2}]\n" +
         ends(ranks[-1], [(short(names), values[ranks[-1]]) for names, values in groups], 1.5) +
         "plot " + ", ".join(curve("shares", i) for i in range(len(groups))) + "\n",
         output, title, f"With {ranks[-1]} ranks: " + "; ".join(
             f"{', '.join(names)} {values[ranks[-1]]:.4f}" for names, values in groups) + ".",
         [short(names) for names, _ in groups])
    return title


def links(results, output):
    """Of the fastest limited link that was measured: the hooks over the first MPI, and each peer beside the hook
    that sends as many bytes. The table has the other setups."""
    rows = results["links"]
    mbit = max(row["mbit"] for row in rows)
    title, _, _, plain_ms, own = next(link for link in by_link(rows) if link[1] == mbit)
    alike_ours = {"fp32": "fp32", "fp16": "bf16", "powersgd": "powersgd:rank=1"}
    groups = {"fp32": [("tally, fp32", plain_ms, True)]}
    for row in own:
        groups[label(row["hook"])] = [(f"tally, {label(row['hook'])}", row["ms"], True)]
    for row in results.get("links_peers", []):
        if "connections" not in library(row["peer"], row):
            what = "fp32" if row["hook"] in ("none", "allreduce") else row["hook"]
            peer = library(row["peer"], row).split("+")[0]
            groups.setdefault(alike_ours[what], []).append((f"{peer}, {what}", row["ms"], False))
    heading = f"A step of {rows[0]['mb']} MB over {mbit} Mbit/s, tally over {title}"
    output.write_text(bench_bars.picture(
        heading, [(740, heading, list(groups.values()))],
        f"{rows[0]['hosts']} hosts with a rank on each, no backward; shorter is better."))
    return heading


def draw_all(results, folder):
    """Every picture that there are rows for: the name of its file, and its title."""
    jobs = {"allreduce_time.svg": ("allreduce", lambda path: allreduce_time(results["allreduce"], path)),
            "step_per_hook.svg": ("hooks", lambda path: step_per_hook(results, path)),
            "wire_bytes.svg": ("wire_bytes", lambda path: wire_bytes(results["wire_bytes"], path)),
            "links.svg": ("links", lambda path: links(results, path))}
    drawn = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, (part, job) in jobs.items():
        if results.get(part):
            drawn[name] = job(folder / name)
    return drawn

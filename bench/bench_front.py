#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the figures of README.md, and draws its picture, from the tables that `make bench` wrote into
docs/performance.md: bench_front.py [--check] ROOT. With --check it compares, and fails if README or picture
differ from these tables. Measures nothing."""

import pathlib
import re
import sys

PAGE, PICTURE = "docs/performance.md", "docs/plots/front.svg"
OURS, THEIRS = "#1b5e9e", "#b9c4cf"


class Missing(Exception):
    pass


def read_table(page, name):
    """The table of a bench as {column: cell} of each row, without backquotes."""
    block = re.search(rf"<!-- bench {name}: begin -->\n(.*?)<!-- bench {name}: end -->", page, re.DOTALL)
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")]
            for line in (block[1] if block else "").splitlines() if line.startswith("|")]
    if len(rows) < 3:
        raise Missing(f"{PAGE} has no table of the bench '{name}'")
    return [dict(zip(rows[0], row)) for row in rows[2:]]


def only(rows, **wanted):
    for row in rows:
        if all(row[key.replace("_", " ")] == value for key, value in wanted.items()):
            return row
    raise Missing(f"{PAGE} has no row with {wanted}")


def column(row, start):
    """(name, cell) of the column whose name starts so."""
    return next((name, cell) for name, cell in row.items() if name.startswith(start))


# ---- figures ----


def compare(page):
    """The table 'how it compares': what, tally, the others."""
    steps, sums = read_table(page, "torch"), read_table(page, "allreduce")
    links = read_table(page, "links")
    torch = re.search(r"PyTorch (\d[\d.]*)", page)[1]
    lines = []
    for hook, what in (("allreduce", "plain"), ("fp16", "`fp16`"), ("powersgd", "PowerSGD, rank 1")):
        row = only(steps, hook=hook)
        lines.append((f"communication of a step, 100 MB, {what}", f"{row['ours']} ms",
                      f"PyTorch {torch} DDP over Gloo: {row['its communication']} ms"))
    for size in ("4 KiB", "1 MiB", "64 MiB"):
        row = only(sums, bytes=size)
        (openmpi, first), (mpich, second) = column(row, "Open MPI"), column(row, "MPICH")
        lines.append((f"all-reduce of {size}", f"{row['us']} us",
                      f"{openmpi.removesuffix(', us')}: {first} us; {mpich.removesuffix(', us')}: {second} us"))
    ours = [row for row in links if row["Mbit/s"] == "1000" and row["library"].startswith("tally over Open")]
    theirs = [row for row in links if row["library"].startswith("PyTorch")]
    for what, peer in (("fp32", "fp32"), ("powersgd:rank=1,start=0", "powersgd")):
        lines.append((f"step of 100 MB over 1 Gbit/s, {peer}", f"{only(ours, what=what)['ms']} ms",
                      f"PyTorch {torch}: {only(theirs, what=peer)['ms']} ms"))
    last, remark = small_over_tcp(page)
    lines += last
    header = ("two ranks", "tally", "others")
    widths = [max(len(row[i]) for row in (header, *lines)) for i in range(3)]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
                     for row in (header, ["-" * width for width in widths], *lines)) + remark


def small_over_tcp(page):
    """The row in which MPI may win, and a remark if it does; nothing if it was not measured."""
    try:
        row = only(read_table(page, "mpi"), ranks_on="hosts, no limit", ranks="2", bytes="1 KiB")
    except Missing:
        return [], ""
    ours, theirs = row["group memory, us"], row["MPI_Allreduce, us"]
    remark = ("\n\ntally is slower in the last row: over TCP without a rate limit `MPI_Allreduce` wins for small arrays\n"
              "(`allreduce:engine=native` uses it).") if float(ours) > float(theirs) else ""
    return [("all-reduce of 1 KiB over TCP without a limit", f"{ours} us",
             f"`MPI_Allreduce` of {row['over']}: {theirs} us")], remark


def measured(page):
    said = re.search(r"`make bench`, ([^.]*)\. Machine of these tables: ([^.]*?), Debian", page)
    return f"By `make bench` on {said[1]}; {said[2]}. [docs/performance.md](docs/performance.md) has all figures."


def fill(readme, page):
    blocks = {"compare": compare(page), "measured": measured(page)}
    for name, text in blocks.items():
        pattern = rf"(<!-- figures {name}: begin -->\n).*?(<!-- figures {name}: end -->)"
        if not re.search(pattern, readme, re.DOTALL):
            raise Missing(f"README.md has no place for '{name}'")
        readme = re.sub(pattern, lambda match, text=text: match[1] + text + "\n" + match[2], readme,
                        flags=re.DOTALL)
    return readme


# ---- picture ----


def bars(x, y, width, title, groups):
    """A panel of horizontal bars: groups of (label, milliseconds, is ours)."""
    most = max(ms for group in groups for _, ms, _ in group)
    out = [f'<text x="{x}" y="{y}" class="head">{title}</text>']
    y += 14
    for group in groups:
        for label, ms, ours in group:
            length = max(2, (width - 190) * ms / most)
            out.append(f'<text x="{x + 130}" y="{y + 13}" class="{"own" if ours else "label"}" '
                       f'text-anchor="end">{label}</text>'
                       f'<rect x="{x + 138}" y="{y + 1}" width="{length:.1f}" height="16" '
                       f'fill="{OURS if ours else THEIRS}"/>'
                       f'<text x="{x + 143 + length:.1f}" y="{y + 13}" class="{"own" if ours else "label"}">'
                       f'{ms:.0f} ms</text>')
            y += 20
        y += 8
    return out


def picture(page):
    torch = re.search(r"PyTorch (\d[\d.]*)", page)[1]
    steps, sums = read_table(page, "torch"), only(read_table(page, "allreduce"), bytes="64 MiB")
    groups = []
    for hook, name in (("allreduce", "plain"), ("fp16", "fp16"), ("powersgd", "PowerSGD")):
        row = only(steps, hook=hook)
        groups.append([(f"tally, {name}", float(row["ours"]), True),
                       (f"PyTorch, {name}", float(row["its communication"]), False)])
    mpis = [(name.removesuffix(", us"), float(cell) / 1000, False)
            for name, cell in (column(sums, "Open MPI"), column(sums, "MPICH"))]
    lines = bars(10, 26, 450, f"Communication of a step, 100 MB, beside PyTorch {torch} (Gloo)", groups)
    lines += bars(470, 26, 380, "All-reduce of 64 MiB, beside MPI",
                  [[("tally", float(sums["us"]) / 1000, True), *mpis]])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 196" width="860" height="196" role="img" aria-labelledby="title desc">
<title id="title">Time of communication between two processes: tally, PyTorch and MPI</title>
<desc id="desc">{describe(groups, mpis, float(sums["us"]) / 1000)}</desc>
<style>text {{ font: 12px sans-serif; fill: #333 }} .head {{ font-weight: bold; fill: #111 }} .own {{ font-weight: bold; fill: {OURS} }}</style>
<rect width="860" height="196" fill="white"/>
""" + "\n".join(lines) + "\n</svg>\n"


def describe(groups, mpis, ours_ms):
    words = [f"{ours[0]}: {ours[1]:.0f} ms, {theirs[0]}: {theirs[1]:.0f} ms" for ours, theirs in groups]
    words.append(f"all-reduce of 64 MiB with tally: {ours_ms:.0f} ms, " +
                 ", ".join(f"{name}: {ms:.0f} ms" for name, ms, _ in mpis))
    return "Two processes of one machine. " + "; ".join(words) + "."


def write(root, check=False):
    """README and picture of a tree; with check only the names of those that differ."""
    root = pathlib.Path(root)
    page = (root / PAGE).read_text()
    differ = []
    for name, text in (("README.md", fill((root / "README.md").read_text(), page)),
                       (PICTURE, picture(page))):
        file = root / name
        if not file.exists() or file.read_text() != text:
            differ.append(name)
            if not check:
                file.write_text(text)
    return differ


def main():
    check = "--check" in sys.argv
    root = [word for word in sys.argv[1:] if word != "--check"][0]
    try:
        differ = write(root, check)
    except Missing as missing:
        sys.exit(f"bench_front: {missing}")
    if check and differ:
        sys.exit(f"bench_front: {', '.join(differ)} differ from {PAGE}: run bench/bench_front.py {root}")
    print("README and picture are as in the tables" if check or not differ else f"wrote {', '.join(differ)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the figures of README.md, and draws its picture, from the tables of docs/performance.md, which `make bench`
wrote, and of docs/hooks.md: bench_front.py [--check] ROOT. With --check it compares, and fails if README or picture
differ from these tables. Measures nothing."""

import pathlib
import re
import sys

import bench_bars

PAGE, PICTURE, HOOKS = "docs/performance.md", "docs/plots/front.svg", "docs/hooks.md"


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


def number(cell):
    """Microseconds of "21.26 us" or "5.43 ms"."""
    value, unit = cell.split()
    return float(value) * {"us": 1, "ms": 1000}[unit]


def shown_us(cell):
    """A time in microseconds, from a millisecond on in milliseconds."""
    return f"{float(cell) / 1000:.3g} ms" if float(cell) >= 1000 else f"{cell} us"


def compare(page):
    """The table 'how it compares', and the rows in which tally is slower."""
    lines = [*steps_beside_torch(page), *sums_beside_mpi(page), *steps_over_link(page), *small_over_tcp(page)]
    header = ("two ranks", "tally", "others")
    shown = [(what, ours, "; ".join(f"{name}: {cell}" for name, cell in others)) for what, ours, others in lines]
    widths = [max(len(row[i]) for row in (header, *shown)) for i in range(3)]
    table = "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
                      for row in (header, ["-" * width for width in widths], *shown))
    slower = [what for what, ours, others in lines
              if number(ours) > 1.05 * min(number(cell) for _, cell in others)]
    return table + (f"\n\ntally is more than 5 % slower in: {'; '.join(slower)}." if slower else
                    "\n\nIn no row is tally more than 5 % slower.")


def steps_beside_torch(page):
    for hook, what in (("allreduce", "fp32"), ("fp16", "`fp16`"), ("powersgd", "PowerSGD, rank 1")):
        row = only(read_table(page, "torch"), hook=hook)
        yield (f"communication of a step, 100 MB, {what}", f"{row['ours']} ms",
               [(f"PyTorch {torch_version(page)} DDP over Gloo", f"{row['its communication']} ms")])


def sums_beside_mpi(page):
    for size in ("1 KiB", "4 KiB", "1 MiB", "64 MiB"):
        row = only(read_table(page, "allreduce"), bytes=size)
        yield (f"all-reduce of {size}", shown_us(row["us"]),
               [(name.removesuffix(", us"), shown_us(cell))
                for name, cell in (column(row, "Open MPI"), column(row, "MPICH"))])


def steps_over_link(page):
    links = read_table(page, "links")
    ours = [row for row in links if row["Mbit/s"] == "1000" and row["library"].startswith("tally over Open")]
    theirs = [row for row in links if row["library"].startswith("PyTorch")]
    for what, peer, shown in (("fp32", "fp32", "fp32"), ("powersgd:rank=1,start=0", "powersgd", "PowerSGD, rank 1")):
        yield (f"step of 100 MB over 1 Gbit/s, {shown}", f"{only(ours, what=what)['ms']} ms",
               [(f"PyTorch {torch_version(page)} DDP over Gloo", f"{only(theirs, what=peer)['ms']} ms")])


def small_over_tcp(page):
    """The row in which MPI may win; nothing if it was not measured."""
    try:
        row = only(read_table(page, "mpi"), ranks_on="hosts, no limit", ranks="2", bytes="1 KiB")
    except Missing:
        return
    yield ("all-reduce of 1 KiB over TCP without a limit", f"{row['group memory, us']} us",
           [(f"`MPI_Allreduce` of {row['over']}", f"{row['MPI_Allreduce, us']} us")])


def torch_version(page):
    return re.search(r"PyTorch (\d[\d.]*)", page)[1]


def errors(readme, hooks):
    """The errors of one step in the README's table of hooks, from the table 'accuracy' of docs/hooks.md."""
    for hook, error in re.findall(r"^\| `(\w+)` \| (\d\.\de-\d\d) \|", hooks, re.MULTILINE):
        readme, n = re.subn(rf"^(\| `{hook}` \| [^|]* \| )[\d.]+e-\d+", rf"\g<1>{float(error):.0e}", readme,
                            flags=re.MULTILINE)
        if n != 1:
            raise Missing(f"README.md has no error of one step for the hook '{hook}'")
    return readme


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


def picture(page):
    steps, sums = read_table(page, "torch"), only(read_table(page, "allreduce"), bytes="64 MiB")
    groups = []
    for hook, name in (("allreduce", "fp32"), ("fp16", "fp16"), ("powersgd", "PowerSGD")):
        row = only(steps, hook=hook)
        groups.append([(f"tally, {name}", float(row["ours"]), True),
                       (f"PyTorch, {name}", float(row["its communication"]), False)])
    mpis = [(name.removesuffix(", us"), float(cell) / 1000, False)
            for name, cell in (column(sums, "Open MPI"), column(sums, "MPICH"))]
    return bench_bars.picture(
        "Time of communication between two processes: tally, PyTorch and MPI",
        [(450, f"Communication of a step, 100 MB, beside PyTorch {torch_version(page)} (Gloo)", groups),
         (380, "All-reduce of 64 MiB, beside MPI", [[("tally", float(sums["us"]) / 1000, True), *mpis]])],
        "Two processes on one machine; shorter is better. The two sides have different scales.")


def write(root, check=False):
    """README and picture of a tree; with check only the names of those that differ."""
    root = pathlib.Path(root)
    page = (root / PAGE).read_text()
    differ = []
    readme = errors((root / "README.md").read_text(), (root / HOOKS).read_text())
    for name, text in (("README.md", fill(readme, page)), (PICTURE, picture(page))):
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

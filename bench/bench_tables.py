# SPDX-License-Identifier: Apache-2.0
"""The rows of `make bench` as blocks of Markdown, and their places in the pages: what stands between
<!-- bench NAME: begin --> and <!-- bench NAME: end --> is replaced. Measures nothing."""

import re

import bench_auto
import bench_goals
from bench_parts import TORCH_HOOKS

LINKS_GBIT = (100, 25, 10, 1)
# A difference between two medians that is below this part of them is taken for none.
NOISE = 0.05


def number(value, digits=2):
    """Three digits or so; a dash for what was not measured."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.0f}"


def table(header, rows):
    """Aligned, so that it reads well on a terminal too."""
    lines = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
                     for line in lines)


def goals_text(verdicts):
    """All goals with their figures, and how many were met."""
    rows = [(v.part, v.what, number(v.value), f"{v.sense} {v.goal:g}", "met" if v.met else "missed")
            for v in verdicts]
    return (table(("part", "what", "here", "goal", "verdict"), rows) +
            f"\n\n{sum(v.met for v in verdicts)} of {len(verdicts)} goals met.")


def ratio(over, under):
    return None if not over or not under else over / under


# ---- one function per block: its rows to its table ----


def machine(results):
    run = results["run"][0]
    isa = f", {results['kernels'][0]['isa']} kernels" if results.get("kernels") else ""
    return f"Machine of these tables: {run['machine']}. tally {run['tally']}{isa}, {run['compiler']}."


def kernels(results):
    return table(("kernel", "isa", "us", "GB/s", "times memcpy", "goal"),
                 [(f"`{row['kernel']}`", row["isa"], f"{row['us']:.1f}", f"{row['gbps']:.1f}",
                   number(row["memcpy_ratio"]), number(row["goal"])) for row in results["kernels"]])


def lowrank(results):
    def row_of(row):
        plain = (("correct_ms", "update_ms"), ("transposed_ms", "read_ms"),
                 ("expand_ms", "write_ms"), ("step_ms", "streams_ms"))
        blas = ("multiply_ms", "transposed_ms", "expand_ms", "step_ms")
        return (f"{row['rows']} x {row['columns']}", row["rank"],
                *(number(row[ours] / row[base]) for ours, base in plain),
                *(number(ratio(row["blas_" + key], row[key])) for key in blas))

    return table(("matrix", "rank", "correct", "transposed", "expand", "step", "BLAS: M Q",
                  "BLAS: M' P", "BLAS: P Q'", "BLAS: step"), map(row_of, results["lowrank"]))


def collective_rows(rows):
    for row in rows:
        yield (bench_goals.size_text(row["bytes"]), number(row["us"]), number(row["us_p99"]),
               number(row["us"] / row["copy_us"]), number(row["submit_us"]),
               number(row["openmpi_us"]), number(ratio(row["openmpi_us"], row["us"])),
               number(row["mpich_us"]), number(ratio(row["mpich_us"], row["us"])))


def collective_table(rows):
    def named(name, key):
        version = next((row[key] for row in rows if row[key]), "not measured")
        return f"{name} {version}, us"

    return table(("bytes", "us", "p99", "us / copy", "submit us",
                  named("Open MPI", "openmpi_version"), "times faster",
                  named("MPICH", "mpich_version"), "times faster"), collective_rows(rows))


def allreduce(results):
    return collective_table(results["allreduce"])


def allreduce_heap(results):
    return collective_table(results["allreduce_heap"])


def many_ranks(results):
    return table(("ranks", "us", "us of 2 ranks on ranks/2 times the bytes", "ratio"),
                 [(row["ranks"], number(row["us"]), number(row["two_rank_us"]),
                   number(row["two_rank_ratio"])) for row in results["many_ranks"]])


def allreduce_loaded(results):
    ms = {(row["memory"], row["hogs"]): row["us"] / 1000 for row in results["allreduce_loaded"]}
    names = {"group": "group memory", "heap": "ordinary memory"}
    rows = [(name, number(ms[memory, 0]), number(ms[memory, 2])) for memory, name in names.items()]
    rows.append(("ratio", *(number(ms["heap", hogs] / ms["group", hogs]) for hogs in (0, 2))))
    return table(("ms", "alone", "beside two busy programs"), rows)


def step(results):
    row = results["step"][0]
    lines = (("backward alone", row["backward_alone_ms"]),
             ("backward, then communication", row["serial_ms"]),
             ("communication during backward", row["step_ms"]),
             ("of that, in wait", row["exposed_ms"]),
             ("step without a backward", row["at_once_ms"]),
             ("all-reduce of the same bytes", row["allreduce_ms"]))
    text = table(("what", "ms"), [(what, number(ms)) for what, ms in lines])
    text += (f"\n\nOverlap: {number(row['overlap'])} (1: all communication hidden). A step without a "
             f"backward takes {number(row['step_over_allreduce'])} all-reduces; the goal is 1.05.")
    if row["cpus"] <= row["ranks"]:
        text += (f"\n{row['cpus']} CPUs for {row['ranks']} ranks: none is spare, so over shared memory "
                 "there is nothing to gain by overlap.")
    return text


def updates(results):
    row = results["updates"][0]
    lines = (("step without an optimizer", row["step_ms"], None),
             ("step, then the optimizer on call", row["on_call_ms"], row["exposed_on_call_ms"]),
             ("step with the optimizer behind the hook", row["behind_hook_ms"],
              row["exposed_behind_hook_ms"]))
    text = table(("what", "ms", "the optimizer adds, ms"),
                 [(what, number(ms), number(added)) for what, ms, added in lines])
    return text + (f"\n\nBehind the hook the optimizer adds {number(row['exposed_ratio'])} of what it "
                   f"adds on call; wait saw {number(row['behind_hook_in_wait_ms'])} ms of it. An update "
                   f"alone takes {number(row['update_ms'])} ms, {number(row['update_over_traffic'])} "
                   "memcpys of the bytes it must move; the goal is 1.3.")


def trace(results):
    row = results["trace"][0]
    lines = (("no events (`TALLY_EVENTS=0`)", row["off_ms"], None), ("events in memory", row["ring_ms"], row["ring_ratio"]),
             ("a trace is written (`TALLY_TRACE`)", row["writing_ms"], row["writing_ratio"]))
    return table(("what", "step, ms", "of the step without"),
                 [(what, number(ms), "-" if of is None else f"{of:.3f}") for what, ms, of in lines])


def checkpoint(results):
    return table(("ranks", "plain writes, ms", "save, of their speed", "load, of their speed",
                  "asynchronous call, in copies", "steps during its write", "steps during plain writes"),
                 [(f"{row['ranks']}{', sharded' if row['shard'] else ''}", number(row["plain_ms"]),
                   number(row["save_over_plain"]), number(row["load_over_plain"]), number(row["take_over_copy"]),
                   f"{100 * row['during_growth']:+.0f} %", f"{100 * row['beside_growth']:+.0f} %")
                  for row in results["checkpoint"]])


def copies(results):
    return table(("gradients", "ms", "plain all-reduce, ms", "ratio"),
                 [(f"{row['params']} of {row['mb'] * 1000 / row['params']:g} KB",
                   number(row["at_once_ms"]), number(row["allreduce_ms"]),
                   number(row["step_over_allreduce"])) for row in results["copies"]])


def hooks(results):
    return table(("hook", "ms", "plain ms", "ratio", "goal", "bytes sent by a rank"),
                 [(f"`{row['hook']}`", number(row["ms"]), number(row["plain_ms"]),
                   number(row["plain_ratio"]), number(row["goal"], 1), row["wire_bytes"])
                  for row in results["hooks"]])


def torch(results):
    pairs = bench_goals.torch_pairs(results, TORCH_HOOKS)
    if not pairs:
        return "PyTorch was not there to be measured."
    return (f"PyTorch {pairs[0][0]['version']} by `bench/peer_ddp.py --mb {pairs[0][0]['mb']} --steps "
            f"{pairs[0][0]['steps']} --hook HOOK`, in turn with ours; in ms:\n\n" +
            table(("hook", "PyTorch step", "its noop step", "its communication", "ours",
                   "times less", "goal"),
                  [(f"`{theirs['hook']}`", number(theirs["step_ms"]), number(theirs["noop_ms"]),
                    number(theirs["comm_ms"]), number(ours["ms"]),
                    number(theirs["comm_ms"] / ours["ms"]), bench_goals.TORCH_GOALS[theirs["hook"]])
                   for theirs, ours in pairs]))


def pytorch(results):
    rows = results["pytorch"]
    return (f"PyTorch {rows[0]['version']} by `bench/torch_steps.py --mb {rows[0]['mb']} --steps "
            f"{rows[0]['steps']}`, steps in turn:"
            "\n\n" + table(("hook", "parameters", "busy programs", "DDP over Gloo, ms", "this hook, ms",
                            "ratio"),
                           [(f"`{row['hook']}`", row["params"], row["hogs"], number(row["plain_ms"]),
                             number(row["step_ms"]), number(row["ratio"])) for row in rows]))


def wire_bytes(results):
    rows = results["wire_bytes"]
    ranks = sorted({row["ranks"] for row in rows})
    by_hook = {}
    for row in rows:
        by_hook.setdefault(row["hook"], {})[row["ranks"]] = row["wire_bytes"] / (row["mb"] * 1e6)
    return table(("hook", *(f"{n} ranks" for n in ranks)),
                 [(f"`{hook}`", *(f"{part[n]:.4f}" for n in ranks)) for hook, part in by_hook.items()])


def break_even_gbit(row, plain_bytes):
    """The link below which a hook's step is shorter than the plain one: saved bits by extra time. None
    where it takes no time that could be told from noise."""
    extra_ms = row["ms"] - row["plain_ms"]
    if extra_ms <= NOISE * row["plain_ms"]:
        return None
    return (plain_bytes - row["wire_bytes"]) * 8 / (extra_ms * 1e6)


def break_even(results):
    rows = results["hooks"]
    plain_bytes = next(row["wire_bytes"] for row in rows if row["hook"] == "allreduce")

    def row_of(row):
        even = break_even_gbit(row, plain_bytes)
        even_text = "-" if row["hook"] == "allreduce" else "any" if even is None else f"{even:.0f}"
        on_links = (row["ms"] + row["wire_bytes"] * 8 / (gbit * 1e6) for gbit in LINKS_GBIT)
        return (f"`{row['hook']}`", f"{row['wire_bytes'] / 1e6:.1f}",
                number(max(0, row["ms"] - row["plain_ms"]), 1), even_text,
                *(number(ms, 1) for ms in on_links))

    return table(("hook", "MB sent", "extra ms", "pays below, Gbit/s",
                  *(f"ms at {gbit} Gbit/s" for gbit in LINKS_GBIT)), map(row_of, rows))


def links(results):
    """tally's rows, then the peers', each beside its own fp32."""
    rows = []
    for title, mbit, line_ms, plain_ms, own in bench_goals.by_link(results["links"]):
        goal = bench_goals.LINE_GOALS.get(mbit)
        rows.append((mbit, f"tally over {title}", "fp32", number(plain_ms), number(line_ms / plain_ms),
                     "-", f"{goal} of the line" if goal else "-"))
        for row in own:
            goal = bench_goals.LINK_GOALS.get(row["hook"], {}).get(mbit)
            rows.append((mbit, f"tally over {title}", f"`{row['hook']}`", number(row["ms"]), "-",
                         number(row["plain_ms"] / row["ms"]), f"{goal} times" if goal else "-"))
    return (link_command(results) + table(("Mbit/s", "library", "what", "ms", "of the line",
                                           "times faster than its fp32", "goal"),
                                          [*rows, *peer_rows(results.get("links_peers", []))]))


def link_command(results):
    row = results["links"][0]
    return (f"By `bench/link.sh --mpi MPI --mbit RATE --mb {row['mb']} --hook HOOK`, with "
            f"`OMPI_MCA_btl_tcp_links=2` for two connections; {row['hosts']} hosts, a rank on each:\n\n")


def peer_rows(peers):
    plain_ms = {row["peer"]: row["ms"] for row in peers if row["hook"] in ("none", "allreduce")}
    for row in peers:
        is_plain = row["hook"] in ("none", "allreduce")
        what = "fp32" if is_plain else f"`{row['hook']}`"
        call = ", DDP over Gloo" if row["peer"] == "torch" else ", `MPI_Allreduce`"
        yield (row["mbit"], bench_goals.library(row["peer"], row) + call, what, number(row["ms"]),
               number(row["line_ms"] / row["ms"]) if is_plain else "-",
               "-" if is_plain else number(ratio(plain_ms.get(row["peer"]), row["ms"])), "-")


def links_overlap(results):
    return "By `bench/link.sh`, with buckets of 4 MB; the goal is 0.75:\n\n" + table(
        ("Mbit/s", "over", "backward, ms", "one after the other", "during backward", "in wait", "overlap"),
        [(row["mbit"], bench_goals.library(row["mpi"], row), number(row["backward_alone_ms"]),
          number(row["serial_ms"]), number(row["step_ms"]), number(row["exposed_ms"]),
          number(row["overlap"])) for row in results["links_overlap"]])


SETTING_TITLES = {"shm": "`tally run`", "one": "one machine", "apart": "one machine, `TALLY_SHARE=0`",
                  "hosts": "hosts, no limit"}


def mpi(results):
    """One line for both memories of a size."""
    pairs = {}
    for row in results["mpi"]:
        key = (row["setting"], row["mpi"], row["ranks"], row["bytes"])
        pairs.setdefault(key, {})[row["memory"]] = row

    def row_of(key, rows):
        setting, library, ranks, n_bytes = key
        group, heap = rows["group"], rows["heap"]
        return (SETTING_TITLES[setting], bench_goals.LIBRARIES.get(library, "-"), ranks,
                bench_goals.size_text(n_bytes), number(group["us"]), number(heap["us"]),
                number(group["mpi_us"]), number(group["speed"]), number(heap["speed"]),
                number(ratio(group["us"], group["shm_us"])), number(group["messages"], 0),
                number(ratio(group["cpu_ns_per_byte"], group["mpi_cpu_ns_per_byte"])))

    return ("By `bench/mpi.py`; times from the call to its return:\n\n" +
            table(("ranks on", "over", "ranks", "bytes", "group memory, us", "ordinary memory, us",
                   "`MPI_Allreduce`, us", "group: times faster", "ordinary: times faster",
                   "times `tally run`", "messages", "CPU time, of MPI's"),
                  [row_of(key, rows) for key, rows in pairs.items()]))


def mpi_line(results):
    def row_of(row):
        of_line = None if row["fp32_ms"] else row["line_ms"] / row["ms"]
        return (row["mbit"], bench_goals.library(row["mpi"], row), f"`{row['what']}`", number(row["ms"]),
                number(of_line), number(ratio(row["fp32_ms"], row["ms"])))

    return (f"By `bench/mpi.py`, with {results['mpi_line'][0]['mb']} MB and two hosts:\n\n" +
            table(("Mbit/s", "over", "what", "ms", "of the line", "times faster than fp32"),
                  map(row_of, results["mpi_line"])))


def auto(results):
    total = bench_auto.total(results["auto"])
    return ("By `bench/auto_grid.py`, two hosts over MPICH; medians; regret against the best candidate within the error "
            "budget:\n\n" + table(bench_auto.HEADER, map(bench_auto.cells_of, results["auto"])) +
            f"\n\nMedian regret {total['median_regret']:.1f} %; {total['slower_than_allreduce']} of {total['cells']} cells "
            f"slower than `allreduce` by more than 2 %, by the confidence interval; measuring {total['median_spent']:.1f} % of "
            "1000 steps of the best hook, in the median.")


# The parts that a block needs, and its picture.
BLOCKS = {"machine": (machine, "run", None), "kernels": (kernels, "kernels", None),
          "lowrank": (lowrank, "lowrank", None),
          "allreduce": (allreduce, "allreduce", "allreduce_time.svg"),
          "allreduce_heap": (allreduce_heap, "allreduce_heap", None),
          "allreduce_loaded": (allreduce_loaded, "allreduce_loaded", None),
          "many_ranks": (many_ranks, "many_ranks", None), "step": (step, "step", None),
          "updates": (updates, "updates", None), "trace": (trace, "trace", None),
          "checkpoint": (checkpoint, "checkpoint", None),
          "copies": (copies, "copies", None), "hooks": (hooks, "hooks", None),
          "torch": (torch, "hooks", "step_per_hook.svg"),
          "pytorch": (pytorch, "pytorch", None),
          "wire_bytes": (wire_bytes, "wire_bytes", "wire_bytes.svg"),
          "break_even": (break_even, "hooks", None),
          "links": (links, "links", "links.svg"),
          "links_overlap": (links_overlap, "links_overlap", None),
          "mpi": (mpi, "mpi", None), "mpi_line": (mpi_line, "mpi_line", None),
          "auto": (auto, "auto", None)}


def missed_text(name, verdicts):
    """The missed goals of a block; empty for a block without goals."""
    own = [verdict for verdict in verdicts if verdict.part == name]
    missed = [f"{v.what}: {number(v.value)} ({v.sense} {v.goal:g})" for v in own if not v.met]
    if not own:
        return ""
    return "\n\n" + (f"Goals missed: {'; '.join(missed)}." if missed else "All goals met.")


def source_text(part, results):
    """Command and date, the first thing in a block."""
    run = results["run"][0]
    command = run["commands"].get(part)
    if not command:
        return f"`make bench`, {run['date']}. "
    varied = {"hooks": " --hook HOOK", "wire_bytes": " --hook HOOK", "copies": " --params N",
              "checkpoint": " --ranks N"}
    return f"`build/tally bench {command}{varied.get(part, '')}`, {run['date']}:\n\n"


def block(name, results, verdicts):
    """None where its part was not measured."""
    render, part, _ = BLOCKS[name]
    if not results.get(part):
        return None
    return source_text(part, results) + render(results) + missed_text(name, verdicts)


def fill(text, blocks, pictures):
    """A page with every block in its place, and the names of those it has a place for. Pictures: file and title."""
    found = []

    def replace(match):
        name = match.group(2)
        if name not in BLOCKS:
            raise ValueError(f"no block is called {name}")
        found.append(name)
        if blocks.get(name) is None:
            return match.group(0)
        picture = BLOCKS[name][2]
        shown = ""
        if picture in pictures:
            shown = f"\n\n![{pictures[picture]}](plots/{picture})"
        return f"{match.group(1)}\n{blocks[name]}{shown}\n{match.group(3)}"

    pattern = r"(<!-- bench (\w+): begin -->)\n.*?(<!-- bench \2: end -->)"
    return re.sub(pattern, replace, text, flags=re.DOTALL), found

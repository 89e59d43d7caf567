# SPDX-License-Identifier: Apache-2.0
"""The goals of the figures of `make bench` that no tally command knows itself; the others come
with the rows. A missed goal is reported, and fails nothing.
"""

import collections
import statistics

KI, MI = 1024, 1024 * 1024

# Of PyTorch's hooks: how many times less communication is asked.
TORCH_GOALS = {"none": 10, "allreduce": 10, "fp16": 20, "powersgd": 4}

# Of tally's hooks in PyTorch's DDP: the most that a step may take, in steps of DDP over Gloo; the
# second one beside busy programs.
PYTORCH_GOALS = {"allreduce": (0.35, 0.5), "fp16": (0.35, 0.5), "bf16": (0.35, 0.5), "int8": (0.45, 0.5),
                 "quantize_per_tensor": (0.45, 0.5), "powersgd:start=0": (0.6, 0.5)}

# Of hooks over a link: how many times faster than fp32, by the link's Mbit/s.
LINK_GOALS = {"bf16": {1000: 1.9}, "int8": {1000: 3.6},
              "powersgd:rank=1,start=0": {1000: 12, 100: 80}}
# Of fp32: the part of the line, by its Mbit/s.
LINE_GOALS = {1000: 0.9}
LIBRARIES = {"openmpi": "Open MPI", "mpich": "MPICH", "torch": "PyTorch"}

# A goal whose value could not be measured (None) is not met.
Verdict = collections.namedtuple("Verdict", "part what value sense goal met")


def at_most(part, what, value, goal):
    return Verdict(part, what, value, "at most", goal, value is not None and value <= goal)


def at_least(part, what, value, goal):
    return Verdict(part, what, value, "at least", goal, value is not None and value >= goal)


def size_text(n_bytes):
    for unit, text in ((MI, "MiB"), (KI, "KiB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:g} {text}"
    return f"{n_bytes} B"


def better_mpi_us(row):
    """None where no MPI was measured."""
    times = [row[key] for key in ("openmpi_us", "mpich_us") if row.get(key)]
    return min(times) if times else None


def judge_kernels(rows):
    for row in rows:
        yield at_most("kernels", f"{row['kernel']}, in memcpys", row["memcpy_ratio"], row["goal"])


def judge_lowrank(rows):
    step_goals = {1: 1.3, 2: 1.6}
    for row in rows:
        shape = f"{row['rows']} x {row['columns']}, rank {row['rank']}, in plain passes"
        if row["rank"] <= 4:
            yield at_most("lowrank", f"correct of {shape}", row["correct_ms"] / row["update_ms"], 1.5)
        if row["rank"] in step_goals:
            yield at_most("lowrank", f"step of {shape}", row["step_ms"] / row["streams_ms"],
                          step_goals[row["rank"]])


def judge_allreduce(rows):
    for row in rows:
        size, n_bytes = size_text(row["bytes"]), row["bytes"]
        mpi_us = better_mpi_us(row)
        if n_bytes == KI:
            yield at_most("allreduce", f"us of {size}", row["us"], 1)
        if n_bytes >= 64 * KI:
            yield at_most("allreduce", f"{size}, in copies", row["us"] / row["copy_us"],
                          0.6 if n_bytes >= 4 * MI else 2)
        if mpi_us:
            yield at_least("allreduce", f"{size}, times faster than the better MPI",
                           mpi_us / row["us"], 3 if n_bytes >= 4 * KI else 1.5)


def judge_allreduce_heap(rows):
    for row in rows:
        mpi_us = better_mpi_us(row)
        if mpi_us:
            yield at_least("allreduce_heap",
                           f"{size_text(row['bytes'])}, times faster than the better MPI",
                           mpi_us / row["us"], 1.5)


def judge_allreduce_loaded(rows):
    us = {(row["memory"], row["hogs"]): row["us"] for row in rows}
    if us:
        yield at_most("allreduce_loaded", "ordinary memory beside two busy programs, in times of group memory",
                      us["heap", 2] / us["group", 2], 3)


def judge_many_ranks(rows):
    for row in rows:
        yield at_most("many_ranks", f"{row['ranks']} ranks, in all-reduces of two ranks",
                      row["two_rank_ratio"], 1.3)


def judge_step(rows):
    for row in rows:
        yield at_most("step", "step without a backward, in all-reduces",
                      row["step_over_allreduce"], 1.05)


def judge_updates(rows):
    for row in rows:
        yield at_most("updates", f"{row['optimizer']}, in memcpys of the bytes it must move",
                      row["update_over_traffic"], 1.3)


def judge_trace(rows):
    for row in rows:
        yield at_most("trace", "a step with events in memory, in steps without", row["ring_ratio"], 1.005)
        yield at_most("trace", "a step with a trace, in steps without", row["writing_ratio"], 1.02)


def judge_checkpoint(rows):
    for row in rows:
        what = f"{row['ranks']} rank{'' if row['ranks'] == 1 else 's'}{', sharded' if row['shard'] else ''}"
        yield at_least("checkpoint", f"{what}: save, of plain writes", row["save_over_plain"], 0.8)
        yield at_least("checkpoint", f"{what}: load, of plain writes", row["load_over_plain"], 0.8)
        yield at_most("checkpoint", f"{what}: an asynchronous call, in copies", row["take_over_copy"], 1.5)
        if row["cpus"] > row["ranks"]:
            yield at_most("checkpoint", f"{what}: steps during the write grow by, in %",
                          100 * row["during_growth"], 5)


def judge_hooks(rows):
    for row in rows:
        if row["goal"] is not None:
            yield at_most("hooks", f"{row['hook']}, in plain steps", row["plain_ratio"], row["goal"])


def judge_torch(pairs):
    """Pairs of PyTorch's row and ours."""
    for theirs, ours in pairs:
        yield at_least("torch", f"{theirs['hook']}, times less communication",
                       theirs["comm_ms"] / ours["ms"], TORCH_GOALS[theirs["hook"]])


def torch_pairs(results, pairing):
    """PyTorch's rows with ours; pairing names, for each of its hooks, our own."""
    ours = {row["hook"]: row for row in results.get("hooks", [])}
    return [(row, ours[pairing[row["hook"]]]) for row in results.get("torch", [])]


def library(name, row):
    """A library, its version, and how it is tuned."""
    version = f" {row['version']}" if row["version"] else ""
    tuned = f", {row['tcp_links']} connections" if (row["tcp_links"] or 1) > 1 else ""
    return LIBRARIES[name] + version + tuned


def by_link(rows):
    """Rows of tally's hooks by setup and speed: the title, the speed, the line's time for fp32, that of
    fp32, and the rows."""
    groups = {}
    for row in rows:
        groups.setdefault((library(row["mpi"], row), row["mbit"]), []).append(row)
    return [(title, mbit, own[0]["line_ms"], statistics.median(row["plain_ms"] for row in own), own)
            for (title, mbit), own in groups.items()]


def judge_links(rows):
    for title, mbit, line_ms, plain_ms, own in by_link(rows):
        where = f"over {title} at {mbit} Mbit/s"
        if mbit in LINE_GOALS:
            yield at_least("links", f"fp32 {where}, part of the line", line_ms / plain_ms,
                           LINE_GOALS[mbit])
        for row in own:
            goal = LINK_GOALS.get(row["hook"], {}).get(mbit)
            if goal:
                yield at_least("links", f"{row['hook']} {where}, times faster than fp32",
                               row["plain_ms"] / row["ms"], goal)


def judge_links_overlap(rows):
    """A host with a CPU for each rank: TCP takes a part of it."""
    for row in rows:
        yield at_least("links_overlap", f"overlap over {library(row['mpi'], row)} at {row['mbit']} Mbit/s",
                       row["overlap"], 0.75)


def judge_pytorch(rows):
    for row in rows:
        if row["hook"] in PYTORCH_GOALS:
            beside = f" beside {row['hogs']} busy programs" if row["hogs"] else ""
            yield at_most("pytorch", f"{row['hook']}, {row['params']} parameters{beside}, in steps of DDP",
                          row["ratio"], PYTORCH_GOALS[row["hook"]][row["hogs"] > 0])


def judge_mpi(rows):
    """Ranks of one machine are judged where two of them have a CPU each."""
    better_us = {}
    for row in rows:
        where = f"{size_text(row['bytes'])}, {row['ranks']} ranks"
        name = f"{LIBRARIES.get(row['mpi'], 'tally run')}, {row['setting']}, {row['memory']} memory, {where}"
        pair = row["ranks"] == 2 and row["cpus"] >= 2
        if row["setting"] == "one" and pair:
            better_us[row["bytes"]] = min(row["mpi_us"], better_us.get(row["bytes"], row["mpi_us"]))
            yield from judge_sharing(name, row)
        elif row["setting"] in ("apart", "hosts") and row["memory"] == "group":
            goal = apart_goal(row["bytes"]) if row["setting"] == "apart" else 0.9
            yield at_least("mpi", f"{name}, MPI's speed", row["speed"], goal)
        if row["setting"] == "hosts" and row["memory"] == "group" and row["bytes"] >= MI:
            yield at_most("mpi", f"{name}, MPI's CPU time",
                          row["cpu_ns_per_byte"] / row["mpi_cpu_ns_per_byte"], 1.2)
    for row in rows:
        if row["setting"] == "shm" and row["memory"] == "group" and row["ranks"] == 2 and \
                row["bytes"] in better_us:
            yield from judge_shm(row, better_us[row["bytes"]])


def judge_sharing(name, row):
    """mpirun on one machine: as fast as `tally run`, and faster than MPI."""
    if row["shm_us"]:
        yield at_most("mpi", f"{name}, times of tally run", row["us"] / row["shm_us"], 1.15)
    if row["memory"] == "group":
        yield at_least("mpi", f"{name}, times faster than MPI", row["speed"],
                       3 if row["bytes"] >= 16 * KI else 1)
    elif row["bytes"] >= 64 * KI:
        yield at_least("mpi", f"{name}, times faster than MPI", row["speed"], 1.5)


def apart_goal(n_bytes):
    if n_bytes <= 16 * KI or n_bytes >= 64 * MI:
        return 1.0
    return 0.8 if 256 * KI <= n_bytes <= 16 * MI else 0.9


def judge_shm(row, mpi_us):
    where = f"tally run, {size_text(row['bytes'])}, 2 ranks"
    if row["bytes"] == KI:
        yield at_most("mpi", f"{where}, us", row["us"], 2)
    yield at_most("mpi", f"{where}, times of the better MPI", row["us"] / mpi_us,
                  1.2 if row["bytes"] <= 4 * KI else 1)


MPI_LINE_GOALS = {"bf16": 1.95, "int8": 3.6}


def judge_mpi_line(rows):
    for row in rows:
        where = f"over {library(row['mpi'], row)} at {row['mbit']} Mbit/s"
        if row["what"] == "fp32":
            yield at_least("mpi_line", f"fp32 {where}, part of the line", row["line_ms"] / row["ms"], 0.93)
        elif row["what"] in MPI_LINE_GOALS:
            yield at_least("mpi_line", f"{row['what']} {where}, times faster than fp32",
                           row["fp32_ms"] / row["ms"], MPI_LINE_GOALS[row["what"]])


JUDGES = {"kernels": judge_kernels, "lowrank": judge_lowrank, "allreduce": judge_allreduce,
          "allreduce_heap": judge_allreduce_heap, "allreduce_loaded": judge_allreduce_loaded,
          "many_ranks": judge_many_ranks,
          "step": judge_step, "updates": judge_updates, "trace": judge_trace, "checkpoint": judge_checkpoint,
          "hooks": judge_hooks,
          "pytorch": judge_pytorch, "links": judge_links, "links_overlap": judge_links_overlap,
          "mpi": judge_mpi, "mpi_line": judge_mpi_line}


def judge(results, pairing):
    """Verdicts over all rows there are, in the order of the parts."""
    verdicts = [verdict for part, judge_part in JUDGES.items()
                for verdict in judge_part(results.get(part, []))]
    return verdicts + list(judge_torch(torch_pairs(results, pairing)))

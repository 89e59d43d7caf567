# SPDX-License-Identifier: Apache-2.0
"""Makes every mistake of docs/troubleshooting.md and compares the error texts with the page.

usage: check_clumsy.py ROOT BUILD PROGRAM STATIC_PROGRAM [--update] [--only NAME]

Only --update writes the tables of the page, between two markers: the output of a rank becomes a row, with
numbers masked that differ from run to run. A row without a mistake, a mistake without a row, and another
text, status or time are failures.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

BEGIN, END = "<!-- mistakes: begin -->", "<!-- mistakes: end -->"
SECONDS = 120      # after which a run counts as a hang
TIMEOUT = 3        # of the groups, where a row is about lateness
AT_ONCE = "at once"
DEADLINE = "after `timeout_s`"
OPEN_DEADLINE = "after `open_timeout_s`"


class Mistake:
    """launch: the launcher of the ranks; env: variables; says: the start of the launcher's lines that count."""

    def __init__(self, name, text, mode=None, launch="run", env=None, after=AT_ONCE, says=None,
                 program="clumsy", limit=""):
        self.name, self.text, self.mode = name, text, mode or name
        self.launch, self.env, self.after, self.says = launch, env or {}, after, says
        self.program, self.limit = program, limit


SECTIONS = [
    ("Starting", [
        Mistake("mpi-under-run", "`TALLY_BACKEND=mpi`, but ranks are started by `tally run`", "only-open",
                env={"TALLY_BACKEND": "mpi"}),
        Mistake("self-under-run", "`TALLY_BACKEND=self`, but a launcher has started two ranks", "only-open",
                env={"TALLY_BACKEND": "self"}),
        Mistake("shm-under-mpirun", "`TALLY_BACKEND=shm`, but ranks are started by `mpirun`", "only-open",
                launch="mpirun", env={"TALLY_BACKEND": "shm"}),
        Mistake("static-under-mpirun", "A program linked with `-static`, started by `mpirun`", "only-open",
                launch="mpirun", program="static"),
        Mistake("rank-missing", "One of two ranks is never started", "only-open", launch="alone",
                env={"TALLY_RANK": "0", "TALLY_WORLD": "2", "TALLY_OPEN_TIMEOUT": str(TIMEOUT)},
                after=OPEN_DEADLINE),
        Mistake("no-world-size", "`RANK=1` is set, but `WORLD_SIZE` is not", "only-open", launch="alone",
                env={"RANK": "1"}),
        Mistake("second-rank-0", "Two processes are rank 0", "only-open", launch="twice",
                env={"TALLY_RANK": "0", "TALLY_WORLD": "2", "TALLY_OPEN_TIMEOUT": str(TIMEOUT)},
                after=OPEN_DEADLINE),
        Mistake("mistyped-variable", "A word where `TALLY_LANES` takes a number", "only-open", env={"TALLY_LANES": "many"}),
        Mistake("little-address-space", "`ulimit -v` leaves less than group memory needs", "only-open",
                limit="ulimit -v 100000; "),
    ]),
    ("Describing the model", [
        Mistake("hook-text", "A mistyped option in the text of a hook"),
        Mistake("one-array-twice", "One array as two parameters"),
        Mistake("same-name", "One name for two parameters"),
        Mistake("size-forgotten", "`size` is not set in an entry of `tally_param`"),
        Mistake("fewer-parameters", "Fewer parameters on one rank"),
        Mistake("other-shape", "Another shape on one rank"),
        Mistake("other-cap", "Another `bucket_cap_bytes` on one rank"),
        Mistake("other-hook", "Another hook on one rank"),
    ]),
    ("Steps", [
        Mistake("uneven-steps", "Ranks take different numbers of steps"),
        Mistake("forgotten-wait", "`tally_ddp_wait` is forgotten"),
        Mistake("forgotten-gradient", "A gradient is not announced"),
        Mistake("wrong-number", "A parameter's number out of range"),
        Mistake("wait-alone", "`tally_ddp_wait` without a backward"),
        Mistake("not-a-number", "A gradient of one rank is NaN, with hook `int8`"),
        Mistake("scalar-of-one", "Only one rank calls `tally_ddp_mean_scalar`"),
        Mistake("hook-on-one", "Only one rank calls `tally_ddp_set_hook`"),
        Mistake("changed-hook", "Ranks set different hooks"),
        Mistake("no-averager", "Hook `postlocal` without an averager"),
        Mistake("close-before-free", "The group is closed before its ddp is freed"),
    ]),
    ("Ranks that leave", [
        Mistake("early-return", "A rank returns from `main` early, with status 0", says=""),
        Mistake("killed", "A rank is killed", says=""),
        Mistake("late", "A rank is late", env={"TALLY_TIMEOUT": str(TIMEOUT)}, after=DEADLINE),
        Mistake("late-mpi", "A rank is late, under `mpirun`", "late", launch="mpirun",
                env={"TALLY_TIMEOUT": str(TIMEOUT)}, after=DEADLINE),
        Mistake("alone-in-trouble", "A rank gives up alone: it frees its ddp and closes its group"),
        Mistake("forked-child", "A forked child uses its parent's ddp"),
        Mistake("forked-child-mpi", "A forked child uses its parent's ddp, under `mpirun`", "forked-child",
                launch="mpirun"),
        Mistake("terminated", "`tally run` gets SIGTERM in the middle of a run", "endless", launch="terminated",
                says="signal"),
    ]),
    ("Checkpoints", [
        Mistake("damaged-checkpoint", "A byte of a blob is wrong"),
        Mistake("missing-checkpoint", "The blob of a rank is missing"),
        Mistake("other-model", "The checkpoint is of another model"),
    ]),
]


def command_of(mistake, build, programs):
    program = f"{programs[mistake.program]} {mistake.mode}"
    tally = os.path.join(build, "tally")
    launched = {"run": f"{tally} run -n 2 {program}",
                "alone": program,
                "twice": f"{program} & {program}; wait",
                # Once a rank has taken a step, and said so.
                "terminated": f"coproc {{ exec {tally} run -n 2 {program} 2>&1; }}; read -r -u ${{COPROC[0]}} line; "
                              f"kill -TERM $COPROC_PID; cat <&${{COPROC[0]}}",
                "mpirun": f"mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n 2 {program}"}
    return mistake.limit + launched[mistake.launch]


def missing(mistake, build, programs):
    """Why a mistake cannot be made here, or ""."""
    needs_mpi = mistake.launch == "mpirun" or mistake.env.get("TALLY_BACKEND") == "mpi"
    if needs_mpi and not (shutil.which("mpirun.openmpi")
                          and os.path.exists(os.path.join(build, "src/libtally-openmpi.so"))):
        return "no Open MPI"
    return "" if os.path.exists(programs[mistake.program]) else "no static program"


def masked(text):
    text = re.sub(r"\b\d+\.\d+ s\b", "N s", text)
    text = re.sub(r"\b\d+ (bytes|KiB|MiB|GiB)\b", r"N \1", text)
    text = re.sub(r"\bprocess \d+", "process N", text)
    text = re.sub(r"\bpid \d+", "pid N", text)
    return re.sub(r"/tmp/\S+|@tally\S+", "...", text)


def row_of(mistake, build, programs):
    env = {name: value for name, value in os.environ.items()
           if not re.match(r"(TALLY|OMPI|PMI|RANK|WORLD_SIZE|SLURM)", name)}
    env |= {"TALLY_MPI": os.path.join(build, "src/libtally-openmpi.so"), "TALLY_TIMEOUT": "30",
            "TALLY_RENDEZVOUS": f"@tally-clumsy-{os.getpid()}-{mistake.name}"} | mistake.env
    if mistake.launch not in ("alone", "twice"):
        del env["TALLY_RENDEZVOUS"]
    for _ in range(3):
        start = time.monotonic()
        ended = subprocess.run(["bash", "-c", command_of(mistake, build, programs)], env=env, text=True,
                               capture_output=True, timeout=SECONDS, check=False)
        seconds = time.monotonic() - start
        # On a busy machine mpirun may lose what ranks print that end at once.
        if mistake.launch != "mpirun" or "rank " in ended.stdout + ended.stderr:
            break
    return Row(mistake, ended.stdout + ended.stderr, seconds)


class Row:
    def __init__(self, mistake, output, seconds):
        self.mistake, self.output, self.seconds = mistake, output, seconds
        said = {}
        for rank, status, text in re.findall(r"^rank (-?\d+): (\w+): (.*)$", output, re.M):
            said.setdefault((status, masked(text)), []).append(rank)
        self.said = sorted(((what, sorted(ranks)) for what, ranks in said.items()),
                           key=lambda item: (item[1], item[0]))
        self.launcher = [masked(line) for line in re.findall(rf"^tally run: {mistake.says}.*$", output, re.M)] \
            if mistake.says is not None else []

    def wrong_time(self):
        limit = TIMEOUT if self.mistake.after != AT_ONCE else 0
        if self.seconds < limit or self.seconds > limit + 20:
            return f"took {self.seconds:.1f} s, which is not \"{self.mistake.after}\""
        return ""

    def text(self):
        def cell(text):
            return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")

        several = len(self.said) > 1
        texts, statuses = [], []
        for (status, text), ranks in self.said:
            who = f"rank {' and '.join(ranks)}: " if several else ""
            texts.append(who + cell(text))
            if (name := "a warning" if status == "warning" else f"`{status}`") not in statuses:
                statuses.append(name)
        texts += [cell(line) for line in self.launcher]
        return (f"| {self.mistake.text} | {'<br>'.join(texts) or '(nothing)'} | {', '.join(statuses)} "
                f"| {self.mistake.after} |")


def read_page(path):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, inside, after


def tables(rows, inside):
    """Returns the new tables; a mistake that cannot be made here keeps its row of the page."""
    old = {line.split(" | ")[0]: line for line in inside.splitlines() if line.startswith("| ")}
    lines = [""]
    for title, mistakes in SECTIONS:
        lines += [f"## {title}", "", "| mistake | error text | status | when |", "|---|---|---|---|"]
        for mistake in mistakes:
            lines.append(rows[mistake.name].text() if mistake.name in rows
                         else old.get(f"| {mistake.text}", f"| {mistake.text} | | | |"))
        lines.append("")
    return "\n".join(lines)


def compare(rows, inside):
    n_failed = 0
    wanted = tables(rows, inside).splitlines()
    there = inside.splitlines()
    for line in wanted:
        if line not in there:
            print(f"FAILED: not in docs/troubleshooting.md: {line}")
            n_failed += 1
    for row in rows.values():
        if row.text() not in there:
            print(f"{row.mistake.name} printed:\n{row.output}")
    for line in there:
        if line not in wanted:
            print(f"FAILED: no mistake gives this row any more: {line}")
            n_failed += 1
    return n_failed


def main():
    root, build, program, static_program = sys.argv[1:5]
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    programs = {"clumsy": program, "static": static_program}
    chosen = [mistake for _, mistakes in SECTIONS for mistake in mistakes
              if only in ("", mistake.name)]
    for mistake in chosen[:]:
        if reason := missing(mistake, build, programs):
            print(f"skipped: {mistake.name}: {reason}")
            chosen.remove(mistake)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        rows = {row.mistake.name: row
                for row in pool.map(lambda mistake: row_of(mistake, build, programs), chosen)}
    if only:
        for row in rows.values():
            print(row.output + row.text())
        return
    path = os.path.join(root, "docs/troubleshooting.md")
    before, inside, after = read_page(path)
    n_failed = 0
    for row in rows.values():
        if row.wrong_time():
            print(f"FAILED: {row.mistake.name}: {row.wrong_time()}:\n{row.output}")
            n_failed += 1
    if "--update" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + "\n" + tables(rows, inside) + "\n" + END + after)
    else:
        n_failed += compare(rows, inside)
        if n_failed:
            print("after a change of a message: cmake --build build --target troubleshooting")
    sys.exit(n_failed > 0)


main()

# SPDX-License-Identifier: Apache-2.0
"""The part `mpi` of `make bench`, also a command, mpi.py: all-reduces of tally over an MPI beside
MPI_Allreduce of the same MPI, in one process and in turn (mpi_compare.c), as an application sees
them. Settings:

  one    ranks that mpirun has started on this machine; `tally run` (backend shm) beside them
  apart  the same with TALLY_SHARE=0: ranks share no memory of tally, as on several machines
  hosts  ranks on hosts of network namespaces (hosts.sh), joined by links without a limit
  line   two such hosts with a limit: fp32 as a part of the line, hooks in fp32's times, and the part
         of fp32's communication that a backward pass hides

A run starts every program once; figures are medians over the runs. What an MPI, or a system without
namespaces, cannot measure is left out with a note.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import tempfile

import bench_links
from bench_programs import Failed, note, run_json, run_text

HERE = pathlib.Path(__file__).resolve().parent
KI, MI = 1024, 1024 * 1024
MPIS = ("openmpi", "mpich")
SETTINGS = ("one", "apart", "hosts", "line")
# The hosts, and the ranks of each, for a number of ranks.
HOSTS = {2: (2, 1), 4: (4, 1), 8: (4, 2)}
MEMORIES = ("group", "heap")
# Ranks of one machine.
LAUNCHERS = {"openmpi": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                         "--quiet", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"),
             "mpich": ("mpiexec.mpich", "-launcher", "fork")}


@dataclasses.dataclass
class Extent:
    """The sizes of a measurement."""
    settings: tuple = SETTINGS
    mpis: tuple = MPIS
    ranks: tuple = (2, 4, 8)
    sizes: tuple = tuple(KI * 4**i for i in range(9))
    seconds: float = 0.15  # of each size and method, roughly
    runs: int = 5
    mb: int = 100  # on the line
    mbit: int = 1000
    hooks: tuple = ("bf16", "int8")
    overlaps: bool = False  # `make bench` measures that among its links
    limit_s: float = 300  # after which a program is given up


QUICK = Extent(ranks=(2, 4), sizes=(KI, 64 * KI), seconds=0.01, runs=1, mb=2, mbit=10000,
               hooks=("bf16",), limit_s=40)


def payload_bytes(n_bytes, ranks, per_host):
    """Bytes of one all-reduce that the ranks of one host send to other hosts."""
    return 2 * n_bytes * per_host * (ranks - per_host) // ranks


class MpiBench:
    def __init__(self, tally, extent):
        self.build = pathlib.Path(tally).resolve().parent
        self.extent = extent
        self.given_up = set()  # settings of an MPI that have failed twice
        self.lines = {}  # by setting, MPI and number of ranks: for each run the lines of its program

    def measure(self):
        """Rows by the name of their table."""
        x = self.extent
        mpis = [mpi for mpi in x.mpis if self.exists(mpi)]
        settings = list(x.settings)
        if {"hosts", "line"} & set(settings) and not bench_links.hosts_work():
            settings = [name for name in settings if name in ("one", "apart")]
        for _ in range(x.runs):
            for ranks in x.ranks:
                self.run_once(settings, mpis, ranks)
            if "line" in settings:
                for mpi in mpis:
                    self.keep("line", mpi, 2, lambda mpi=mpi: self.on_line(mpi))
        rows = {"mpi": self.rows()}
        if "line" in settings:
            rows["mpi_line"] = [row for mpi in mpis for row in self.line_rows(mpi)]
            if x.overlaps:
                rows["links_overlap"] = [row for mpi in mpis for row in self.overlap_rows(mpi)]
        return rows

    def exists(self, mpi):
        there = self.program(mpi).exists()
        if not there:
            note(f"{mpi} was not here when tally was built, and is left out; scripts/setup --mpi "
                 "installs it")
        return there

    def program(self, mpi):
        return self.build / "bench" / f"mpi_compare_{mpi}"

    # ---- programs ----

    def run_once(self, settings, mpis, ranks):
        """The settings in turn, so that a change on the machine meets all of them."""
        for mpi in mpis:
            for setting in settings:
                if setting in ("one", "apart"):
                    self.keep(setting, mpi, ranks, lambda: self.on_machine(setting, mpi, ranks))
                elif setting == "hosts" and ranks in HOSTS:
                    self.keep(setting, mpi, ranks, lambda: self.on_hosts(mpi, ranks))
        if "one" in settings and mpis:
            self.keep("shm", None, ranks, lambda: self.by_tally_run(mpis[0], ranks))

    def keep(self, setting, mpi, ranks, run):
        """The lines of a run; a program that fails twice is not started again."""
        key = setting, mpi, ranks
        if key in self.given_up:
            return
        try:
            lines = bench_links.twice(run)
            self.lines.setdefault(key, []).append(lines)
        except Failed as failure:
            note(f"{setting}, {mpi}, {ranks} ranks: left out: {failure}")
            self.given_up.add(key)

    def words(self, mpi, *more):
        sizes = ",".join(map(str, self.extent.sizes))
        return [self.program(mpi), sizes, self.extent.seconds, *more]

    def environment(self, mpi):
        return {"TALLY_MPI": str(self.build / "src" / f"libtally-{mpi}.so")}

    def on_machine(self, setting, mpi, ranks):
        env = {**self.environment(mpi), **({"TALLY_SHARE": "0"} if setting == "apart" else {})}
        with tempfile.NamedTemporaryFile() as board:
            board.truncate(4096)
            return run_json([*LAUNCHERS[mpi], "-n", ranks, *self.words(mpi, board.name)], self.extent.limit_s, env)

    def by_tally_run(self, mpi, ranks):
        with tempfile.NamedTemporaryFile() as board:
            board.truncate(4096)
            return run_json([self.build / "tally", "run", "-n", ranks,
                             *self.words(mpi, board.name, "alone")], self.extent.limit_s)

    def on_hosts(self, mpi, ranks):
        return self.host_lines(mpi, HOSTS[ranks], 0, self.words(mpi))

    def on_line(self, mpi):
        """One all-reduce of each turn is long enough."""
        words = [self.program(mpi), self.extent.mb * 1000000, 0]
        return self.host_lines(mpi, (2, 1), self.extent.mbit, words)

    def host_lines(self, mpi, shape, mbit, words):
        """Fails if the payload of tally's calls has not gone over the links."""
        n_hosts, per_host = shape
        words = [HERE / "hosts_mpirun.sh", mpi, per_host, *words]
        out, sent = bench_links.run_on_hosts(n_hosts, mbit, words, self.environment(mpi), self.extent.limit_s)
        lines = list(map(json.loads, out.splitlines()))
        least = sum(line["calls"] * payload_bytes(line["bytes"], n_hosts * per_host, per_host)
                    for line in lines if line["method"] in MEMORIES)
        bench_links.check_sent(sent, least, words)
        return lines

    # ---- rows ----

    def rows(self):
        """One for each setting, MPI, number of ranks, memory and size."""
        return [self.row(key, memory, size) for key in sorted(self.lines, key=self.place)
                for memory in MEMORIES for size in self.extent.sizes if key[0] != "line"]

    def place(self, key):
        setting, mpi, ranks = key
        return ("shm", *SETTINGS).index(setting), MPIS.index(mpi) if mpi else 0, ranks

    def row(self, key, memory, size):
        setting, mpi, ranks = key
        ours = self.pick(key, memory, size)
        theirs = self.pick(key, "mpi", size)
        shm = self.pick(("shm", None, ranks), memory, size) if setting == "one" else []
        return {"setting": setting, "mpi": mpi, "ranks": ranks, "cpus": os.cpu_count(),
                "backend": ours[0]["backend"], "memory": memory, "bytes": size, "runs": len(ours),
                "us": median_of(ours, "us"), "mpi_us": median_of(theirs, "us"),
                "shm_us": median_of(shm, "us"),
                # Within a run, in which both took turns.
                "speed": statistics.median(b["us"] / a["us"] for a, b in zip(ours, theirs))
                         if theirs else None,
                "messages": median_of(ours, "messages"), "sent_bytes": median_of(ours, "sent_bytes"),
                "cpu_ns_per_byte": per_byte(ours), "mpi_cpu_ns_per_byte": per_byte(theirs)}

    def pick(self, key, method, size):
        """The line of each run."""
        return [line for lines in self.lines.get(key, []) for line in lines
                if line["method"] == method and line["bytes"] == size]

    def line_rows(self, mpi):
        """fp32 beside MPI_Allreduce, then hooks beside fp32 (link.sh)."""
        x, key = self.extent, ("line", mpi, 2)
        if not self.lines.get(key):
            return []
        version = mpi_version(mpi)
        ours, theirs = (self.pick(key, name, x.mb * 1000000) for name in ("group", "mpi"))
        head = {"mpi": mpi, "version": version, "tcp_links": None, "mbit": x.mbit, "mb": x.mb,
                "line_ms": x.mb * 8e3 / x.mbit}
        rows = [{**head, "what": "fp32", "ms": median_of(ours, "us") / 1e3, "fp32_ms": None},
                {**head, "what": "MPI_Allreduce", "ms": median_of(theirs, "us") / 1e3, "fp32_ms": None}]
        for hook in x.hooks:
            try:
                row = self.by_link(mpi, "--hook", hook, "--backward-ms", 0)[0]
                rows.append({**head, "what": hook, "ms": row["ms"], "fp32_ms": row["plain_ms"]})
            except Failed as failure:
                note(f"{hook} over a line by {mpi} is left out: {failure}")
        return rows

    def overlap_rows(self, mpi):
        """A backward pass as long as fp32 is on the line."""
        try:
            return self.by_link(mpi, "--hook", "allreduce")[1:]
        except Failed as failure:
            note(f"overlap by {mpi} is left out: {failure}")
            return []

    def by_link(self, mpi, *more):
        """The rows of link.sh."""
        x = self.extent
        words = [HERE / "link.sh", "--json", "--build", self.build, "--mpi", mpi, "--mbit", x.mbit,
                 "--mb", x.mb, "--steps", max(x.runs, 1), *more]
        return bench_links.twice(lambda: run_json(words, x.limit_s))


def median_of(lines, name):
    return statistics.median(line[name] for line in lines) if lines else None


def per_byte(lines):
    """CPU time of all ranks for each byte of the array."""
    return statistics.median(line["cpu_us"] * 1e3 / line["bytes"] for line in lines) if lines else None


def mpi_version(mpi):
    launcher = "mpirun.openmpi" if mpi == "openmpi" else "mpiexec.mpich"
    for word in run_text([launcher, "--version"], 60).split():
        if word[0].isdigit():
            return word
    return "unknown"

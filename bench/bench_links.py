# SPDX-License-Identifier: Apache-2.0
"""The part `links` of `make bench`: measures tally over links between hosts of network
namespaces (hosts.sh), and its peers over the same links. Every measurement makes new hosts,
and counts only if their interfaces have sent as many bytes as it had to send. Measurements
that an MPI, or a system without namespaces, cannot make are left out with a note.
"""

import collections
import dataclasses
import json
import pathlib
import statistics
import subprocess
import tempfile

import peer_ddp
from bench_programs import Failed, note, run_json, run_text

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = 2
# An MPI, and how many TCP connections Open MPI opens between two ranks: its default, then tuned.
Setup = collections.namedtuple("Setup", "mpi tcp_links")
SETUPS = (Setup("openmpi", 1), Setup("openmpi", 2), Setup("mpich", None))
POWERSGD = "powersgd:rank=1,start=0"


@dataclasses.dataclass
class Extent:
    """The sizes of a measurement. At 100 Mbit/s a step of fp32 takes eight seconds."""
    setups: tuple = SETUPS
    mb: int = 100
    mbit: int = 1000
    steps: int = 4
    hooks: tuple = ("bf16", "int8", POWERSGD)
    torch_hooks: tuple = ("none", "fp16", "powersgd")
    backward_ms: int = 800
    overlap_setups: tuple = (SETUPS[0], SETUPS[2])
    slow_setup: Setup = SETUPS[0]
    slow_mbit: int = 100
    slow_steps: int = 3
    slow_hooks: tuple = ("int8", POWERSGD)


QUICK = Extent(setups=(SETUPS[0], SETUPS[2]), mb=2, mbit=10000, steps=1, hooks=(POWERSGD,),
               torch_hooks=("none",), backward_ms=5, overlap_setups=(SETUPS[0],), slow_hooks=())


def setup_env(setup):
    return {} if setup.tcp_links is None else {"OMPI_MCA_btl_tcp_links": str(setup.tcp_links)}


def twice(run):
    """Returns the result of run. MPICH over UCX sometimes hangs in MPI_Finalize when all work is
    done: a failure is tried a second time, with a note."""
    try:
        return run()
    except Failed as failure:
        note(f"once more: {failure}")
    return run()


def hosts_work():
    """Whether hosts can be made; says why not."""
    done = subprocess.run([HERE / "hosts.sh", "true"], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        note(f"links are left out: {last[0].removeprefix('skipped: ')}")
    return done.returncode == 0


def run_on_hosts(n_hosts, mbit, words, env, limit_s):
    """Returns the output of a program on the first of new hosts, and the bytes that each has sent."""
    with tempfile.TemporaryDirectory() as folder:
        sent = pathlib.Path(folder, "sent")
        out = run_text([HERE / "hosts.sh", "--hosts", n_hosts, "--mbit", mbit, "--sent", sent, *words],
                       limit_s, env)
        return out, list(map(int, sent.read_text().split()))


def check_sent(sent, least_bytes, words):
    """Fails if a host has sent fewer bytes than it must: then the link was not measured."""
    for host, n_bytes in enumerate(sent):
        if n_bytes < least_bytes:
            raise Failed(f"host-{host} has sent {n_bytes} bytes, not {least_bytes}: "
                         f"{' '.join(map(str, words))}")


class Links:
    """limit_s: of one run of a peer; own_limit_s: of one of tally."""

    def __init__(self, tally, extent, peers, limit_s, own_limit_s):
        self.build = pathlib.Path(tally).resolve().parent
        self.extent = extent
        self.peers = peers
        self.limit_s = limit_s
        self.own_limit_s = own_limit_s

    def measure(self, torch_python):
        """Rows by the name of their table; none without hosts. torch_python: one that has PyTorch, or
        None."""
        if not hosts_work():
            return {}
        mpis = [mpi for mpi in dict.fromkeys(setup.mpi for setup in self.extent.setups)
                if self.works(mpi)]
        setups = [setup for setup in self.extent.setups if setup.mpi in mpis]
        rows = [row for setup in setups for row in self.limited(setup)]
        peers = [self.mpi_row(setup) for setup in setups if setup.mpi in self.peers]
        peers += [self.torch_row(torch_python, hook)
                  for hook in self.extent.torch_hooks if torch_python]
        return {"links": [row for row in rows if "hook" in row],
                "links_peers": [row for row in peers if row],
                "links_overlap": [row for row in rows if "hook" not in row]}

    def works(self, mpi):
        """Whether tally was built for that MPI, and it starts ranks on such hosts."""
        if not self.tally_part(mpi).exists():
            note(f"{mpi} was not here when tally was built; links over it are left out")
            return False
        try:
            self.on_hosts(0, self.mpi_words(mpi, "true"), {}, 0, self.limit_s)
        except Failed as failure:
            note(f"links over {mpi} are left out: {failure}")
            return False
        return True

    def tally_part(self, mpi):
        return self.build / "src" / f"libtally-{mpi}.so"

    # ---- on hosts ----

    def mpi_words(self, mpi, *words):
        return [HERE / "hosts_mpirun.sh", mpi, 1, *words]

    def on_hosts(self, mbit, words, env, least_bytes, limit_s):
        """Returns the output of a program; fails if a host has sent fewer bytes than it must."""
        out, sent = run_on_hosts(HOSTS, mbit, words, env, limit_s)
        check_sent(sent, least_bytes, words)
        return out

    # ---- with a limit ----

    def limited(self, setup):
        """Steps with each hook, and beside a backward pass; some over a slow link too."""
        x = self.extent
        rows = self.link_rows(setup, x.mbit, x.steps, x.hooks,
                              x.backward_ms if setup in x.overlap_setups else 0)
        if setup == x.slow_setup and x.slow_hooks:
            rows += self.link_rows(setup, x.slow_mbit, x.slow_steps, x.slow_hooks, 0)
        return rows

    def link_rows(self, setup, mbit, steps, hooks, backward_ms):
        words = [HERE / "link.sh", "--json", "--build", self.build, "--mpi", setup.mpi, "--mbit", mbit,
                 "--mb", self.extent.mb, "--steps", steps, "--backward-ms", backward_ms]
        for hook in hooks:
            words += ["--hook", hook]
        return twice(lambda: run_json(words, self.own_limit_s, setup_env(setup)))

    def peer_row(self, setup, hook, version, ms):
        x = self.extent
        return {"peer": setup.mpi, "tcp_links": setup.tcp_links, "version": version, "mbit": x.mbit,
                "mb": x.mb, "hook": hook, "ms": ms, "line_ms": x.mb * 8e3 / x.mbit}

    def mpi_row(self, setup):
        """MPI_Allreduce of the gradients' bytes. None where it fails or does not end."""
        try:
            version, times = self.mpi_times(setup)
        except Failed as failure:
            note(f"MPI_Allreduce of {setup.mpi} is left out: {failure}")
            return None
        return self.peer_row(setup, "allreduce", version, statistics.median(times) / 1e3)

    def torch_row(self, python, hook):
        """None where PyTorch fails or does not end."""
        x = self.extent
        # PowerSGD's first two steps travel as they are.
        full_steps = {"fp16": (peer_ddp.WARM_UP + x.steps) / 2, "powersgd": 2}
        least = x.mb * 1000000 * full_steps.get(hook, peer_ddp.WARM_UP + x.steps)
        try:
            with tempfile.TemporaryDirectory() as folder:
                out = self.on_hosts(x.mbit, [HERE / "hosts_each.sh", python, "-B", HERE / "peer_ddp.py",
                                             "--meeting", pathlib.Path(folder, "meeting"), "--mb", x.mb,
                                             "--steps", x.steps, "--hook", hook],
                                    {"GLOO_SOCKET_IFNAME": "net0"}, int(least), self.limit_s)
            row = json.loads(out)
        except Failed as failure:
            note(f"PyTorch's {hook} over a link is left out: {failure}")
            return None
        return self.peer_row(Setup("torch", None), hook, row["version"], row["comm_ms"])

    def mpi_times(self, setup):
        """Returns the version, and the times of MPI_Allreduce, in us."""
        x = self.extent
        n_bytes = x.mb * 1000000
        words = self.mpi_words(setup.mpi, self.build / "bench" / f"mpi_peer_{setup.mpi}", n_bytes, 2,
                               x.steps, x.steps, 0, "apart")
        # At half the line's speed, and in no less than the time that a crowded machine takes.
        expected_s = 30 + 16e-6 * n_bytes * (x.steps + 2) / x.mbit
        version, n, *times = twice(lambda: self.on_hosts(
            x.mbit, words, setup_env(setup), x.steps * n_bytes, min(expected_s, self.limit_s))).split()
        if int(n) != len(times):
            raise Failed(f"{n} times were announced, and {len(times)} came")
        return version, list(map(float, times))

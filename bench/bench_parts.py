# SPDX-License-Identifier: Apache-2.0
"""The parts of `make bench`: each gives rows as the tally command and peer_ddp.py print them in
JSON. Links between hosts are in bench_links.py.
"""

import dataclasses
import pathlib
import statistics
import sys
import tempfile

import bench_auto
import bench_links
import bench_mpi
from bench_programs import Failed, busy_programs, note, run_json

PEER_SCRIPT = pathlib.Path(__file__).with_name("peer_ddp.py")
STEPS_SCRIPT = pathlib.Path(__file__).with_name("torch_steps.py")
MPIS = ("openmpi", "mpich")
PEERS = (*MPIS, "torch")
HOOKS = ("allreduce", "fp16", "bf16", "quantize_per_channel", "quantize_per_tensor", "int8",
         "powersgd:start=0", "powersgd:rank=2,start=0", "powersgd:rank=4,start=0",
         "batched_powersgd:start=0")
# PyTorch's hooks by the name peer_ddp.py knows, and ours that do the same.
TORCH_HOOKS = {"none": "allreduce", "allreduce": "allreduce", "fp16": "fp16",
               "powersgd": "powersgd:start=0"}


@dataclasses.dataclass
class Extent:
    """The sizes of a measurement."""
    kernel_bytes: str = "16Mi"
    lowrank: str = "--mb 100"
    sizes: str = "1Ki..128Mi"
    heap_sizes: str = "64Ki..64Mi"
    loaded_bytes: int = 100000000
    loaded_rounds: int = 5
    seconds: float = 0.4
    many: str = "--ranks 4,8,16 --bytes 16Mi --seconds 0.4"
    mb: int = 100
    backward_ms: int = 200
    copies_params: tuple = (100, 1000, 4000, 10000)
    steps: int = 9
    torch_steps: int = 7
    rounds: int = 2
    trace_rounds: int = 9
    checkpoint: tuple = (("--ranks", 1), ("--ranks", 2), ("--ranks", 2, "--shard"))
    checkpoint_rounds: int = 5
    pytorch: tuple = (("--params", 8, "--params", 20, "--params", 40), ("--hogs", 2, "--steps", 5))
    wire_mb: int = 34  # from here on layers are 1024 wide, as in 100 MB
    wire_ranks: str = "2,3,4,8"
    hooks: tuple = HOOKS
    links: bench_links.Extent = dataclasses.field(default_factory=bench_links.Extent)
    mpi: bench_mpi.Extent = dataclasses.field(default_factory=bench_mpi.Extent)
    auto: bench_auto.Extent = dataclasses.field(default_factory=bench_auto.Extent)


QUICK = Extent(kernel_bytes="4Ki", lowrank="--mb 1 --samples 1 --rows 64 --columns 64",
               sizes="4Ki,64Ki", heap_sizes="64Ki", loaded_bytes=65536,
               loaded_rounds=1, seconds=0.01,
               many="--ranks 4 --bytes 64Ki --seconds 0.01", mb=1, backward_ms=2,
               copies_params=(10,), steps=1, torch_steps=1, rounds=1, trace_rounds=1,
               checkpoint=(("--ranks", 1),), checkpoint_rounds=1,
               pytorch=(("--params", 4, "--hook", "int8"),), wire_mb=1, wire_ranks="2,3",
               hooks=("allreduce", "fp16", "int8", "powersgd:start=0"), links=bench_links.QUICK,
               mpi=bench_mpi.QUICK, auto=bench_auto.QUICK)


def best_isas(rows):
    """Of each kernel the row of the best instruction set, which comes last."""
    return list({row["kernel"]: row for row in rows}.values())


def merged(rounds):
    """Rows of several rounds into one row each: medians of times and ratios, the rest as it is. A value
    that a round did not measure (None) does not count."""
    rows = []
    for same in zip(*rounds):
        row = dict(same[0])
        for key in row:
            if key == "us" or key.endswith(("ms", "_ratio")):
                measured = [other[key] for other in same if other[key] is not None]
                row[key] = statistics.median(measured) if measured else None
        rows.append(row)
    return rows


class Bench:
    """The parts, with what they all need: the tally command, the extent, the peers wanted."""

    def __init__(self, tally, extent, peers, limit_s):
        self.tally = tally
        self.extent = extent
        self.peers = peers
        self.limit_s = limit_s  # of one run of a peer
        self.own_limit_s = 1200
        self.link_limit_s = 400  # of one run of ours over MPI, which may hang

    def tally_bench(self, text, *more):
        return run_json([self.tally, "bench", *text.split(), "--json", *more], self.own_limit_s)

    def hook_words(self):
        return [word for hook in self.extent.hooks for word in ("--hook", hook)]

    def measure(self, part):
        """The rows of a part, by the name of the table they go to; most parts have one."""
        if part == "links":
            return bench_links.Links(self.tally, self.extent.links, self.peers, self.limit_s,
                                     self.link_limit_s).measure(self.find_torch())
        if part == "pytorch":
            return {part: self.pytorch()}
        if part == "allreduce_loaded":
            return {part: self.loaded(self.commands()[part])}
        if part == "mpi":
            mpis = tuple(mpi for mpi in self.extent.mpi.mpis if mpi in self.peers)
            return bench_mpi.MpiBench(self.tally,
                                      dataclasses.replace(self.extent.mpi, mpis=mpis)).measure()
        if part == "auto":
            return {part: bench_auto.measure_all(self.tally, self.extent.auto)}
        command = self.commands()[part]
        if part == "trace":
            return {part: [self.traced(command)]}
        if part == "kernels":
            return {part: best_isas(self.tally_bench(command))}
        if part in ("allreduce", "allreduce_heap"):
            return {part: self.with_mpi(command)}
        if part == "copies":
            return {part: [row for n in self.extent.copies_params
                           for row in self.tally_bench(command, "--params", n)]}
        if part == "checkpoint":
            return {part: [row for words in self.extent.checkpoint
                           for row in self.tally_bench(command, *words)]}
        if part == "hooks":
            return self.hooks(command)
        if part == "wire_bytes":
            return {part: self.tally_bench(command, *self.hook_words())}
        return {part: self.tally_bench(command)}

    def hooks(self, command):
        """Rounds of ours, then PyTorch's, so that a change on the machine meets both."""
        ours = []
        python = self.find_torch()
        theirs = {name: [] for name in TORCH_HOOKS} if python else {}
        for _ in range(self.extent.rounds):
            ours.append(self.tally_bench(command, *self.hook_words()))
            for name in list(theirs):
                row = self.torch_row(python, name)
                if row:
                    theirs[name].append([row])
                else:
                    del theirs[name]  # once is enough for what may take all its time
        return {"hooks": merged(ours), "torch": [merged(rows)[0] for rows in theirs.values()]}

    def traced(self, command):
        """A step without events, with the rings of events, and with a trace that is written, in turn."""
        sides = {"off_ms": {"TALLY_EVENTS": "0"}, "ring_ms": {}, "writing_ms": {}}
        rounds = []
        with tempfile.TemporaryDirectory() as folder:
            sides["writing_ms"]["TALLY_TRACE"] = f"{folder}/trace"
            for _ in range(self.extent.trace_rounds):
                rows = {side: run_json([self.tally, "bench", *command.split(), "--json"], self.own_limit_s, env)[0]
                        for side, env in sides.items()}
                rounds.append([{"ranks": 2, "buckets": 20, **{side: row["step_ms"] for side, row in rows.items()},
                                "ring_ratio": rows["ring_ms"]["step_ms"] / rows["off_ms"]["step_ms"],
                                "writing_ratio": rows["writing_ms"]["step_ms"] / rows["off_ms"]["step_ms"]}])
        return merged(rounds)[0]

    def loaded(self, command):
        """Both kinds of memory, alone and beside two busy programs, in turn."""
        rounds = []
        for _ in range(self.extent.loaded_rounds):
            rows = []
            for hogs in (0, 2):
                with busy_programs(hogs):
                    rows += [{**row, "hogs": hogs} for memory in ("group", "heap")
                             for row in self.tally_bench(command, "--memory", memory)]
            rounds.append(rows)
        return merged(rounds)

    def commands(self):
        """The arguments of `tally bench` for each part that is one command."""
        x = self.extent
        collective = f"collective --ranks 2 --seconds {x.seconds}"
        return {
            "kernels": f"num --bytes {x.kernel_bytes}",
            "lowrank": f"lowrank {x.lowrank}",
            "allreduce": f"{collective} --bytes {x.sizes}",
            "allreduce_heap": f"{collective} --bytes {x.heap_sizes} --memory heap",
            "allreduce_loaded": f"{collective} --bytes {x.loaded_bytes}",
            "many_ranks": f"collective {x.many} --compare-two",
            "step": f"step --ranks 2 --mb {x.mb} --backward-ms {x.backward_ms} --steps {x.steps}",
            "updates": f"step --ranks 2 --mb {x.mb} --backward-ms {x.backward_ms} --steps {x.steps} "
                       "--optimizer adamw",
            "trace": f"step --ranks 2 --mb 20 --params 20 --bucket-mb 1 --backward-ms {max(1, x.backward_ms // 10)} "
                     f"--steps {x.steps}",
            "copies": f"step --ranks 2 --mb {x.mb} --backward-ms 0 --copies --steps {x.steps}",
            "checkpoint": f"checkpoint --mb {x.mb} --rounds {x.checkpoint_rounds}",
            "hooks": f"hooks --ranks 2 --mb {x.mb} --steps {x.steps}",
            "wire_bytes": f"hooks --ranks {x.wire_ranks} --mb {x.wire_mb} --steps 1",
        }

    # ---- peers ----

    def with_mpi(self, command):
        """With all MPIs that work; without any where one breaks in mid-run."""
        peers = [peer for peer in MPIS if peer in self.peers and self.mpi_works(peer)]
        if peers:
            try:
                return self.tally_bench(command, "--peer", ",".join(peers))
            except Failed as failure:
                note(f"once more without MPI: {failure}")
        return self.tally_bench(command)

    def mpi_works(self, peer):
        probe = [self.tally, "bench", "collective", "--bytes", "4Ki", "--seconds", "0.01", "--json",
                 "--peer", peer]
        try:
            if run_json(probe, self.limit_s)[0][f"{peer}_us"] is not None:
                return True
            note(f"{peer} is not here and is left out; scripts/setup --peers installs it")
        except Failed as failure:
            note(f"{peer} is left out: {failure}")
        return False

    def find_torch(self):
        """A Python that has PyTorch: the one that runs this, or the system's; None without."""
        for python in (sys.executable, "/usr/bin/python3") if "torch" in self.peers else ():
            try:
                run_json([python, "-c", "import torch.distributed"], self.limit_s)
                return python
            except (Failed, OSError):
                pass
        if "torch" in self.peers:
            note("PyTorch is not here and is left out; scripts/setup --peers installs it")
        return None

    def pytorch(self):
        """Steps of PyTorch's DDP with our hooks beside its own; no rows without PyTorch."""
        python = self.find_torch()
        rows = []
        for words in self.extent.pytorch if python else ():
            # The last --steps counts.
            rows += run_json([python, "-B", STEPS_SCRIPT, "--mb", self.extent.mb, "--steps",
                              self.extent.steps, *words], self.own_limit_s)
        return rows

    def torch_row(self, python, hook):
        """None where PyTorch fails or does not end."""
        try:
            return run_json([python, "-B", PEER_SCRIPT, "--ranks", 2, "--mb", self.extent.mb,
                             "--steps", self.extent.torch_steps, "--hook", hook], self.limit_s)[0]
        except Failed as failure:
            note(f"PyTorch's {hook} is left out: {failure}")
            return None

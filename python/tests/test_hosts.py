# SPDX-License-Identifier: Apache-2.0
"""DDP on several machines: two hosts, made of network namespaces, with two ranks each, which an MPI
starts. The process group "tally" goes over MPI, and so do hooks beside a process group of Gloo. Means
are those of one process, and all ranks have the same bits. `test_hosts.py openmpi|mpich`."""

import os
import pathlib
import subprocess
import sys

import worlds  # first: it skips the test without PyTorch, and finds the package
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tally.torch

BENCH = worlds.ROOT.parent / "bench"
HOSTS, RANKS = 2, 2  # ranks per host
SHAPES = [(300, 40), (40,), (25, 300), (25,)]
# Largest error relative to the largest mean; PowerSGD is only held to equal bits.
HOOKS = {"allreduce": 1e-6, "bf16": 1e-2, "int8": 2e-2, "powersgd:rank=2,start=1": None}


class Given(torch.nn.Module):
    """A model whose gradients are given: the loss is the product with them."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(shape) for shape in SHAPES)

    def forward(self, gradients):
        return sum((weight * gradient).sum() for weight, gradient in zip(self.weights, gradients))


def gradients(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def train(text, process_group, world):
    rank = dist.get_rank()
    model = DistributedDataParallel(Given(), bucket_cap_mb=0.02, process_group=process_group)
    hook = tally.torch.hook(text, model, process_group)
    model.register_comm_hook(process_group, hook)
    for step in range(4):
        model.zero_grad()
        model(gradients(rank, step)).backward()
    found = worlds.flat_grads(model)
    assert worlds.equal_on_all(found), text
    if HOOKS[text] is not None:
        expected = sum(torch.cat([x.reshape(-1) for x in gradients(r, 3)])
                       for r in range(world)) / world
        error = (found - expected).abs().max() / expected.abs().max()
        assert error < HOOKS[text], (text, error)
    assert hook.stats()["world"] == world and hook.stats()["step"] == 4
    return hook.reducer.group.backend


def be_rank():
    torch.set_num_threads(1)
    tally.torch.init_process_group()
    world = dist.get_world_size()
    assert world == HOSTS * RANKS, world
    for text in HOOKS:
        backend = train(text, dist.group.WORLD, world)
        assert backend == "mpi", backend
    os.environ["GLOO_SOCKET_IFNAME"] = "net0"
    gloo = dist.new_group(backend="gloo")
    assert train("int8", gloo, world) == "mpi"
    total = torch.ones(1000)
    dist.all_reduce(total)
    assert torch.equal(total, torch.full((1000,), float(world)))
    every = [None] * world
    dist.all_gather_object(every, os.uname().nodename)
    assert len(set(every)) == HOSTS, every
    # Some of the ranks form a group if they are on one host.
    halves = [dist.new_group(list(range(host * RANKS, (host + 1) * RANKS)))
              for host in range(HOSTS)]
    mine = halves[dist.get_rank() // RANKS]
    total = torch.ones(3)
    dist.all_reduce(total, group=mine)
    assert total[0].item() == RANKS
    if dist.get_rank() == 0:
        print(f"{world} ranks on {HOSTS} hosts: {', '.join(HOOKS)}", flush=True)


def main():
    if sys.argv[1] == "--rank":
        be_rank()
        return 0
    mpi = sys.argv[1]
    command = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}[mpi]
    if subprocess.run(["sh", "-c", f"command -v {command}"], capture_output=True).returncode:
        print(f"skipped: {command} is not installed")
        return 77
    probe = subprocess.run([str(BENCH / "hosts.sh"), "true"], capture_output=True, text=True)
    if probe.returncode:
        print(probe.stdout.strip())
        return probe.returncode
    return subprocess.run([str(BENCH / "hosts.sh"), "--hosts", str(HOSTS),
                           str(BENCH / "hosts_mpirun.sh"), mpi, str(RANKS), sys.executable, "-B",
                           str(pathlib.Path(__file__).resolve()), "--rank"], timeout=200,
                          stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())

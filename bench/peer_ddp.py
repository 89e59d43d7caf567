#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of PyTorch's DistributedDataParallel over Gloo, as `tally bench hooks`
times tally's: the same parameters, gradients in the buckets (gradient_as_bucket_view), one
process per rank, one thread for arithmetic. Steps with the hook and steps with PyTorch's noop
hook take turns; the difference is the communication. Every rank computes new gradients in
each step, and checks the means of the last one. With --meeting it is one of the ranks that a
launcher has started, on hosts that share a file system. Prints one JSON object per line.
Knows nothing of tally; run_all.py starts it, with a time limit.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HOOKS = ("none", "allreduce", "fp16", "powersgd")
WIDTH, MIN_WIDTH, MIN_LAYERS = 1024, 8, 8  # of the layers in hooks_input.c
WARM_UP = 5  # PowerSGD compresses from step 2 on, and DDP arranges its buckets anew after the first


def layer_shapes(n_elements):
    """The parameters of `tally bench hooks`: matrices of about WIDTH x WIDTH, each with its bias."""
    width = WIDTH
    while width > MIN_WIDTH and MIN_LAYERS * (width + 1) * width > n_elements:
        width //= 2
    n_rows = n_elements // width
    n_layers = n_rows // (width + 1)
    shapes = []
    for layer in range(n_layers):
        rows = n_rows // n_layers + (layer < n_rows % n_layers)
        shapes += [(rows - 1, width), (width,)]
    rest = n_elements - n_rows * width
    shapes[-1] = (width + rest,)
    return shapes


def make_model(torch, shapes, rank):
    """A model whose backward copies gradients that lie ready: the communication is what remains.
    The gradients are outer products, which PowerSGD of any rank sends exactly, so that one check
    serves all hooks; how long a hook takes does not depend on the values."""

    class Ready(torch.autograd.Function):
        @staticmethod
        def forward(context, parameter, gradient):
            context.gradient = gradient
            return parameter.new_zeros(())

        @staticmethod
        def backward(context, _):
            return context.gradient.clone(), None

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(torch.zeros(shape) for shape in shapes)
            self.gradients = [outer(torch, shape) * (rank + 1) for shape in shapes]

        def forward(self):
            return sum(map(Ready.apply, self.weights, self.gradients))

    return Model()


def outer(torch, shape):
    row = torch.linspace(0.5, 1.5, shape[-1])
    return row if len(shape) == 1 else torch.outer(torch.linspace(1, 2, shape[0]), row)


def wrap(torch, model, hook):
    """The model as users wrap it. PowerSGD waits for ever with more than one bucket on Gloo."""
    from torch.distributed.algorithms.ddp_comm_hooks import (
        debugging_hooks, default_hooks, powerSGD_hook)

    parallel = torch.nn.parallel.DistributedDataParallel
    if hook == "powersgd":
        kept = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1 << 40
        ddp = parallel(model, bucket_cap_mb=1 << 20, gradient_as_bucket_view=True)
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = kept
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1,
                                            start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return ddp
    ddp = parallel(model, gradient_as_bucket_view=True)
    functions = {"allreduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook,
                 "noop": debugging_hooks.noop_hook}
    if hook in functions:
        ddp.register_comm_hook(None, functions[hook])
    return ddp


def take_step(torch, ddp):
    """The step's time from the barrier to the end of backward on the slowest rank, in ms."""
    torch.distributed.barrier()
    start = time.perf_counter()
    ddp().backward()
    own = torch.tensor([(time.perf_counter() - start) * 1e3])
    torch.distributed.all_reduce(own, op=torch.distributed.ReduceOp.MAX)
    return own.item()


def check_means(torch, ddp, hook, ranks):
    factor = (ranks + 1) / 2
    tolerance = {"none": 1e-6, "allreduce": 1e-6, "fp16": 2e-3, "powersgd": 1e-3}[hook]
    for number, weight in enumerate(ddp.module.weights):
        expected = outer(torch, weight.shape) * factor
        error = ((weight.grad - expected).norm() / expected.norm()).item()
        if not error <= tolerance:
            raise SystemExit(f"peer_ddp: {hook}: gradient {number} is off by {error:g}")


def version_of(torch):
    """The package's where it comes from one: Debian's build of 1.13.1 calls itself 1.13.0a0."""
    words = ["dpkg-query", "-W", "-f", "${Version}", "python3-torch"]
    if torch.__file__.startswith("/usr/lib/python3/") and shutil.which(words[0]):
        return subprocess.run(words, capture_output=True, text=True).stdout or torch.__version__
    return torch.__version__


def measure(torch, hook, shapes, rank, options):
    sides = {name: wrap(torch, make_model(torch, shapes, rank), name) for name in (hook, "noop")}
    times = {name: [] for name in sides}
    for step in range(WARM_UP + options.steps):
        order = list(sides) if step % 2 else list(sides)[::-1]
        for name in order:
            for weight in sides[name].module.weights:
                weight.grad = None if weight.grad is None else weight.grad.zero_()
            ms = take_step(torch, sides[name])
            if step >= WARM_UP:
                times[name].append(ms)
    check_means(torch, sides[hook], hook, options.ranks)
    step_ms, noop_ms = (statistics.median(times[name]) for name in (hook, "noop"))
    return {"hook": hook, "version": version_of(torch), "ranks": options.ranks, "mb": options.mb,
            "steps": options.steps, "step_ms": round(step_ms, 4), "noop_ms": round(noop_ms, 4),
            "comm_ms": round(step_ms - noop_ms, 4)}


def be_rank(rank, options, meeting):
    """Over the interface that GLOO_SOCKET_IFNAME names, or within this host."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank,
                                         world_size=options.ranks)
    shapes = layer_shapes(options.mb * 1000000 // 4)
    for hook in options.hook or HOOKS:
        line = measure(torch, hook, shapes, rank, options)
        if rank == 0:
            print(json.dumps(line), flush=True)
    torch.distributed.barrier()


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hook", action="append", choices=HOOKS, help="may come again (all)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--mb", type=int, default=100,
                        help="gradients, in millions of bytes of fp32 (100)")
    parser.add_argument("--steps", type=int, default=9, help="steps to time on either side (9)")
    parser.add_argument("--meeting", metavar="FILE", type=os.path.abspath,
                        help="be one rank, as a launcher says, and find the others by this new file")
    return parser.parse_args()


def launched_as():
    """Rank and number of ranks, from what torchrun, Open MPI and MPICH leave in the environment."""
    for rank, ranks in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                        ("PMI_RANK", "PMI_SIZE")):
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ[ranks])
    raise SystemExit("peer_ddp: no launcher has said which rank this is")


def run_ranks(function, options):
    """Runs function(rank, options, meeting) in one process per rank; returns 1 if one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [multiprocessing.Process(target=function, args=(rank, options, folder + "/meeting"))
                 for rank in range(options.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return max(abs(process.exitcode) for process in ranks) and 1


def main():
    options = read_options()
    if options.meeting:
        rank, options.ranks = launched_as()
        be_rank(rank, options, options.meeting)
        return 0
    return run_ranks(be_rank, options)


if __name__ == "__main__":
    sys.exit(main())

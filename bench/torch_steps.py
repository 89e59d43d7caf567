#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a step of PyTorch's DistributedDataParallel with tally's hooks beside plain DDP over Gloo and
Gloo's fp16 hook, in turn, step by step: the same model, gradients in the buckets, one process per
rank, one thread for arithmetic. A step is forward, which is nothing, and backward, which hands out
gradients that lie ready. --hogs starts busy programs beside it. Prints one JSON object per line.
run_all.py starts it.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

import bench_programs
import peer_ddp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
HOOKS = ("allreduce", "fp16", "bf16", "int8", "quantize_per_tensor", "powersgd:start=0")
GLOO = ("plain", "gloo fp16")
WARM_UP = 3


def shapes_of(mb, n_params):
    """Square matrices, or nearly, of equal sizes."""
    elements = mb * 1000000 // 4 // n_params
    rows = int(elements ** 0.5)
    return [(rows, elements // rows)] * n_params


def wrap(torch, shapes, rank, name):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    import tally.torch

    model = torch.nn.parallel.DistributedDataParallel(
        peer_ddp.make_model(torch, shapes, rank), gradient_as_bucket_view=True)
    if name == "gloo fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name != "plain":
        model.register_comm_hook(None, tally.torch.hook(name, model))
    return model


def measure(torch, rank, options, n_params):
    """Medians of the steps of all sides; each hook's models live only while it is timed beside plain
    DDP, so that memory does not decide."""
    shapes = shapes_of(options.mb, n_params)
    rows = []
    for name in [*GLOO[1:], *options.hook]:
        sides = {side: wrap(torch, shapes, rank, side) for side in (GLOO[0], name)}
        times = {side: [] for side in sides}
        for step in range(WARM_UP + options.steps):
            for side in list(sides) if step % 2 else list(sides)[::-1]:
                for weight in sides[side].module.weights:
                    weight.grad = None if weight.grad is None else weight.grad.zero_()
                ms = peer_ddp.take_step(torch, sides[side])
                if step >= WARM_UP:
                    times[side].append(ms)
        plain, ours = (statistics.median(times[side]) for side in (GLOO[0], name))
        rows.append({"hook": name, "params": n_params, "mb": options.mb, "ranks": options.ranks,
                     "hogs": options.hogs, "steps": options.steps,
                     "version": peer_ddp.version_of(torch), "plain_ms": round(plain, 3),
                     "step_ms": round(ours, 3), "ratio": round(ours / plain, 4)})
        del sides
    return rows


def be_rank(rank, options, meeting):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank,
                                         world_size=options.ranks)
    for n_params in options.params:
        for row in measure(torch, rank, options, n_params):
            if rank == 0:
                print(json.dumps(row), flush=True)
    torch.distributed.barrier()


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hook", action="append", help=f"may come again ({', '.join(HOOKS)})")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--mb", type=int, default=100, help="gradients, in millions of bytes (100)")
    parser.add_argument("--params", type=int, action="append", help="matrices; may come again (20)")
    parser.add_argument("--steps", type=int, default=9, help="steps to time on either side (9)")
    parser.add_argument("--hogs", type=int, default=0, help="busy programs beside it (0)")
    options = parser.parse_args()
    options.hook = options.hook or list(HOOKS)
    options.params = options.params or [20]
    return options


def main():
    options = read_options()
    with bench_programs.busy_programs(options.hogs):
        return peer_ddp.run_ranks(be_rank, options)


if __name__ == "__main__":
    sys.exit(main())

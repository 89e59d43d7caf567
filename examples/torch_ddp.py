# SPDX-License-Identifier: Apache-2.0
"""Trains a network to read handwritten digits with PyTorch's DistributedDataParallel, and any hook of
tally: `tally run -n 2 python3 examples/torch_ddp.py int8`."""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

try:
    import tally.torch
except ImportError:  # in a checkout, where the package is not installed
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
    import tally.torch

torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("TALLY_WORLD", 1))))
tally.torch.init_process_group()  # also under torchrun and mpirun
rank, world = dist.get_rank(), dist.get_world_size()

rows = [line.split(",") for line in
        (pathlib.Path(__file__).parent / "digits" / "digits.csv").read_text().split()]
data = torch.tensor([[float(word) for word in row] for row in rows])
images, labels = data[:, :-1] / 16, data[:, -1].long()
train, test = slice(rank, 1500, world), slice(1500, None)  # every rank has its part

torch.manual_seed(1)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)))
hook = tally.torch.hook(sys.argv[1] if len(sys.argv) > 1 else "bf16", model)  # this line, and
model.register_comm_hook(None, hook)  # this one, are all that differs from plain DDP
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(15):
    for start in range(0, len(images[train]), 64):
        optimizer.zero_grad()
        chosen = slice(start, start + 64)
        loss = torch.nn.functional.cross_entropy(model(images[train][chosen]), labels[train][chosen])
        loss.backward()
        optimizer.step()
right = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
if rank == 0:
    stats = hook.stats()
    print(f"{stats['hook']} on {world} ranks: {right:.1%} of {len(labels[test])} digits, "
          f"{stats['total_wire_bytes'] / stats['step'] / 1000:.1f} kB per step and rank")

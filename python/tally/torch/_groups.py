# SPDX-License-Identifier: Apache-2.0
"""The tally group that has the ranks of a process group of torch.distributed."""

from __future__ import annotations

import os
import socket
import uuid
import weakref
from typing import Any, Sequence

import torch
import torch.distributed as dist

from .._declarations import (TALLY_BF16, TALLY_F16, TALLY_F32, TALLY_F64, TALLY_I32, TALLY_I64,
                             TALLY_U8)
from .._ends import close_later, keep
from .._library import TallyError
from ..group import Group

DTYPES = {torch.float32: TALLY_F32, torch.float64: TALLY_F64, torch.float16: TALLY_F16,
          torch.bfloat16: TALLY_BF16, torch.int32: TALLY_I32, torch.int64: TALLY_I64,
          torch.uint8: TALLY_U8}

_groups = weakref.WeakKeyDictionary()  # by process group


def machine() -> str:
    """Equal for all processes that tally takes for processes of one machine: boot ID, host name and
    network namespace, as src/base/machine.c has them."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return socket.gethostname()
    return f"{boot}/{socket.gethostname()}/{network}"


def new_name() -> str:
    """A name to meet at that no other group has."""
    return f"@tally-torch-{os.getuid()}-{uuid.uuid4().hex}"


def open_group(rank: int, size: int, name: str, machines: Sequence[str],
               **options: Any) -> Group:
    """Opens the group of these ranks: in shared memory, or over MPI if they are on several
    machines."""
    if len(set(machines)) == 1:
        return keep(Group(rank=rank, world=size, rendezvous=name, backend="shm", **options))
    group = Group(backend="mpi", **options)
    if group.size != size or group.rank != rank:
        found = f"rank {group.rank} of {group.size}"
        group.close()
        raise TallyError("UNSUPPORTED", f"the process group has ranks on several machines and this "
                         f"process is rank {rank} of {size} in it, but MPI says {found}: tally "
                         "reaches several machines over MPI, with all ranks of mpirun")
    return keep(group)


def group_of(process_group: dist.ProcessGroup | Group | None) -> Group:
    """The tally group of a process group, opened at the first call. Collective."""
    if isinstance(process_group, Group):
        return process_group
    if not dist.is_initialized():
        raise RuntimeError("call torch.distributed.init_process_group before tally's hooks")
    if process_group is None:
        process_group = dist.group.WORLD
    if process_group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this rank is not a member of the process group")
    if not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(f"expected a process group or None, got a {type(process_group).__name__}: "
                        "tally's hooks keep their own state")
    if hasattr(process_group, "tally_group"):
        return process_group.tally_group
    group = _groups.get(process_group)
    if group is None:
        size = dist.get_world_size(process_group)
        said = [None] * size
        dist.all_gather_object(said, (new_name(), machine()), group=process_group)
        group = open_group(dist.get_rank(process_group), size, said[0][0],
                           [where for _, where in said])
        _groups[process_group] = group
        weakref.finalize(process_group, close_later, group).atexit = False
    return group

# SPDX-License-Identifier: Apache-2.0
"""The backend "tally" of torch.distributed: `init_process_group("tally")` after `import
tally.torch`. Tensors are on the CPU. Collectives run on a thread of tally, in the order of the
calls; sums are taken in rank order, so all ranks have the same bits.
"""

from __future__ import annotations

import collections
import ctypes
import datetime
import os
import socket
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from .._declarations import TALLY_MAX, TALLY_MEAN, TALLY_MIN, TALLY_SUM
from .._ends import close_late, close_later
from .._library import C, array_of, check
from ..group import Group
from ._futures import follow, runs_callbacks_of
from ._groups import DTYPES, machine, new_name, open_group

OPS = {dist.ReduceOp.SUM: TALLY_SUM, dist.ReduceOp.MIN: TALLY_MIN, dist.ReduceOp.MAX: TALLY_MAX}
if hasattr(dist.ReduceOp, "AVG"):
    OPS[dist.ReduceOp.AVG] = TALLY_MEAN
OPEN_TIMEOUT_S = 60  # for processes that have met in the store already
WIDER = {torch.bool: torch.uint8, torch.int8: torch.int32, torch.int16: torch.int32}


def refuse_wait() -> None:
    """A thread cannot wait for itself."""
    raise RuntimeError("a callback of a future of the backend tally waits for another collective of its "
                       "group: it runs on the thread that runs them, and would wait for ever. Wait "
                       "after the callback. (PyTorch's powerSGD_hook waits; tally has its own: "
                       "tally.torch.DDPCommHookType.POWER_SGD)")


class OwnFuture(torch.futures.Future):
    """A future as a callback gets it on the thread that will complete it: it cannot be waited for."""

    def __init__(self, future: torch.futures.Future) -> None:
        super().__init__()
        self._future = future
        future.then(self._take)

    def _take(self, future):
        try:
            self.set_result(future.value())
        except Exception as error:
            self.set_exception(RuntimeError(str(error)))

    def wait(self) -> Any:
        """Raises, unless the end has come."""
        if not self.done():
            refuse_wait()
        return self._future.wait()


class TallyWork(dist.Work):
    """A collective under way. PyTorch's own form of a future forgets a failure in wait(); this one
    raises it."""

    # C++ knows only its half of a work, and asks Python for the rest as long as this object lives:
    # it is kept until somebody waits for it or takes its future. If nobody does, the oldest ones go.
    _kept = collections.OrderedDict()
    _MOST_KEPT = 256

    def __init__(self, future: torch.futures.Future, group: Group | None = None) -> None:
        super().__init__()
        self._future = future
        self._group = group
        self._kept[id(self)] = self
        while len(self._kept) > self._MOST_KEPT:
            self._kept.popitem(last=False)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Returns when the collective is complete; raises its failure. The timeout is the group's."""
        try:
            if self._waits_for_itself():
                refuse_wait()
            self._future.wait()
        finally:
            self._kept.pop(id(self), None)
        return True

    def synchronize(self) -> None:
        """As wait."""
        self.wait()

    def get_future(self) -> torch.futures.Future:
        """The future, whose value is a list of tensors."""
        self._kept.pop(id(self), None)
        return OwnFuture(self._future) if self._waits_for_itself() else self._future

    def _waits_for_itself(self):
        return runs_callbacks_of(self._group) and not self._future.done()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._future.done()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """The failure; None before the end and after success."""
        try:
            if self._future.done():
                self._future.value()
        except Exception as error:
            return error
        return None

    def result(self) -> list[torch.Tensor]:
        """The tensors."""
        return self._future.value()


def sizes_of(values: Sequence[int]) -> ctypes.Array:
    """Sizes in bytes, for C."""
    return array_of(ctypes.c_size_t, values)


def dense(tensor: torch.Tensor, call: str) -> torch.Tensor:
    """The tensor, dense and on the CPU."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise NotImplementedError(f"tally: {call} takes dense tensors on the CPU")
    return tensor


def result(tensor: torch.Tensor, call: str) -> torch.Tensor:
    """The tensor, if it is dense and each of its elements has its own memory."""
    if any(stride == 0 and size > 1 for stride, size in
           zip(dense(tensor, call).stride(), tensor.shape)):
        raise ValueError(f"tally: {call} cannot write into an expanded tensor, whose elements share "
                         "memory: clone it")
    return tensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy whose bytes are its elements in their order."""
    return tensor.contiguous().resolve_conj().resolve_neg()


def one(tensors: list[torch.Tensor], call: str) -> torch.Tensor:
    """The only tensor of a list, dense and on the CPU."""
    if len(tensors) != 1:
        raise ValueError(f"tally: {call} takes one tensor per rank, not {len(tensors)}")
    return dense(tensors[0], call)


def one_per_rank(tensors: list[torch.Tensor], world: int, like: torch.Tensor | None,
                 call: str, check: Callable = dense) -> list[torch.Tensor]:
    """A list with one tensor for each rank, of the dtype and number of elements of like; check is
    result if they are written."""
    if len(tensors) != world:
        raise ValueError(f"tally: {call} takes a list of {world} tensors, one for each rank, not "
                         f"{len(tensors)}")
    for rank, tensor in enumerate(tensors):
        check(tensor, call)
        if like is not None and (tensor.numel(), tensor.dtype) != (like.numel(), like.dtype):
            raise ValueError(f"tally: {call}: the tensor for rank {rank} has {tensor.numel()} elements "
                             f"of {tensor.dtype}, and the tensor of this rank {like.numel()} of "
                             f"{like.dtype}")
    return tensors


def whole_and_part(whole: torch.Tensor, part: torch.Tensor, world: int, call: str) -> None:
    """Refuses a tensor that does not have one part for each rank."""
    dense(whole, call)
    dense(part, call)
    if whole.numel() != world * part.numel() or whole.dtype != part.dtype:
        raise ValueError(f"tally: {call}: expected {world} times {part.numel()} elements of "
                         f"{part.dtype}, got {whole.numel()} of {whole.dtype}")


def nbytes(tensor: torch.Tensor) -> int:
    """The bytes of the elements."""
    return tensor.numel() * tensor.element_size()


def flat_bytes(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The bytes of the tensors, one after the other, as one tensor of uint8."""
    flat = torch.empty(sum(map(nbytes, tensors)), dtype=torch.uint8)
    at = 0
    for tensor in tensors:
        flat[at:at + nbytes(tensor)] = plain(tensor).reshape(-1).view(torch.uint8)
        at += nbytes(tensor)
    return flat


def spread_bytes(flat: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies bytes that lie side by side into the tensors."""
    at = 0
    for tensor in tensors:
        part = flat[at:at + nbytes(tensor)].clone() if at % 16 else flat[at:at + nbytes(tensor)]
        tensor.copy_(part.view(tensor.dtype).reshape(tensor.shape))
        at += nbytes(tensor)
    return tensors


class TallyProcessGroup(dist.ProcessGroup):
    """A process group over a tally group. `tally_group` is that group."""

    def __init__(self, rank: int, size: int, group: Group) -> None:
        super().__init__(rank, size)
        self.tally_group = group

    def getBackendName(self) -> str:
        """The name of the backend, which C++ asks for."""
        return "tally"

    def name(self) -> str:
        """The name of the backend."""
        return "tally"

    def _start(self, function, *arguments, kept, finish):
        close_late()
        handle = ctypes.c_void_p()
        check(function(self.tally_group.handle, *arguments, ctypes.byref(handle)))
        future = follow(handle, (kept, arguments), lambda held: finish(held[0]), self.tally_group)
        return TallyWork(future, self.tally_group)

    def _root(self, opts, call):
        if not 0 <= opts.rootRank < self.size():
            raise ValueError(f"tally: {call}: rank {opts.rootRank} is not in 0..{self.size() - 1}, the "
                             "ranks of this group")
        return opts.rootRank

    def _reduce(self, tensor, op, finish):
        """Reduces a copy if the tensor cannot be reduced in place; finish gets what was reduced."""
        op = getattr(op, "op", op) if not isinstance(op, dist.ReduceOp) else op
        code = next((code for known, code in OPS.items() if known == op), None)
        if code is None:
            raise NotImplementedError("tally: this reduction is not offered; SUM, AVG, MIN and MAX are")
        work = plain(tensor).to(WIDER.get(tensor.dtype, tensor.dtype))
        if work.dtype not in DTYPES:
            raise NotImplementedError(f"tally: tensors of {tensor.dtype} cannot be reduced")
        return self._start(C.tally_all_reduce, work.data_ptr(), work.numel(), DTYPES[work.dtype],
                           code, kept=work, finish=finish)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Reduces one tensor in place."""
        tensor = result(one(tensors, "all_reduce"), "all_reduce")

        def finish(reduced):
            if reduced.data_ptr() != tensor.data_ptr():
                tensor.copy_(reduced)
            return [tensor]
        return self._reduce(tensor, opts.reduceOp if opts else dist.ReduceOp.SUM, finish)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Reduces several tensors in place."""
        works = [self.allreduce([tensor], opts) for tensor in tensors]
        return TallyWork(torch.futures.collect_all([work.get_future() for work in works]).then(
            lambda every: [future.value()[0] for future in every.value()]), self.tally_group)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Reduces one tensor to the root; other ranks keep theirs."""
        tensor = result(one(tensors, "reduce"), "reduce")
        root = self._root(opts, "reduce")

        def finish(reduced):
            if self.rank() == root:
                tensor.copy_(reduced)
            return [tensor]
        source = tensor.clone()
        return self._reduce(source, opts.reduceOp, finish)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Copies the root's tensor to all ranks."""
        tensor = result(one(tensors, "broadcast"), "broadcast")
        work = plain(tensor)

        def finish(copied):
            if copied.data_ptr() != tensor.data_ptr():
                tensor.copy_(copied)
            return [tensor]
        return self._start(C.tally_broadcast, work.data_ptr(), nbytes(work),
                           self._root(opts, "broadcast"), kept=work, finish=finish)

    def _gather(self, tensor, finish):
        own = plain(tensor)
        gathered = torch.empty(nbytes(own) * self.size(), dtype=torch.uint8)
        return self._start(C.tally_all_gather, own.data_ptr(), sizes_of([nbytes(own)] * self.size()),
                           gathered.data_ptr(), kept=(gathered, own),
                           finish=lambda kept: finish(kept[0]))

    def allgather(self, outputs: list[list[torch.Tensor]],
                  inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Every rank gets the tensors of all ranks."""
        tensor = one(inputs, "all_gather")
        one_per_rank(outputs[0], self.size(), tensor, "all_gather", result)
        return self._gather(tensor, lambda flat: spread_bytes(flat, outputs[0]))

    def _allgather_base(self, output, tensor, opts=None):
        whole_and_part(result(output, "all_gather"), tensor, self.size(), "all_gather")
        return self._gather(tensor, lambda flat: spread_bytes(flat, [output]))

    def gather(self, outputs: list[list[torch.Tensor]],
               inputs: list[torch.Tensor], opts: Any) -> dist.Work:
        """The root gets the tensors of all ranks."""
        root = self._root(opts, "gather")
        tensor = one(inputs, "gather")
        if self.rank() == root:
            one_per_rank(outputs[0], self.size(), tensor, "gather", result)
        return self._gather(tensor, lambda flat: spread_bytes(flat, outputs[0])
                            if self.rank() == root else inputs)

    def _scatter_reduced(self, output, flat, op):
        count = output.numel()

        def finish(reduced):
            start = self.rank() * count
            output.copy_(reduced[start:start + count].reshape(output.shape))
            return [output]
        return self._reduce(flat, op, finish)

    def reduce_scatter(self, outputs: list[torch.Tensor],
                       inputs: list[list[torch.Tensor]], opts: Any = None) -> dist.Work:
        """Rank r gets the reduced r-th tensors of all ranks."""
        output = result(one(outputs, "reduce_scatter"), "reduce_scatter")
        one_per_rank(inputs[0], self.size(), output, "reduce_scatter")
        flat = torch.cat([tensor.reshape(-1) for tensor in inputs[0]])
        return self._scatter_reduced(output, flat, opts.reduceOp if opts else dist.ReduceOp.SUM)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        whole_and_part(tensor, result(output, "reduce_scatter"), self.size(), "reduce_scatter")
        return self._scatter_reduced(output, tensor.reshape(-1).clone(),
                                     opts.reduceOp if opts else dist.ReduceOp.SUM)

    def _exchange(self, flat, sent, received, finish):
        """All-to-all of bytes."""
        arrived = torch.empty(sum(received), dtype=torch.uint8)
        return self._start(C.tally_all_to_all, flat.data_ptr(), sizes_of(sent), arrived.data_ptr(),
                           sizes_of(received), kept=(arrived, flat),
                           finish=lambda kept: finish(kept[0]))

    def alltoall(self, outputs: list[torch.Tensor],
                 inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Tensor r goes to rank r."""
        one_per_rank(inputs, self.size(), None, "all_to_all")
        one_per_rank(outputs, self.size(), None, "all_to_all", result)
        return self._exchange(flat_bytes(inputs), [nbytes(tensor) for tensor in inputs],
                              [nbytes(tensor) for tensor in outputs],
                              lambda flat: spread_bytes(flat, outputs))

    def alltoall_base(self, output: torch.Tensor, tensor: torch.Tensor,
                      output_split_sizes: list[int], input_split_sizes: list[int],
                      opts: Any = None) -> dist.Work:
        """Rows of a tensor go to the ranks; empty sizes mean equal parts."""
        def parts(whole, sizes):
            if dense(whole, "all_to_all_single").dim() == 0:
                raise ValueError("tally: all_to_all_single: a tensor without dimensions has no rows")
            rows = whole.shape[0]
            sizes = list(sizes) or [rows // self.size()] * self.size()
            if len(sizes) != self.size() or min(sizes) < 0 or sum(sizes) != rows:
                raise ValueError(f"tally: all_to_all_single: {rows} rows cannot be divided among "
                                 f"{self.size()} ranks as {sizes}")
            return [size * (nbytes(whole) // rows if rows else 0) for size in sizes]
        return self._exchange(flat_bytes([tensor]), parts(tensor, input_split_sizes),
                              parts(result(output, "all_to_all_single"), output_split_sizes),
                              lambda flat: spread_bytes(flat, [output]))

    def scatter(self, outputs: list[torch.Tensor],
                inputs: list[list[torch.Tensor]], opts: Any) -> dist.Work:
        """Rank r gets the root's r-th tensor."""
        output = result(one(outputs, "scatter"), "scatter")
        root = self._root(opts, "scatter")
        is_root = self.rank() == root
        if is_root:
            one_per_rank(inputs[0], self.size(), output, "scatter")
        sent = [nbytes(tensor) for tensor in inputs[0]] if is_root else [0] * self.size()
        received = [nbytes(output) if rank == root else 0 for rank in range(self.size())]
        return self._exchange(flat_bytes(inputs[0] if is_root else []), sent, received,
                              lambda flat: spread_bytes(flat, [output]))

    def barrier(self, opts: Any = None) -> dist.Work:
        """Ends when all ranks have called it."""
        return self._start(C.tally_barrier, kept=None, finish=lambda _: [torch.zeros(1)])

    def monitored_barrier(self, timeout: datetime.timedelta | None = None,
                          wait_all_ranks: bool = False) -> None:
        """A barrier; a rank that is missing is named in any case, after the group's timeout."""
        self.barrier().wait()

    def _not_offered(self, *_, **__):
        raise NotImplementedError("tally: send, recv and allgather_coalesced are not offered: use "
                                  "broadcast, all_gather or all_to_all")

    send = recv = recv_anysource = allgather_coalesced = _not_offered

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return 0


def _meet_at(store, rank, size, seconds):
    """What each rank has said: a new name, and its machine."""
    store.set(f"tally/{rank}", f"{new_name()} {machine()}")
    for other in range(size):
        try:
            store.wait([f"tally/{other}"], datetime.timedelta(seconds=seconds))
        except RuntimeError as error:
            raise RuntimeError(f"tally: rank {other} of {size} did not come to the process group within "
                               f"{seconds:g} s ({error})") from None
    return [store.get(f"tally/{other}").decode().split() for other in range(size)]


def create(store: dist.Store, rank: int, size: int,
           timeout: datetime.timedelta | None) -> TallyProcessGroup:
    """Makes a process group; torch.distributed calls it on every rank of the group."""
    seconds = timeout.total_seconds() if timeout is not None else OPEN_TIMEOUT_S
    said = _meet_at(store, rank, size, seconds)
    group = open_group(rank, size, said[0][0], [where for _, where in said],
                       timeout_s=min(seconds, 1e6) if timeout is not None else 0,
                       open_timeout_s=min(seconds, OPEN_TIMEOUT_S))
    made = TallyProcessGroup(rank, size, group)
    weakref.finalize(made, close_later, group).atexit = False
    return made


def init_process_group(backend: str = "tally", **options: Any) -> None:
    """As torch.distributed.init_process_group("tally"), and also under `tally run` and mpirun,
    which set no address to meet at: the ranks meet as tally's do."""
    if backend != "tally":
        raise ValueError(f"tally.torch.init_process_group starts the backend 'tally', not {backend!r}: "
                         "for another one call torch.distributed.init_process_group")
    if dist.is_initialized():
        raise RuntimeError("torch.distributed.init_process_group was called before")
    said = [options.get(name) for name in ("init_method", "store")]
    if any(said) or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
        dist.init_process_group("tally", **options)
        return
    for name in ("rank", "world_size"):
        if name in options:
            raise TypeError(f"{name} needs init_method or store: without them the launcher gives it")
    with Group() as group:
        store = _meet(group)
        rank, size = group.rank, group.size
    dist.init_process_group("tally", store=store, rank=rank, world_size=size, **options)


def _meet(group):
    """A store that rank 0 holds, at an address that travels over tally."""
    import numpy
    place = numpy.zeros(256, dtype=numpy.uint8)
    store = None
    if group.rank == 0:
        host = socket.gethostname() if group.backend == "mpi" else "127.0.0.1"
        store = dist.TCPStore(host, 0, group.size, True, wait_for_workers=False)
        words = f"{host} {store.port}".encode()
        place[:len(words)] = numpy.frombuffer(words, dtype=numpy.uint8)
    group.broadcast(place)
    if store is None:
        host, port = place.tobytes().rstrip(b"\0").decode().split()
        store = dist.TCPStore(host, int(port), group.size, False, wait_for_workers=False)
    return store


dist.Backend.register_backend("tally", create)

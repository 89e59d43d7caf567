# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks, and collectives on NumPy arrays."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _declarations as D
from ._ends import Owned
from ._library import C, array_of, check, config, fill, number, required

if TYPE_CHECKING:
    import numpy

OPS = {"sum": D.TALLY_SUM, "mean": D.TALLY_MEAN, "min": D.TALLY_MIN, "max": D.TALLY_MAX}


def op_of(name: str) -> int:
    """tally's number of an operation."""
    if not isinstance(name, str) or name not in OPS:
        raise ValueError(f"unknown operation '{name}'; accepted: {', '.join(OPS)}")
    return OPS[name]


class Group(Owned):
    """Ranks that compute together.

    `Group()` finds rank and world in the environment, as `tally run`, torchrun and mpirun set it;
    alone it is a world of one. Options are those of tally_group_config: backend, rank, world,
    rendezvous, timeout_s, open_timeout_s, lanes. Opening is collective and blocks.

    Collectives work in place on C-contiguous arrays, in the same order on all ranks, and block;
    other Python threads run meanwhile. Errors are TallyError.
    """

    _word = "group"

    def __init__(self, **options: Any) -> None:
        settings = config(D.tally_group_config, C.tally_group_config_init)
        fill(settings, options, "Group")
        handle = ctypes.c_void_p()
        check(C.tally_group_open(ctypes.byref(settings), ctypes.byref(handle)))
        self._own(handle.value, C.tally_group_close)

    @property
    def rank(self) -> int:
        """The number of this process among the ranks, from 0."""
        return C.tally_group_rank(self.handle)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return C.tally_group_size(self.handle)

    @property
    def backend(self) -> str:
        """The connection between ranks: "self", "shm" or "mpi"."""
        return C.tally_group_backend(self.handle).decode()

    @property
    def bytes_sent(self) -> int:
        """Payload that this rank has sent to others since the group was opened."""
        return C.tally_group_bytes_sent(self.handle)

    def _wait(self, function, *arguments) -> None:
        future = ctypes.c_void_p()
        check(function(self.handle, *arguments, ctypes.byref(future)))
        try:
            check(C.tally_future_wait(future))
        finally:
            C.tally_future_free(future)

    def all_reduce(self, array: numpy.ndarray, op: str = "sum") -> numpy.ndarray:
        """Replaces array by the sum, mean, min or max over all ranks; returns it."""
        from . import _numpy
        _numpy.writable(array, "array")
        self._wait(C.tally_all_reduce, array.ctypes.data, array.size,
                   _numpy.dtype_of(array, "array"), op_of(op))
        return array

    def broadcast(self, array: numpy.ndarray, root: int = 0) -> numpy.ndarray:
        """Copies array from rank root to all ranks; returns it."""
        from . import _numpy
        _numpy.plain(_numpy.writable(array, "array"), "array")
        self._wait(C.tally_broadcast, array.ctypes.data, array.nbytes, number(root, "root"))
        return array

    def all_gather(self, array: numpy.ndarray) -> numpy.ndarray:
        """The arrays of all ranks, which have equal shapes, stacked in rank order."""
        import numpy
        from . import _numpy
        array = _numpy.plain(numpy.asarray(array, order="C"), "array")
        gathered = numpy.empty((self.size, *array.shape), array.dtype)
        self._wait(C.tally_all_gather, array.ctypes.data,
                   array_of(ctypes.c_size_t, [array.nbytes] * self.size), gathered.ctypes.data)
        return gathered

    def reduce_scatter(self, array: numpy.ndarray, op: str = "sum") -> numpy.ndarray:
        """This rank's shard of the flattened array, reduced; array is changed there."""
        from . import _numpy
        _numpy.writable(array, "array")
        self._wait(C.tally_reduce_scatter, array.ctypes.data, array.size,
                   _numpy.dtype_of(array, "array"), op_of(op))
        offset, n = ctypes.c_size_t(), ctypes.c_size_t()
        C.tally_shard(array.size, self.size, self.rank, ctypes.byref(offset), ctypes.byref(n))
        return array.reshape(-1)[offset.value:offset.value + n.value]

    def all_to_all(self, array: numpy.ndarray) -> numpy.ndarray:
        """Row r of array goes to rank r; row r of the result comes from rank r."""
        import numpy
        from . import _numpy
        array = _numpy.plain(numpy.asarray(array, order="C"), "array")
        if array.shape[:1] != (self.size,):
            raise ValueError(f"all_to_all: expected {self.size} rows, one for each rank")
        received = numpy.empty_like(array)
        sizes = array_of(ctypes.c_size_t, [array.nbytes // self.size] * self.size)
        self._wait(C.tally_all_to_all, array.ctypes.data, sizes, received.ctypes.data, sizes)
        return received

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._wait(C.tally_barrier)

    def split(self, color: int, key: int = 0) -> Group | None:
        """Ranks with equal colors form a new group; None for a negative color. Collective."""
        handle = ctypes.c_void_p()
        check(C.tally_group_split(self.handle, number(color, "color"), number(key, "key"),
                                  ctypes.byref(handle)))
        if not handle.value:
            return None
        half = Group.__new__(Group)
        half._own(handle.value, C.tally_group_close, self)
        return half

    def abort(self, reason: str) -> None:
        """Pending and later calls of every rank fail with this reason."""
        check(C.tally_group_abort(self.handle, required(reason, "reason")))

    def close(self) -> None:
        """Closes the group; its ddps and sub-groups are freed before."""
        super().close()

    def __exit__(self, kind, error, trace) -> None:
        if kind is not None and self._owned.value is not None:
            C.tally_group_abort(self.handle, f"{kind.__name__}: {error}".encode("utf-8", "replace"))
        try:
            self.close()
        except Exception:
            if kind is None:
                raise

    def __repr__(self) -> str:
        return "Group(closed)" if self._owned is None or self._owned.value is None else (
            f"Group(rank {self.rank} of {self.size}, {self.backend})")

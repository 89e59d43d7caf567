# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of NumPy parameters: DDP, and Optimizer with ZeRO."""

from __future__ import annotations

import collections.abc
import ctypes
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from . import _declarations as D
from ._ends import Owned
from ._library import (C, Params, array_of, as_dict, check, config, fill, load_blobs, number, real,
                       required, save, text)
from .group import Group

if TYPE_CHECKING:
    import numpy


def _handle_of(owned, what, kind):
    """The handle of an argument that is of this class."""
    if not isinstance(owned, kind):
        raise TypeError(f"{what} is a {type(owned).__name__}, not a tally.{kind.__name__}")
    return owned.handle


class Gradients(dict):
    """The arrays by parameter. An array is filled, and not replaced: tally reads it at its address."""

    def __setitem__(self, name: str, array: numpy.ndarray) -> None:
        if self.get(name) is not array:  # they are one in grads[name] += ...
            raise TypeError(f"grads[{name!r}] cannot be replaced: fill it, with grads[{name!r}][...] =")


class DDP(Owned):
    """Replaces gradients by their mean over all ranks.

    params: a dict of names and NumPy arrays, which become rank 0's. grads: a dict of arrays of the
    same shapes; None: tally provides them, see `grads`. hook: the text of a hook, such as "bf16".
    Other options are those of tally_ddp_config, such as bucket_cap_bytes and find_unused.

        for name in reversed(list(params)):
            ddp.grads[name][...] = ...       # backward
            ddp.ready(name)                  # from here on it travels
        ddp.wait()                           # now grads are the means

    Creating is collective. One thread waits; any thread announces. Errors are TallyError.
    """

    _word = "ddp"

    def __init__(self, group: Group, params: Mapping[str, numpy.ndarray],
                 grads: Mapping[str, numpy.ndarray] | None = None, hook: str | None = None,
                 **options: Any) -> None:
        from . import _numpy
        self.group = group
        if not isinstance(params, collections.abc.Mapping):
            raise TypeError(f"params is a {type(params).__name__}: expected a dict of names and arrays")
        self.params = dict(params)
        self._index = {name: i for i, name in enumerate(self.params)}
        if grads is not None and not isinstance(grads, collections.abc.Mapping):
            raise TypeError(f"grads is a {type(grads).__name__}: expected a dict of names and arrays")
        kept = None if grads is None else dict(grads)
        for name in kept or ():
            self._number(name)
        for name, array in self.params.items():
            _numpy.writable(array, f"parameter '{name}'")
            if kept is not None:
                self._check_grad(kept, name, array)
        rows = [(name, array.shape, None, _numpy.dtype_of(array, f"parameter '{name}'", "f"),
                 array.ctypes.data, kept[name].ctypes.data if kept is not None else None)
                for name, array in self.params.items()]
        self._described = Params(rows)
        settings = config(D.tally_ddp_config, C.tally_ddp_config_init)
        fill(settings, options, "DDP")
        settings.hook = text(hook, "hook")
        handle = ctypes.c_void_p()
        check(C.tally_ddp_create(_handle_of(group, "group", Group), self._described.array,
                                 self._described.n, ctypes.byref(settings), ctypes.byref(handle)))
        self._own(handle.value, C.tally_ddp_free, (self.params, kept, self._described))
        self.grads = Gradients(kept if kept is not None else {
            name: _numpy.over(C.tally_ddp_grad(self.handle, i), self.params[name].shape,
                              self.params[name].dtype, self._token)
            for name, i in self._index.items()})

    @staticmethod
    def _check_grad(grads, name, array):
        from . import _numpy
        if name not in grads:
            raise ValueError(f"grads has no array for parameter '{name}'")
        grad = _numpy.writable(grads[name], f"the gradient of '{name}'")
        if grad.shape != array.shape or grad.dtype != array.dtype:
            raise ValueError(f"the gradient of '{name}' differs from the parameter in shape or dtype")

    def _number(self, name):
        index = self._index.get(name) if isinstance(name, str) else None
        if index is None:
            raise KeyError(f"no parameter {name!r}; the parameters are: {', '.join(self._index)}")
        return index

    def ready(self, name: str) -> None:
        """The gradient is complete: tally owns it until wait returns."""
        check(C.tally_ddp_grad_ready(self.handle, self._number(name)))

    def absent(self, name: str) -> None:
        """This rank has no gradient for the parameter in this step."""
        check(C.tally_ddp_grad_absent(self.handle, self._number(name)))

    def wait(self) -> None:
        """Ends the step: returns when every gradient is the mean."""
        check(C.tally_ddp_wait(self.handle))

    def set_hook(self, hook: str) -> None:
        """Sets the hook of the next steps by its text. Collective."""
        check(C.tally_ddp_set_hook(self.handle, required(hook, "hook")))

    def zero_grad(self) -> None:
        """Sets all gradients to zero, between steps."""
        check(C.tally_ddp_zero_grad(self.handle))

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scales the means so that their joint norm is at most max_norm; returns the norm before."""
        norm = ctypes.c_double()
        check(C.tally_ddp_clip_grad_norm(self.handle, real(max_norm, "max_norm"), ctypes.byref(norm)))
        return norm.value

    def mean(self, value: float) -> float:
        """The mean of a number over all ranks. Collective."""
        mean = ctypes.c_double(real(value, "value"))
        check(C.tally_ddp_mean_scalar(self.handle, ctypes.byref(mean)))
        return mean.value

    def join(self) -> None:
        """This rank has run out of input (option join=1). Collective."""
        check(C.tally_ddp_join(self.handle))

    def check(self) -> None:
        """Fails unless all ranks have equal parameters. Collective."""
        check(C.tally_ddp_check(self.handle))

    def save(self) -> bytes:
        """This rank's blob: the state of the hook and the residuals."""
        return save(C.tally_ddp_save, self.handle)

    def load(self, blobs: Iterable[bytes]) -> None:
        """Loads the blobs of all ranks, in rank order. Collective."""
        load_blobs(C.tally_ddp_load, self.handle, blobs)

    def stats(self) -> dict[str, Any]:
        """The fields of tally_ddp_stats as a dict."""
        answer = config(D.tally_ddp_stats)
        check(C.tally_ddp_get_stats(self.handle, ctypes.byref(answer)))
        return as_dict(answer)

    def close(self) -> None:
        """Frees the ddp; views of gradients are invalid afterwards."""
        super().close()
        self.grads = Gradients()


class Optimizer(Owned):
    """Updates the parameters of a ddp with their means, by the text of an optimizer such as
    "adamw:lr=3e-4". Options are those of tally_optimizer_config; shard=1 (ZeRO-1, which implies
    overlap) keeps a share of the state on each rank. Collective.

    With overlap=1 `ddp.wait()` updates; otherwise `step()` does.
    """

    _word = "optimizer"

    def __init__(self, ddp: DDP, optimizer: str, **options: Any) -> None:
        self.ddp = ddp
        settings = config(D.tally_optimizer_config, C.tally_optimizer_config_init)
        if options.get("shard"):
            options = {"overlap": 1, **options}
        fill(settings, options, "Optimizer")
        handle = ctypes.c_void_p()
        check(C.tally_optimizer_create(_handle_of(ddp, "ddp", DDP),
                                       required(optimizer, "optimizer"),
                                       ctypes.byref(settings), ctypes.byref(handle)))
        self._own(handle.value, C.tally_optimizer_free)

    def step(self) -> None:
        """Updates the parameters with the means of this step."""
        check(C.tally_optimizer_step(self.handle))

    @property
    def lr(self) -> float:
        """The learning rate; setting it changes it for all parameters. Local."""
        return C.tally_optimizer_lr(self.handle, 0)

    @lr.setter
    def lr(self, value: float) -> None:
        check(C.tally_optimizer_set_lr(self.handle, -1, real(value, "lr")))

    def save(self) -> bytes:
        """This rank's blob: its state."""
        return save(C.tally_optimizer_save, self.handle)

    def load(self, blobs: Iterable[bytes]) -> None:
        """Loads the blobs of all ranks, in rank order. Collective."""
        load_blobs(C.tally_optimizer_load, self.handle, blobs)

    def stats(self) -> dict[str, Any]:
        """The statistics as a dict, by the names of the fields in tally.h."""
        answer = config(D.tally_optimizer_stats)
        check(C.tally_optimizer_get_stats(self.handle, ctypes.byref(answer)))
        return as_dict(answer)


class Reducer(Owned):
    """Reduces buckets that belong to somebody else, in place; see tally_extend.h.

    rows: name, shape, strides or None, and dtype number of each parameter. Creating is collective.
    """

    _word = "reducer"

    def __init__(self, group: Group, rows: Sequence[tuple], hook: str) -> None:
        self.group = group
        self.rows = rows
        described = Params([(*row, None, None) for row in rows])
        handle = ctypes.c_void_p()
        check(C.tally_reducer_create(_handle_of(group, "group", Group), described.array, described.n,
                                     text(hook, "hook"), ctypes.byref(handle)))
        self._own(handle.value, C.tally_reducer_free)

    def reduce(self, params: Sequence[int], address: int, is_last: bool,
               divisor: float = 0) -> ctypes.c_void_p:
        """Starts to reduce the bucket at address: parameters by number, one after the other.
        Returns tally's future, which the caller frees."""
        numbers = array_of(ctypes.c_int, params)
        future = ctypes.c_void_p()
        check(C.tally_reducer_reduce(self.handle, numbers, len(numbers), address, int(is_last),
                                     divisor, ctypes.byref(future)))
        return future

    def set_hook(self, hook: str) -> None:
        """Sets the hook of the next steps by its text. Collective."""
        check(C.tally_reducer_set_hook(self.handle, required(hook, "hook")))

    def save(self) -> bytes:
        """This rank's blob: its state."""
        return save(C.tally_reducer_save, self.handle)

    def load(self, blobs: Iterable[bytes]) -> None:
        """Loads the blobs of all ranks, in rank order. Collective."""
        load_blobs(C.tally_reducer_load, self.handle, blobs)

    def stats(self) -> dict[str, Any]:
        """The statistics as a dict, by the names of the fields in tally.h."""
        answer = config(D.tally_ddp_stats)
        check(C.tally_reducer_get_stats(self.handle, ctypes.byref(answer)))
        return as_dict(answer)

    def rank_stats(self, rank: int) -> dict[str, Any]:
        """The lateness of a rank as a dict, by the names of the fields in tally.h."""
        answer = config(D.tally_rank_stats)
        check(C.tally_reducer_get_rank_stats(self.handle, number(rank, "rank"), ctypes.byref(answer)))
        return as_dict(answer)

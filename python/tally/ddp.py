# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of NumPy parameters: DDP, and Optimizer with ZeRO."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from . import _declarations as D
from ._library import (C, Params, array_of, as_dict, check, config, fill, load_blobs, save, text)

if TYPE_CHECKING:
    import numpy

    from .group import Group


class DDP:
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

    def __init__(self, group: Group, params: Mapping[str, numpy.ndarray],
                 grads: Mapping[str, numpy.ndarray] | None = None, hook: str | None = None,
                 **options: Any) -> None:
        from . import _numpy
        self._pid = os.getpid()
        self._handle = None
        self.group = group
        self.params = dict(params)
        self._index = {name: i for i, name in enumerate(self.params)}
        for name, array in self.params.items():
            _numpy.writable(array, f"parameter '{name}'")
        if grads is not None:
            for name, array in self.params.items():
                grad = _numpy.writable(grads[name], f"the gradient of '{name}'")
                if grad.shape != array.shape or grad.dtype != array.dtype:
                    raise ValueError(f"the gradient of '{name}' differs from the parameter in "
                                     "shape or dtype")
        rows = [(name, array.shape, None, _numpy.dtype_of(array, f"parameter '{name}'"),
                 array.ctypes.data, grads[name].ctypes.data if grads is not None else None)
                for name, array in self.params.items()]
        self._described = Params(rows)
        settings = config(D.tally_ddp_config, C.tally_ddp_config_init)
        fill(settings, options, "DDP")
        settings.hook = text(hook)
        handle = ctypes.c_void_p()
        check(C.tally_ddp_create(group.handle, self._described.array, self._described.n,
                                 ctypes.byref(settings), ctypes.byref(handle)))
        self._handle = handle.value
        self.grads = dict(grads) if grads is not None else {
            name: _numpy.over(C.tally_ddp_grad(self._handle, i), self.params[name].shape,
                              self.params[name].dtype)
            for name, i in self._index.items()}

    @property
    def handle(self) -> int:
        """The object, for calls of the C library; ValueError once it is closed."""
        if self._handle is None:
            raise ValueError("the ddp is closed")
        return self._handle

    def ready(self, name: str) -> None:
        """The gradient is complete: tally owns it until wait returns."""
        check(C.tally_ddp_grad_ready(self.handle, self._index[name]))

    def absent(self, name: str) -> None:
        """This rank has no gradient for the parameter in this step."""
        check(C.tally_ddp_grad_absent(self.handle, self._index[name]))

    def wait(self) -> None:
        """Ends the step: returns when every gradient is the mean."""
        check(C.tally_ddp_wait(self.handle))

    def set_hook(self, hook: str) -> None:
        """Sets the hook of the next steps by its text. Collective."""
        check(C.tally_ddp_set_hook(self.handle, text(hook)))

    def zero_grad(self) -> None:
        """Sets all gradients to zero, between steps."""
        check(C.tally_ddp_zero_grad(self.handle))

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scales the means so that their joint norm is at most max_norm; returns the norm before."""
        norm = ctypes.c_double()
        check(C.tally_ddp_clip_grad_norm(self.handle, max_norm, ctypes.byref(norm)))
        return norm.value

    def mean(self, value: float) -> float:
        """The mean of a number over all ranks. Collective."""
        number = ctypes.c_double(value)
        check(C.tally_ddp_mean_scalar(self.handle, ctypes.byref(number)))
        return number.value

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
        if self._handle is not None and self._pid == os.getpid():
            check(C.tally_ddp_free(self._handle))
        self._handle = None
        self.grads = {}

    def __enter__(self) -> DDP:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Optimizer:
    """Updates the parameters of a ddp with their means, by the text of an optimizer such as
    "adamw:lr=3e-4". Options are those of tally_optimizer_config; shard=1 (ZeRO-1, which implies
    overlap) keeps a share of the state on each rank. Collective.

    With overlap=1 `ddp.wait()` updates; otherwise `step()` does.
    """

    def __init__(self, ddp: DDP, optimizer: str, **options: Any) -> None:
        self._pid = os.getpid()
        self._handle = None
        self.ddp = ddp
        settings = config(D.tally_optimizer_config, C.tally_optimizer_config_init)
        if options.get("shard"):
            options = {"overlap": 1, **options}
        fill(settings, options, "Optimizer")
        handle = ctypes.c_void_p()
        check(C.tally_optimizer_create(ddp.handle, text(optimizer), ctypes.byref(settings),
                                       ctypes.byref(handle)))
        self._handle = handle.value

    def step(self) -> None:
        """Updates the parameters with the means of this step."""
        check(C.tally_optimizer_step(self._handle))

    @property
    def lr(self) -> float:
        """The learning rate; setting it changes it for all parameters. Local."""
        return C.tally_optimizer_lr(self._handle, 0)

    @lr.setter
    def lr(self, value: float) -> None:
        check(C.tally_optimizer_set_lr(self._handle, -1, value))

    def save(self) -> bytes:
        """This rank's blob: its state."""
        return save(C.tally_optimizer_save, self._handle)

    def load(self, blobs: Iterable[bytes]) -> None:
        """Loads the blobs of all ranks, in rank order. Collective."""
        load_blobs(C.tally_optimizer_load, self._handle, blobs)

    def stats(self) -> dict[str, Any]:
        """The statistics as a dict, by the names of the fields in tally.h."""
        answer = config(D.tally_optimizer_stats)
        check(C.tally_optimizer_get_stats(self._handle, ctypes.byref(answer)))
        return as_dict(answer)

    def close(self) -> None:
        """Frees the object."""
        if self._handle is not None and self._pid == os.getpid():
            check(C.tally_optimizer_free(self._handle))
        self._handle = None

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Reducer:
    """Reduces buckets that belong to somebody else, in place; see tally_extend.h.

    rows: name, shape, strides or None, and dtype number of each parameter. Creating is collective.
    """

    def __init__(self, group: Group, rows: Sequence[tuple], hook: str) -> None:
        self._pid = os.getpid()
        self._handle = None
        self.group = group
        self.rows = rows
        described = Params([(*row, None, None) for row in rows])
        handle = ctypes.c_void_p()
        check(C.tally_reducer_create(group.handle, described.array, described.n, text(hook),
                                     ctypes.byref(handle)))
        self._handle = handle.value

    @property
    def handle(self) -> int:
        """The object, for calls of the C library; ValueError once it is closed."""
        if self._handle is None:
            raise ValueError("the reducer is closed")
        return self._handle

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
        check(C.tally_reducer_set_hook(self.handle, text(hook)))

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

    def close(self) -> None:
        """Frees the reducer without waiting for other ranks."""
        if self._handle is not None and self._pid == os.getpid():
            check(C.tally_reducer_free(self._handle))
        self._handle = None

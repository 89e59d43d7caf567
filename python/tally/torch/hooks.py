# SPDX-License-Identifier: Apache-2.0
"""Communication hooks for DistributedDataParallel that run in tally."""

from __future__ import annotations

import ctypes
import enum
import weakref
from typing import Any

import torch
import torch.distributed as dist

from .._declarations import TALLY_HOOK_LIST
from .._ends import close_late, close_later, keep
from .._library import C, check
from .._library import text as encoded
from ..ddp import Reducer
from ._futures import follow
from ._groups import DTYPES, group_of

__all__ = ["DDPCommHookType", "Hook", "hook", "register_ddp_comm_hook"]


def dense_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of a parameter that is dense but not row-major, such as channels_last; else None."""
    if tensor.is_contiguous():
        return None
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1 and stride != expected:
            return None  # DDP then lays its gradient out row-major
        expected *= size
    return tensor.stride()


def row_of(name: str, parameter: torch.Tensor, dtype: torch.dtype) -> tuple:
    """The row of a tally.Reducer for a parameter whose gradients have this dtype."""
    if dtype not in DTYPES or not dtype.is_floating_point:
        raise TypeError(f"parameter '{name}' has dtype {dtype}; tally reduces float32, float64, "
                        "float16 and bfloat16")
    return (name, tuple(parameter.shape), dense_strides(parameter), DTYPES[dtype])


def check_text(text: str) -> None:
    """Refuses a text that names no hook: without a model it would come out of the first backward."""
    if not isinstance(text, str):
        raise TypeError(f"expected the text of a hook, such as 'int8', got {text!r}")
    parsed = ctypes.c_void_p()
    check(C.tally_hook_parse(encoded(text, "hook"), ctypes.byref(parsed)))
    C.tally_hook_free(parsed)


class Hook:
    """A hook for `model.register_comm_hook(process_group, hook)`, by the text of one of tally's.

    With a model, the reducer is made now: this is collective, and state has the names of the
    model's parameters. Without one it is made in the first backward, with the parameters of its
    buckets. The state of a hook belongs to one model; registering it for a second one is an error.
    """

    def __init__(self, text: str, model: torch.nn.Module | None = None,
                 process_group: dist.ProcessGroup | None = None) -> None:
        check_text(text)
        self.text = text
        self.__name__ = self.__qualname__ = "tally"  # DDP logs it
        self._group = None
        self._reducer = None
        self._numbers = {}  # of parameters, by id
        self._parameters = []  # keeps the ids valid
        self._waiting = []  # buckets of the first backward
        self._loaded = None  # a state that came before the reducer
        if model is not None:
            self._make(process_group, self._named(model))

    @staticmethod
    def _named(model):
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"expected a model, a torch.nn.Module, got {model!r}")
        ignored = set(getattr(model, "parameters_to_ignore", ()))
        module = getattr(model, "module", model)
        return [(name, parameter, parameter.dtype) for name, parameter in module.named_parameters()
                if parameter.requires_grad and name not in ignored]

    def _make(self, process_group, named):
        self._group = group_of(process_group)
        self._parameters = [parameter for _, parameter, _ in named]
        self._numbers = {id(parameter): i for i, parameter in enumerate(self._parameters)}
        reducer = Reducer(self._group, [row_of(*row) for row in named], self.text)
        self._reducer = keep(reducer)
        weakref.finalize(self, close_later, reducer).atexit = False
        if self._loaded is not None:
            reducer.load(self._loaded)
            self._loaded = None

    # DDP refuses hooks whose annotations are texts, as all of this file are.
    def __call__(self, process_group, bucket):
        """Called by DDP for each bucket; returns a future of the bucket's mean."""
        close_late()
        buffer = bucket.buffer()
        parameters = bucket.parameters()
        if buffer.layout != torch.strided:
            raise NotImplementedError(f"hook '{self.text}' got a sparse gradient, of a parameter of shape "
                                      f"{tuple(parameters[0].shape)}: tally's hooks take dense ones, as "
                                      "of Embedding(sparse=False)")
        if self._reducer is None:
            return self._learn(process_group, bucket, buffer, parameters)
        return self._reduce(buffer, parameters, bucket.is_last())

    def _reduce(self, buffer, parameters, is_last):
        try:
            numbers = [self._numbers[id(parameter)] for parameter in parameters]
        except KeyError:
            raise RuntimeError(f"hook '{self.text}' got a parameter of another model: make one hook "
                               "for each model") from None
        expected = self._reducer.rows[numbers[0]][3]
        if DTYPES.get(buffer.dtype) != expected or not buffer.is_contiguous():
            raise RuntimeError(f"hook '{self.text}' got a bucket of {buffer.dtype}; its parameters "
                               "had another dtype when the hook was made. A wrapper that casts "
                               "gradients needs a hook without a model: tally.torch.hook(text)")
        return follow(self._reducer.reduce(numbers, buffer.data_ptr(), is_last), buffer,
                      lambda kept: kept)

    def _learn(self, process_group, bucket, buffer, parameters):
        """In the first backward: the last bucket makes the reducer, and starts all of them."""
        if bucket.index() == 0:
            self._waiting = []  # of a backward that was given up
        ready = torch.futures.Future()
        self._waiting.append((ready, buffer, parameters))
        if bucket.is_last():
            waiting, self._waiting = self._waiting, []
            named = [(parameter, kept.dtype) for _, kept, listed in waiting for parameter in listed]
            self._make(process_group, [(f"parameter {i}", parameter, dtype)
                                       for i, (parameter, dtype) in enumerate(reversed(named))])
            # All of them travel before the first result, which is waited for, is set.
            started = [self._reduce(kept, listed, at + 1 == len(waiting))
                       for at, (_, kept, listed) in enumerate(waiting)]
            for (earlier, _, _), reduced in zip(waiting, started):
                earlier.set_result(reduced)
        return ready.then(_inner)

    @property
    def reducer(self) -> Reducer | None:
        """The tally.Reducer; None before the first backward of a hook without a model."""
        return self._reducer

    def set_hook(self, text: str) -> None:
        """Replaces the hook between two steps; residuals are kept. Collective."""
        if self._reducer is not None:
            self._reducer.set_hook(text)
        else:
            check_text(text)
        self.text = text

    def stats(self) -> dict[str, Any]:
        """Steps, buckets, bytes and times, as tally_ddp_stats has them."""
        return self._reducer.stats() if self._reducer is not None else {}

    def state_dict(self) -> dict[str, Any]:
        """This rank's state: residuals, PowerSGD's factors, steps. Between steps; local."""
        blob = self._reducer.save() if self._reducer is not None else b""
        return {"hook": self.text, "blob": torch.tensor(bytearray(blob), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Loads what state_dict returned: on each rank its own, or on all ranks a list with those of
        all ranks, which may have been more or fewer. Collective, between steps."""
        if isinstance(state, (list, tuple)):
            blobs = [blob_of(entry) for entry in state]
        else:
            blobs = self._gather(state)
        if not any(blobs):
            return  # saved before the first step
        if self._reducer is None:
            self._loaded = blobs
        else:
            self._reducer.load(blobs)

    def _gather(self, state):
        """The blobs of all ranks. A rank without one says so: the others must not wait for it."""
        if self._reducer is None:
            raise RuntimeError("a hook without a model loads its state after the first backward, or "
                               "from a list with the states of all ranks")
        import numpy
        problem, blob = None, b""
        try:
            blob = blob_of(state)
        except TypeError as error:
            problem = error
        sizes = self._group.all_gather(numpy.array([-1 if problem else len(blob)]))[:, 0]
        if problem:
            raise problem
        for rank in numpy.flatnonzero(sizes < 0):
            raise RuntimeError(f"load_state_dict: rank {rank} got no state of a hook")
        padded = numpy.zeros(int(sizes.max()), dtype=numpy.uint8)
        padded[:len(blob)] = numpy.frombuffer(blob, dtype=numpy.uint8)
        rows = self._group.all_gather(padded)
        return [row[:size].tobytes() for row, size in zip(rows, sizes)]

    def close(self) -> None:
        """Frees the reducer on this rank; a later backward makes an error."""
        if self._reducer is not None:
            self._reducer.close()

    def __repr__(self) -> str:
        return f"tally.torch.hook({self.text!r})"


def blob_of(state: dict[str, Any]) -> bytes:
    """The bytes in what state_dict returned."""
    blob = state.get("blob") if isinstance(state, dict) else None
    if not isinstance(blob, torch.Tensor) or blob.dtype != torch.uint8:
        raise TypeError("load_state_dict takes what state_dict of a tally hook returned, or a list "
                        f"of these, not {str(state)[:100]}")
    return blob.contiguous().numpy().tobytes()


def _inner(future):
    return future.value().wait()


def hook(text: str, model: torch.nn.Module | None = None,
         process_group: dist.ProcessGroup | None = None) -> Hook:
    """A hook by the text of any of tally's: "int8", "bf16(powersgd:rank=4)", ..."""
    return Hook(text, model, process_group)


class _Registration:
    """Registers one of the ten hooks, as the values of PyTorch's DDPCommHookType do."""

    def __init__(self, text):
        self.text = text

    def __call__(self, model, state=None):
        made = Hook(self.text, model, state)
        model.register_comm_hook(state, made)
        return made

    def __repr__(self):
        return f"tally '{self.text}'"


DDPCommHookType = enum.Enum(
    "DDPCommHookType", {name: _Registration(text) for name, _, text in TALLY_HOOK_LIST},
    module=__name__)
DDPCommHookType.__doc__ = "The ten hooks of PyTorch's DDPCommHookType, run by tally."


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: torch.nn.Module,
                           state: dist.ProcessGroup | None = None) -> Hook:
    """Registers a hook for a DDP model; state is a process group, or None for the default one.
    Returns the Hook. Collective: on all ranks in the same order."""
    if not isinstance(comm_hook_type, DDPCommHookType):
        raise TypeError(f"{comm_hook_type!r} is not a tally.torch.DDPCommHookType")
    if not hasattr(model, "register_comm_hook"):
        raise TypeError(f"model is a {type(model).__name__}: hooks are for DistributedDataParallel")
    return comm_hook_type.value(model=model, state=state)

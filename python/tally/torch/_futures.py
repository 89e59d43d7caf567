# SPDX-License-Identifier: Apache-2.0
"""tally's futures as PyTorch's. A job of tally calls back on tally's own thread, which then
completes the PyTorch future; no thread waits.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, Callable

import torch

from .._declarations import tally_done_fn
from .._library import C, TallyError

_numbers = itertools.count(1)
_pending = {}  # by number: the future, what must stay alive until the job is done, and its group
_thread = threading.local()  # starts: in follow; runs_for: the group whose callbacks run here


def _on_done(number, status, text):
    future, kept, finish, group = _pending.pop(number)
    error = TallyError(status, text.decode("utf-8", "replace")) if status != 0 else None
    before = getattr(_thread, "runs_for", None)
    _thread.runs_for = before if getattr(_thread, "starts", False) else group
    try:
        future.set_result((error, kept, finish))
    finally:
        _thread.runs_for = before


_callback = tally_done_fn(_on_done)  # one for all jobs: it lives as long as the module


def _value(future):
    """The end of a job. An error is raised here, inside then: with Future.set_exception its text
    would be lost on the way through C++."""
    error, kept, finish = future.value()
    if error is not None:
        raise error
    with torch.no_grad():  # the result may go to a tensor that needs a gradient
        return finish(kept)


def runs_callbacks_of(group: Any) -> bool:
    """Whether this is a callback on the thread that runs the collectives of this group."""
    return group is not None and getattr(_thread, "runs_for", None) is group


def follow(handle: ctypes.c_void_p, kept: Any, finish: Callable[[Any], Any],
           group: Any = None) -> torch.futures.Future:
    """A PyTorch future for a future of tally, which is taken over. kept stays alive until the job is
    done; the result is finish(kept), a tensor or a list of tensors. group: for runs_callbacks_of."""
    future = torch.futures.Future()
    number = next(_numbers)
    _pending[number] = (future, kept, finish, group)
    result = future.then(_value)
    before, _thread.starts = getattr(_thread, "starts", False), True
    try:  # a job that is done calls back at once, on this thread
        C.tally_future_on_done(handle, _callback, ctypes.c_void_p(number))
    finally:
        _thread.starts = before
    C.tally_future_free(handle)  # the job continues, and calls back
    return result


# SPDX-License-Identifier: Apache-2.0
"""The end of objects of the C library: closed by the program, dropped, or alive when the interpreter
ends. Only the process that made an object frees it, and never on a thread of tally."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Callable

from ._library import TallyError, check

_open = []  # of the objects of keep, weak: in the order in which they were made
_late = []  # objects whose end came at a moment at which they cannot be closed


class _Handle:
    """The object in C. kept is its memory: it lives as long as the object."""

    def __init__(self, value: int, free: Callable, kept: Any) -> None:
        self.value = value
        self.free = free
        self.kept = kept
        self.pid = os.getpid()

    def close(self) -> None:
        """Frees it, once; a forked child only forgets it."""
        if self.value is not None and self.pid == os.getpid():
            check(self.free(self.value))
        self.value = self.kept = None


class _Token:
    """Lives as long as anything that uses the object in C."""


class Owned:
    """An object of the C library. It is freed by close(), or when it and everything that holds its
    token are dropped."""

    _word = "object"  # in errors
    _owned = None

    def _own(self, value: int, free: Callable, kept: Any = None) -> None:
        """Takes over the C object value; free frees it, and returns a status."""
        close_late()
        self._owned = _Handle(value, free, kept)
        self._token = _Token()
        weakref.finalize(self._token, close_later, self._owned).atexit = False

    @property
    def handle(self) -> int:
        """The object, for calls of the C library; ValueError once it is closed."""
        if self._owned is None or self._owned.value is None:
            raise ValueError(f"the {self._word} is closed")
        return self._owned.value

    def close(self) -> None:
        """Frees the object."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __reduce_ex__(self, protocol: int) -> Any:
        raise TypeError(f"a tally {self._word} cannot be copied or pickled")


def keep(thing: Any) -> Any:
    """The object is closed when the interpreter ends, if it still lives."""
    _open[:] = [known for known in _open if known() is not None]
    _open.append(weakref.ref(thing))
    return thing


def close_later(thing: Any) -> None:
    """Closes an object whose owner has gone. A garbage collection may run on a thread of tally,
    which cannot wait for itself, and may take a group before its ddps: then a later call closes
    it."""
    _late.append(thing)
    close_late()


def close_late() -> None:
    """Closes the objects that could not be closed before; some need that others are closed."""
    before = None
    while _late and len(_late) != before:
        before = len(_late)
        for thing in reversed([_late.pop() for _ in range(before)]):
            try:
                thing.close()
            except TallyError as error:
                if error.status == "STATE":
                    _late.append(thing)


@atexit.register
def close_all() -> None:
    """Before the interpreter ends: no thread of tally may call Python after that."""
    close_late()
    for known in reversed(_open):
        thing = known()
        try:
            if thing is not None:
                thing.close()
        except (TallyError, ValueError):
            pass  # the process ends, and its peers are told so by its death
    _open.clear()

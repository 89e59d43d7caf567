# SPDX-License-Identifier: Apache-2.0
"""Finds libtally, loads it, and calls it. A call releases the interpreter lock while C works."""

from __future__ import annotations

import ctypes
import operator
import os
import pathlib
from typing import Any, Callable, Iterable, Sequence

from . import _declarations

NAME = "libtally.so.0"


def candidates() -> list[str]:
    """Places of the library, in the order in which they are tried."""
    here = pathlib.Path(__file__).resolve().parent
    if os.environ.get("TALLY_LIBRARY"):
        return [os.environ["TALLY_LIBRARY"]]  # then no other: a mistyped path is an error
    inside = here / "lib" / NAME  # in a wheel
    tree = here.parent.parent / "build" / "src" / NAME  # in a checkout
    return [str(path) for path in (inside, tree) if path.exists()] + [NAME]


def load() -> tuple[ctypes.CDLL, str]:
    """Loads the first library found; returns it and its path."""
    tried = []
    for path in candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (result, arguments) in _declarations.FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                why = ("the library is older than this package; install matching versions"
                       if hasattr(library, "tally_version") else "it is not libtally")
                raise ImportError(f"{path} has no {name}: {why}") from None
            function.restype = result
            function.argtypes = arguments
        return library, path
    raise ImportError("cannot load libtally: " + "; ".join(tried) +
                      "; install it, or set TALLY_LIBRARY to its path")


C, PATH = load()
_INTEGERS = (ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_ulonglong)
_NAMES = {value: name for name, value, _ in _declarations.TALLY_STATUS_LIST}


class TallyError(RuntimeError):
    """A call of tally that failed: its text, and the name of its status, such as "PEER"."""

    def __init__(self, status: int | str, text: str) -> None:
        self.status = _NAMES.get(status, "UNKNOWN") if isinstance(status, int) else status
        self.text = text
        super().__init__(f"{self.status}: {text}")

    def __reduce__(self) -> tuple:
        return (TallyError, (self.status, self.text))


def check(status: int) -> None:
    """Raises what a call returned, unless it succeeded."""
    if status != 0:
        raise TallyError(status, C.tally_last_error().decode("utf-8", "replace"))


def text(value: str | None, what: str = "text") -> bytes | None:
    """A Python text for C; None stays NULL. what names it in an error."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {type(value).__name__}, {value!r}: expected a str")
    if "\0" in value:
        raise ValueError(f"{what} {value!r} has a NUL character")
    return value.encode("utf-8")


def required(value: str, what: str) -> bytes:
    """A Python text for C, which needs one; what names it in an error."""
    if value is None:
        raise TypeError(f"{what} is None: expected a str")
    return text(value, what)


def number(value: int, what: str) -> int:
    """An int for C."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}: expected an int") from None
    if not -2**31 <= value < 2**31:
        raise ValueError(f"{what} {value} is too large")
    return value


def real(value: float, what: str) -> float:
    """A double for C."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{what} is {value!r}: expected a number")


def config(kind: type, init: Callable | None = None) -> Any:
    """A struct that begins with its size, with nothing set."""
    made = kind()
    if init:
        init(ctypes.byref(made), ctypes.sizeof(made))
    else:
        made.size = ctypes.sizeof(made)
    return made


def fill(struct: ctypes.Structure, values: dict[str, Any], what: str) -> None:
    """Sets fields by name; texts are encoded."""
    kinds = {name: kind for name, kind in struct._fields_ if name not in ("size", "reserved")}
    for name, value in values.items():
        if name not in kinds:
            raise TypeError(f"{what}: unknown option '{name}'; accepted: {', '.join(sorted(kinds))}")
        try:
            setattr(struct, name, _field(kinds[name], value, name))
        except TypeError:
            raise TypeError(f"{what}: option '{name}' does not accept {value!r}") from None
        except OverflowError:
            raise ValueError(f"{what}: option '{name}' does not accept {value!r}") from None


def _field(kind, value, name):
    """The value for a field of this kind. ctypes would take a number for an address."""
    if kind in _INTEGERS:
        value = operator.index(value)
        if kind(value).value != value:
            raise OverflowError
    elif kind is ctypes.c_char_p:
        return text(value, name)
    elif kind is not ctypes.c_double and isinstance(value, (int, bytes, str)):
        raise TypeError
    return value


def as_dict(struct: ctypes.Structure) -> dict[str, Any]:
    """The fields of an answer, with texts decoded."""
    return {name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for name, value in ((name, getattr(struct, name)) for name, _ in struct._fields_)
            if name not in ("size", "reserved")}


def array_of(kind: type, values: Sequence) -> ctypes.Array:
    """A C array of these values."""
    return (kind * len(values))(*values)


def save(function: Callable, handle: int) -> bytes:
    """The blob of an object, by a ..._save function."""
    size = ctypes.c_size_t()
    check(function(handle, None, ctypes.byref(size)))
    blob = ctypes.create_string_buffer(size.value)
    check(function(handle, blob, ctypes.byref(size)))
    return blob.raw[:size.value]


def load_blobs(function: Callable, handle: int, blobs: Iterable[bytes]) -> None:
    """Loads the blobs of all ranks, by a ..._load function."""
    single = isinstance(blobs, (bytes, bytearray, str)) or not hasattr(blobs, "__iter__")
    blobs = None if single else list(blobs)
    if blobs is None or not all(isinstance(blob, (bytes, bytearray)) for blob in blobs):
        raise TypeError("load takes a list with one blob per rank, which save returned as bytes")
    kept = [ctypes.create_string_buffer(bytes(blob), len(blob)) for blob in blobs]
    pointers = array_of(ctypes.c_void_p, [ctypes.addressof(blob) for blob in kept])
    sizes = array_of(ctypes.c_size_t, [len(blob) for blob in kept])
    check(function(handle, pointers, sizes, len(kept)))


class Params:
    """An array of tally_param: name, shape, strides, dtype and addresses of each."""

    def __init__(self, rows: Sequence[tuple]) -> None:
        """rows: name, shape, strides or None, dtype, address of data, address of gradient."""
        self.kept = []
        self.n = len(rows)
        self.array = (_declarations.tally_param * self.n)()
        for entry, (name, shape, strides, dtype, data, grad) in zip(self.array, rows):
            entry.size = ctypes.sizeof(entry)
            entry.name = text(name, "the name of a parameter")
            entry.n_dims = len(shape)
            entry.shape = self._sizes(shape)
            if strides is not None:
                entry.strides = self._sizes(strides)
            entry.dtype = dtype
            entry.data = data
            entry.grad = grad

    def _sizes(self, values: Iterable[int]):
        sizes = array_of(ctypes.c_size_t, list(values) or [0])
        self.kept.append(sizes)
        return ctypes.cast(sizes, ctypes.POINTER(ctypes.c_size_t))

# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays for tally: dtypes, addresses, and arrays over tally's memory."""

from __future__ import annotations

import ctypes

import numpy

from ._declarations import (TALLY_BF16, TALLY_F16, TALLY_F32, TALLY_F64, TALLY_I32, TALLY_I64,
                            TALLY_U8)

DTYPES = {numpy.dtype("float32"): TALLY_F32, numpy.dtype("float64"): TALLY_F64,
          numpy.dtype("float16"): TALLY_F16, numpy.dtype("int32"): TALLY_I32,
          numpy.dtype("int64"): TALLY_I64, numpy.dtype("uint8"): TALLY_U8}
NAMES = {"float32": TALLY_F32, "float64": TALLY_F64, "float16": TALLY_F16, "bfloat16": TALLY_BF16}


def dtype_of(array: numpy.ndarray, what: str, kinds: str = "fiu") -> int:
    """tally's number of the dtype, of these kinds; what names the array in the error."""
    if array.dtype not in DTYPES or array.dtype.kind not in kinds:
        accepted = ", ".join(str(dtype) for dtype in DTYPES if dtype.kind in kinds)
        raise TypeError(f"{what} has dtype {array.dtype}; accepted: {accepted}")
    if not array.flags.aligned:
        raise ValueError(f"{what} begins in the middle of an element: use a copy, which is aligned")
    return DTYPES[array.dtype]


def plain(array: numpy.ndarray, what: str) -> numpy.ndarray:
    """The array itself, if its bytes mean the same to another process."""
    if array.dtype.hasobject:
        raise TypeError(f"{what} has dtype {array.dtype}: its elements are Python objects, which "
                        "belong to this process")
    return array


def writable(array: numpy.ndarray, what: str) -> numpy.ndarray:
    """The array itself, if tally can write its result into it."""
    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"{what} is a {type(array).__name__}, not a NumPy array")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{what} must be C-contiguous and writable: it gets the result")
    return array


def over(address: int, shape: tuple[int, ...], dtype: numpy.dtype, owner: object) -> numpy.ndarray:
    """An array over memory that tally owns; owner lives as long as the array."""
    count = 1
    for size in shape:
        count *= size
    buffer = (ctypes.c_char * max(count * dtype.itemsize, 1)).from_address(address)
    buffer.owner = owner
    return numpy.frombuffer(buffer, dtype=dtype, count=count).reshape(shape)

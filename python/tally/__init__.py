# SPDX-License-Identifier: Apache-2.0
"""tally: data-parallel training, from Python.

Group, DDP and Optimizer work on NumPy arrays. `tally.torch` has the hooks for PyTorch's
DistributedDataParallel, and a backend for torch.distributed. docs/pytorch.md shows both.
"""

from __future__ import annotations

from ._library import C as _C
from ._library import TallyError
from .ddp import DDP, Optimizer, Reducer
from .group import Group

__version__ = _C.tally_version().decode()
__all__ = ["DDP", "Group", "Optimizer", "Reducer", "TallyError", "hooks", "optimizers"]


def hooks() -> dict[str, str]:
    """The names of tally's hooks and their help texts."""
    from ._declarations import tally_hook_info
    return _describe(_C.tally_hook_count, _C.tally_hook_describe, tally_hook_info)


def optimizers() -> dict[str, str]:
    """The names of tally's optimizers and their help texts."""
    from ._declarations import tally_optimizer_info
    return _describe(_C.tally_optimizer_count, _C.tally_optimizer_describe, tally_optimizer_info)


def _describe(count, describe, kind) -> dict[str, str]:
    """The rows of one of the library's lists."""
    import ctypes
    from ._library import check, config
    rows = {}
    for index in range(count()):
        row = config(kind)
        check(describe(index, ctypes.byref(row)))
        rows[row.name.decode()] = row.help.decode()
    return rows

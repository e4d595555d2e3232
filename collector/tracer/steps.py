"""Counting the user's own steps: ``trueload.step``. The standard library alone: training jobs load it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

_LIMIT: Final = 2**64
_PATH: Final = os.environ.get("CUDA_INJECTION64_PATH", "")  # what libcuda goes by; it does not change later either
_count: Callable[[int], object] | None = None


def step(steps: int = 1) -> None:
    """Tell that the program has done ``steps`` more of its steps: batches, episodes, whatever it counts its work in.

    The count goes to the tracer in this process and from there to the job's page, so that less GPU time can be told
    from less work. Without a tracer nothing happens, and neither do steps count that come before CUDA is initialised.
    Any thread may call it; it costs well under a microsecond (``trueload bench tracer`` measures it).

    Raises:
        ValueError: ``steps`` is negative, or more than the counter holds.
    """
    if not 0 <= steps < _LIMIT:
        raise ValueError(f"steps: {steps} is not in 0 to 2**64 - 1")
    if not _PATH:
        return
    count = _count or _find()
    if count is not None:
        count(steps)


def _find() -> Callable[[int], object] | None:
    """Find the counter in the library that libcuda has loaded; it is not loaded by us."""
    global _count  # noqa: PLW0603 - once per process
    try:
        # PyDLL keeps the GIL: letting go of it would cost more than the call.
        function = ctypes.PyDLL(_PATH, mode=os.RTLD_NOW | os.RTLD_NOLOAD).trueload_step
    except (OSError, AttributeError):  # not loaded (yet), or another tool's library
        return None
    function.argtypes, function.restype = (ctypes.c_uint64,), None
    _count = function
    return _count

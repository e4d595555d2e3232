"""Where the compiled tracer lies, and how a process is made to load it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

INJECTION_VARIABLE: Final = "CUDA_INJECTION64_PATH"
"""The environment variable whose library libcuda loads in ``cuInit``. It holds one path: if it is set, leave it."""

NVTX_VARIABLE: Final = "NVTX_INJECTION64_PATH"
"""The same for NVTX, at a program's first NVTX call: the tracer counts ranges that are named as steps."""

LIBRARY_NAME: Final = "libtrueload_tracer.so"


def library_path(architecture: str | None = None) -> Path:
    """Give the tracer for ``architecture`` (as ``uname -m`` says; by default this machine's); it may not exist.

    It is built for x86_64 and aarch64 by every install (``build_native.py``); a missing file means an install from
    sources that were never built.
    """
    return Path(__file__).with_name("lib") / (architecture or platform.machine()) / LIBRARY_NAME

"""Compile the C parts, for an install (as hatchling's build hook) and by hand (``python build_native.py``).

``ziglang``, a build requirement, brings a C compiler that builds for both architectures and an old glibc from any
machine. What it makes is data to Python: libraries that ctypes or another program's loader opens, nothing that the
interpreter imports or that depends on its version. A wheel carries them for all architectures and stays
``py3-none-any``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent

TARGETS = {"x86_64": "x86_64-linux-gnu.2.17", "aarch64": "aarch64-linux-gnu.2.17"}
"""What ``uname -m`` says, and what zig calls it. glibc 2.17 (2012) is the oldest that supported clusters run."""

FLAGS = (
    *("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-s"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror"),
)


class NativeLibrary(NamedTuple):
    """One shared library: all ``*.c`` of ``folder`` (below the root) become ``folder/lib/ARCHITECTURE/output``.

    ``output`` is the soname too, so that a program which asks its loader for that name finds the one already loaded.
    """

    folder: str
    output: str


LIBRARIES = (
    NativeLibrary("collector/simulate/native", "libnvidia-ml.so.1"),
    NativeLibrary("collector/tracer", "libtrueload_tracer.so"),
    NativeLibrary("collector/simulate/cupti", "libtrueload_tracer_bench.so"),
)


class NativeBuildError(RuntimeError):
    """A library could not be compiled; the message holds what the compiler said."""


class CustomBuildHook(BuildHookInterface[Any]):
    """Compile before a wheel or an editable install is put together; a source distribution carries the C files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile what is out of date and have the wheel take it, though git ignores it."""
        del version  # a wheel and an editable install need the same files
        if self.target_name == "wheel":
            build(Path(self.root))
            build_data["artifacts"] += [f"/{library.folder}/lib/*/{library.output}" for library in LIBRARIES]


def build(root: Path, libraries: tuple[NativeLibrary, ...] = LIBRARIES) -> list[Path]:
    """Compile every library for every architecture, except those that are newer than all they are made of.

    Returns:
        The files that were made anew.

    Raises:
        NativeBuildError: the compiler is missing or refuses a source.
    """
    stale = [
        (library, architecture)
        for library in libraries
        for architecture in TARGETS
        if not _is_current(output_path(root, library, architecture), _inputs(root, library))
    ]
    with ThreadPoolExecutor(max_workers=len(TARGETS)) as compilers:
        return list(compilers.map(lambda job: _compile(root, *job), stale))


def output_path(root: Path, library: NativeLibrary, architecture: str) -> Path:
    """Where the library for one architecture lies."""
    return root / library.folder / "lib" / architecture / library.output


def _inputs(root: Path, library: NativeLibrary) -> list[Path]:
    folder = root / library.folder
    return [*folder.glob("*.c"), *folder.glob("*.h"), Path(__file__)]


def _is_current(output: Path, inputs: list[Path]) -> bool:
    return output.exists() and output.stat().st_mtime_ns > max(path.stat().st_mtime_ns for path in inputs)


def _compile(root: Path, library: NativeLibrary, architecture: str) -> Path:
    output = output_path(root, library, architecture)
    output.parent.mkdir(parents=True, exist_ok=True)
    # Compiled aside and renamed: nobody loads half a library, and a process that has the old one mapped keeps it.
    unfinished = output.with_name(f".{library.output}.{os.getpid()}")
    sources = sorted(str(path) for path in (root / library.folder).glob("*.c"))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[architecture], *FLAGS]
    command += [f"-Wl,-soname,{library.output}", "-o", str(unfinished), *sources]
    try:
        done = subprocess.run(command, env=_environment(root), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NativeBuildError(
                f"{library.folder} for {architecture}: the C compiler failed (pip install ziglang, if it is missing):\n"
                f"{done.stderr.strip()}"
            )
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return output


def _environment(root: Path) -> dict[str, str]:
    """The environment of the compiler: its cache goes into the tree where there is no home to write to."""
    environment = dict(os.environ)
    home = Path(environment.get("XDG_CACHE_HOME") or environment.get("HOME") or "/nonexistent")
    if not os.access(home, os.W_OK):
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(root / "build" / "zig-cache"))
        environment.setdefault("ZIG_LOCAL_CACHE_DIR", environment["ZIG_GLOBAL_CACHE_DIR"])
    return environment


def main() -> None:
    """Compile and name what was made."""
    for path in build(ROOT):
        sys.stdout.write(f"made {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()

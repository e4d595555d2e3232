"""The environment in which a program is traced, and becoming that program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from collector.tracer.library import INJECTION_VARIABLE, NVTX_VARIABLE, library_path
from collector.tracer.settings import DUTY_OFF_SECONDS, DUTY_ON_SECONDS
from warehouse.contract.errors import TrueloadError
from warehouse.contract.settings import Settings

DUTY_VARIABLE: Final = "TRUELOAD_TRACER_DUTY_SECONDS"


class CannotRunError(TrueloadError):
    """The program is not there (exit code 127) or cannot be run (126), as shells say it."""

    def __init__(self, program: str, cause: OSError) -> None:
        """Say which program, and why."""
        self.exit_code = 127 if isinstance(cause, FileNotFoundError) else 126
        super().__init__(f"{program}: cannot be run ({cause.strerror})")


def traced_environment(
    environment: Mapping[str, str], settings: Settings, library: Path | None = None
) -> tuple[dict[str, str], list[str]]:
    """Give the environment of a traced program, and a line for each thing that had to be left as it is.

    Whatever the environment says already stays: another tool that is named there keeps its place.
    """
    library = library or library_path()
    if not library.exists():
        return dict(environment), [f"{library}: not compiled; the program runs untraced. Install trueload anew"]
    traced, notes = dict(environment), []
    for variable, loss in (
        (INJECTION_VARIABLE, "is not traced"),
        (NVTX_VARIABLE, "has no NVTX ranges counted as steps"),
    ):
        taken = traced.get(variable)
        if not taken:
            traced[variable] = str(library)
        elif not _is_same(taken, library):
            notes.append(f"{variable} is taken by {taken}; it is left alone, and the program {loss}")
    if settings[DUTY_OFF_SECONDS]:
        traced.setdefault(DUTY_VARIABLE, f"{settings[DUTY_ON_SECONDS]:g}/{settings[DUTY_OFF_SECONDS]:g}")
    return traced, notes


def _is_same(path: str, library: Path) -> bool:
    try:
        return Path(path).samefile(library)
    except OSError:
        return False


def become(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Become the program: the same process, so that signals, exit code and process id are its own.

    Raises:
        CannotRunError: it is not there, or cannot be run.
    """
    try:
        os.execvpe(command[0], list(command), dict(environment))  # noqa: S606 - the point of it
    except OSError as cause:
        raise CannotRunError(command[0], cause) from cause

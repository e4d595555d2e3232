"""Is the binding of the driver installed, and nothing that stands in its way?"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from collector.doctor.check import Check, Finding, Site, Stage


def _run(_site: Site) -> Iterator[Finding]:
    own = _version("nvidia-ml-py")
    if own is None:
        yield Finding(
            "nvidia-ml-py is not installed",
            ok=False,
            reason="the agent reads the driver through it",
            fix="pip install 'trueload[agent]'",
            needed=True,
        )
    else:
        yield Finding(f"nvidia-ml-py {own}", needed=True)
    other = _version("pynvml")
    if other is not None:
        yield Finding(
            f"pynvml {other}",
            ok=False,
            reason="a deprecated package of the module's name: old releases overwrite nvidia-ml-py's module",
            fix="pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py",
        )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


CHECK = Check("binding", "whether nvidia-ml-py is installed", Stage.NODE, _run)

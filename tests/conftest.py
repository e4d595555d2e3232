"""What every test may ask for: the sample data, a browser, a free port; and what may not be skipped in CI."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long one example takes says how busy the machine is, not whether a law holds.
settings.register_profile("trueload", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trueload")

REPOSITORY = Path(__file__).resolve().parents[1]
NEEDS_PACKAGE = "needs Debian package"


@pytest.fixture(scope="session")
def repository() -> Path:
    """Give the root of the working tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Give the folder of sample data (TRUELOAD_DATA_ROOT, else ../shared/data), or skip where there is none."""
    root = Path(os.environ.get("TRUELOAD_DATA_ROOT") or REPOSITORY.parent / "shared" / "data").resolve()
    if not root.is_dir():
        pytest.skip(f"needs the sample data: no folder {root}; set TRUELOAD_DATA_ROOT")
    return root


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of a Chromium for browser tests, or skip where none is installed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip(f"{NEEDS_PACKAGE} chromium")
    return found


@pytest.fixture
def free_port() -> int:
    """Give a TCP port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _must_run(reason: str) -> bool:
    return NEEDS_PACKAGE in reason and os.environ.get("TRUELOAD_REQUIRE_ALL") == "1"


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With TRUELOAD_REQUIRE_ALL=1, turn a skip for want of a Debian package into a failure: CI runs everything."""
    if report.skipped and isinstance(report.longrepr, tuple) and _must_run(report.longrepr[2]):
        report.outcome = "failed"
        report.longrepr = f"TRUELOAD_REQUIRE_ALL=1 forbids this skip. {report.longrepr[2]}"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name cases of bytes by their argument: what is packed holds the time, and names must not change with it."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See _forbid_skip."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """See _forbid_skip, for modules that skip themselves as a whole."""
    report = yield
    _forbid_skip(report)
    return report

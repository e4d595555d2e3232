"""The test bed, compiled once per session."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import build_native
from tests.collector.tracer.testbed import ZIG, Bench, build_tracer, compile_testbed


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Give the test bed with the tracer as it is shipped."""
    build_tracer()
    (library,) = (entry for entry in build_native.LIBRARIES if entry.folder == "collector/tracer")
    tracer = build_native.output_path(build_native.ROOT, library, platform.machine())
    return compile_testbed(tmp_path_factory.mktemp("testbed"), ZIG, tracer)


def _sanitized(folder: Path, sanitizers: str) -> Bench:
    if shutil.which("gcc") is None:
        pytest.skip("needs Debian package gcc")
    compiler = ["gcc", "-O1", "-fno-omit-frame-pointer", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    works = subprocess.run([*compiler, str(probe), "-o", str(folder / "probe")], capture_output=True, check=False)
    if works.returncode != 0:
        pytest.skip("needs Debian package gcc (with libgcc-dev, which brings the sanitizers)")
    return compile_testbed(folder, compiler)


@pytest.fixture(scope="session")
def address_testbed(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Give the test bed under AddressSanitizer and UndefinedBehaviorSanitizer."""
    return _sanitized(tmp_path_factory.mktemp("address"), "address,undefined")


@pytest.fixture(scope="session")
def thread_testbed(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Give the test bed under ThreadSanitizer."""
    return _sanitized(tmp_path_factory.mktemp("thread"), "thread")

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import build_native
from build_native import LIBRARIES, TARGETS, NativeBuildError, NativeLibrary, build, output_path

MACHINE_IN_ELF_HEADER = {"x86_64": 0x3E, "aarch64": 0xB7}
PROBE = NativeLibrary("native", "libprobe.so.1")
SOURCE = 'int probe(void);\n__attribute__((visibility("default"))) int probe(void) { return 7; }\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with one tiny library."""
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "probe.c").write_text(SOURCE)
    return tmp_path


def _outputs(tree: Path) -> list[Path]:
    return [output_path(tree, PROBE, architecture) for architecture in TARGETS]


def test_each_architecture_gets_its_library_under_its_soname(tree: Path) -> None:
    assert build(tree, (PROBE,)) == _outputs(tree)
    for architecture, machine in MACHINE_IN_ELF_HEADER.items():
        content = output_path(tree, PROBE, architecture).read_bytes()
        assert content[:4] == b"\x7fELF"
        assert int.from_bytes(content[18:20], "little") == machine
        assert b"\0libprobe.so.1\0" in content
    assert sorted(path.name for path in (tree / "native" / "lib").rglob("*") if path.is_file()) == ["libprobe.so.1"] * 2


def test_what_is_newer_than_its_sources_is_left_alone(tree: Path) -> None:
    build(tree, (PROBE,))
    assert build(tree, (PROBE,)) == []


@pytest.mark.parametrize("name", ["probe.c", "probe.h"])
def test_a_changed_source_or_header_is_compiled_anew(tree: Path, name: str) -> None:
    (tree / "native" / "probe.h").touch()
    build(tree, (PROBE,))
    made_at_ns = max(path.stat().st_mtime_ns for path in _outputs(tree))
    os.utime(tree / "native" / name, ns=(made_at_ns + 1, made_at_ns + 1))
    assert build(tree, (PROBE,)) == _outputs(tree)


def test_a_missing_library_alone_is_made_again(tree: Path) -> None:
    build(tree, (PROBE,))
    kept, lost = _outputs(tree)
    lost.unlink()
    assert build(tree, (PROBE,)) == [lost]
    assert kept.exists()


def test_a_warning_fails_the_build_and_the_old_library_stays(tree: Path) -> None:
    build(tree, (PROBE,))
    before = [path.read_bytes() for path in _outputs(tree)]
    source = tree / "native" / "probe.c"
    source.write_text(SOURCE.replace("return 7;", "int forgotten = 1; return 7;"))
    newest_ns = max(path.stat().st_mtime_ns for path in _outputs(tree))
    os.utime(source, ns=(newest_ns + 1, newest_ns + 1))
    with pytest.raises(NativeBuildError, match=r"native for x86_64(?s:.*)unused variable 'forgotten'"):
        build(tree, (PROBE,))
    assert [path.read_bytes() for path in _outputs(tree)] == before
    assert len([path for path in (tree / "native" / "lib").rglob("*") if path.is_file()]) == 2


def test_a_missing_compiler_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(NativeBuildError, match="pip install ziglang"):
        build(tree, (PROBE,))


def test_without_a_home_the_compilers_cache_goes_into_the_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tree / "nowhere"))
    environment = build_native._environment(tree)
    assert environment["ZIG_GLOBAL_CACHE_DIR"] == environment["ZIG_LOCAL_CACHE_DIR"] == f"{tree}/build/zig-cache"
    monkeypatch.setenv("HOME", str(tree))
    assert "ZIG_GLOBAL_CACHE_DIR" not in build_native._environment(tree)


@pytest.mark.parametrize("architecture", TARGETS)
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.output)
def test_our_libraries_need_no_glibc_newer_than_2_17_and_nothing_of_nvidia(
    library: NativeLibrary, architecture: str
) -> None:
    build(build_native.ROOT)
    content = output_path(build_native.ROOT, library, architecture).read_bytes()
    versions = {tuple(map(int, version)) for version in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)}
    assert versions
    assert max(versions) <= (2, 17)
    assert _needed(content) <= {b"libc.so.6", b"libdl.so.2", b"libpthread.so.0"}


def _needed(content: bytes) -> set[bytes]:
    """Read what the loader must find first (DT_NEEDED) from a 64-bit ELF file; names for dlopen stand elsewhere."""
    (program_headers,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    headers = [struct.unpack_from("<IIQQQQ", content, program_headers + n * size) for n in range(count)]
    (begin, length), *_ = ((offset, in_file) for kind, _, offset, _, _, in_file in headers if kind == 2)
    entries = list(struct.iter_unpack("<QQ", content[begin : begin + length]))
    strings = next(value for tag, value in entries if tag == 5)
    loaded = next(header for header in headers if header[0] == 1 and header[3] <= strings < header[3] + header[5])
    at = strings - loaded[3] + loaded[2]
    return {content[at + value : content.index(b"\0", at + value)] for tag, value in entries if tag == 1}


PROJECT = """
[build-system]
requires = ["hatchling", "ziglang"]
build-backend = "hatchling.build"

[project]
name = "probe"
version = "1"
requires-python = ">=3.11"

[tool.hatch.build.hooks.custom]
path = "build_native.py"

[tool.hatch.build.targets.wheel]
only-include = ["collector"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project like ours, with our build hook and our C sources, nothing built and the libraries ignored by git."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / ".gitignore").write_text("*.so\n*.so.1\n/dist/\n")
    shutil.copy(build_native.__file__, tmp_path)
    for library in LIBRARIES:
        source = build_native.ROOT / library.folder
        shutil.copytree(source, tmp_path / library.folder, ignore=shutil.ignore_patterns("lib"))
    return tmp_path


def _hatchling(project: Path, *arguments: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", "dist", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = (project / "dist").iterdir()
    return made


def test_a_wheel_carries_every_library_and_fits_every_machine(project: Path) -> None:
    wheel = _hatchling(project, "-t", "wheel")
    assert wheel.name == "probe-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as content:
        libraries = {name for name in content.namelist() if "/lib/" in name}
    assert libraries == {f"{lib.folder}/lib/{machine}/{lib.output}" for lib in LIBRARIES for machine in TARGETS}


def test_a_source_distribution_carries_the_sources_and_no_library(project: Path) -> None:
    build(project)
    with tarfile.open(_hatchling(project, "-t", "sdist")) as content:
        names = {name.removeprefix("probe-1/") for name in content.getnames()}
    assert {"build_native.py", "collector/simulate/native/nvml_standin.c"} <= names
    assert not [name for name in names if ".so" in name]
